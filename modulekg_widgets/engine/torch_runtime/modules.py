"""Modules as plain state: `__dict__`, registries and mode, read without running their code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

import torch
from torch import nn

from modulekg_widgets.engine.torch_runtime.private import BUFFERS, MODULES, ORIGINAL_MODULE, PARAMETERS, compiler_frames

Named = TypeVar("Named")
Attributes: TypeAlias = dict[str, Any]  # an object's own `__dict__`
# a module's own `__dict__`, by the descriptor itself: a class may define an attribute of that name, or a lying
# `__getattr__`, and neither has a say
module_state: Callable[[nn.Module], Attributes] = nn.Module.__dict__["__dict__"].__get__

STANDARD = frozenset(module_state(nn.Module())) - {"training"}  # what every module has
REGISTRIES = {PARAMETERS, BUFFERS}


def wrapper_classes() -> tuple[type, ...]:
    """The class of what `torch.compile` returns, once that part of torch is loaded."""
    frames = compiler_frames()
    return () if frames is None else (frames.OptimizedModule,)


def unwrapped(module: nn.Module) -> nn.Module:
    """Returns the module inside a `torch.compile` wrapper, or the module itself."""
    while issubclass(type(module), wrapper_classes()):
        module = module_state(module)[MODULES][ORIGINAL_MODULE]
    return module


def is_script(module: nn.Module) -> bool:
    """True for TorchScript modules, which are opaque: their children are created at each access."""
    return issubclass(type(module), torch.jit.ScriptModule)


def is_plain_module(cls: type) -> bool:
    """True if instances are modules, and neither compile wrappers nor TorchScript."""
    return issubclass(cls, nn.Module) and not issubclass(cls, (torch.jit.ScriptModule, *wrapper_classes()))


def registry(state: Attributes, name: str) -> Attributes:
    """Returns the parameters, buffers or children in a module's `__dict__`; empty before `__init__`."""
    return state.get(name) or {}


def registered_tensors(state: Attributes) -> dict[str, torch.Tensor]:
    """The parameters and buffers of one module by attribute."""
    own = {**registry(state, PARAMETERS), **registry(state, BUFFERS)}
    return {name: tensor for name, tensor in own.items() if isinstance(tensor, torch.Tensor)}


def main_weight(named: Mapping[str, Named]) -> Named | None:
    """The one that is named `weight`, or the only one whose name ends so."""
    found = named.get("weight")
    if found is None:
        others = [value for name, value in named.items() if name.endswith("weight") and value is not None]
        found = others[0] if len(others) == 1 else None
    return found


def set_mode(states: Iterable[Attributes], training: bool | None) -> None:
    """Put the modules of a copy into train or eval mode; None leaves each in its own."""
    if training is not None:
        for state in states:
            state["training"] = training


# --------------------
# Numbered children of a module: the elements of a list, or `expert_0`, `expert_1`, … of a dictionary.


class IndexedChildren(NamedTuple):
    """The numbered children of a module: `path`, and the prefix of their names."""

    path: str
    prefix: str  # of their names, empty in a list

    def path_of(self, number: int) -> str:
        """The path of one of them."""
        name = f"{self.prefix}{number}"
        return f"{self.path}.{name}" if self.path else name

    def split(self, path: str) -> tuple[int, str] | None:
        """Returns the number of the child that contains a path, and the path inside it; None for other paths."""
        start = f"{self.path}.{self.prefix}" if self.path else self.prefix
        number, _, rest = path.removeprefix(start).partition(".")
        return (int(number), rest) if path.startswith(start) and number.isdecimal() else None


def index_prefix(names: Iterable[str]) -> str | None:
    """Returns the common prefix of names that are numbered 0, 1, …; None for other names."""
    every = list(names)
    prefix = every[0].removesuffix("0") if every else ""
    return prefix if every == [f"{prefix}{at}" for at in range(len(every))] else None
