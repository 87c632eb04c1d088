"""Encodings of plain Python values, one handler for each type."""

from __future__ import annotations

import copyreg
import enum
import functools
import struct
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timezone
from fractions import Fraction
from pathlib import PurePath
from typing import Any, NamedTuple

from modulekg_widgets.engine.identity.classes import (
    class_dict,
    class_mro,
    class_names,
    dict_items,
    instance_state,
    is_heap_type,
    is_importable,
)
from modulekg_widgets.engine.identity.encoding.code import class_body, encode_function
from modulekg_widgets.engine.identity.encoding.packing import (
    FAST_TYPES,
    encode_numbers,
    fast_key,
    length_prefixed,
    packed,
    shortened,
    text,
)
from modulekg_widgets.engine.torch_runtime.modules import Attributes

# --------------------
# Canonical encoding of Python values: equal bytes for equal values, in every process and supported Python.
# Nothing of a user's object runs: no `repr`, `str`, `==`, `hash`, property or `__getattr__`. Every value becomes a tag
# and a length-prefixed body, so that two encodings are equal only for equal values. What cannot be seen into (a lock, a
# file, a C object) is encoded by its type and reported as opaque.
#
# What the types are encoded as is registered in values.py (plain Python) and torch_values.py (torch and numpy).


MAX_DEPTH = 64  # levels of containers within one attribute; real configurations stay below ten
MAX_COUNT_BITS = 31  # bits of a size or count; one hash in a billion is as short
MAX_REPEATS = 20_000  # containers that are encoded once more because they lie on a cycle; beyond it they multiply

Handler = Callable[["Encoder", Any, str], bytes]
PAIRS: tuple[type[Any], ...] = (tuple,)
HANDLERS: dict[type, Handler] = {}  # by exact type
BASE_HANDLERS: dict[type, Handler] = {}  # for subclasses, the first along the MRO


def handles(*classes: type, subclasses: bool = False) -> Callable[[Handler], Handler]:
    """Register an encoding for values of exactly these types, or for those of their subclasses."""

    def decorate(handler: Handler) -> Handler:
        (BASE_HANDLERS if subclasses else HANDLERS).update(dict.fromkeys(classes, handler))
        return handler

    return decorate


class _Known(NamedTuple):
    """The encoding of a container, with the container itself, so that its id is not used again."""

    value: object
    encoding: bytes
    opaque: bool
    cycle: frozenset[int]  # ids of the containers on a cycle with it


