"""Running a model in float64 on rescaled weights, without noise."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from modulekg_widgets.engine.errors import TraceError, shown

if TYPE_CHECKING:
    from modulekg_widgets.engine.tracing.dataflow import DataNode

Tensor = torch.Tensor
State = dict[str, Tensor]


def rescaled(nodes: Sequence[DataNode], seed: int) -> State:
    """The tensors in float64: constant ones made random, matrices scaled to 1/sqrt(fan in)."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for node in nodes:
        tensor = node.tensor
        assert tensor is not None
        if tensor.is_meta:
            raise TraceError(f"{shown(node.label)} has no data on the meta device: verify needs a model with weights")
        value = tensor.detach()
        if not value.is_floating_point():
            state[node.label] = value.clone()
            continue
        value = value.double()
        constant = value.numel() > 1 and bool((value == value.reshape(-1)[0]).all())
        if node.is_buffer and not constant:
            state[node.label] = value.clone()  # tables such as rotary frequencies mean something
            continue
        noise = torch.rand(value.shape, generator=generator, dtype=torch.float64).to(value.device)
        if node.dim() < 2:
            value = 0.5 + noise if constant or not bool(value.isfinite().all()) else value * (0.5 + noise)
        else:
            if constant or not bool(value.isfinite().all()) or value.abs().max() < 1e-12:
                value = 2 * noise - 1
            fan_in = max(value[0].numel(), 1)
            value = value / value.square().mean().sqrt() / fan_in**0.5
        state[node.label] = value
    return state


class In(TorchDispatchMode):
    """Gives `dtype` wherever the code asks for another floating-point type."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        asked = kwargs.get("dtype")
        if isinstance(asked, torch.dtype) and asked.is_floating_point:
            kwargs = {**kwargs, "dtype": self.dtype}
        elif isinstance(asked, torch.dtype) and asked.is_complex:
            kwargs = {**kwargs, "dtype": self.dtype.to_complex()}
        if func._schema.name in _NOISE:
            return _without_noise(func, args, kwargs)
        out = func(*args, **kwargs)
        # a tensor of the code's own, such as a constant, comes in the type that it was written in
        return cast(out, self.dtype) if isinstance(out, Tensor) and _makes(func) else out


_NOISE = {"aten::native_dropout", "aten::bernoulli", "aten::bernoulli_", "aten::uniform_", "aten::normal_",
          "aten::exponential_", "aten::rand_like", "aten::randn_like"}  # fmt: skip


def _without_noise(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What a random operator gives on average: noise that goes by position would hide whether the model does."""
    x, *rest = args
    if func._schema.name == "aten::native_dropout":
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    level = rest[0] if func._schema.name.startswith("aten::bernoulli") and rest and isinstance(rest[0], float) else 0.5
    if func._schema.name.endswith("_"):
        return x.fill_(level)
    return x.clone() if func._schema.name == "aten::bernoulli" and not rest else torch.full_like(x, level, **kwargs)


class BatchNormByHand(TorchFunctionMode):
    """Batch normalisation in its written-out form, which has a gradient in the running statistics too."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
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


def _makes(func: Any) -> bool:
    """Whether the operator makes a tensor of its own: a factory, or a constant of the code."""
    return func._schema.name in ("aten::lift_fresh", "aten::detach", "aten::alias") or not any(
        isinstance(argument.type, torch.TensorType) for argument in func._schema.arguments
    )


def cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() and tensor.dtype != dtype else tensor


@contextmanager
def seeded(seed: int, dtype: torch.dtype) -> Iterator[None]:
    """The same random numbers in every run (`untouched` puts the user's back), and `dtype` as the default."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(default)
