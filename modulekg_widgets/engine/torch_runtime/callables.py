"""Which functions lead to the state of a model: by what they close over, by defaults, by names of their module."""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import nn

_CONTAINERS = (dict, list, set, deque)
_WITHOUT_STATE = (
    bool, int, float, complex, str, bytes, type(None), type, ModuleType, torch.dtype, torch.device,
    torch._ops.OpOverload, torch._ops.OpOverloadPacket, range, slice,
)  # fmt: skip
MOST_SEEN = 10_000  # values behind one function; more are taken to lead to the model


def leads_to_state(value: Any, containers: bool = False) -> bool:
    """Whether a value leads to a module or tensor, a function by what it closes over and defaults; or to `containers`.

    Runs no code of the user's.
    """
    waiting: list[Any] = [value]
    entered: dict[int, Any] = {}
    while waiting:
        value = waiting.pop()
        if isinstance(value, _WITHOUT_STATE) or id(value) in entered:
            continue
        if isinstance(value, nn.Module | torch.Tensor) or len(entered) == MOST_SEEN:
            return True
        if containers and isinstance(value, _CONTAINERS):
            return True
        entered[id(value)] = value  # held, so that its address stays its own
        waiting += _inside(value)
    return False


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, FunctionType):
        yield from _held_by(value)
    elif isinstance(value, MethodType | BuiltinFunctionType):
        yield from (getattr(value, "__func__", None), value.__self__)
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, functools._lru_cache_wrapper):
        yield value.__wrapped__
    elif isinstance(value, weakref.ReferenceType):
        yield value()
    elif isinstance(value, dict):
        yield from (*value.keys(), *value.values())
    elif isinstance(value, list | tuple | set | frozenset | deque):
        yield from value.copy() if isinstance(value, _CONTAINERS) else value
    elif type(state := getattr(value, "__dict__", None)) is dict:
        yield from state.copy().values()


def _held_by(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # empty, as of a function that is not defined yet
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    yield from function.__dict__.values()


def names_of_state(function: FunctionType, containers: bool = False) -> list[str]:
    """The global names that a function uses for modules and tensors; in a notebook also for `containers`."""
    scope = function.__globals__
    kinds = (nn.Module, torch.Tensor, *(_CONTAINERS if containers and scope.get("__name__") == "__main__" else ()))
    return [name for name in _global_names(function.__code__) if isinstance(scope.get(name), kinds)]


@functools.lru_cache(maxsize=4096)
def _global_names(code: CodeType) -> tuple[str, ...]:
    inner = [name for part in code.co_consts if isinstance(part, CodeType) for name in _global_names(part)]
    return tuple(dict.fromkeys((*code.co_names, *inner)))
