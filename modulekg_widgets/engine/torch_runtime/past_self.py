"""What code reaches past self: by global names, by what functions close over, and by what classes hold.

A look that runs such code must find copies there, as everywhere: what it keeps would serve the next real pass.
"""

from __future__ import annotations

import dis
import sys
from collections import deque
from collections.abc import Iterator
from functools import cached_property, lru_cache
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import torch
from torch import nn

CONTAINERS = (dict, list, set, deque)
_STATE = (nn.Module, torch.Tensor, *CONTAINERS)
_NOT_THE_USERS = {"torch", "modulekg_widgets", "builtins", *sys.stdlib_module_names}
_PROPERTIES = {property, cached_property}
_NOT_IN_A_PASS = {"__init__", "__new__", "__init_subclass__", "__del__", "__repr__", "__getstate__", "__setstate__"}
_WRITES = {"STORE_GLOBAL", "DELETE_GLOBAL"}
_OF_NAMES = {"LOAD_GLOBAL", "LOAD_NAME", "STORE_ATTR", *_WRITES}


class PastSelf:
    """What functions and classes reach, each asked once."""

    def __init__(self) -> None:
        self._reaches: dict[int, tuple[FunctionType, bool]] = {}
        self._of_class: dict[type, list[tuple[str, Any]]] = {}
        self._behind_class: dict[type, list[Any]] = {}

    def names(self, function: FunctionType) -> list[str]:
        """The global names that a function uses for containers, modules, tensors, and functions that reach such."""
        scope = function.__globals__
        return [name for name in _read(function.__code__).names if self._is_reached(scope.get(name))]

    def of_class(self, cls: type) -> list[tuple[str, Any]]:
        """What instances find in their class that a look must not share: containers, tensors, methods that reach such.

        Methods that Python itself calls, as `__len__`, it finds in the class alone.
        """
        if cls not in self._of_class:
            found: dict[str, Any] = {}
            for base in reversed(cls.__mro__):
                if is_users(base.__module__):
                    found.update(vars(base))
            self._of_class[cls] = [
                (name, value) for name, value in found.items()
                if not name.startswith("__") and self._is_reached(plain(value))
            ]  # fmt: skip
        return self._of_class[cls]

    def behind_class(self, cls: type) -> list[Any]:
        """The containers and tensors that code of a class reaches which no instance can have a copy of.

        That is what runs as a property, by Python itself or through `super`.
        """
        if cls not in self._behind_class:
            seen: set[str] = set()
            functions: list[FunctionType] = []
            for base in filter(lambda base: is_users(base.__module__), cls.__mro__):
                for name, value in vars(base).items():
                    alone = not (name in seen or name.startswith("__")) and isinstance(plain(value), FunctionType)
                    functions += [] if alone or name in _NOT_IN_A_PASS else functions_of(value)
                seen.update(vars(base))
            found = {id(value): value for function in functions for value in _state_behind(function)}
            self._behind_class[cls] = list(found.values())
        return self._behind_class[cls]

    def _is_reached(self, value: Any) -> bool:
        if isinstance(value, FunctionType):
            return is_users(value.__module__) and self._leads_on(value)
        return isinstance(value, _STATE)

    def _leads_on(self, function: FunctionType) -> bool:
        """Whether a function of the user's, or one that it calls, reaches a container, a module or a tensor."""
        if id(function) in self._reaches:
            return self._reaches[id(function)][1]
        waiting, entered = [function], {id(function): function}
        while waiting:
            current = waiting.pop()
            values, functions = _used_by(current)
            if self._is_direct(current, values, functions):
                self._reaches[id(function)] = function, True
                return True
            new = {id(value): value for value in functions if id(value) not in entered}
            entered |= new
            waiting += new.values()
        self._reaches.update({key: (value, False) for key, value in entered.items()})
        return False

    def _is_direct(self, function: FunctionType, values: list[Any], functions: list[FunctionType]) -> bool:
        """Whether a function itself has or writes what a look must not share, or calls one that is known to reach it.

        A function may keep something in its own attributes, and writes those of another one by its name.
        """
        code = _read(function.__code__)
        return (
            code.writes_globals
            or (code.writes_attributes and bool(functions))
            or bool(function.__dict__.keys() - {"__wrapped__"})
            or any(isinstance(value, _STATE) for value in values)
            or any(self._reaches.get(id(value), (None, False))[1] for value in functions)
        )


def _used_by(function: FunctionType) -> tuple[list[Any], list[FunctionType]]:
    """What a function uses that lies outside of it; the functions of the user's among them."""
    values = [*map(function.__globals__.get, _read(function.__code__).names), *held_by(function)]
    return values, [value for value in values if isinstance(value, FunctionType) and is_users(value.__module__)]


def _state_behind(function: FunctionType) -> Iterator[Any]:
    waiting, entered = [function], {id(function)}
    while waiting:
        values, functions = _used_by(waiting.pop())
        yield from (value for value in values if isinstance(value, (torch.Tensor, *CONTAINERS)))
        waiting += (each for each in functions if id(each) not in entered)
        entered.update(map(id, functions))


def functions_of(value: Any) -> list[FunctionType]:
    """The functions behind a method or property."""
    behind = [getattr(value, name, None) for name in ("fget", "fset", "func")] if type(value) in _PROPERTIES else []
    return [each for each in (plain(value), *behind) if isinstance(each, FunctionType)]


def plain(value: Any) -> Any:
    """The function behind a static or class method, and all else as it is."""
    return value.__func__ if isinstance(value, staticmethod | classmethod) else value


def held_by(function: FunctionType) -> Iterator[Any]:
    """What a function closes over, its defaults and its attributes."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # empty, as of a function that is not defined yet
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    yield from function.__dict__.values()


def is_users(module: Any) -> bool:
    """Whether a module, by its name, is none of torch's, of the standard library's, or of this package's."""
    return isinstance(module, str) and module.partition(".")[0] not in _NOT_THE_USERS


class _Code(NamedTuple):
    """What is known of code, and of code inside of it."""

    names: tuple[str, ...]  # the global ones
    writes_globals: bool
    writes_attributes: bool


@lru_cache(maxsize=1 << 14)
def _read(code: CodeType) -> _Code:
    inner = [_read(part) for part in code.co_consts if isinstance(part, CodeType)]
    found = [(each.opname, each.argval) for each in dis.get_instructions(code) if each.opname in _OF_NAMES]
    names = [name for opname, name in found if opname != "STORE_ATTR"]
    kinds = {opname for opname, _ in found}
    return _Code(
        tuple(dict.fromkeys((*names, *(name for part in inner for name in part.names)))),
        not kinds.isdisjoint(_WRITES) or any(part.writes_globals for part in inner),
        "STORE_ATTR" in kinds or any(part.writes_attributes for part in inner),
    )


def writes_globals(function: FunctionType) -> bool:
    """Whether a function, or one inside of it, assigns global names."""
    return _read(function.__code__).writes_globals
