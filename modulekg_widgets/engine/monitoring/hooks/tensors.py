"""The tensors of a module and of its calls, as far as they can be measured; and calls that are no training."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.torch_runtime.private import (
    MODULES,
    PARAMETERS,
    PARAMETRIZATIONS,
    FakeTensor,
    is_functorch_wrapped_tensor,
    tracing_state,
    transforms,
)
from modulekg_widgets.engine.torch_runtime.state import module_state, the_weight

_is_compiling = torch.compiler.is_compiling
_Tensor = torch.Tensor
PLAIN = (torch.Tensor, nn.Parameter)


def weight_of(module: nn.Module) -> nn.Parameter | None:
    """The module's own parameter `weight`, or the only one whose name ends so, as `in_proj_weight` of attention.

    None where it has none, several, or computes it from others.
    """
    own = module_state(module).get(PARAMETERS)
    if not isinstance(own, dict):
        return None  # TorchScript keeps its own
    parameter = the_weight(own)
    return None if parameter is None or torch.nn.parameter.is_lazy(parameter) else parameter


def is_computed(module: nn.Module) -> bool:
    """Whether the module's weight is made of other parameters, as by parametrize, prune or weight_norm."""
    state = module_state(module)
    made = (state.get(MODULES) or {}).get(PARAMETRIZATIONS)
    if made is not None and the_weight(module_state(made)[MODULES]) is not None:
        return True
    return isinstance(state.get("weight"), torch.Tensor)


def local(tensor: torch.Tensor) -> torch.Tensor | None:
    """The part of a tensor that lies on this rank, None where that is empty; of an ordinary tensor all of it."""
    if type(tensor) in PLAIN or not hasattr(tensor, "to_local"):
        return tensor
    own = tensor.to_local()  # type: ignore[attr-defined]
    return own if own.numel() else None


def first_tensor(values: Any, depth: int = 4) -> torch.Tensor | None:
    """The first tensor in nested lists, tuples, dicts and data classes; None without one that can be measured."""
    x = values[0] if type(values) is tuple and values else values
    if type(x) is _Tensor and x.dtype is torch.float32 and x.is_cpu and x.layout is torch.strided:
        return x  # mostly: between two layers the cache is cold, and what counts is how much is looked at
    if isinstance(values, torch.Tensor):
        return values if is_measurable(values) else None
    if dataclasses.is_dataclass(values) and not isinstance(values, dict):
        values = vars(values) if hasattr(values, "__dict__") else None
    if depth and isinstance(values, tuple | list | dict):
        for value in values.values() if isinstance(values, dict) else values:
            if isinstance(value, torch.Tensor):
                return value if is_measurable(value) else None
            found = first_tensor(value, depth - 1)
            if found is not None:
                return found
    return None


def is_measurable(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds floating or complex data of its own: no fake, batched or sparse one."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.layout is not torch.strided:
        return False
    if tensor.is_meta or is_functorch_wrapped_tensor(tensor):
        return False
    return type(tensor) in PLAIN or not _is_fake(tensor)


def is_rehearsal(args: tuple[Any, ...]) -> bool:
    """Whether a call only tries the module out: under a compiler, a tracer, vmap, or on tensors without data."""
    if transforms() is not None or tracing_state() is not None or _is_compiling():
        return True
    x = args[0] if args else None
    if type(x) is _Tensor:
        return x.is_meta
    for value in args:
        if isinstance(value, torch.Tensor):
            return value.is_meta or (type(value) not in PLAIN and _is_fake(value))
    return False


def _is_fake(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, FakeTensor)
