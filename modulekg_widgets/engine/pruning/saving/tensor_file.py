"""The safetensors format: written a tensor at a time, and read after all of the header has been checked.

A file is eight bytes with the length of the header, the header in JSON, and the bytes of the tensors:
https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

import torch

from modulekg_widgets.engine.errors import ModelFolderError, shown
from modulekg_widgets.engine.safe_files import BINARY, NO_LINK, NO_WAITING, PATHLIKE, parse_json

LENGTH = 8  # bytes of the length of the header
ALIGNED = 64  # bytes: where the widest registers begin
LARGEST_HEADER = 64 << 20
MOST_TENSORS = 500_000
MOST_DIMENSIONS = 64
METADATA = "__metadata__"
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "C64": torch.complex64,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class ToWrite(NamedTuple):
    """A tensor that is written; `make` is called when its turn comes, so that slices need not all exist at once."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    make: Callable[[], torch.Tensor]


class Stored(NamedTuple):
    """A tensor in a file."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    start: int  # in the file
    nbytes: int


def write_tensors(file: IO[bytes], tensors: Iterable[ToWrite], metadata: Mapping[str, str]) -> None:
    """Write tensors one by one; raises `ModelFolderError` for a dtype that the format has not."""
    every = sorted(tensors, key=_rank)
    header: dict[str, Any] = {METADATA: dict(metadata)}
    end = 0
    for each in every:
        if each.dtype not in NAMES:
            raise ModelFolderError(f"{shown(each.name)} is {each.dtype}, which safetensors has not: convert it first")
        start, end = end, end + math.prod(each.shape) * each.dtype.itemsize
        header[each.name] = {"dtype": NAMES[each.dtype], "shape": list(each.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + LENGTH) % ALIGNED)
    file.write(len(text).to_bytes(LENGTH, "little"))
    file.write(text)
    for each in every:
        file.write(_bytes(each))


def _rank(each: ToWrite) -> tuple[bool, int]:
    """So that each tensor stands at a multiple of its items' size, and of `ALIGNED` bytes where sizes allow it.

    Whoever maps the file into memory computes as fast, and to the last bit the same, as with tensors of his own.
    """
    return math.prod(each.shape) * each.dtype.itemsize % ALIGNED != 0, -each.dtype.itemsize


def _bytes(each: ToWrite) -> memoryview:
    tensor = each.make().detach().resolve_conj().resolve_neg()
    if tuple(tensor.shape) != each.shape or tensor.dtype is not each.dtype or tensor.is_meta:
        raise ModelFolderError(f"{shown(each.name)} has no values, or changed while it was saved: save again")
    return _memory(tensor.cpu().contiguous())


def _memory(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the CPU."""
    flat: Any = tensor.reshape(-1).view(torch.uint8).numpy()
    return memoryview(flat)


class TensorFile:
    """An open file of tensors, of which the header has been read and checked."""

    def __init__(self, file: IO[bytes], stored: dict[str, Stored], metadata: dict[str, str]) -> None:
        self._file, self.stored, self.metadata = file, stored, metadata

    def read(self, name: str) -> torch.Tensor:
        """A tensor in memory of its own."""
        found = self.stored[name]
        with torch.inference_mode(False):
            tensor = torch.empty(found.shape, dtype=found.dtype, device="cpu")
        self._file.seek(found.start)
        if found.nbytes and self._file.readinto(_memory(tensor)) != found.nbytes:  # type: ignore[attr-defined]
            raise ModelFolderError(f"the file ends within {shown(name)}: it changed while it was read")
        return tensor


@contextmanager
def open_tensors(path: PATHLIKE) -> Iterator[TensorFile]:
    """A file of tensors; raises `ModelFolderError` for anything else, without a byte of a tensor read."""
    name = os.path.basename(path)
    if os.path.islink(path):
        raise ModelFolderError(f"{shown(name)} is a link, which may lead out of the folder: put the file itself there")
    try:
        handle = os.open(path, os.O_RDONLY | BINARY | NO_WAITING | NO_LINK)
    except (OSError, ValueError) as error:
        reason = shown(getattr(error, "strerror", None) or str(error))
        raise ModelFolderError(f"{shown(name)} cannot be read ({reason}): save the model again") from error
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise ModelFolderError(f"{shown(name)} is no ordinary file: save the model again")
    with os.fdopen(handle, "rb") as file:
        try:
            yield TensorFile(file, *_header(file, found.st_size))
        except _WrongHeaderError as error:
            raise ModelFolderError(f"{shown(name)} is no safetensors file: {error}") from error
        except (ValueError, RecursionError, OSError) as error:
            if isinstance(error, ModelFolderError):
                raise
            raise ModelFolderError(f"{shown(name)} is no safetensors file: {shown(str(error))}") from error


class _WrongHeaderError(ModelFolderError):
    """What is wrong with a header."""


def _header(file: IO[bytes], size: int) -> tuple[dict[str, Stored], dict[str, str]]:
    length = int.from_bytes(file.read(LENGTH), "little")
    if size < LENGTH or not 2 <= length <= min(LARGEST_HEADER, size - LENGTH):
        raise _WrongHeaderError(f"its header would have {length:,} bytes, and the file has {size:,}")
    document = parse_json(file.read(length), _WrongHeaderError, 3 * MOST_TENSORS, unique=True)
    if not isinstance(document, dict):
        raise _WrongHeaderError("its header is no object")
    metadata = document.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _WrongHeaderError("its metadata are not texts")
    if len(document) > MOST_TENSORS:
        raise _WrongHeaderError(f"it has more than {MOST_TENSORS:,} tensors")
    data = LENGTH + length
    stored = {name: _stored(name, entry, data) for name, entry in document.items()}
    end = data
    for name, each in sorted(stored.items(), key=lambda pair: (pair[1].start, pair[1].nbytes)):
        if each.start != end:
            raise _WrongHeaderError(f"{shown(name)} does not begin where the one before ends")
        end += each.nbytes
    if end != size:
        raise _WrongHeaderError(f"its tensors end at byte {end:,} of {size:,}")
    return stored, metadata


def _stored(name: str, entry: Any, data: int) -> Stored:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise _WrongHeaderError(f"{shown(name)} has not a dtype, a shape and offsets")
    dtype = DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if dtype is None:
        raise _WrongHeaderError(f"{shown(name)} is of the dtype {shown(repr(entry['dtype'])[:60])}")
    shape, offsets = (_sizes(name, entry[key]) for key in ("shape", "data_offsets"))
    if len(shape) > MOST_DIMENSIONS or len(offsets) != 2:
        raise _WrongHeaderError(f"{shown(name)} has too many dimensions or offsets")
    if offsets[1] - offsets[0] != math.prod(shape) * dtype.itemsize:
        raise _WrongHeaderError(f"{shown(name)} of the shape {shown(str(list(shape)))} has other offsets")
    return Stored(shape, dtype, data + offsets[0], offsets[1] - offsets[0])


def _sizes(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(part) is int and 0 <= part < 1 << 60 for part in value):
        raise _WrongHeaderError(f"{shown(name)} has sizes that are none")
    return tuple(value)
