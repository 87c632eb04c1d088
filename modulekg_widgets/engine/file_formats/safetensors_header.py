"""Header of safetensors files, validated as a whole before any tensor is read.

A file is eight bytes with the length of the header, the header in JSON, and the bytes of the tensors:
https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.file_formats.format_tables import SAFETENSORS_DTYPES
from modulekg_widgets.engine.safe_files import parse_json

LENGTH_BYTES = 8  # bytes of the length of the header
MAX_HEADER_BYTES = 64 << 20
MAX_TENSORS = 250_000
MAX_DIMENSIONS = 64
MAX_PARTS = 4 * MAX_TENSORS  # lists and objects, of which a tensor has three, and the header two
METADATA = "__metadata__"


class HeaderError(ValueError):
    """An invalid header."""


class HeaderEntry(NamedTuple):
    """A tensor of the header; `dtype` is the name in torch without its prefix."""

    shape: tuple[int, ...]
    dtype: str
    start: int  # in the file
    nbytes: int


def read_header(read: Callable[[int, int], bytes], size: int) -> tuple[dict[str, HeaderEntry], dict[str, str]]:
    """The tensors of a file of `size` bytes, and its metadata; `read` gives bytes by offset and length.

    Raises `HeaderError`, and what `parse_json` raises.
    """
    length = int.from_bytes(read(0, LENGTH_BYTES), "little") if size >= LENGTH_BYTES else 0
    if not 2 <= length <= min(MAX_HEADER_BYTES, size - LENGTH_BYTES):
        raise HeaderError(f"its header would have {length:,} bytes, and the file has {size:,}")
    document = parse_json(
        read(LENGTH_BYTES, length), HeaderError, 4 * MAX_TENSORS, unique=True, most_values=20 * MAX_TENSORS
    )
    if not isinstance(document, dict):
        raise HeaderError("its header is not an object")
    metadata = document.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise HeaderError("its metadata are not texts")
    if len(document) > MAX_TENSORS:
        raise HeaderError(f"it has more than {MAX_TENSORS:,} tensors: larger files are not opened")
    data = LENGTH_BYTES + length
    stored = {name: _entry(name, entry, data) for name, entry in document.items()}
    _check_offsets(stored, data, size)
    return stored, metadata


def _check_offsets(stored: dict[str, HeaderEntry], data: int, size: int) -> None:
    """Raise `HeaderError` unless the tensors follow each other without a gap to the end of the file."""
    end = data
    for name, each in sorted(stored.items(), key=lambda pair: (pair[1].start, pair[1].nbytes)):
        if each.start != end:
            raise HeaderError(f"{printable(name)} does not begin where the one before ends")
        end += each.nbytes
    if end != size:
        raise HeaderError(f"its tensors end at byte {end:,} of {size:,}")


def _entry(name: str, entry: object, data: int) -> HeaderEntry:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise HeaderError(f"{printable(name)} has not a dtype, a shape and offsets")
    known = SAFETENSORS_DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if known is None:
        raise HeaderError(f"{printable(name)} is of the dtype {printable(repr(entry['dtype'])[:60])}")
    shape, offsets = (_sizes(name, entry[key]) for key in ("shape", "data_offsets"))
    if len(shape) > MAX_DIMENSIONS or len(offsets) != 2:
        raise HeaderError(f"{printable(name)} has too many dimensions or offsets")
    dtype, bits = known
    if (offsets[1] - offsets[0]) * 8 != math.prod(shape) * bits:
        raise HeaderError(f"{printable(name)} of the shape {printable(str(list(shape)))} has other offsets")
    return HeaderEntry(shape, dtype, data + offsets[0], offsets[1] - offsets[0])


def _sizes(name: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(part) is int and 0 <= part < 1 << 60 for part in value):
        raise HeaderError(f"{printable(name)} has sizes that are none")
    return tuple(value)
