"""Layers as the operators that they are made of, in this thread alone."""

from __future__ import annotations

from functools import cache, partial
from types import FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from modulekg_widgets.engine.torch_runtime.private import attention_as_products, decompositions, recurrent_steps


class PlainAttention(TorchFunctionMode):
    """Keeps torch's attention layers off their fused path, on which they call no module: that a mode is on does it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class MathAttention(PlainAttention):
    """Runs attention as matrix products, which have second derivatives."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", None)
        if name == "scaled_dot_product_attention":
            return _attention(*args, **(kwargs or {}))
        if name == "multi_head_attention_forward":
            return _layer(func)(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _attention(*args: Any, **kwargs: Any) -> torch.Tensor:
    return attention_as_products(*args, **kwargs)[0]


def _layer(func: FunctionType) -> FunctionType:
    """torch's function of attention layers, that calls the attention above: inside of it no mode is heard."""
    own = {"scaled_dot_product_attention": _attention, "has_torch_function": lambda _: False}
    return FunctionType(func.__code__, {**func.__globals__, **own}, None, func.__defaults__, func.__closure__)


class Unfused(PlainAttention):
    """Runs recurrent layers step by step as well."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", None) in _RECURRENT and func in _written_out():
            return _written_out()[func](*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


_RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}


@cache
def _written_out() -> dict[Any, Any]:
    torchs = decompositions()
    found = {}
    for name, on_tensors, on_packed in (
        ("lstm", partial(_lstm, torchs), torchs.lstm_data_impl),
        ("gru", torchs.gru_impl, torchs.gru_impl_data),
        ("rnn_tanh", torchs.rnn_tanh_input, torchs.rnn_tanh_data),
        ("rnn_relu", torchs.rnn_relu_input, torchs.rnn_relu_data),
    ):
        found[getattr(torch, name)] = partial(_either, on_tensors, on_packed)
    return found


def _either(on_tensors: Any, on_packed: Any, *args: Any, **kwargs: Any) -> Any:
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
