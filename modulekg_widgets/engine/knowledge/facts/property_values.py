"""Plain values as JSON text and back without loss, for the store and for files.

JSON has no NaN, bytes, tuples or big integers: each of these is an object with one key that begins with a dollar sign,
such as `{"$tuple": [1, 2]}`. A dictionary that looks like one of these is written as `{"$dict": [[key, value], …]}`.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np

from modulekg_widgets.engine.errors import PropertyError, a_kind, a_type, printable
from modulekg_widgets.engine.json_types import JsonValue
from modulekg_widgets.engine.safe_files import parse_json

MAX_DEPTH = 32  # containers within each other
MAX_SIMPLE_DEPTH, MAX_SIMPLE_ITEMS, MAX_SIMPLE_LENGTH = (
    3,
    50,
    200,
)  # the nested dictionaries of modules, their entries and their texts
MAX_ITEMS = 500_000  # values within one; lists that share lists may have more than memory
CHARACTERS_PER_ITEM = 16  # of the text for each of these values
MAX_SAFE_INTEGER = 2**53  # JavaScript, which reads our files too, counts no further
# what a user gave or a file holds as a property; `encode` names the types that it may have
PropertyValue: TypeAlias = Any
Properties: TypeAlias = dict[str, PropertyValue]
History = dict[str, list[tuple[float, float]]]  # metric -> (step, value)

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")  # two half characters, which JSON would join to one
_dumps = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def encode(value: object, name: str = "", max_items: int = MAX_ITEMS) -> str:
    """`value` as ASCII JSON text; raises `PropertyError`, which names the property, for what is no plain value.

    Plain are None, bool, int, float, complex, str, bytes, datetime, and tuples, lists and dicts of these; a NumPy
    scalar becomes Python's, and a zone of time its offset. `name` is that of the property in an error; `max_items`
    bounds the values within, and with them the text.
    """
    if _is_simple(value, MAX_SIMPLE_DEPTH):
        text = _dumps(value)
        if '"$' not in text and "\\ud" not in text and len(text) <= max_items * CHARACTERS_PER_ITEM:
            return text
    text = _dumps(to_json(value, name, max_items))
    if len(text) > max_items * CHARACTERS_PER_ITEM:
        raise PropertyError(
            f"{_property_name(name, ())} is longer than {max_items * CHARACTERS_PER_ITEM:,} characters: keep it in a "
            "file"
        )
    return text


def decode(text: str, max_items: int = MAX_ITEMS) -> object:
    """The value that `encode` wrote; raises `ValueError` for any other text."""
    if not isinstance(text, str):
        raise ValueError(f"a value is written as text, not as {a_type(text)}")
    value = _parse(text, max_items * CHARACTERS_PER_ITEM)
    if '"$' not in text and text.count("[") + text.count("{") <= MAX_DEPTH:
        return value
    return from_json(value)


def to_json(value: object, name: str = "", max_items: int = MAX_ITEMS) -> JsonValue:
    """Returns the value as `encode` writes it, in types of JSON with finite floats; raises `PropertyError`."""
    return _PropertyWriter(name, max_items).convert(value, (), MAX_DEPTH)


def from_json(value: object) -> PropertyValue:
    """The value that `to_json` wrote, from parsed JSON; raises `ValueError`."""
    return _restore(value, MAX_DEPTH)


def encode_history(history: History, name: str = "history") -> str:
    """A history of metrics as JSON text, steps and values in a list each; raises `PropertyError`."""
    columns = {metric: [list(column) for column in zip(*points, strict=True)] for metric, points in history.items()}
    return encode(columns, name)


def decode_history(text: str) -> History:
    """The history that `encode_history` wrote; raises `ValueError` for any other text."""
    columns = decode(text)
    if not isinstance(columns, dict):
        raise ValueError("a history is a dictionary of metrics")
    return {_metric(metric): _points(pair) for metric, pair in columns.items()}


def _metric(name: object) -> str:
    if not isinstance(name, str):
        raise ValueError("a metric is named by a text")
    return name


def _points(columns: object) -> list[tuple[float, float]]:
    if columns == []:
        return []
    if not (isinstance(columns, list) and len(columns) == 2 and all(isinstance(c, list) for c in columns)):
        raise ValueError("a metric has a list of steps and a list of values")
    steps, values = columns
    if len(steps) != len(values) or not all(type(x) in (int, float) for column in columns for x in column):
        raise ValueError("a metric has a number for each step")
    if any(type(x) is int and abs(x) > MAX_SAFE_INTEGER for column in columns for x in column):
        steps, values = ([_as_float(x) for x in column] for column in columns)
    return list(zip(steps, values, strict=True))


def _as_float(number: float) -> float:
    """Returns a float, infinite if the number is too large for one."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


