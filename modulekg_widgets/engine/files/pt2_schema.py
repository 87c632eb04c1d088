"""Parts of the JSON that `torch.export.save` writes, checked as they are taken out: texts, sizes, dtypes, names."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from modulekg_widgets.engine.files.records import ValueRecord

# ScalarType of torch/_export/serde/schema.py → torch's word, and the bytes of an element
DTYPES = {
    1: ("uint8", 1), 2: ("int8", 1), 3: ("int16", 2), 4: ("int32", 4), 5: ("int64", 8), 6: ("float16", 2),
    7: ("float32", 4), 8: ("float64", 8), 9: ("complex32", 4), 10: ("complex64", 8), 11: ("complex128", 16),
    12: ("bool", 1), 13: ("bfloat16", 2), 28: ("uint16", 2), 29: ("float8_e4m3fn", 1), 30: ("float8_e5m2", 1),
    31: ("float8_e4m3fnuz", 1), 32: ("float8_e5m2fnuz", 1), 33: ("float8_e8m0fnu", 1), 34: ("uint32", 4),
    35: ("uint64", 8),
}  # fmt: skip
# MemoryFormat and Layout of the same file
MEMORY_FORMATS = {1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format"}
LAYOUTS = {
    1: "sparse_coo",
    2: "sparse_csr",
    3: "sparse_csc",
    4: "sparse_bsr",
    5: "sparse_bsc",
    6: "_mkldnn",
    7: "strided",
}
MOST_DIMENSIONS = 64
_LARGEST_SIZE = 1 << 60
_SYMBOL = re.compile(r"(?:Symbol\('([^'()]{1,100})'[^()]{0,200}\)|Integer\((-?\d{1,20})\))")
_LONGEST_SIZE = 400  # characters of an expression
_CALL_NUMBER = re.compile(r"@\d{1,9}(?=\.|\Z)")


def text(value: Any) -> str:
    """The value, if it is a text."""
    if not isinstance(value, str):
        raise ValueError(f"a {type(value).__name__} stands where a text should")
    return value


def mapping(value: Any) -> Mapping[str, Any]:
    """The value, if it is an object of JSON; null is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"a {type(value).__name__} stands where an object should")
    return value


def listed(value: Any) -> Sequence[Any]:
    """The value, if it is a list; null is an empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"a {type(value).__name__} stands where a list should")
    return value


def integer(value: Any) -> int:
    """The value, if it is a whole number of a size that offsets and counts have."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST_SIZE:
        raise ValueError("something else stands where a whole number should")
    return value


def dtype_of(number: Any) -> str:
    """The word for a dtype; "" for none, a number for what is newer than this."""
    if not number:
        return ""
    return DTYPES[number][0] if number in DTYPES else f"type {integer(number)}"


def bytes_of(number: Any) -> int:
    """What an element takes; 0 where that is not known."""
    return DTYPES.get(number, ("", 0))[1]


def fixed_shape(meta: Mapping[str, Any], key: str = "sizes") -> tuple[int, ...]:
    """Sizes or strides that have to be numbers, as those of weights."""
    shape = tuple(integer(mapping(size)["as_int"]) for size in _dimensions(meta, key))
    if any(size < 0 for size in shape) or math.prod(shape) > _LARGEST_SIZE:
        raise ValueError("a tensor has sizes that no tensor has")
    return shape


def value_of(meta: Mapping[str, Any]) -> ValueRecord:
    """Shape and dtype of a value; what is symbolic is a text."""
    return ValueRecord(tuple(_size(size) for size in _dimensions(meta, "sizes")), dtype_of(meta.get("dtype")))


def size_text(expression: str) -> str:
    """A symbolic size in short: "s77" for "Symbol('s77', positive=True, integer=True)"."""
    return _SYMBOL.sub(lambda found: found[1] or found[2], expression[:_LONGEST_SIZE])


def module_path(name: str) -> str:
    """The path of a module without the numbers of its calls, as "act" for "act@1"."""
    return _CALL_NUMBER.sub("", name)


def _dimensions(meta: Mapping[str, Any], key: str) -> Sequence[Any]:
    dimensions = listed(meta.get(key))
    if len(dimensions) > MOST_DIMENSIONS:
        raise ValueError(f"a tensor has {len(dimensions):,} dimensions")
    return dimensions


def _size(size: Any) -> int | str:
    size = mapping(size)
    if "as_int" in size:
        return integer(size["as_int"])
    return size_text(text(mapping(size["as_expr"])["expr_str"]))
