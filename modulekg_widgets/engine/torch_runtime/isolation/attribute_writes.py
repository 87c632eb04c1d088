"""Attributes that a model's code may write in forward, read from bytecode: tensors there are caches."""

from __future__ import annotations

import functools
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

from modulekg_widgets.engine.torch_runtime.bytecode import closure_values, code_names, nested_code

# not part of a forward pass: making, copying and showing an object
_LIFECYCLE_METHODS = {
    "__init__", "__new__", "__post_init__", "__init_subclass__", "__setstate__", "__getstate__", "__deepcopy__",
    "__copy__", "__reduce__", "__reduce_ex__", "__repr__", "__str__", "__del__", "__setattr__", "__delattr__",
}  # fmt: skip
_ENTRY_POINTS = {"forward", "train", "eval"}  # caches are also made or emptied where the mode changes
_FILLING = {"append", "extend", "insert", "update", "setdefault", "pop", "popitem", "clear", "remove", "__setitem__"}
_SETTING = {"setattr", "delattr", "__setattr__", "__delattr__"}
_DICTS = {"__dict__", "vars"}
_LIBRARY_PACKAGES = {"torch", "builtins", *sys.stdlib_module_names} - {
    "__main__"
}  # packages that write nothing of a user's


class _FunctionFacts(NamedTuple):
    """The names that a function and its inner ones use and write."""

    names: frozenset[str]  # global names and attributes
    stored: frozenset[str]  # attributes
    fills: bool  # whether it may change what a container holds
    sets: bool  # whether it may set an attribute that its code does not name


@dataclass(frozen=True, slots=True)
class AttributeWrites:
    """The names of attributes that may be set, and of those whose contents may be changed."""

    stored: frozenset[str]
    filled: frozenset[str]
    sets_any: bool  # whether names are computed

    def may_write(self, names: Iterable[str], inside: bool) -> bool:
        """True if one of these attributes may be assigned; `inside`: or its container changed."""
        return self.sets_any or any(name in self.stored or (inside and name in self.filled) for name in names)


def find_attribute_writes(
    classes: Iterable[type], functions: Iterable[Any] = (), bystanders: Iterable[type] = ()
) -> AttributeWrites:
    """Finds the attributes that methods of these classes may write in forward, from their bytecode.

    `functions` are others that it may begin with, as a `forward` that stands on an instance. `bystanders` are classes
    whose methods may be called too; where these set attributes by computed names, it is their own. Methods are told
    apart by their names alone.
    """
    holders = _bases(classes)
    aside: set[int] = set()
    stored: set[str] = set()
    for cls in {**holders, **_bases(bystanders)}:
        for name, member in vars(cls).items():
            aside.update(() if cls in holders else map(id, _functions(member)))
            if isinstance(member, functools.cached_property):
                stored.add(name)
    filled: set[str] = set()
    sets_any = False
    for function in reachable_functions(classes, functions, bystanders):
        facts = _facts(function.__code__)
        stored |= facts.stored
        filled |= facts.names if facts.fills else frozenset()
        sets_any = sets_any or (facts.sets and id(function) not in aside)
    return AttributeWrites(frozenset(stored), frozenset(filled), sets_any)


def reachable_functions(
    classes: Iterable[type], functions: Iterable[Any] = (), bystanders: Iterable[type] = ()
) -> Iterator[FunctionType]:
    """Yields the methods and functions that forward may call, found by name; torch's are excluded."""
    methods: dict[str, list[FunctionType]] = defaultdict(list)
    for cls in {**_bases(classes), **_bases(bystanders)}:
        for name, member in vars(cls).items():
            methods[name] += _functions(member)
    begin = [
        name for name in methods if name not in _LIFECYCLE_METHODS and (name in _ENTRY_POINTS or name.startswith("__"))
    ]
    waiting = [function for name in begin for function in methods[name]]
    waiting += [function for each in functions for function in _functions(each)]
    entered: set[int] = set()
    while waiting:
        function = waiting.pop()
        if id(function) in entered or not _is_analysed(function.__module__):
            continue
        entered.add(id(function))
        yield function
        for name in _facts(function.__code__).names - _LIFECYCLE_METHODS:
            waiting += methods.get(name, ())
            waiting += _functions(function.__globals__.get(name))
        waiting += [inner for value in closure_values(function) for inner in _functions(value)]


def attributes_read(functions: Iterable[FunctionType], of: str = "", but: str = "") -> frozenset[str]:
    """The attributes that functions read `of` one name, or of all names `but` one."""
    codes = (code for function in functions for code in nested_code(function.__code__))
    pairs = (pair for code in codes for pair in code_names(code).attributes_of)
    return frozenset(name for owner, name in pairs if (owner == of if of else owner != but))


def methods_of(cls: type, stop: type) -> Iterator[FunctionType]:
    """The methods of a class and its bases up to `stop`, but for those that make, copy and show an instance."""
    for base in cls.__mro__:
        if not issubclass(stop, base):
            for name, member in vars(base).items():
                for function in _functions(member) if name not in _LIFECYCLE_METHODS else ():
                    yield from _with_wrapped(function)


def _with_wrapped(function: FunctionType) -> Iterator[FunctionType]:
    """A function, and those that it was made around."""
    waiting, entered = [function], set()
    while waiting:
        each = waiting.pop()
        if id(each) not in entered:
            entered.add(id(each))
            yield each
            waiting += [inner for value in closure_values(each) for inner in _functions(value)]


def _bases(classes: Iterable[type]) -> dict[type, None]:
    return dict.fromkeys(base for each in classes for base in each.__mro__ if _is_analysed(base.__module__))


def _is_analysed(module: Any) -> bool:
    return not isinstance(module, str) or module.partition(".")[0] not in _LIBRARY_PACKAGES


def _functions(value: object) -> Iterator[FunctionType]:
    """Yields the Python functions of a class member or another callable."""
    if isinstance(value, FunctionType):
        yield value
    elif isinstance(value, staticmethod | classmethod | MethodType):
        yield from _functions(value.__func__)
    elif isinstance(value, property):
        yield from (each for part in (value.fget, value.fset) for each in _functions(part))
    elif isinstance(value, functools.partial | functools.cached_property):
        yield from _functions(value.func)
    elif isinstance(value, functools._lru_cache_wrapper):
        yield from _functions(value.__wrapped__)


@functools.lru_cache(maxsize=4096)
def _facts(code: CodeType) -> _FunctionFacts:
    parts = [_own_facts(part) for part in nested_code(code)]
    return _FunctionFacts(
        frozenset().union(*(part.names for part in parts)),
        frozenset().union(*(part.stored for part in parts)),
        any(part.fills for part in parts),
        any(part.sets for part in parts),
    )


def _own_facts(code: CodeType) -> _FunctionFacts:
    """The facts of one code object, without those inside it."""
    used, names = frozenset(code.co_names), code_names(code)
    stored = names.attributes_stored | names.attributes_deleted
    fills = names.writes_items or not used.isdisjoint(_FILLING)
    sets = not used.isdisjoint(_SETTING) or (fills and not used.isdisjoint(_DICTS))
    # by a name that it writes out, or by another one
    return _FunctionFacts(used, stored | names.texts if sets else stored, fills, sets)
