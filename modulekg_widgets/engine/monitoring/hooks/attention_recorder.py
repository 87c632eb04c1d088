"""Recording of attention calls: queries, keys and masks, by a TorchFunctionMode around a module call."""

from __future__ import annotations

import math
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.monitoring.measures.attention_logits import AttentionCall, AttentionLogits
from modulekg_widgets.engine.torch_runtime.modules import wrapper_classes
from modulekg_widgets.engine.torch_runtime.private import (
    CALL_CODE,
    compiled_call_of,
    compiler_stance,
    function_modes,
    has_one_projection,
    is_functorch_wrapped_tensor,
    pop_function_mode,
    push_function_mode,
)
from modulekg_widgets.engine.torch_runtime.pytree import Args, Function, Kwargs

Tensor = torch.Tensor
FAST_PATH = (
    "the module holds nn.MultiheadAttention or nn.TransformerEncoderLayer, whose fast path in eval mode shows no "
    "logits: watch the nn.MultiheadAttention itself, or call torch.backends.mha.set_fastpath_enabled(False)"
)
COMPILED = "a part of the module is compiled, and attention inside of compiled code cannot be seen"


class _UnreadableError(Exception):
    """An attention call whose queries and keys are no plain tensors."""


def _plain(tensor: Tensor) -> Tensor:
    """Returns `tensor` detached; raises if it is not strided memory."""
    kind = type(tensor)
    if kind not in (Tensor, nn.Parameter) or tensor.layout is not torch.strided or tensor.is_nested:
        raise _UnreadableError(f"the attention ran on {printable(kind.__name__)} of layout {tensor.layout}")
    if is_functorch_wrapped_tensor(tensor):
        raise _UnreadableError("the attention ran inside a torch.func transform")
    return tensor.detach()


def _from_sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> AttentionCall:
    """Returns the call of `scaled_dot_product_attention` with these arguments."""
    query, key = _plain(query), _plain(key)
    causal = 0 if is_causal else None
    bias: Any = sys.modules.get("torch.nn.attention.bias")  # importing it costs a second; without it no mask is one
    if bias is not None and isinstance(attn_mask, bias.CausalBias):
        is_upper = vars(attn_mask)["variant"] is bias.CausalVariant.UPPER_LEFT
        causal = 0 if is_upper else key.size(-2) - query.size(-2)
        attn_mask = None
    masks = () if attn_mask is None else (_plain(attn_mask),)
    if enable_gqa and query.size(-3) != key.size(-3):
        heads = key.size(-3)  # each serves the queries of as many heads that follow each other
        query, key = query.unflatten(-3, (heads, -1)), key.unsqueeze(-3)
        masks = tuple(_grouped(mask, heads) for mask in masks)
    return AttentionCall(query, key, masks, causal, 1 / math.sqrt(query.size(-1)) if scale is None else scale)


def _grouped(mask: Tensor, heads: int) -> Tensor:
    if mask.dim() < 3:
        return mask
    return mask.unsqueeze(-3) if mask.size(-3) == 1 else mask.unflatten(-3, (heads, -1))


