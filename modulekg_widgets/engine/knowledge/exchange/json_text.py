"""JSON of files: written a node a line, parsed within limits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from modulekg_widgets.engine.errors import GraphFileError, shown
from modulekg_widgets.engine.knowledge.exchange.flat import MOST_PARTS
from modulekg_widgets.engine.knowledge.property_values import from_json
from modulekg_widgets.engine.safe_files import parse_json

_write = json.JSONEncoder(ensure_ascii=True, allow_nan=False).encode


def json_line(value: Any) -> str:
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


def read_fields(data: dict[str, Any], left_out: Iterable[str]) -> dict[str, Any]:
    """The attributes that `object_text` wrote; raises `GraphFileError`."""
    without = set(left_out)
    try:
        return {name: from_json(value) for name, value in data.items() if name not in without}
    except ValueError as error:
        raise GraphFileError(f"a node has a value that is none: {shown(str(error))}") from None


def parsed_object(content: bytes) -> dict[str, Any]:
    """The JSON object that a file is; raises `GraphFileError`."""
    try:
        found = parse_json(content, GraphFileError, MOST_PARTS)
    except GraphFileError:
        raise
    except (ValueError, RecursionError) as error:
        raise GraphFileError(f"it is no JSON: {shown(str(error))}") from None
    return object_of(found, "the file")


def object_of(value: Any, what: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise GraphFileError(f"{what} is a {type(value).__name__}, not an object")
    return value


def list_of(value: Any, what: str) -> list[Any]:
    if type(value) is not list:
        raise GraphFileError(f"{what} is a {type(value).__name__}, not a list")
    return value
