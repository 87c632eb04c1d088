"""The global variables, closure cells and class attributes that a module's code uses.

An isolated run needs copies of them, as of all other state: a value that the run stored there would otherwise be found
by the next call of the model.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property, lru_cache
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.torch_runtime.bytecode import closure_values, code_names, nested_code
from modulekg_widgets.engine.torch_runtime.modules import Attributes

CONTAINERS = (dict, list, set, deque)
_STATE = (nn.Module, torch.Tensor, *CONTAINERS)
_LIBRARY_PACKAGES = {"torch", "modulekg_widgets", "builtins", *sys.stdlib_module_names}
_PROPERTIES = {property, cached_property}
_NOT_IN_FORWARD = {"__init__", "__new__", "__init_subclass__", "__del__", "__repr__", "__getstate__", "__setstate__"}
MAX_CACHED = 32  # sets of classes


class CapturedState:
    """The containers, modules and tensors that functions reach by globals, closures and attributes."""

    def __init__(self) -> None:
        self._reaches: dict[int, tuple[FunctionType, bool]] = {}
        self._references: dict[int, tuple[FunctionType, list[tuple[str, int]]]] = {}  # by names, when they were asked

    def names(self, function: FunctionType) -> list[str]:
        """Returns the globals of a function that are containers, modules, tensors, or functions that reach such."""
        scope = function.__globals__
        return [name for name in _global_names(function.__code__) if self.needs_copy(scope.get(name))]

    def needs_copy(self, value: object) -> bool:
        """True if an isolated run needs a copy of a global value or class attribute."""
        if isinstance(value, FunctionType):
            return is_user_module(value.__module__) and self._reaches_state(value)
        return isinstance(value, _STATE)

    def is_current(self) -> bool:
        """True if the globals of all examined functions are unchanged."""
        return all(
            id(function.__globals__.get(name)) == found
            for function, pairs in self._references.values()
            for name, found in pairs
        )

    def _reaches_state(self, function: FunctionType) -> bool:
        """True if a user's function, or one that it calls, reaches a container, module or tensor."""
        if id(function) in self._reaches:
            return self._reaches[id(function)][1]
        waiting, entered = [function], {id(function): function}
        while waiting:
            current = waiting.pop()
            values, functions = self.references_of(current)
            if self._has_own_state(current, values, functions):
                self._reaches[id(function)] = function, True
                return True
            new = {id(value): value for value in functions if id(value) not in entered}
            entered |= new
            waiting += new.values()
        self._reaches.update({key: (value, False) for key, value in entered.items()})
        return False

    def references_of(self, function: FunctionType) -> tuple[list[Any], list[FunctionType]]:
        """Returns the values that a function references outside itself, and the user's functions among them."""
        names, scope = _global_names(function.__code__), function.__globals__
        values = [scope.get(name) for name in names]
        self._references[id(function)] = function, list(zip(names, map(id, values), strict=True))
        values += captured_values(function)
        return values, [
            value for value in values if isinstance(value, FunctionType) and is_user_module(value.__module__)
        ]

    def _has_own_state(self, function: FunctionType, values: list[Any], functions: list[FunctionType]) -> bool:
        """True if a function itself holds or writes state that an isolated run must not share.

        A function may keep something in its own attributes, and writes those of another one by its name.
        """
        return (
            writes_globals(function)
            or (bool(functions) and any(code_names(code).attributes_stored for code in nested_code(function.__code__)))
            or bool(function.__dict__.keys() - {"__wrapped__"})
            or any(isinstance(value, _STATE) for value in values)
            or any(self._reaches.get(id(value), (None, False))[1] for value in functions)
        )

    def reachable_state(self, functions: Iterable[FunctionType]) -> Iterator[Any]:
        """The containers and tensors that functions reach."""
        waiting = list(functions)
        entered = set(map(id, waiting))
        while waiting:
            values, following = self.references_of(waiting.pop())
            yield from (value for value in values if isinstance(value, (torch.Tensor, *CONTAINERS)))
            waiting += (each for each in following if id(each) not in entered)
            entered.update(map(id, following))


