"""Tensors of a file, memory-mapped copy-on-write: pages are read on access, and the file is never written."""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from modulekg_widgets.engine.errors import ModelFileError, printable
from modulekg_widgets.engine.files.records import TensorRecord
from modulekg_widgets.engine.files.source import FileSource, open_source

# -------------------- Dtypes of torch with plain values: not quantised, and of whole bytes


DTYPE_NAMES = (
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16", "float32",
    "float64", "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
    "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
DTYPES_BY_NAME: dict[str, torch.dtype] = {word: getattr(torch, word) for word in DTYPE_NAMES if hasattr(torch, word)}


def torch_dtype(word: str) -> torch.dtype | None:
    """Returns the dtype of this name; None if it has no plain values of whole bytes."""
    return DTYPES_BY_NAME.get(word)


# ----------------------------------------


# of Linux: a tensor may be larger than the memory, of which only what is changed is taken
MAP_NORESERVE = 0x4000 if sys.platform == "linux" else 0


def map_tensor(path: str, record: TensorRecord, size: int) -> torch.Tensor:
    """The tensor of a record; `path` is that of the opened file, and `size` what it had.

    Raises `ModelFileError` where its bytes do not stand in a file as torch has them, or no longer.
    """
    dtype = torch_dtype(record.dtype)
    if record.offset is None or dtype is None:
        raise ModelFileError(f"{printable(record.name)} cannot be mapped into memory: {_unmappable_reason(record)}")
    if record.strides is None and record.nbytes != math.prod(record.shape) * dtype.itemsize:
        raise ModelFileError(f"{printable(record.name)} has {record.nbytes:,} bytes, and its shape takes others")
    with reopened(path, size) as source:
        if not record.file:
            return map_part(source, record, dtype)
        with source.beside(record.file) as other:
            return map_part(other, record, dtype)


@contextmanager
def reopened(path: str, size: int) -> Iterator[FileSource]:
    """Open a file again; raises `ModelFileError` if its size has changed since."""
    with open_source(path) as source:
        if source.size != size:
            raise ModelFileError(f"{printable(source.name)} has another size than when it was opened: open it again")
        yield source


def _unmappable_reason(record: TensorRecord) -> str:
    if torch_dtype(record.dtype) is None:
        return f"it is {printable(record.dtype)}, of which torch has no plain values: only its shape can be told"
    return "its bytes are packed, or stand in the file in another form: load it with the library that wrote it"


def map_part(source: FileSource, record: TensorRecord, dtype: torch.dtype) -> torch.Tensor:
    """Returns the tensor of a record, whose offset is one of this file."""
    start, extent = record.offset or 0, _extent(record) * dtype.itemsize
    if extent < 0 or start < 0 or start + extent > source.size:
        raise ModelFileError(
            f"{printable(record.name)} would end at byte {start + extent:,} of {printable(source.name)}, which has "
            f"{source.size:,}: it is cut off or forged, download or copy it again"
        )
    if not extent:
        return torch.empty(record.shape, dtype=dtype)
    try:
        flat = _map_elements(source, start, extent, dtype)
    except (OSError, MemoryError, OverflowError) as error:
        raise ModelFileError(
            f"{printable(record.name)} cannot be mapped into memory: {printable(str(error))}"
        ) from error
    return flat.as_strided(record.shape, record.strides if record.strides is not None else _dense(record.shape))


def _map_elements(source: FileSource, start: int, extent: int, dtype: torch.dtype) -> torch.Tensor:
    before = start % mmap.ALLOCATIONGRANULARITY
    memory = _copy_on_write(source.file.fileno(), before + extent, start - before)
    if dtype is torch.bool:  # a byte other than 0 and 1 is no truth value, and torch relies on it
        return torch.frombuffer(memory, dtype=torch.uint8, offset=before) != 0
    return torch.frombuffer(memory, dtype=dtype, offset=before)


def _copy_on_write(handle: int, length: int, offset: int) -> mmap.mmap:
    """Maps a part of a file into private memory: changes are not written back."""
    if sys.platform == "win32":
        return mmap.mmap(handle, length, access=mmap.ACCESS_COPY, offset=offset)
    flags, protection = mmap.MAP_PRIVATE | MAP_NORESERVE, mmap.PROT_READ | mmap.PROT_WRITE
    return mmap.mmap(handle, length, flags=flags, prot=protection, offset=offset)


def _extent(record: TensorRecord) -> int:
    """Returns the count of elements from the first to the last one in memory."""
    if 0 in record.shape:
        return 0
    strides = record.strides if record.strides is not None else _dense(record.shape)
    if len(strides) != len(record.shape) or any(stride < 0 for stride in strides):
        raise ModelFileError(
            f"{printable(record.name)} has the strides {printable(str(list(strides)))}: they are forged"
        )
    return 1 + sum((size - 1) * stride for size, stride in zip(record.shape, strides, strict=True))


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides)) if shape else ()