def _from_multihead(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    *_: object,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    is_causal: bool = False,
    **__: object,
) -> AttentionCall:
    """Returns the call of `multi_head_attention_forward`, with its projections computed again."""
    query, key = (_plain(x if x.dim() == 3 else x.unsqueeze(1)) for x in (query, key))
    batch, width = query.shape[1:]
    of_query, of_key = q_proj_weight, k_proj_weight
    if not use_separate_proj_weight:
        assert in_proj_weight is not None
        of_query, of_key, _of_value = in_proj_weight.chunk(3)
    assert of_query is not None
    assert of_key is not None
    biases = (None, None) if in_proj_bias is None else [_plain(bias) for bias in in_proj_bias.chunk(3)]
    query, key = F.linear(query, _plain(of_query), biases[0]), F.linear(key, _plain(of_key), biases[1])
    if bias_k is not None:
        key = torch.cat([key, _plain(bias_k).expand(1, batch, width).to(key.dtype)])
    query, key = (x.reshape(len(x), batch, num_heads, -1).permute(1, 2, 0, 3) for x in (query, key))
    key = key if static_k is None else _plain(static_k).view(batch, num_heads, *static_k.shape[1:])
    if add_zero_attn:
        key = F.pad(key, (0, 0, 0, 1))
    hint = is_causal and key_padding_mask is None and not need_weights  # then torch goes by it and not by the mask
    masks = []
    if attn_mask is not None and not hint:
        masks.append(_visible(attn_mask).view(-1, 1 if attn_mask.dim() == 2 else num_heads, *attn_mask.shape[-2:]))
    if key_padding_mask is not None:
        masks.append(_visible(key_padding_mask).view(batch, 1, 1, -1))
    masks = [F.pad(mask, (0, key.size(-2) - mask.size(-1)), value=mask.dtype is torch.bool) for mask in masks]
    return AttentionCall(query, key, tuple(masks), 0 if hint else None, 1 / math.sqrt(query.size(-1)))


def _visible(mask: Tensor) -> Tensor:
    """Converts a mask of nn.MultiheadAttention (True hides) to one of SDPA (True shows)."""
    return ~_plain(mask) if mask.dtype is torch.bool else _plain(mask)


CALL_READERS: dict[object, Callable[..., AttentionCall]] = {
    F.scaled_dot_product_attention: _from_sdpa,
    torch.ops.aten.scaled_dot_product_attention: _from_sdpa,
    torch.ops.aten.scaled_dot_product_attention.default: _from_sdpa,
    F.multi_head_attention_forward: _from_multihead,
}