class Encoder:
    """Encodes values; `opaque` collects the attribute paths that could not be seen into.

    One encoder serves one model: it remembers shared containers by identity, so the model must stay as it is.
    """

    def __init__(self) -> None:
        self.opaque: list[str] = []
        self.buffer_count = 0  # values that their fast key does not tell apart
        self.keepalive: list[Any] = []  # values made while encoding: their ids must stay theirs
        self._open: dict[int, int] = {}  # id of the containers being encoded -> their depth
        self._lowest = sys.maxsize  # the shallowest open container that a back reference has reached
        self._open_or_cyclic: list[int] = []  # ids of containers that are open, or on a cycle with one that is
        self._on_cycles: set[int] = set()  # ids of containers whose encoding depends on what is open around them
        self._repeats = 0
        self._known: dict[int, _Known] = {}
        self._classes: dict[type, bytes] = {}
        self._open_classes: set[int] = set()
        self._attributes: dict[bytes, bytes] = {}

    def fresh(self) -> Encoder:
        """A new encoder that has encoded nothing yet."""
        return Encoder()

    def encode(self, value: object, path: str) -> bytes:
        handler = HANDLERS.get(type(value))
        if handler is None:
            handler = self._handler_of(type(value))
        return handler(self, value, path)

    def _handler_of(self, cls: type) -> Handler:
        bases = class_mro(cls)
        if enum.Enum in bases:  # before the plain type that it may mix in
            return BASE_HANDLERS[enum.Enum]
        for base in bases:
            handler = BASE_HANDLERS.get(base)
            if handler is not None:
                return handler
        return encode_object

    def encode_opaque(self, value: object, path: str, *seen: bytes) -> bytes:
        """Encodes a value by its type and the given visible parts, and reports `path` as opaque."""
        self.opaque.append(path)
        return packed(b"?", self.class_reference(type(value)), *seen)

    def encode_container(self, value: object, path: str, body: Callable[[], bytes]) -> bytes:
        """Encodes a container: once per object, a cycle as the number of levels up."""
        key = id(value)
        known = self._known.get(key)
        if known is not None and known.cycle.isdisjoint(self._open):
            if known.opaque:
                self.opaque.append(path)
            return known.encoding
        depth = len(self._open)
        if key in self._open:
            self._lowest = min(self._lowest, self._open[key])
            return packed(b"^", (depth - self._open[key]).to_bytes(4, "big"))
        self._repeats += key in self._on_cycles
        if depth >= MAX_DEPTH or self._repeats > MAX_REPEATS:
            return self.encode_opaque(value, path)
        opaque_before, entered_before = len(self.opaque), len(self._open_or_cyclic)
        self._open_or_cyclic.append(key)
        self._open[key] = depth
        outer, self._lowest = self._lowest, sys.maxsize
        try:
            encoding = body()
        finally:
            del self._open[key]
            reached = self._lowest
            self._lowest = min(outer, reached) if reached < depth else outer
        if reached < depth:
            self._on_cycles.add(key)
            return encoding
        # nothing in it depends on where it stands, unless it is met again from within the cycle that it closes
        cycle = frozenset(self._open_or_cyclic[entered_before:]) if reached == depth else frozenset[int]()
        del self._open_or_cyclic[entered_before:]
        self._known[key] = _Known(value, encoding, len(self.opaque) > opaque_before, cycle)
        return encoding

    def class_reference(self, cls: type) -> bytes:
        """Encodes a class by its name if it can be imported, else also by its code and bases."""
        known = self._classes.get(cls)
        if known is not None:
            return known
        module, qualified = class_names(cls)
        if is_importable(module, qualified, cls) or not is_heap_type(cls):
            known, settled = packed(b"C", text(module), text(qualified)), True
        else:
            known, settled = self._local_class(cls, module, qualified)
        if settled:
            self._classes[cls] = known
        return known

    def _local_class(self, cls: type, module: str, qualified: str) -> tuple[bytes, bool]:
        """Returns the encoding of a class by its code, and True if that is independent of the open containers."""
        # of what is open, only the classes that lead here can matter to a class
        around, outer = self._open, self._lowest
        self._open = {key: n for n, key in enumerate(key for key in around if key in self._open_classes)}
        self._lowest = sys.maxsize
        self._open_classes.add(id(cls))
        try:
            names = (text(module), text(qualified))
            known = self.encode_container(cls, "", lambda: packed(b"K", *names, *class_body(self, cls)))
            settled = self._lowest == sys.maxsize
        finally:
            if id(cls) not in around:
                self._open_classes.discard(id(cls))
            self._open = around
            self._lowest = outer if self._lowest == sys.maxsize else 0
        return known, settled

    def encode_sequence(self, tag: bytes, values: Iterable[Any], path: str, *before: bytes) -> bytes:
        """Encodes values in order, as `packed` does with their encodings."""
        listed = list(values)
        run = encode_numbers(listed)
        if run is None:
            run = b"".join([length_prefixed(self.encode(v, f"{path}[{i}]")) for i, v in enumerate(listed)])
        return shortened(b"".join((tag, *map(length_prefixed, before), run)))

    def encode_state(self, owner: object, path: str, skip: frozenset[str] = frozenset()) -> list[bytes]:
        """Names and values of an object's `__dict__` and slots, sorted by name."""
        state = instance_state(owner)
        return self.encode_attributes({n: v for n, v in state.items() if type(n) is str and n not in skip}, path, owner)

    def encode_attributes(self, attributes: Attributes, path: str, owner: object = None) -> list[bytes]:
        """Names and values, sorted by name."""
        parts: list[bytes] = []
        for name in sorted(attributes):
            if is_cached_hash(name, attributes[name], attributes, owner):
                continue
            parts += [text(name), self.encode_attribute(attributes[name], f"{path}.{name}" if path else name)]
        return parts

    def encode_attribute(self, value: object, path: str) -> bytes:
        """Encodes a value like `encode`, and caches plain ones."""
        key = fast_key(value) if type(value) in FAST_TYPES else None
        if key is None:
            return self.encode(value, path)
        known = self._attributes.get(key)
        if known is None:
            before = (self.buffer_count, len(self.opaque))
            known = self.encode(value, path)
            if (self.buffer_count, len(self.opaque)) == before:
                self._attributes[key] = known
        return known


