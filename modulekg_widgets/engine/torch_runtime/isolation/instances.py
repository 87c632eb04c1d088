"""The attributes and slots of objects, and the creation of instances without running user code."""

from __future__ import annotations

import copy
import gc
import random
import sys
from collections import OrderedDict
from enum import Enum
from functools import lru_cache
from pathlib import PurePath
from types import GenericAlias, MappingProxyType, MemberDescriptorType, ModuleType, UnionType
from typing import Any

import torch

from modulekg_widgets.engine.torch_runtime.private import (
    C_EXTENSION,
    FakeTensor,
    FakeTensorMode,
    OpOverload,
    OpOverloadPacket,
)

HEAP_TYPE = 1 << 9  # the flag of a class that Python code made
SCALARS = frozenset((bool, int, float, str, type(None)))
STANDARD_CONTAINERS = frozenset((dict, OrderedDict, set, list))
# what has nothing inside that could change
IMMUTABLE_TYPES = (
    bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented), range, slice, type, ModuleType,
    MappingProxyType, GenericAlias, UnionType,
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, OpOverload,
    OpOverloadPacket, Enum, PurePath, FakeTensor, FakeTensorMode,
)  # fmt: skip
# their instances stand for something outside of the model
_EXTERNAL_MODULES = {
    "_thread", "asyncio", "concurrent", "contextvars", "io", "_io", "logging", "multiprocessing", "queue", "selectors",
    "socket", "subprocess", "tempfile", "threading", "torch.cuda", "torch.distributed", C_EXTENSION,
}  # fmt: skip

_STORING_MODULES = {"queue", "concurrent", "multiprocessing"}


def allocate(cls: type) -> Any:
    """An instance without contents; no code of a class of the user's runs."""
    base: Any = next(base for base in cls.__mro__ if not base.__flags__ & HEAP_TYPE)
    return base.__new__(cls)


def is_external(cls: type) -> bool:
    """True if instances represent resources outside of the model, such as files and threads."""
    names = cls.__module__ if isinstance(cls.__module__, str) else ""
    first, _, rest = names.partition(".")
    return first in _EXTERNAL_MODULES or f"{first}.{rest.partition('.')[0]}" in _EXTERNAL_MODULES


def stores_arguments(cls: type) -> bool:
    """True if instances are queues or pools, which store what forward passes to them."""
    return is_external(cls) and cls.__module__.partition(".")[0] in _STORING_MODULES


def has_native_state(cls: type) -> bool:
    """True if instances have their state in C: random generators, NumPy arrays and numbers."""
    return issubclass(cls, (torch.Generator, random.Random, *_numpy_classes()))


def clone(value: object) -> Any:
    """Another one in the same state."""
    if isinstance(value, torch.Generator):
        return value.clone_state()
    return copy.deepcopy(value) if type(value).__module__.startswith("numpy.random") else copy.copy(value)


def _numpy_classes() -> tuple[type, ...]:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return ()
    return (numpy.ndarray, numpy.generic, numpy.dtype, numpy.random.Generator, numpy.random.RandomState)


def is_plain_object(cls: type) -> bool:
    """True if the state of an instance is in attributes and slots alone."""
    return next(base for base in cls.__mro__ if not base.__flags__ & HEAP_TYPE) is object


def attributes(value: object) -> dict[Any, Any] | None:
    """The attributes of an object, None where it has none."""
    try:
        state = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return state if type(state) is dict else None


def has_attributes(tensor: torch.Tensor) -> bool:
    """True if a tensor has Python attributes, without creating its `__dict__`."""
    return any(type(part) is dict for part in gc.get_referents(tensor)) and bool(attributes(tensor))


@lru_cache(maxsize=4096)
def slots(cls: type) -> tuple[Any, ...]:
    """The slots of a class and of those above."""
    members = [member for base in cls.__mro__ if "__slots__" in base.__dict__ for member in base.__dict__.values()]
    return tuple(member for member in members if isinstance(member, MemberDescriptorType))


def apply_reduction(new: Any, state: Any, items: Any, pairs: Any) -> None:
    """The rest of what pickle does."""
    if state is not None:
        if hasattr(new, "__setstate__"):
            new.__setstate__(state)
        else:
            own, slotted = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
            new.__dict__.update(own or {})
            for name, part in (slotted or {}).items():
                setattr(new, name, part)
    if items is not None:
        new.extend(items)
    for key, part in pairs or ():
        new[key] = part
