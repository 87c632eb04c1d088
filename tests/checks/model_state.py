"""A copy of all that a look at a model must not change, in the model and in the process, to compare with."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules import module as torch_module

GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_forward_hooks_always_called",
                "_global_forward_hooks_with_kwargs", "_global_backward_hooks")  # fmt: skip
read_dict = nn.Module.__dict__["__dict__"].__get__


def surroundings() -> list[Any]:
    """What belongs to the process and not to a model."""
    return [
        torch.get_rng_state().tolist(),
        random.getstate(),
        [part.tolist() if isinstance(part, np.ndarray) else part for part in np.random.get_state()],
        [list(getattr(torch_module, name)) for name in GLOBAL_HOOKS],
        torch.backends.mha.get_fastpath_enabled(),
        torch._C._get_mkldnn_enabled(),
        torch.backends.cudnn.enabled,
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.is_autocast_cache_enabled(),
    ]


def contents(value: Any, seen: dict[int, Any]) -> Any:
    """A value with all that it holds, as something that compares: identities, and the bytes of tensors."""
    if isinstance(value, torch.Tensor):
        return id(value), tensor_facts(value)
    if id(value) in seen:
        return id(value)
    seen[id(value)] = value
    if isinstance(value, np.ndarray):
        return id(value), value.tobytes()
    if isinstance(value, dict):
        return id(value), [(id(key), contents(part, seen)) for key, part in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return id(value), [contents(part, seen) for part in value]
    if isinstance(value, nn.Module):
        return id(value), type(value), contents(read_dict(value), seen), slots(value, seen)
    state = getattr(value, "__dict__", None)
    return id(value), contents(state, seen) if type(state) is dict and not isinstance(value, type) else None


def slots(value: Any, seen: dict[int, Any]) -> list[Any]:
    names = [name for cls in type(value).__mro__ for name in cls.__dict__.get("__slots__", ())]
    return [(name, contents(object.__getattribute__(value, name), seen)) for name in names if is_set(value, name)]


def is_set(value: Any, name: str) -> bool:
    try:
        object.__getattribute__(value, name)
    except AttributeError:
        return False
    return True


def tensor_facts(tensor: torch.Tensor) -> Any:
    if type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.is_meta:
        return type(tensor)
    version = None if tensor.is_inference() else tensor._version
    gradient = None if tensor.grad is None else (id(tensor.grad), tensor.grad.numpy().tobytes())
    data = tensor.detach().resolve_conj().numpy().tobytes() if tensor.numel() < 1_000_000 else None
    return tuple(tensor.shape), tensor.stride(), tensor.data_ptr(), version, tensor.requires_grad, gradient, data


def modules_of(model: nn.Module) -> Iterator[nn.Module]:
    """All modules by a walk of its own, which needs no method of theirs."""
    seen: set[int] = set()
    waiting: list[Any] = [model]
    while waiting:
        module = waiting.pop()
        if module is None or id(module) in seen:
            continue
        seen.add(id(module))
        yield module
        if not isinstance(module, torch.jit.ScriptModule):
            waiting.extend(nn.Module.__dict__["__dict__"].__get__(module).get("_modules", {}).values())


def snapshot(model: nn.Module, *others: Any) -> list[Any]:
    """Everything that a trace must leave as it is."""
    seen: dict[int, Any] = {}
    state = [contents(module, seen) for module in modules_of(model) if not isinstance(module, torch.jit.ScriptModule)]
    return [state, [contents(other, seen) for other in others], surroundings()]


@contextmanager
def unchanged(model: nn.Module, *others: Any) -> Iterator[None]:
    """The body must leave the model, the other values and the process as they are, however it ends."""
    before = snapshot(model, *others)
    try:
        yield
    finally:
        assert not list(differences(before, snapshot(model, *others)))


def differences(before: Any, after: Any, place: str = "") -> Iterator[str]:
    """Where two snapshots differ, by the indices that lead there."""
    if isinstance(before, list | tuple) and type(before) is type(after) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{place}/{index}")
    elif before != after:
        yield f"{place}: {str(before)[:200]} became {str(after)[:200]}"
