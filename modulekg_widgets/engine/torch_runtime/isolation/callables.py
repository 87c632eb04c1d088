"""Callables that lead to a model, by binding, closure, defaults or globals, and their copies."""

from __future__ import annotations

import functools
import weakref
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, MethodWrapperType, ModuleType
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.torch_runtime.isolation.captured_state import (
    CONTAINERS,
    CapturedState,
    captured_values,
    writes_globals,
)
from modulekg_widgets.engine.torch_runtime.isolation.instances import attributes, slots
from modulekg_widgets.engine.torch_runtime.private import COMPILED_FROM, OpOverload, OpOverloadPacket

_WITHOUT_STATE = (
    bool, int, float, complex, str, bytes, type(None), type, ModuleType, torch.dtype, torch.device,
    OpOverload, OpOverloadPacket, range, slice,
)  # fmt: skip
MAX_VISITED = 10_000  # values behind one function; more are taken to lead to the model


def reaches_state(value: object) -> bool:
    """True if a module or tensor is reachable from a value, for functions by closure and defaults.

    Runs no code of the user's.
    """
    return next(reachable_state(value), None) is not None


def reachable_state(value: object) -> Iterator[Any]:
    """Yields the modules and tensors reachable from a value; stops with the last value after too many."""
    waiting: list[Any] = [value]
    entered: dict[int, Any] = {}
    while waiting:
        value = waiting.pop()
        if isinstance(value, _WITHOUT_STATE) or id(value) in entered:
            continue
        entered[id(value)] = value  # held, so that its address stays its own
        if isinstance(value, nn.Module | torch.Tensor):
            yield value
        elif len(entered) > MAX_VISITED:
            yield value
            return
        else:
            waiting += _references(value)


def reachable_tensors(value: object) -> Iterator[torch.Tensor]:
    """The tensors that a function closes over, or that lie in what it is bound to; modules are not entered."""
    waiting: list[Any] = [value]
    entered: dict[int, Any] = {}
    while waiting and len(entered) < MAX_VISITED:
        value = waiting.pop()
        if isinstance(value, torch.Tensor):
            yield value
        elif not isinstance(value, (*_WITHOUT_STATE, nn.Module)) and id(value) not in entered:
            entered[id(value)] = value
            waiting += _references(value)


def _references(value: object) -> Iterator[Any]:
    if isinstance(value, FunctionType):
        yield from captured_values(value)
    elif isinstance(value, MethodType | BuiltinFunctionType):
        yield from (getattr(value, "__func__", None), value.__self__)
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, functools._lru_cache_wrapper):
        yield value.__wrapped__
    elif isinstance(value, weakref.ReferenceType):
        yield value()
    elif isinstance(value, dict):
        yield from (*value.keys(), *value.values(), value.default_factory if isinstance(value, defaultdict) else None)
    elif isinstance(value, list | tuple | set | frozenset | deque):
        yield from value.copy() if isinstance(value, CONTAINERS) else value
    else:
        yield from (attributes(value) or {}).copy().values()
        for slot in slots(type(value)):
            with suppress(AttributeError):
                yield slot.__get__(value)