# ------------------------------------------------------------------ writing


def _is_simple(value: PropertyValue, depth: int) -> bool:
    """True if JSON has the value as it is and it is small even if it shares lists."""
    kind = type(value)
    if kind is str:
        return len(value) <= MAX_SIMPLE_LENGTH
    if kind is not dict and kind is not list:
        return _is_scalar(value)
    if not depth or len(value) > MAX_SIMPLE_ITEMS:
        return False
    if kind is dict:
        for key in value:
            if type(key) is not str or len(key) > MAX_SIMPLE_LENGTH:
                return False
        value = value.values()
    return False not in [_is_simple(item, depth - 1) for item in value]


def _is_scalar(value: PropertyValue) -> bool:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        return -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER
    return kind is float and math.isfinite(value)


class _PropertyWriter:
    """Converts one property to types of JSON, and names the path of a value that is not plain."""

    def __init__(self, name: str, most: int) -> None:
        self.name = name
        self.most = self.remaining = most

    def convert(self, value: PropertyValue, path: tuple[object, ...], depth: int) -> JsonValue:
        self._spend(1)
        kind = type(value)
        if kind in (tuple, list, dict):
            return self._container(value, kind, path, depth)
        if kind is str or kind is bytes or kind is int:
            self._spend((value.bit_length() // 4 if kind is int else len(value)) // CHARACTERS_PER_ITEM)
        if kind is str:
            return _text(value)
        if _is_scalar(value):
            return value
        scalar = _SCALARS.get(kind)
        if scalar is not None:
            return scalar(value)
        if kind is datetime:
            return {"$datetime": self._moment(value, path).isoformat()}
        if isinstance(value, np.generic) and value.dtype.kind in _NUMPY:
            return self.convert(_NUMPY[value.dtype.kind](value), path, depth)
        raise PropertyError(
            f"{_property_name(self.name, path)} is {a_kind(printable(kind.__name__))}: a property is None, a bool, a "
            "number, a text, "
            "bytes, a datetime, or a tuple, list or dict of these"
        )

    def _spend(self, values: int) -> None:
        self.remaining -= values
        if self.remaining < 0:
            raise PropertyError(
                f"{_property_name(self.name, ())} is longer than {self.most:,} values: keep it in a file"
            )

    def _container(self, value: PropertyValue, kind: type, path: tuple[object, ...], depth: int) -> JsonValue:
        if not depth:
            raise PropertyError(f"{_property_name(self.name, path[:4])} is nested deeper than {MAX_DEPTH} levels")
        if kind is dict:
            return self._dictionary(value, path, depth)
        items = [self.convert(item, (*path, index), depth - 1) for index, item in enumerate(value)]
        return {"$tuple": items} if kind is tuple else items

    def _dictionary(self, value: dict[PropertyValue, object], path: tuple[object, ...], depth: int) -> JsonValue:
        items = [(key, self.convert(item, (*path, key), depth - 1)) for key, item in value.items()]
        if all(type(key) is str and not _PAIR.search(key) for key in value) and not _is_tag(value):
            return dict(items)
        return {"$dict": [[self.convert(key, (*path, "a key"), depth - 1), item] for key, item in items]}

    def _moment(self, value: datetime, path: tuple[object, ...]) -> datetime:
        zone = value.tzinfo
        if zone is None or type(zone) is timezone:
            return value
        if type(zone) is ZoneInfo:
            return value.replace(tzinfo=timezone(value.utcoffset() or timedelta()))
        raise PropertyError(f"{_property_name(self.name, path)} has its own time zone: use datetime.timezone")


def _property_name(name: str, path: tuple[object, ...]) -> str:
    places = [*([name] if name else []), *(printable(p, 30) if isinstance(p, str) else _key_text(p) for p in path)]
    return f"property {printable('.'.join(places))!r}" if places else "the value of a property"


def _key_text(key: object) -> str:
    return str(key) if type(key) is int and abs(key) < MAX_SAFE_INTEGER else type(key).__name__


def _text(value: str) -> JsonValue:
    if not _PAIR.search(value):
        return value
    cuts = [match.start() + 1 for match in _PAIR.finditer(value)]
    return {"$str": [value[i:j] for i, j in zip([0, *cuts], [*cuts, len(value)], strict=True)]}


def _is_tag(value: dict[PropertyValue, PropertyValue]) -> bool:
    if len(value) != 1:
        return False
    (key,) = value
    return type(key) is str and key.startswith("$")


def _float(value: float) -> JsonValue:
    return value if math.isfinite(value) else {"$float": repr(value)}


_SCALARS: dict[type, Callable[[PropertyValue], JsonValue]] = {
    int: lambda value: {"$int": hex(value)},
    float: _float,
    complex: lambda value: {"$complex": [_float(value.real), _float(value.imag)]},
    bytes: lambda value: {"$bytes": base64.b64encode(value).decode("ascii")},
}
_NUMPY: dict[str, Callable[[PropertyValue], object]] = {
    "b": bool, "i": int, "u": int, "f": float, "c": complex, "U": str, "S": bytes,
}  # fmt: skip


# ------------------------------------------------------------------ reading


def _parse(text: str, most: int) -> JsonValue:
    if len(text) > most:
        raise ValueError(f"a value has at most {most:,} characters, found {len(text):,}")
    try:
        return parse_json(text, ValueError, most)
    except RecursionError:
        raise ValueError("a value is nested too deep") from None


def _restore(value: PropertyValue, depth: int) -> PropertyValue:
    kind = type(value)
    if kind is not list and kind is not dict:
        return value
    if kind is dict and _is_tag(value):
        ((tag, inner),) = value.items()
        return _restore_tagged(tag, inner, depth)
    if not depth:
        raise ValueError(f"a value is nested deeper than {MAX_DEPTH} levels")
    if kind is list:
        return [_restore(item, depth - 1) for item in value]
    return {key: _restore(item, depth - 1) for key, item in value.items()}


def _restore_tagged(tag: str, inner: PropertyValue, depth: int) -> object:
    if tag in ("$tuple", "$dict") and type(inner) is list:
        if not depth:
            raise ValueError(f"a value is nested deeper than {MAX_DEPTH} levels")
        if tag == "$dict":
            return _dictionary([_pair(pair, depth - 1) for pair in inner])
        return tuple(_restore(item, depth - 1) for item in inner)
    if tag in _LISTS and type(inner) is list:
        return _LISTS[tag](inner)
    if tag in _READERS and type(inner) is str:
        return _READERS[tag](inner)
    raise ValueError(f"there is no such value as {printable(tag)!r} with {a_type(inner)}")


def _pair(pair: PropertyValue, depth: int) -> tuple[PropertyValue, PropertyValue]:
    if type(pair) is not list or len(pair) != 2:
        raise ValueError("an entry of a dictionary is a key and a value")
    return _restore(pair[0], depth), _restore(pair[1], depth)


def _dictionary(pairs: list[tuple[object, object]]) -> dict[object, object]:
    try:
        hashes = {hash(key) for key, _ in pairs}
    except TypeError:
        raise ValueError("a list or dictionary is not a key") from None
    if len(hashes) < len(pairs) - 100:  # keys made to collide take quadratic time
        raise ValueError("too many keys of a dictionary have the same hash")
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a dictionary has a key twice")
    return found


def _read_float(text: str) -> float:
    if text not in ("nan", "inf", "-inf"):
        raise ValueError("only nan, inf and -inf are written as text")
    return float(text)


def _read_int(text: str) -> int:
    if not re.fullmatch("-?0x[0-9a-f]+", text):
        raise ValueError("a large integer is written in hexadecimal digits")
    return int(text, 16)


def _read_complex(parts: list[PropertyValue]) -> complex:
    numbers = [_restore(part, 0) for part in parts]
    if len(numbers) != 2 or not all(type(number) in (int, float) for number in numbers):
        raise ValueError("a complex number has two parts")
    return complex(*numbers)


def _read_str(parts: list[PropertyValue]) -> str:
    if not all(type(part) is str for part in parts):
        raise ValueError("a text has texts as its parts")
    return "".join(parts)


_LISTS: dict[str, Callable[[list[PropertyValue]], object]] = {"$complex": _read_complex, "$str": _read_str}
_READERS: dict[str, Callable[[str], object]] = {
    "$float": _read_float,
    "$int": _read_int,
    "$bytes": lambda text: base64.b64decode(text, validate=True),
    "$datetime": datetime.fromisoformat,
}
