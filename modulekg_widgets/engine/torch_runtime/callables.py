"""What can be called and leads to a model: by what it is bound to or closes over, by defaults, by global names."""

from __future__ import annotations

import dis
import functools
import weakref
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, MethodWrapperType, ModuleType
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.torch_runtime.instances import attributes, slots

_CONTAINERS = (dict, list, set, deque)
_WITHOUT_STATE = (
    bool, int, float, complex, str, bytes, type(None), type, ModuleType, torch.dtype, torch.device,
    torch._ops.OpOverload, torch._ops.OpOverloadPacket, range, slice,
)  # fmt: skip
MOST_SEEN = 10_000  # values behind one function; more are taken to lead to the model


def leads_to_state(value: Any) -> bool:
    """Whether a value leads to a module or tensor, a function by what it closes over and defaults.

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
        entered[id(value)] = value  # held, so that its address stays its own
        waiting += _inside(value)
    return False


def tensors_behind(value: Any) -> Iterator[torch.Tensor]:
    """The tensors that a function closes over, or that lie in what it is bound to; modules are not entered."""
    waiting: list[Any] = [value]
    entered: dict[int, Any] = {}
    while waiting and len(entered) < MOST_SEEN:
        value = waiting.pop()
        if isinstance(value, torch.Tensor):
            yield value
        elif not isinstance(value, (*_WITHOUT_STATE, nn.Module)) and id(value) not in entered:
            entered[id(value)] = value
            waiting += _inside(value)


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
        yield from (*value.keys(), *value.values(), value.default_factory if isinstance(value, defaultdict) else None)
    elif isinstance(value, list | tuple | set | frozenset | deque):
        yield from value.copy() if isinstance(value, _CONTAINERS) else value
    else:
        yield from (attributes(value) or {}).copy().values()
        for slot in slots(type(value)):
            with suppress(AttributeError):
                yield slot.__get__(value)


def _held_by(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # empty, as of a function that is not defined yet
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    yield from function.__dict__.values()


def names_of_state(function: FunctionType, is_hook: bool = False) -> list[str]:
    """The global names that a function uses for modules and tensors; of a hook also those for what it may write to.

    These are containers, and the functions beside it, which may write themselves.
    """
    scope = function.__globals__
    kinds = (nn.Module, torch.Tensor, *(_CONTAINERS if is_hook else ()))
    return [
        name
        for name in _global_names(function.__code__)
        if isinstance(value := scope.get(name), kinds) or (is_hook and _is_beside(value, function))
    ]


def _is_beside(value: Any, function: FunctionType) -> bool:
    return isinstance(value, FunctionType) and value.__globals__ is function.__globals__


@functools.lru_cache(maxsize=4096)
def _writes_globals(code: CodeType) -> bool:
    own = any(instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") for instruction in dis.get_instructions(code))
    return own or any(_writes_globals(part) for part in code.co_consts if isinstance(part, CodeType))


@functools.lru_cache(maxsize=4096)
def _global_names(code: CodeType) -> tuple[str, ...]:
    inner = [name for part in code.co_consts if isinstance(part, CodeType) for name in _global_names(part)]
    return tuple(dict.fromkeys((*code.co_names, *inner)))


class CallableCopies:
    """How a shadow copies what can be called, and references: so that they lead to the copies of what they led to."""

    def __init__(self, of: Any, made: Any, known: Any) -> None:
        self.of, self.made, self.known = of, made, known
        self.hooks: set[int] = set()  # the addresses of functions that are hooks
        self._cells: dict[int, tuple[CellType, CellType]] = {}

    def kinds(self) -> Iterator[tuple[type, Any]]:
        """The classes whose instances are copied here, each with what does it."""
        yield from ((FunctionType, self._function), (MethodType, self._method), (functools.partial, self._partial))
        yield from ((BuiltinFunctionType, self._builtin), (MethodWrapperType, self._builtin))
        yield from ((functools._lru_cache_wrapper, self._cached), (weakref.ReferenceType, self._reference))

    def _reference(self, value: weakref.ref[Any]) -> Any:
        target = value()
        if target is None:
            return value
        new = self.of(target)
        return value if new is target else self.made(value, type(value)(new))

    def _function(self, function: FunctionType) -> Any:
        compiled = function.__dict__.get("_torchdynamo_orig_callable")
        if compiled is not None:
            return self.made(function, self.of(compiled))
        is_hook = id(function) in self.hooks
        needed = names_of_state(function, is_hook)
        # what a hook writes down is not for a look to add to, wherever that is
        if not (is_hook or needed or leads_to_state(function)):
            return function
        scope = function.__globals__
        if needed or (is_hook and _writes_globals(function.__code__)):
            scope = {**scope}
        cells = tuple(self._cell(cell, is_hook) for cell in function.__closure__ or ())
        if (known := self.known(function)) is not None:  # one that calls itself
            return known
        new = FunctionType(function.__code__, scope, function.__name__, None, cells or None)
        new.__qualname__, new.__module__, new.__doc__ = function.__qualname__, function.__module__, function.__doc__
        self.made(function, new, function.__dict__)
        if is_hook:
            self.are_hooks([scope[name] for name in needed], _held_by(function))
        for name in needed:
            scope[name] = self.of(scope[name])
        new.__defaults__ = self.of(function.__defaults__)
        new.__kwdefaults__ = function.__kwdefaults__ and {k: self.of(v) for k, v in function.__kwdefaults__.items()}
        return new

    def are_hooks(self, *groups: Iterable[Any]) -> None:
        """Functions that are hooks, or that hooks call."""
        for value in (value for group in groups for value in group):
            while isinstance(value, functools.partial):
                value = value.func
            if isinstance(value, FunctionType):
                self.hooks.add(id(value))

    def _cell(self, cell: CellType, of_a_hook: bool) -> CellType:
        """The cell that copies of all functions around it share."""
        known = self._cells.get(id(cell))
        if known is None:
            known = self._cells[id(cell)] = (cell, CellType())
            with suppress(ValueError):  # empty, as of a function that is not defined yet
                value = cell.cell_contents
                if of_a_hook:
                    self.are_hooks((value,))
                # a list that has nothing to do with the model is its user's, who may want to read it
                known[1].cell_contents = self.of(value) if of_a_hook or leads_to_state(value) else value
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

    def _cached(self, value: Any) -> Any:
        """A cache of the results of a function, empty."""
        return self.made(value, functools.lru_cache(**value.cache_parameters())(self.of(value.__wrapped__)))
