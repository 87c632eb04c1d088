"""Function modes that keep attention off its fast path and recurrent layers whole or decomposed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache, partial
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from modulekg_widgets.engine.torch_runtime.private import (
    HigherOrderOperator,
    Overload,
    TorchDispatchMode,
    attention_as_products,
    count_compiled_frames,
    decompositions,
    is_innermost,
    kernel_in_parts,
    recurrent_steps,
    scan_in_parts,
    without_innermost_dispatch_mode,
)
from modulekg_widgets.engine.torch_runtime.pytree import Args, Function, Kwargs, tensors, with_tensors

# --------------------
# Higher-order operators, such as cond, scan and flex_attention, as the basic operators that they run.


class OperatorMode(TorchDispatchMode):
    """A mode that sees every operator that runs, also those inside of what takes functions.

    `tries_branches`: both branches of a choice run, and the result is chosen between theirs; else the one that is
    chosen runs.
    """

    supports_higher_order_operators = True
    runs_both_branches = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "__torch_dispatch__" in vars(cls):
            cls.__torch_dispatch__ = _with_decomposition(cls.__torch_dispatch__)
        super().__init_subclass__(**kwargs)  # torch keeps the compiler out of what stands there

    def __init__(self) -> None:
        super().__init__()
        self._counts: list[int] = []

    def on_enter_operator(self, name: str) -> None:
        """An operator that takes functions is about to run."""

    def __enter__(self) -> Any:
        # a mode keeps torch from compiling; that would end a call that has to be compiled as a whole
        self._counts.append(count_compiled_frames(0))
        return super().__enter__()

    def __exit__(self, *error: object) -> Any:
        count_compiled_frames(self._counts.pop())
        return super().__exit__(*error)


def _with_decomposition(dispatch: Function) -> Function:
    def answer(self: OperatorMode, func: Overload, types: object, args: Args = (), kwargs: Any = None) -> Any:
        if isinstance(func, HigherOrderOperator):
            self.on_enter_operator(func.name())
            with self:
                return decompose_higher_order(func, args, kwargs or {}, self.runs_both_branches)
        return dispatch(self, func, types, args, kwargs)

    return answer


def decompose_higher_order(func: Overload, args: Args, kwargs: Kwargs, runs_both_branches: bool) -> Any:
    """Runs a higher-order operator as its basic operators; raises `NotImplementedError` for unknown ones."""
    name = func.name()
    if name == "cond":
        return _run_both_branches(*args, **kwargs) if runs_both_branches else _run_branch(*args, **kwargs)
    if name == "scan":
        return scan_in_parts(*args, **kwargs)
    kernel = kernel_in_parts(func)
    if kernel is None:
        raise NotImplementedError(f"the operators that {name} is made of are not known")
    return kernel(*args, **kwargs)


def _run_branch(pred: Any, true_fn: Function, false_fn: Function, operands: Sequence[Any]) -> Any:
    return true_fn(*operands) if pred else false_fn(*operands)


def _run_both_branches(pred: Any, true_fn: Function, false_fn: Function, operands: Sequence[Any]) -> Any:
    """The results of both branches, of which a tensor says which one counts."""
    if not isinstance(pred, torch.Tensor):
        return _run_branch(pred, true_fn, false_fn, operands)
    yes, no = true_fn(*operands), false_fn(*operands)
    others = [tensor for _, tensor in tensors(no)]
    given = [tensor for _, tensor in tensors(yes)]
    if [(t.shape, t.dtype) for t in given] != [(t.shape, t.dtype) for t in others]:
        shapes = " and ".join(str([list(t.shape) for t in each]) for each in (given, others))
        raise RuntimeError(f"the branches of torch.cond give tensors of other shapes or types: {shapes}")
    first, rest = pred.reshape(()), iter(others)
    return with_tensors(yes, lambda tensor: torch.where(first, tensor, next(rest)))


# ----------------------------------------


class AttentionSlowPath(TorchFunctionMode):
    """Keeps torch's attention layers off their fused path, on which they call no module: that a mode is on does it."""

    def __torch_function__(
        self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        return func(*args, **(kwargs or {}))


class MathAttention(AttentionSlowPath):
    """Runs attention as matrix products, which have second derivatives."""

    def __torch_function__(
        self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        name = getattr(func, "__name__", None)
        if name == "scaled_dot_product_attention":
            return _attention(*args, **(kwargs or {}))
        if name == "multi_head_attention_forward":
            return _attention_layer(func)(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _attention(*args: object, **kwargs: object) -> torch.Tensor:
    return attention_as_products(*args, **kwargs)[0]


def _attention_layer(func: FunctionType) -> FunctionType:
    """Returns torch's attention function with the math attention in its globals."""
    own = {"scaled_dot_product_attention": _attention, "has_torch_function": lambda _: False}
    return FunctionType(func.__code__, {**func.__globals__, **own}, None, func.__defaults__, func.__closure__)


class DecomposedLayers(AttentionSlowPath):
    """Runs recurrent layers step by step as well."""

    def __torch_function__(
        self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        if getattr(func, "__name__", None) in _RECURRENT and func in _recurrent_decompositions():
            return _recurrent_decompositions()[func](*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


class WholeRecurrentLayers(AttentionSlowPath):
    """Hands the calls of torch's recurrent layers to a mode of operators whole, as it would get any other operator.

    Each layer is a call, so that what lies between two of them is seen. What other code makes of the functions is not
    heard.
    """

    def __init__(self, mode: OperatorMode) -> None:
        super().__init__()
        self._mode = mode

    def __torch_function__(
        self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        name = getattr(func, "__name__", None)
        if name not in _RECURRENT or kwargs or sys._getframe(1).f_code not in _LAYERS or not is_innermost(self._mode):
            return func(*args, **(kwargs or {}))
        packed = isinstance(args[3], list | tuple)
        overload = getattr(getattr(torch.ops.aten, name), "data" if packed else "input")
        return self._in_layers(overload, *args) if args[5 if packed else 4] > 1 else self._whole(overload, args)

    def _whole(self, overload: Overload, args: Sequence[Any]) -> Any:
        with without_innermost_dispatch_mode():
            return self._mode.__torch_dispatch__(overload, (), tuple(args), {})

    def _in_layers(self, overload: Overload, *args: Any) -> Any:
        """Layer by layer, with dropout between two of them; time comes first from the second one on."""
        at = 2 if isinstance(args[3], list | tuple) else 1
        given, below = list(args), args[0]
        hx, params, _, layers, dropout, train, bidirectional = args[at : at + 7]
        transposed = at == 1 and bool(args[8])
        states = list(hx) if isinstance(hx, list | tuple) else [hx]
        directions, count = (2 if bidirectional else 1), len(params) // layers
        last: list[list[torch.Tensor]] = [[] for _ in states]
        for layer in range(layers):
            own = [state.narrow(0, layer * directions, directions) for state in states]
            given[0] = torch.dropout(below, dropout, train) if layer and dropout and train else below
            given[at] = own if len(own) > 1 else own[0]
            given[at + 1] = params[layer * count : (layer + 1) * count]
            given[at + 3], given[at + 4] = 1, 0.0
            below, *after = self._whole(overload, given)
            if transposed and layer == 0:
                given[8], below = False, below.transpose(0, 1)
            for every, one in zip(last, after, strict=True):
                every.append(one)
        return (below.transpose(0, 1) if transposed else below, *(torch.cat(every) for every in last))


def recurrent_layer_on_meta(overload: Overload, args: Args) -> Any:
    """Runs the first time step of a recurrent layer on meta tensors, and returns results for all steps."""
    x, batch_first = args[0], bool(args[8])
    time = 1 if batch_first else 0
    if x.dim() != 3 or x.shape[time] < 2:
        return overload(*args)
    out, *states = overload(x.narrow(time, 0, 1), *args[1:])
    steps, samples, width = x.shape[time], x.shape[1 - time], out.shape[-1]
    whole = out.new_empty((steps, samples, width))
    return (whole.transpose(0, 1) if batch_first else whole, *states)


RECURRENT_OVERLOADS = {getattr(getattr(torch.ops.aten, name), kind)
                       for name in ("lstm", "gru", "rnn_tanh", "rnn_relu") for kind in ("input", "data")}  # fmt: skip
_LAYERS = {layer.forward.__code__ for layer in (nn.LSTM, nn.GRU, nn.RNN)}
_RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}


@cache
def _recurrent_decompositions() -> dict[Any, Any]:
    torchs = decompositions()
    found = {}
    for name, on_tensors, on_packed in (
        ("lstm", partial(_lstm, torchs), torchs.lstm_data_impl),
        ("gru", torchs.gru_impl, torchs.gru_impl_data),
        ("rnn_tanh", torchs.rnn_tanh_input, torchs.rnn_tanh_data),
        ("rnn_relu", torchs.rnn_relu_input, torchs.rnn_relu_data),
    ):
        found[getattr(torch, name)] = partial(_select_by_packing, on_tensors, on_packed)
    return found


def _select_by_packing(on_tensors: Any, on_packed: Any, *args: object, **kwargs: object) -> Any:
    """Packed sequences come with the tensor of their batch sizes, the others with a flag in its place."""
    packed = isinstance(args[3], list | tuple)
    return (on_packed if packed else on_tensors)(*args, **kwargs)


def _lstm(
    torchs: Any, x: torch.Tensor, hidden: Any, weights: Any, has_biases: bool, layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    """torch's own decomposition without its choice of a fused layer."""
    h, c = hidden
    weights = torchs.gather_params(weights, has_biases, h.size(2) != c.size(2))
    out, last = recurrent_steps(torchs)(
        x, list(zip(h, c, strict=True)), weights, has_biases, layers, dropout, train, bidirectional, batch_first,
        torchs.one_layer_lstm,
    )  # fmt: skip
    return out, torch.stack([h for h, _ in last], 0), torch.stack([c for _, c in last], 0)