def is_cached_hash(name: str, value: object, attributes: Mapping[str, Any], owner: object) -> bool:
    """True if an attribute stores a number of this process: the result of `hash`, or an `id`.

    It is told by its name, as the object may have changed since, or by the number, which is that of `owner` or of
    another of its `attributes`. Sizes and counts that are named alike, as `n_hash=4`, are small and count.
    """
    if value is None or type(value) is not int:
        return value is None and name.endswith("hash")
    if value.bit_length() <= MAX_COUNT_BITS:
        return False
    return name.endswith("hash") or any(value in _process_numbers(each) for each in (owner, *attributes.values()))


def _process_numbers(value: object) -> tuple[int, ...]:
    """Returns `id` and hashes of a value that differ between processes; runs no code of the user's."""
    of_text = (hash(value),) if type(value) in (str, bytes) else ()
    return (id(value), object.__hash__(value), *of_text)


# ------------------------------------------------------------------ objects of all other classes


def _has_c_base(cls: type) -> bool:
    """True if a base is implemented in C, so that `__dict__` and slots do not hold the whole state."""
    return any(base is not object and not is_heap_type(base) for base in class_mro(cls))


# classes of the standard library whose instances are values; those of all others hold the state of the process
# fmt: off
_VALUE_MODULES = frozenset(
    {
        "argparse", "array", "collections", "datetime", "decimal", "fractions", "ipaddress",
        "logging", "operator", "re", "types", "uuid", "zoneinfo",
    }
)
# fmt: on


def encode_object(encoder: Encoder, value: object, path: str) -> bytes:
    """Encodes any other object: its class with `__dict__` and slots, or its reduced form as in pickle."""
    encoder.buffer_count += 1  # it may lend its bytes to a fast key
    cls = type(value)
    home = class_names(cls)[0].partition(".")[0]
    if home in _VALUE_MODULES and is_importable(*class_names(cls), cls):
        return _encode_reduced(encoder, value, path)
    if home in sys.stdlib_module_names or not _is_python_class(cls):
        # locks, threads, files, C objects: their state is the process's, not the model's
        return encoder.encode_opaque(value, path)

    def body() -> bytes:
        state = encoder.encode_state(value, path)
        if _has_c_base(cls):
            return encoder.encode_opaque(value, path, *state)
        return packed(b"O", encoder.class_reference(cls), *state)

    return encoder.encode_container(value, path, body)


def _is_python_class(cls: type) -> bool:
    """True for a class with `__dict__` or slots that Python can read; heap types of C extensions lack them."""
    for base in class_mro(cls):
        namespace = class_dict(base)
        if is_heap_type(base) and (
            "__slots__" in namespace or type(namespace.get("__dict__")) is types.GetSetDescriptorType
        ):
            return True
    return False


def _encode_reduced(encoder: Encoder, value: object, path: str) -> bytes:
    """A value of the standard library (a date, a pattern, a namespace) as pickle would take it apart."""
    reduce: Callable[[Any], Any] = copyreg.dispatch_table.get(type(value), lambda v: v.__reduce_ex__(2))

    def body() -> bytes:
        try:
            parts = reduce(value)
        except (TypeError, AttributeError):
            return encoder.encode_opaque(value, path)
        encoder.keepalive.append(parts)
        several: list[Any] = [*parts] if isinstance(parts, PAIRS) else [parts]
        taken = [list(part) if hasattr(part, "__next__") else part for part in several]
        encoder.keepalive.append(taken)
        return packed(b"R", encoder.class_reference(type(value)), *(encoder.encode(part, path) for part in taken))

    return encoder.encode_container(value, path, body)


# ----------------------------------------


MIN_MEMOIZED_LENGTH = 1 << 16  # characters; from here on it pays to remember the digest of the object


@handles(type(None), type(...), type(NotImplemented))
def _singleton(encoder: Encoder, value: object, path: str) -> bytes:
    return b"N" if value is None else packed(b"n", text(type(value).__name__))


@handles(bool)
def _bool(encoder: Encoder, value: bool, path: str) -> bytes:
    return b"T" if value else b"F"


