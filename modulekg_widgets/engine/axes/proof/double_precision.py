"""Runs of a model in float64 on rescaled weights without noise, for the proof."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from modulekg_widgets.engine.errors import TraceError, printable
from modulekg_widgets.engine.operators.arguments import Arguments
from modulekg_widgets.engine.operators.traits import DROPPED, FLIPPED, traits_of
from modulekg_widgets.engine.torch_runtime.caches import uncaptured_result
from modulekg_widgets.engine.torch_runtime.decompose import RECURRENT_OVERLOADS, OperatorMode
from modulekg_widgets.engine.torch_runtime.private import Overload, disable_current_modes, schema_of
from modulekg_widgets.engine.torch_runtime.pytree import Args, Function, Kwargs
from modulekg_widgets.engine.torch_runtime.rng import is_random, seeded_generator

if TYPE_CHECKING:
    from modulekg_widgets.engine.tracing.dataflow import DataNode

Tensor = torch.Tensor
State = dict[str, Tensor]
MIN_WEIGHT = 1e-12  # weights that are all smaller are no weights to go by
PROBE_SIZE = 64


def rescaled(nodes: Sequence[DataNode], seed: int) -> State:
    """The tensors in float64: constant ones made random, matrices scaled to 1/sqrt(fan in)."""
    generator = seeded_generator(seed)
    state: State = {}
    for node in nodes:
        tensor = node.tensor
        assert tensor is not None
        if tensor.is_meta:
            raise TraceError(
                f"{printable(node.label)} has no data on the meta device: verify needs a model with weights"
            )
        value = tensor.detach()
        if not value.is_floating_point():
            state[node.label] = value.clone()
            continue
        value = value.double()
        if value.layout is not torch.strided or value.is_nested or not value.numel():
            state[node.label] = value.clone()  # where its numbers stand means something
            continue
        constant = is_constant(value)
        if node.is_buffer_like and not constant:
            state[node.label] = value.clone()  # tables such as rotary frequencies mean something
            continue
        square = value.square().mean()  # finite where all values are
        usable = not constant and bool(square.isfinite())
        if node.dim() < 2:
            noise = 0.5 + _uniform(value, generator)
            value = value * noise if usable else noise
        else:
            if not usable or (square.sqrt() < MIN_WEIGHT and value.abs().max() < MIN_WEIGHT):
                value = 2 * _uniform(value, generator) - 1
                square = value.square().mean()
            fan_in = max(value[0].numel(), 1)
            value = value / (square.sqrt() * fan_in**0.5)
        state[node.label] = value
    return state


def is_constant(value: Tensor) -> bool:
    """True if all elements of a tensor are equal; the first elements decide most cases."""
    flat = value.reshape(-1)
    return flat.numel() > 1 and bool((flat[:PROBE_SIZE] == flat[0]).all()) and bool((flat == flat[0]).all())


def _uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    """Numbers from 0 to 1 in float64, the same ones on every device."""
    return torch.rand(like.shape, generator=generator, dtype=torch.float64, device="cpu").to(like.device)


class ForceDtype(OperatorMode):
    """A mode that replaces every floating-point dtype that the code requests by `dtype`."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_dispatch__(
        self, func: Overload, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        kwargs = kwargs or {}
        if func in RECURRENT_OVERLOADS:  # asks for no type, and draws nothing
            with disable_current_modes():
                return func(*args, **kwargs)
        made = _is_factory(func)
        if made:
            kept = uncaptured_result(func, args, kwargs)
            if kept is not None:
                return kept
        if not (made and is_random(func)):  # what is drawn in another type is something else
            kwargs = self._in_dtype(kwargs)
        if noise := traits_of(func).noise:
            return _without_noise(noise, func, args, kwargs)
        if torch.Tag.pointwise in func.tags and _has_only_integers(args):
            # of integers floating-point numbers would come in the default type
            out = func(*args, **kwargs)
            exact = isinstance(out, Tensor) and out.is_floating_point() and out.dtype != self.dtype
            return func(*_cast_all(args, self.dtype), **kwargs) if exact else out
        out = func(*args, **kwargs)
        # a tensor of the code's own, such as a constant, comes in the type that it was written in
        return cast(out, self.dtype) if isinstance(out, Tensor) and made else out

    def _in_dtype(self, kwargs: Kwargs) -> dict[str, Any]:
        asked = kwargs.get("dtype")
        if isinstance(asked, torch.dtype) and asked.is_floating_point:
            return {**kwargs, "dtype": self.dtype}
        if isinstance(asked, torch.dtype) and asked.is_complex:
            return {**kwargs, "dtype": self.dtype.to_complex()}
        return kwargs


def _has_only_integers(args: Args) -> bool:
    """True if an operator gets tensors, and all of them hold integers."""
    given = [argument for argument in args if isinstance(argument, Tensor)]
    return bool(given) and not any(t.is_floating_point() or t.is_complex() for t in given)


def _cast_all(args: Args, dtype: torch.dtype) -> list[Any]:
    return [argument.to(dtype) if isinstance(argument, Tensor) else argument for argument in args]


def _without_noise(noise: str, func: Overload, args: Args, kwargs: Kwargs) -> Any:
    """Runs a random operator and returns its expected value: positional noise would break equivariance."""
    drawn = func(*args, **kwargs)  # what is drawn next goes by how many draws came before
    call = Arguments(func, args, kwargs)
    if noise == DROPPED:
        x = call["input"]
        return x.clone() if isinstance(drawn, Tensor) else (x.clone(), torch.ones_like(x, dtype=torch.bool))
    x, p = call["self"], call.get("p")
    level = p if noise == FLIPPED and isinstance(p, float) else 0.5
    if schema_of(func).is_mutable:
        return x.fill_(level)
    return x.clone() if noise == FLIPPED and p is None else torch.full_like(x, level, **kwargs)


class DecomposedBatchNorm(TorchFunctionMode):
    """Batch normalisation in its written-out form, which has a gradient in the running statistics too."""

    def __torch_function__(
        self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        if func is torch.nn.functional.batch_norm:
            given = inspect.signature(func).bind(*args, **(kwargs or {}))
            given.apply_defaults()
            values = given.arguments
            if values["running_mean"] is not None and not values["training"]:
                return _batch_norm(*(values[name] for name in _BATCH_NORM))
            if values["running_mean"] is not None:
                # in training they are written, not read
                values["running_mean"], values["running_var"] = (
                    values[name].detach() for name in ("running_mean", "running_var")
                )
            return func(*given.args, **given.kwargs)
        return func(*args, **(kwargs or {}))


_BATCH_NORM = ("input", "running_mean", "running_var", "weight", "bias", "eps")


def _batch_norm(
    x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    shape = [1, -1] + [1] * (x.dim() - 2)
    out = (x - mean.view(shape)) * (variance.view(shape) + eps).rsqrt()
    out = out if weight is None else out * weight.view(shape)
    return out if bias is None else out + bias.view(shape)


def _is_factory(func: Overload) -> bool:
    """True if an operator creates a tensor: a factory, or a constant in the code."""
    return traits_of(func).is_bookkeeping or not any(
        isinstance(argument.type, torch.TensorType) for argument in schema_of(func).arguments
    )


def cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() and tensor.dtype != dtype else tensor