class CallableCopies:
    """The copying of callables and references for a shadow, so that they lead to copies."""

    def __init__(self, of: Any, made: Any, known: Any) -> None:
        self.of, self.made, self.known = of, made, known
        self.captured = CapturedState()
        self.writers: set[int] = set()  # the addresses of functions whose writing, wherever to, is not a look's to do
        self._scopes: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}  # global names, each with its copy
        self._cells: dict[int, tuple[CellType, CellType]] = {}

    def copiers(self) -> Iterator[tuple[type, Any]]:
        """The classes whose instances are copied here, each with what does it."""
        yield from ((FunctionType, self._function), (MethodType, self._method), (functools.partial, self._partial))
        yield from ((BuiltinFunctionType, self._builtin), (MethodWrapperType, self._builtin))
        yield from ((functools._lru_cache_wrapper, self._cached), (weakref.ReferenceType, self._reference))
        yield from ((weakref.ProxyType, self._proxy), (weakref.CallableProxyType, self._proxy))

    def _reference(self, value: weakref.ref[Any]) -> Any:
        target = value()
        if target is None:
            return value
        new = self.of(target)
        return value if new is target else self.made(value, type(value)(new))

    def _proxy(self, value: object) -> Any:
        try:
            target = value.__getattribute__.__self__  # which a proxy asks its target for
        except ReferenceError:
            return value
        new = self.of(target)
        return value if new is target else self.made(value, weakref.proxy(new))

    def _function(self, function: FunctionType) -> Any:
        compiled = function.__dict__.get(COMPILED_FROM)
        if compiled is not None:
            return self.made(function, self.of(compiled))
        is_writer = id(function) in self.writers
        needed = self.captured.names(function)
        writes = writes_globals(function)
        if not (is_writer or needed or writes or reaches_state(function)):
            return function
        scope = self._scope(function) if needed or writes else function.__globals__
        cells = tuple(self._cell(cell, is_writer) for cell in function.__closure__ or ())
        if (known := self.known(function)) is not None:  # one that calls itself
            return known
        new = FunctionType(function.__code__, scope, function.__name__, None, cells or None)
        new.__qualname__, new.__module__, new.__doc__ = function.__qualname__, function.__module__, function.__doc__
        self.made(function, new, function.__dict__)
        if is_writer:
            self.mark_writers(captured_values(function))
        self.mark_writers(function.__globals__[name] for name in needed)
        for name in needed:
            scope[name] = self.of(function.__globals__[name])
        new.__defaults__ = self.of(function.__defaults__)
        new.__kwdefaults__ = function.__kwdefaults__ and {k: self.of(v) for k, v in function.__kwdefaults__.items()}
        return new

    def _scope(self, function: FunctionType) -> dict[str, Any]:
        """The global names of all copies of functions of one file."""
        names = function.__globals__
        if id(names) not in self._scopes:
            self._scopes[id(names)] = names, {**names}
        return self._scopes[id(names)][1]

    def release(self) -> None:
        """Restores the original globals in the copied scopes, which breaks reference cycles."""
        for names, scope in self._scopes.values():
            scope.clear()
            scope.update(names)  # whoever has kept a copy of a function runs it as the function itself

    def mark_writers(self, values: Iterable[Any]) -> None:
        """Functions that may write to what they close over: hooks, methods, and what these call."""
        for value in values:
            while isinstance(value, functools.partial):
                value = value.func
            if isinstance(value, FunctionType):
                self.writers.add(id(value))

    def _cell(self, cell: CellType, of_a_writer: bool) -> CellType:
        """The cell that copies of all functions around it share."""
        known = self._cells.get(id(cell))
        if known is None:
            known = self._cells[id(cell)] = (cell, CellType())
            with suppress(ValueError):  # empty, as of a function that is not defined yet
                value = cell.cell_contents
                if of_a_writer:
                    self.mark_writers((value,))
                # a list that has nothing to do with the model is its user's, who may want to read it
                known[1].cell_contents = self.of(value) if of_a_writer or reaches_state(value) else value
        return known[1]

    def _method(self, method: MethodType) -> Any:
        function, owner = self.of(method.__func__), self.of(method.__self__)
        if function is method.__func__ and owner is method.__self__:
            return method
        return self.made(method, MethodType(function, owner))

    def _builtin(self, method: Any) -> Any:
        owner = getattr(method, "__self__", None)
        if owner is None or isinstance(owner, ModuleType | type) or (new := self.of(owner)) is owner:
            return method
        return self.made(method, getattr(new, method.__name__))

    def _partial(self, value: functools.partial[Any]) -> Any:
        parts = (value.func, value.args, value.keywords)
        copies = (self.of(value.func), self.of(value.args), {k: self.of(v) for k, v in value.keywords.items()})
        same = copies[0] is parts[0] and copies[1] is parts[1]
        if same and all(copies[2][name] is part for name, part in value.keywords.items()) and not value.__dict__:
            return value
        new = type(value)(copies[0], *copies[1], **copies[2])
        return self.made(value, new, value.__dict__)

    def _cached(self, value: functools._lru_cache_wrapper[Any]) -> Any:
        """A cache of the results of a function, empty."""
        return self.made(value, functools.lru_cache(**value.cache_parameters())(self.of(value.__wrapped__)))
