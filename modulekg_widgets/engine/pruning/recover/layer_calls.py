"""Layers as they run: which weight a call reads its input with, along which dimension, and what the call gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from modulekg_widgets.engine.operators.arguments import Arguments
from modulekg_widgets.engine.operators.signature import signature_of
from modulekg_widgets.engine.operators.traits import (
    CONVOLUTION,
    LINEAR,
    MATRIX_PRODUCT,
    VECTOR_PRODUCT,
    traits_of,
)
from modulekg_widgets.engine.torch_runtime.caches import tensors_in
from modulekg_widgets.engine.torch_runtime.higher_order import OperatorMode

Tensor = torch.Tensor
OTHER = "another operator, "
MOST_ROWS = 1 << 13  # of one call: samples and positions that are looked at


class Operands(NamedTuple):
    """The tensors of a layer's call, and the dimensions that count."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    reads: int  # the dimension of the weight along which it reads
    makes: int  # the one along which it makes its output
    x_at: int  # the channels of the input
    out_at: int  # and of the output


class LayerCall(NamedTuple):
    """One call of a layer whose weight is a parameter as a whole."""

    name: str  # of the weight
    bias: str | None  # the parameter that is added
    reads: int  # dimensions of the parameter
    makes: int
    x: Tensor
    x_at: int
    out: Tensor
    out_at: int
    again: Callable[[Tensor], Tensor]  # the output with another value of the parameter


class LayerWatch(OperatorMode):
    """Hands over the calls of layers whose weights are among some parameters, and notes how else these are used."""

    def __init__(self, tensors: Mapping[str, Tensor], take: Callable[[LayerCall], None]) -> None:
        super().__init__()
        self._take = take
        self._tensors = tensors
        self._names = {t.data_ptr(): name for name, t in tensors.items() if t.numel() and t.layout is torch.strided}
        self.uses: dict[str, set[str]] = {}  # by the name of a parameter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        known = [name for tensor in tensors_in([*args, *kwargs.values()]) if (name := self._name(tensor))]
        if not known or signature_of(func).views is not None:
            return out
        operands = _operands(func, args, kwargs)
        call = None if operands is None else self._call(func, args, kwargs, operands, out)
        for name in known:
            use = f"{OTHER}{func}"
            if call is not None and name in (call.name, call.bias):
                use = f"reads {call.reads}" if name == call.name else f"the bias of {call.name}"
            self.uses.setdefault(name, set()).add(use)
        if call is not None:
            self._take(call)
        return out

    def _name(self, tensor: Tensor) -> str | None:
        return self._names.get(tensor.data_ptr()) if tensor.layout is torch.strided and tensor.numel() else None

    def _call(self, func: Any, args: Any, kwargs: Any, operands: Operands, out: Any) -> LayerCall | None:
        weight = operands.weight
        name = self._name(weight)
        if name is None or not isinstance(out, Tensor):
            return None
        own = self._tensors[name]
        reads, makes = (_same_dimension(weight, at, own) for at in (operands.reads, operands.makes))
        if reads is None or makes is None or weight.numel() != own.numel() or weight.dtype != own.dtype:
            return None
        bias = None if operands.bias is None or operands.bias.dim() != 1 else self._name(operands.bias)

        def again(value: Tensor) -> Tensor:
            other = torch.empty_strided(own.shape, own.stride(), dtype=own.dtype, device=own.device).copy_(value)
            put = other.as_strided(weight.shape, weight.stride())
            changed = [put if each is weight else each for each in args]
            return func(*changed, **{key: put if each is weight else each for key, each in kwargs.items()})

        return LayerCall(name, bias, reads, makes, operands.x, operands.x_at, out, operands.out_at, again)


def _same_dimension(view: Tensor, at: int, own: Tensor) -> int | None:
    """The dimension of a tensor that is dimension `at` of a view of all of it."""
    size, stride = view.shape[at], view.stride(at)
    found = [dim for dim in range(own.dim()) if (own.shape[dim], own.stride(dim)) == (size, stride)]
    return found[0] if len(found) == 1 else None


def _operands(func: Any, args: Any, kwargs: Any) -> Operands | None:
    kind = traits_of(func).layer
    if kind not in (CONVOLUTION, LINEAR, MATRIX_PRODUCT, VECTOR_PRODUCT):
        return None
    call = Arguments(func, args, kwargs)
    if kind == CONVOLUTION:
        return _of_convolution(call)
    if kind == LINEAR:
        return (
            Operands(call["input"], call["weight"], call["bias"], -1, 0, -1, -1) if call["weight"].dim() == 2 else None
        )
    given = [each for each in args if isinstance(each, Tensor)]
    if len(given) < 2 or call.get("beta", 1) != 1 or call.get("alpha", 1) != 1:
        return None
    left, right = given[-2:]
    bias = given[0] if len(given) == 3 else None
    if kind == VECTOR_PRODUCT:
        return Operands(right, left, bias, 1, 0, -1, -1)
    if right.dim() == 2 and left.dim() >= 2:
        return Operands(left, right, bias, 0, 1, -1, -1)
    return None


def _of_convolution(call: Arguments) -> Operands | None:
    if not all(map(call.has, ("input", "weight", "bias", "groups", "transposed"))) or call["groups"] != 1:
        return None
    x, weight = call["input"], call["weight"]
    channels = x.dim() - (weight.dim() - 2) - 1
    reads, makes = (0, 1) if call["transposed"] else (1, 0)
    return Operands(x, weight, call["bias"], reads, makes, channels, channels)


def rows(tensor: Tensor, at: int) -> Tensor:
    """(rows, channels): the entries along dimension `at`, of some of the samples and positions, always the same."""
    moved = tensor.movedim(at, -1)
    flat = moved.reshape(-1, moved.shape[-1])
    step = -(-len(flat) // MOST_ROWS)
    return flat if step == 1 else flat[:: step | 1]  # odd, so that not one column of an image alone is met
