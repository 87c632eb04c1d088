"""What the tests of this folder share: small modules, notebook cells, a copy of all that a tool must not change."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import torch
from torch import nn

import modulekg_widgets as mk
from checks.model_state import modules_of

_cells = count()


class Holder(nn.Module):
    """A module with any attributes, written past `__setattr__` so that modules and tensors stay plain attributes."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        self.__dict__.update(attributes)


class Outer(nn.Module):
    """A module with children under given names."""

    def __init__(self, **children: nn.Module | None) -> None:
        super().__init__()
        for name, child in children.items():
            self.register_module(name, child)


def digest(**attributes: Any) -> str:
    """The digest of a module with these attributes."""
    return mk.fingerprint(Holder(**attributes)).hexdigest


def same(left: nn.Module, right: nn.Module) -> bool:
    return mk.fingerprint(left) == mk.fingerprint(right)


def run_cell(source: str, name: str = "__main__", with_source: bool = True) -> dict[str, Any]:
    """The names that a notebook cell defines; without its source as `exec` leaves it."""
    file = f"<cell {next(_cells)}>"
    if with_source:
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": name, "nn": nn, "torch": torch}
    exec(compile(source, file, "exec"), namespace)
    return namespace


def trace_of(model: nn.Module) -> list[Any]:
    """All that a look at a model must leave as it was: attributes, hooks, flags, tensors, random numbers."""
    found: list[Any] = [torch.get_rng_state().tolist()]
    for module in modules_of(model):
        state = nn.Module.__dict__["__dict__"].__get__(module)
        found.append([(name, id(value)) for name, value in state.items()])
        found += [list(value) for name, value in state.items() if name.endswith("_hooks") and type(value) is not bool]
        if isinstance(module, torch.jit.ScriptModule):
            continue
        found.append(state.get("training"))
        for registry in ("_parameters", "_buffers"):
            found += [_trace_of_tensor(tensor) for tensor in state.get(registry, {}).values()]
    return found


def _trace_of_tensor(tensor: Any) -> Any:
    lazy = (nn.parameter.UninitializedParameter, nn.parameter.UninitializedBuffer)
    if tensor is None or isinstance(tensor, lazy) or tensor.is_meta:
        return id(tensor)
    content = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return id(tensor), tensor.data_ptr(), tensor.requires_grad, tensor.grad, content.view(torch.uint8).numpy().tobytes()


def untouched(model: nn.Module, look: Callable[[nn.Module], Any]) -> bool:
    """Whether `look` leaves the model as it was, also where it raises one of our errors."""
    before = trace_of(model)
    with suppress(mk.ModuleKGError):
        look(model)
    return trace_of(model) == before