@handles(int)
def _int(encoder: Encoder, value: int, path: str) -> bytes:
    return packed(b"i", value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _float_bytes(value: float) -> bytes:
    # one NaN: its payload is an accident of the machine
    return b"nan" if value != value else struct.pack(">d", value)


@handles(float)
def _float(encoder: Encoder, value: float, path: str) -> bytes:
    return packed(b"f", _float_bytes(value))


@handles(complex)
def _complex(encoder: Encoder, value: complex, path: str) -> bytes:
    return packed(b"c", _float_bytes(value.real), _float_bytes(value.imag))


@handles(str)
def _str(encoder: Encoder, value: str, path: str) -> bytes:
    if len(value) < MIN_MEMOIZED_LENGTH:
        return packed(b"s", text(value))
    return encoder.encode_container(value, path, lambda: packed(b"s", text(value)))


@handles(bytes, bytearray)
def _bytes(encoder: Encoder, value: bytes | bytearray, path: str) -> bytes:
    encoder.buffer_count += 1
    return packed(b"b", text(type(value).__name__), bytes(value))


# ------------------------------------------------------------------ containers, and subclasses of plain types
# contents are read through the base type's own methods: a subclass may override every one of them; no container is
# built anew, since that would call the `__hash__` and `__eq__` of what it holds


def _set_content(base: Any) -> Handler:
    def content(encoder: Encoder, value: object, path: str) -> bytes:
        return packed(b"S", text(base.__name__), *sorted(encoder.encode(v, path) for v in base.__iter__(value)))

    return content


# by the base type itself, whatever a subclass defines
_deque_items: Callable[[Any], Iterator[Any]] = vars(deque)["__iter__"]
_list_items: Callable[[Any], Iterator[Any]] = vars(list)["__iter__"]
_tuple_items: Callable[[Any], Iterator[Any]] = vars(tuple)["__iter__"]
_default_factory: Callable[[Any], object] = vars(defaultdict)["default_factory"].__get__
_longest: Callable[[Any], object] = vars(deque)["maxlen"].__get__


def _dict_content(encoder: Encoder, value: dict[Any, Any], path: str) -> bytes:
    def item(key: Any, content: Any) -> bytes:
        plain = (type(key) is str and len(key) <= 80) or (type(key) is int and key.bit_length() <= 64)
        where = f"{path}[{key!r}]" if plain else f"{path}[…]"
        return packed(b":", encoder.encode(key, where), encoder.encode(content, where))

    return packed(b"d", *sorted(item(key, part) for key, part in dict_items(value)))


def _defaultdict_content(encoder: Encoder, value: defaultdict[Any, Any], path: str) -> bytes:
    return packed(b"D", encoder.encode(_default_factory(value), path), _dict_content(encoder, value, path))


def _deque_content(encoder: Encoder, value: deque[Any], path: str) -> bytes:
    return encoder.encode_sequence(b"q", _deque_items(value), path, encoder.encode(_longest(value), path))


_CONTENTS: dict[type, Handler] = {
    tuple: lambda encoder, value, path: encoder.encode_sequence(b"t", _tuple_items(value), path),
    list: lambda encoder, value, path: encoder.encode_sequence(b"l", _list_items(value), path),
    set: _set_content(set),
    frozenset: _set_content(frozenset),
    dict: _dict_content,
    OrderedDict: _dict_content,
    defaultdict: _defaultdict_content,
    deque: _deque_content,
}
_PLAIN_CONTENTS: dict[type, Handler] = {
    int: lambda encoder, value, path: _int(encoder, int.__index__(value), path),
    float: lambda encoder, value, path: _float(encoder, float.__float__(value), path),
    complex: lambda encoder, value, path: _complex(encoder, complex.conjugate(complex.conjugate(value)), path),
    str: lambda encoder, value, path: _str(encoder, str.__str__(value), path),
    bytes: lambda encoder, value, path: _bytes(encoder, bytes(bytes.__iter__(value)), path),
    bytearray: lambda encoder, value, path: _bytes(encoder, bytes(bytearray.__iter__(value)), path),
}


def _container(base: type, content: Handler) -> Handler:
    name = text(base.__name__)
    return lambda encoder, value, path: encoder.encode_container(
        value, path, lambda: packed(b"V", name, content(encoder, value, path))
    )


def _subclass(content: Handler) -> Handler:
    def handler(encoder: Encoder, value: object, path: str) -> bytes:
        def body() -> bytes:
            state = encoder.encode_state(value, path)
            return packed(b"B", encoder.class_reference(type(value)), content(encoder, value, path), *state)

        return encoder.encode_container(value, path, body)

    return handler


HANDLERS.update({base: _container(base, content) for base, content in _CONTENTS.items()})
BASE_HANDLERS.update({base: _subclass(content) for base, content in (_CONTENTS | _PLAIN_CONTENTS).items()})


@handles(range, slice)
def _bounds(encoder: Encoder, value: range | slice, path: str) -> bytes:
    bounds = (value.start, value.stop, value.step)
    return packed(b"r", text(type(value).__name__), *(encoder.encode(v, path) for v in bounds))


@handles(Fraction)
def _fraction(encoder: Encoder, value: Fraction, path: str) -> bytes:
    return packed(b"R", b"Fraction", *(encoder.encode(v, path) for v in (value.numerator, value.denominator)))


@handles(timezone)
def _timezone(encoder: Encoder, value: timezone, path: str) -> bytes:
    return packed(b"R", b"timezone", encoder.encode(value.utcoffset(None), path), text(value.tzname(None)))


@handles(PurePath, subclasses=True)
def _path(encoder: Encoder, value: PurePath, path: str) -> bytes:
    if class_names(type(value))[0].partition(".")[0] != "pathlib":
        return encode_object(encoder, value, path)
    return packed(b"p", text(PurePath.__fspath__(value)))  # its slots hold caches that come and go


@handles(enum.Enum, subclasses=True)
def _enum(encoder: Encoder, value: enum.Enum, path: str) -> bytes:
    state = instance_state(value)
    # Pythons differ in how they name a combination of flags
    name = None if enum.Flag in class_mro(type(value)) else state.get("_name_")
    parts = (name, state.get("_value_"))
    return packed(b"e", encoder.class_reference(type(value)), *(encoder.encode(v, path) for v in parts))


# ------------------------------------------------------------------ functions, classes, modules


@handles(type, subclasses=True)
@handles(type)
def _class(encoder: Encoder, value: type, path: str) -> bytes:
    return packed(b"k", encoder.class_reference(value))


@handles(types.FunctionType)
def _function(encoder: Encoder, value: types.FunctionType, path: str) -> bytes:
    module = value.__module__ if type(value.__module__) is str else ""
    if is_importable(module, value.__qualname__, value):
        return packed(b"g", text(module), text(value.__qualname__))
    return encoder.encode_container(value, path, lambda: encode_function(encoder, value, path))


@handles(
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType
)
def _builtin(encoder: Encoder, value: types.BuiltinFunctionType, path: str) -> bytes:
    owner = getattr(value, "__self__", None)
    bound = b"" if owner is None or isinstance(owner, types.ModuleType) else encoder.encode(owner, path)
    home = getattr(value, "__module__", None) or getattr(getattr(value, "__objclass__", None), "__module__", "")
    return packed(b"g", text(str(home)), text(value.__qualname__), bound)


@handles(types.MethodType)
def _method(encoder: Encoder, value: types.MethodType, path: str) -> bytes:
    return encoder.encode_container(
        value,
        path,
        lambda: packed(b"m", encoder.encode(value.__func__, path), encoder.encode(value.__self__, path)),
    )


@handles(functools.partial)
def _partial(encoder: Encoder, value: functools.partial[object], path: str) -> bytes:
    return encoder.encode_container(
        value,
        path,
        lambda: packed(b"P", *(encoder.encode(v, path) for v in (value.func, value.args, value.keywords))),
    )


@handles(property)
def _property(encoder: Encoder, value: property, path: str) -> bytes:
    return packed(b"y", *(encoder.encode(f, path) for f in (value.fget, value.fset, value.fdel)))


@handles(staticmethod, classmethod)
def _wrapped_function(
    encoder: Encoder, value: staticmethod[..., object] | classmethod[Any, ..., object], path: str
) -> bytes:
    return packed(b"w", text(type(value).__name__), encoder.encode(value.__func__, path))


@handles(functools.cached_property)
def _cached_property(encoder: Encoder, value: functools.cached_property[object], path: str) -> bytes:
    return packed(b"w", b"cached_property", encoder.encode(value.func, path))


@handles(type(functools.lru_cache(int)))
def _cached_function(encoder: Encoder, value: object, path: str) -> bytes:
    return packed(b"w", b"lru_cache", encoder.encode(vars(value).get("__wrapped__"), path))


@handles(functools.partialmethod)
def _partial_method(encoder: Encoder, value: functools.partialmethod[object], path: str) -> bytes:
    return packed(b"P", *(encoder.encode(v, path) for v in (value.func, value.args, value.keywords)))


@handles(types.ModuleType)
def _python_module(encoder: Encoder, value: types.ModuleType, path: str) -> bytes:
    name = vars(value).get("__name__")
    return packed(b"M", text(name if type(name) is str else ""))