class _AttentionMode(TorchFunctionMode):
    """TorchFunctionMode that passes every call through and records attentions, for one call of one module."""

    def __init__(self, module: nn.Module, reason: str = "") -> None:
        super().__init__()
        self.calls: list[AttentionCall] = []
        self.reason = reason
        marks = (mark for running, mark in _module_calls() if running is module and mark is not None)
        mark = next(marks, None)
        self.mark = None if mark is None else weakref.ref(mark)

    def __torch_function__(
        self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        result = func(*args, **(kwargs or {}))
        if not torch.compiler.is_compiling() and func in CALL_READERS and self.is_running():
            self.note(CALL_READERS[func], args, kwargs or {})
        return result

    def note(self, reader: Callable[..., AttentionCall], args: Args, kwargs: Kwargs) -> None:
        try:
            with torch.no_grad():
                self.calls.append(reader(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - a metric never harms a training
            self.reason = _error_text(error)

    def is_running(self) -> bool:
        """True while the module call is on the stack; an interrupt ends it without a post-hook."""
        if self.mark is None:
            return True
        mark = self.mark()
        return mark is not None and any(other is mark for _, other in _module_calls())


def _module_calls() -> Iterator[tuple[object, object]]:
    """Yields the module calls on this thread's stack, innermost first, each with an object that marks it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is CALL_CODE:
            yield frame.f_locals.get("self"), frame.f_locals.get("called_always_called_hooks")
        frame = frame.f_back


def _error_text(error: Exception) -> str:
    if isinstance(error, _UnreadableError):
        return str(error)
    return f"the attention could not be read: {type(error).__name__}: {printable(str(error))}"


def _remove(listener: _AttentionMode) -> None:
    """Remove a mode from this thread's mode stack, at whatever position."""
    if not any(mode is listener for mode in function_modes()):
        return
    above = []
    while (mode := pop_function_mode()) is not listener:
        above.append(mode)
    for mode in reversed(above):
        push_function_mode(mode)


def remove_interrupted() -> None:
    """Remove modes of interrupted calls from this thread's mode stack."""
    for mode in list(function_modes()):
        if isinstance(mode, _AttentionMode) and not mode.is_running():
            _remove(mode)


# --------------------------------------------------------------- the watch


class AttentionRecorder:
    """Recorder of the attentions in calls of a module: `enter` before the forward, `leave` after it.

    `scaled_dot_product_attention` and nn.MultiheadAttention are seen, directly or in submodules, except in what is
    compiled. An interrupt, after which `leave` is not called, is made good by any later `enter`, and by
    `remove_interrupted`.
    """

    def __init__(self, module: nn.Module) -> None:
        self._is_multihead = type(module).forward is nn.MultiheadAttention.forward
        self._open: dict[int, list[_AttentionMode]] = {}  # of each thread; a recursive module has several

    def enter(self, module: nn.Module, args: Args) -> None:
        """Begin to record, in the forward pre-hook."""
        if torch.compiler.is_compiling():
            return
        remove_interrupted()
        opened = self._open.setdefault(threading.get_ident(), [])
        opened[:] = [listener for listener in opened if listener.is_running()]
        listener = _AttentionMode(module, _unrecordable_reason(module))
        opened.append(listener)
        if not listener.reason:
            push_function_mode(listener)

    def leave(self, module: nn.Module, args: Args, kwargs: Kwargs, output: object) -> AttentionLogits | None:
        """Returns the attentions of the call; None if there was none or the call raised."""
        if torch.compiler.is_compiling():
            return None
        opened = self._open.get(threading.get_ident())
        if not opened:
            return None
        listener = opened.pop()
        _remove(listener)
        if output is None:
            return None
        if listener.reason == FAST_PATH and self._is_multihead:
            listener.reason = ""
            listener.note(_from_module, (module, *args), kwargs)
        return AttentionLogits(listener.calls, listener.reason) if listener.calls or listener.reason else None


def _unrecordable_reason(module: nn.Module) -> str:
    """The reason not to record: a mode would trigger a recompilation, or disable the fast path."""
    if _is_compiled(module):
        return COMPILED
    return FAST_PATH if _may_take_fast_path(module) else ""


def _is_compiled(module: nn.Module) -> bool:
    """True if a submodule will run compiled code."""
    if compiler_stance() in (None, "force_eager"):
        return False
    return any(isinstance(part, wrapper_classes()) or compiled_call_of(part) for part in module.modules())


def _may_take_fast_path(module: nn.Module) -> bool:
    """True if a submodule may use the fused kernels of eval mode, which a mode disables."""
    if not torch.backends.mha.get_fastpath_enabled() or torch.is_autocast_enabled():
        return False
    kinds = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
    return any(isinstance(part, kinds) and _is_fast_path(part) for part in module.modules())


def _is_fast_path(part: nn.MultiheadAttention | nn.TransformerEncoderLayer) -> bool:
    attention = part if isinstance(part, nn.MultiheadAttention) else part.self_attn
    if part.training or not attention.batch_first or attention.num_heads % 2:
        return False
    return not (torch.is_grad_enabled() and any(weight.requires_grad for weight in attention.parameters()))


def _from_module(
    module: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> AttentionCall:
    """Returns the call of a module on its fast path, from its own arguments."""
    masks = [mask for mask in (attn_mask, key_padding_mask) if mask is not None]
    quick = query is key and key is value and query.dim() == 3 and all(mask.dtype is torch.bool for mask in masks)
    quick = quick and has_one_projection(module) and module.in_proj_bias is not None and not module.add_zero_attn
    quick = quick and module.bias_k is None and not (torch.is_grad_enabled() and query.requires_grad)
    if module.batch_first and query.dim() == 3:
        query, key = query.transpose(0, 1), key.transpose(0, 1)
    return _from_multihead(
        query, key, value, module.embed_dim, module.num_heads, module.in_proj_weight, module.in_proj_bias,
        module.bias_k, module.bias_v, module.add_zero_attn, key_padding_mask=key_padding_mask,
        need_weights=need_weights, attn_mask=attn_mask, is_causal=is_causal and not quick,
        use_separate_proj_weight=not has_one_projection(module), q_proj_weight=module.q_proj_weight,
        k_proj_weight=module.k_proj_weight,
    )  # fmt: skip
