"""What plain Python values are encoded as, one handler a type."""

from __future__ import annotations

import enum
import functools
import struct
import types
from collections import OrderedDict, defaultdict, deque
from datetime import timezone
from fractions import Fraction
from pathlib import PurePath
from typing import Any

from modulekg_widgets.engine.identity.classes import class_mro, class_names, importable, instance_state
from modulekg_widgets.engine.identity.code import encode_function
from modulekg_widgets.engine.identity.encoding import BASE_HANDLERS, HANDLERS, Encoder, Handler, encode_object, handles
from modulekg_widgets.engine.identity.packing import packed, text

LONG_TEXT = 1 << 16  # characters; from here on it pays to remember the digest of the object


@handles(type(None), type(...), type(NotImplemented))
def _singleton(encoder: Encoder, value: Any, path: str) -> bytes:
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
    if len(value) < LONG_TEXT:
        return packed(b"s", text(value))
    return encoder.nested(value, path, lambda: packed(b"s", text(value)))


@handles(bytes, bytearray)
def _bytes(encoder: Encoder, value: bytes | bytearray, path: str) -> bytes:
    encoder.buffers_met += 1
    return packed(b"b", text(type(value).__name__), bytes(value))


# ------------------------------------------------------------------ containers, and subclasses of plain types
# contents are read through the base type's own methods: a subclass may override every one of them; no container is
# built anew, since that would call the `__hash__` and `__eq__` of what it holds


def _set_content(base: type) -> Handler:
    def content(encoder: Encoder, value: Any, path: str) -> bytes:
        return packed(b"S", text(base.__name__), *sorted(encoder.encode(v, path) for v in base.__iter__(value)))

    return content


def _dict_content(encoder: Encoder, value: dict, path: str) -> bytes:
    def item(key: Any, content: Any) -> bytes:
        plain = (type(key) is str and len(key) <= 80) or (type(key) is int and key.bit_length() <= 64)
        where = f"{path}[{key!r}]" if plain else f"{path}[…]"
        return packed(b":", encoder.encode(key, where), encoder.encode(content, where))

    return packed(b"d", *sorted(item(k, v) for k, v in dict.items(value)))


def _defaultdict_content(encoder: Encoder, value: defaultdict, path: str) -> bytes:
    factory = defaultdict.default_factory.__get__(value)  # type: ignore[attr-defined]
    return packed(b"D", encoder.encode(factory, path), _dict_content(encoder, value, path))


def _deque_content(encoder: Encoder, value: deque, path: str) -> bytes:
    limit = deque.maxlen.__get__(value)  # type: ignore[attr-defined]
    return encoder.sequence(b"q", deque.__iter__(value), path, encoder.encode(limit, path))


_CONTENTS: dict[type, Handler] = {
    tuple: lambda encoder, value, path: encoder.sequence(b"t", tuple.__iter__(value), path),
    list: lambda encoder, value, path: encoder.sequence(b"l", list.__iter__(value), path),
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
    return lambda encoder, value, path: encoder.nested(
        value, path, lambda: packed(b"V", name, content(encoder, value, path))
    )


def _subclass(content: Handler) -> Handler:
    def handler(encoder: Encoder, value: Any, path: str) -> bytes:
        def body() -> bytes:
            state = encoder.encode_state(value, path)
            return packed(b"B", encoder.class_reference(type(value)), content(encoder, value, path), *state)

        return encoder.nested(value, path, body)

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
    if importable(module, value.__qualname__, value):
        return packed(b"g", text(module), text(value.__qualname__))
    return encoder.nested(value, path, lambda: encode_function(encoder, value, path))


@handles(
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType
)
def _builtin(encoder: Encoder, value: Any, path: str) -> bytes:
    owner = getattr(value, "__self__", None)
    bound = b"" if owner is None or isinstance(owner, types.ModuleType) else encoder.encode(owner, path)
    home = getattr(value, "__module__", None) or getattr(getattr(value, "__objclass__", None), "__module__", "")
    return packed(b"g", text(str(home)), text(value.__qualname__), bound)


@handles(types.MethodType)
def _method(encoder: Encoder, value: types.MethodType, path: str) -> bytes:
    return encoder.nested(
        value,
        path,
        lambda: packed(b"m", encoder.encode(value.__func__, path), encoder.encode(value.__self__, path)),
    )


@handles(functools.partial)
def _partial(encoder: Encoder, value: functools.partial, path: str) -> bytes:
    return encoder.nested(
        value,
        path,
        lambda: packed(b"P", *(encoder.encode(v, path) for v in (value.func, value.args, value.keywords))),
    )


@handles(property)
def _property(encoder: Encoder, value: property, path: str) -> bytes:
    return packed(b"y", *(encoder.encode(f, path) for f in (value.fget, value.fset, value.fdel)))


@handles(staticmethod, classmethod)
def _wrapped_function(encoder: Encoder, value: Any, path: str) -> bytes:
    return packed(b"w", text(type(value).__name__), encoder.encode(value.__func__, path))


@handles(functools.cached_property)
def _cached_property(encoder: Encoder, value: Any, path: str) -> bytes:
    return packed(b"w", b"cached_property", encoder.encode(value.func, path))


@handles(type(functools.lru_cache(int)))
def _cached_function(encoder: Encoder, value: Any, path: str) -> bytes:
    return packed(b"w", b"lru_cache", encoder.encode(vars(value).get("__wrapped__"), path))


@handles(functools.partialmethod)
def _partial_method(encoder: Encoder, value: functools.partialmethod, path: str) -> bytes:
    return packed(b"P", *(encoder.encode(v, path) for v in (value.func, value.args, value.keywords)))


@handles(types.ModuleType)
def _python_module(encoder: Encoder, value: types.ModuleType, path: str) -> bytes:
    name = vars(value).get("__name__")
    return packed(b"M", text(name if type(name) is str else ""))
