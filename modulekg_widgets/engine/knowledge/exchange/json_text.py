"""JSON of graph files: written one node a line, parsed within limits."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from modulekg_widgets.engine.errors import GraphFileError, printable
from modulekg_widgets.engine.json_types import JsonArray, JsonObject, JsonValue
from modulekg_widgets.engine.knowledge.exchange.lossless_format import MAX_CONTAINERS, MAX_VALUES
from modulekg_widgets.engine.knowledge.exchange.property_graph import Attributes
from modulekg_widgets.engine.knowledge.facts.property_values import (
    MAX_SAFE_INTEGER,
    PropertyValue,
    encode,
    from_json,
    to_json,
)
from modulekg_widgets.engine.safe_files import parse_json

_write = json.JSONEncoder(ensure_ascii=True, allow_nan=False).encode


def json_line(value: object) -> str:
    return _write(value)


def comma_separated(texts: Iterable[str]) -> Iterator[str]:
    """The elements of a list, a line each, with commas between them."""
    last: str | None = None
    for text in texts:
        if last is not None:
            yield last + ","
        last = text
    if last is not None:
        yield last


def read_fields(data: JsonObject, exclude: Iterable[str]) -> Attributes:
    """The attributes that `object_text` wrote; raises `GraphFileError`."""
    without = set(exclude)
    try:
        return {name: from_json(value) for name, value in data.items() if name not in without}
    except ValueError as error:
        raise GraphFileError(f"a node has a value that is none: {printable(str(error))}") from None


def parse_object(content: bytes) -> JsonObject:
    """The JSON object that a file is; raises `GraphFileError`."""
    try:
        found = parse_json(content, GraphFileError, MAX_CONTAINERS)
    except GraphFileError:
        raise
    except (ValueError, RecursionError) as error:
        raise GraphFileError(f"it is no JSON: {printable(str(error))}") from None
    return checked_object(found, "the file")


def checked_object(value: object, what: str) -> JsonObject:
    if type(value) is not dict:
        raise GraphFileError(f"{what} is a {type(value).__name__}, not an object")
    return value


def checked_list(value: object, what: str) -> JsonArray:
    if type(value) is not list:
        raise GraphFileError(f"{what} is a {type(value).__name__}, not a list")
    return value


# --------------------
# What `encode` and `to_json` give, and quicker: most values of a graph are texts and small numbers in lists of lists.
# Those are told by the types that are among them, all at once, and JSON has them as they are. Every other value, and a
# text with what may be half a character, is left to `encode` and `to_json`, which look at each value within.


_JSON_TYPES = frozenset((str, bool, type(None)))
_NUMBERS = frozenset((int, float))
_LIST, _LIST_OR_TUPLE = frozenset((list,)), frozenset((list, tuple))
_MAX_LISTED = 100_000  # values in the lists of one; lists that share lists may have more than memory
_MAX_DEPTH = 2  # lists within lists within one value
_SURROGATE_ESCAPE = "\\ud"  # how JSON begins half a character
_spaced = json.JSONEncoder(ensure_ascii=True, allow_nan=False).encode
_compact = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def value_text(value: object, name: str, max_items: int = MAX_VALUES) -> str:
    """Returns the text of `encode`; a tuple counts as a list. Raises `PropertyError`. Raises `PropertyError`."""
    if not value and type(value) in (list, tuple, dict):
        return "{}" if type(value) is dict else "[]"
    text = _compact(_json(value, name, max_items))
    if _needs_full_encoding(text, max_items):
        return encode(_as_list(value), name, max_items)
    return text


def object_text(head: Mapping[str, object], data: Attributes, tail: Mapping[str, object] | None = None) -> str:
    """Returns a JSON object of `head`, the attributes as `to_json` converts them, and `tail`."""
    text = _spaced({**head, **_fields(data), **(tail or {})})
    if _needs_full_encoding(text, MAX_VALUES):
        fields = {name: _fully_encoded(value, name, MAX_VALUES) for name, value in data.items() if value is not None}
        return _spaced({**head, **fields, **(tail or {})})
    return text


def _fields(data: Attributes) -> dict[str, object]:
    return {
        name: value if type(value) is str else _json(value, name, MAX_VALUES)
        for name, value in data.items()
        if value is not None
    }


def _needs_full_encoding(text: str, most: int) -> bool:
    # a shorter one has no more values than are allowed
    return len(text) > most or _SURROGATE_ESCAPE in text


def _fully_encoded(value: PropertyValue, name: str, most: int) -> JsonValue:
    return to_json(_as_list(value), name, most)


def _json(value: PropertyValue, name: str, most: int) -> object:
    kind = type(value)
    if kind is int and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
        return value
    if (kind is list or kind is tuple) and _is_plain(value, _MAX_DEPTH):
        return value
    if kind is dict and _has_plain_names(value):
        if _is_plain(value.values(), _MAX_DEPTH):
            return value
        if _is_plain(value.values(), _MAX_DEPTH, _LIST_OR_TUPLE):
            return {key: {"$tuple": item} if type(item) is tuple else item for key, item in value.items()}
    return _fully_encoded(value, name, most)


def _as_list(value: object) -> object:
    return list(value) if type(value) is tuple else value


def _has_plain_names(value: dict[PropertyValue, PropertyValue]) -> bool:
    """True if all keys are texts, and no single key that marks a tagged value."""
    return {str}.issuperset(map(type, value)) and not (len(value) == 1 and next(iter(value)).startswith("$"))


def _is_plain(values: Collection[PropertyValue], depth: int, nested: frozenset[type] = _LIST) -> bool:
    """True if JSON has the values as they are; types in `nested` count as lists."""
    kinds = set(map(type, values))
    kinds -= _JSON_TYPES
    if not kinds:
        return True
    inside = kinds & nested
    if inside:
        lists = [value for value in values if type(value) in inside]
        few = depth > 0 and sum(map(len, lists)) <= _MAX_LISTED
        if not few or not _is_plain(list(chain.from_iterable(lists)), depth - 1):
            return False
        kinds -= inside
    if dict in kinds:
        found = [value for value in values if type(value) is dict]
        few = depth > 0 and sum(map(len, found)) <= _MAX_LISTED
        named = few and all(map(_has_plain_names, found))
        if not named or not _is_plain(list(chain.from_iterable(map(dict.values, found))), depth - 1):
            return False
        kinds -= {dict}
    return kinds <= _NUMBERS and all(
        -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER for value in values if type(value) in kinds
    )