class CapturedClassState(CapturedState):
    """The state that the code of some classes reaches in forward, found by attribute names in bytecode."""

    def __init__(self, classes: Collection[type]) -> None:
        super().__init__()
        self._users = {cls: [base for base in cls.__mro__ if is_user_module(base.__module__)] for cls in classes}
        self._names = self._names_in_forward()
        self._of_class: dict[type, list[str]] = {cls: list(self._attributes_to_copy(cls)) for cls in classes}

    def class_attributes(self, cls: type) -> Iterator[tuple[str, Any]]:
        """Yields the class attributes that need a copy: containers, tensors, and methods that reach such.

        Methods that Python itself calls, as `__len__`, it finds in the class alone.
        """
        for name in self._of_class.get(cls, ()):
            yield name, next(vars(base)[name] for base in self._users[cls] if name in vars(base))

    def shared_state(self) -> list[Any]:
        """The containers and tensors that code reaches which no instance can have a copy of.

        That is what runs as a property, by Python itself or through `super`.
        """
        functions: dict[int, FunctionType] = {}
        for bases in self._users.values():
            seen: set[str] = set()
            for base in bases:
                for name, value in vars(base).items():
                    is_method = isinstance(unwrap_method(value), FunctionType) and not name.startswith("__")
                    if self._may_run(name) and (name in seen or not is_method):
                        functions.update((id(each), each) for each in underlying_functions(value))
                seen.update(vars(base))
        return list({id(value): value for value in self.reachable_state(functions.values())}.values())

    def _attributes_to_copy(self, cls: type) -> Iterator[str]:
        found = {name: value for base in reversed(self._users[cls]) for name, value in vars(base).items()}
        for name, value in found.items():
            if not name.startswith("__") and self._may_run(name) and self.needs_copy(unwrap_method(value)):
                yield name

    def _may_run(self, name: str) -> bool:
        return name in self._names or (name.startswith("__") and name not in _NOT_IN_FORWARD)

    def _names_in_forward(self) -> set[str]:
        """The names of attributes in `forward`, in what Python calls, and in all that these call."""
        methods: dict[str, list[FunctionType]] = {}
        for base in {base for bases in self._users.values() for base in bases}:
            for name, value in vars(base).items():
                methods.setdefault(name, []).extend(underlying_functions(value))
        self._names = names = {"forward"}
        waiting = [each for name in methods if self._may_run(name) for each in methods[name]]
        entered = set(map(id, waiting))
        while waiting:
            function = waiting.pop()
            new = _attribute_names(function.__code__) - names
            names |= new
            following = [*self.references_of(function)[1], *(each for name in new for each in methods.get(name, ()))]
            waiting += (each for each in following if id(each) not in entered)
            entered.update(map(id, following))
        return names


_cache: dict[frozenset[type], CapturedClassState] = {}


def captured_class_state(classes: Iterable[type]) -> CapturedClassState:
    """Returns the captured state of these classes, cached while their globals are unchanged."""
    key = frozenset(cls for cls in classes if any(is_user_module(base.__module__) for base in cls.__mro__))
    found = _cache.get(key)
    if found is None or not found.is_current():
        if len(_cache) >= MAX_CACHED:
            _cache.clear()
        found = _cache[key] = CapturedClassState(key)
    return found


def underlying_functions(value: object) -> list[FunctionType]:
    """Returns the functions of a method, or of a property's accessors."""
    behind = [getattr(value, name, None) for name in ("fget", "fset", "func")] if type(value) in _PROPERTIES else []
    return [each for each in (unwrap_method(value), *behind) if isinstance(each, FunctionType)]


def unwrap_method(value: object) -> Any:
    """Returns the function of a static or class method; other values unchanged."""
    return value.__func__ if isinstance(value, staticmethod | classmethod) else value


def captured_values(function: FunctionType) -> Iterator[Any]:
    """Yields the closure cells, defaults and attributes of a function."""
    yield from closure_values(function)
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    yield from function.__dict__.values()


@lru_cache(maxsize=1 << 14)
def is_user_module(module: Any) -> bool:
    """True if a module name belongs neither to torch, nor to the standard library, nor to this package."""
    return isinstance(module, str) and module.partition(".")[0] not in _LIBRARY_PACKAGES


@lru_cache(maxsize=1 << 14)
def _global_names(code: CodeType) -> tuple[str, ...]:
    """The global variables that code and the functions inside it read or write."""
    inside = map(code_names, nested_code(code))
    return tuple(dict.fromkeys(name for names in inside for name in (*names.globals_read, *names.globals_written)))


@lru_cache(maxsize=1 << 14)
def _attribute_names(code: CodeType) -> frozenset[str]:
    """The names that code and the functions inside it ask of objects, also by a text, as `getattr` takes it."""
    return frozenset().union(*(names.attributes | names.texts for names in map(code_names, nested_code(code))))


def writes_globals(function: FunctionType) -> bool:
    """True if a function, or an inner one, assigns global names."""
    return any(code_names(code).globals_written for code in nested_code(function.__code__))


def copy_class_attributes(
    code: CapturedClassState,
    value: object,
    new: Any,
    own: Attributes,
    of: Callable[[Any], Any],
    are_writers: Callable[[Iterable[Any]], None],
) -> None:
    """Give `new`, the copy of `value`, copies of what its class holds: they belong to the instance alone."""
    for name, part in code.class_attributes(type(value)):
        if name in own:
            continue
        function = unwrap_method(part)
        are_writers((function,))
        copied = of(function)
        if isinstance(part, FunctionType):
            copied = MethodType(copied, new)
        elif isinstance(part, classmethod):
            copied = MethodType(copied, type(value))
        own[name] = copied
