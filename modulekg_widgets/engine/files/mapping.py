"""A tensor of a file, mapped into memory where it lies: only what is looked at is loaded, and nothing is written."""

from __future__ import annotations

import mmap
from collections.abc import Sequence

import torch

from modulekg_widgets.engine.errors import ModelFileError, shown
from modulekg_widgets.engine.files.records import TensorRecord
from modulekg_widgets.engine.files.skeleton import torch_dtype
from modulekg_widgets.engine.files.source import FileSource, opened


def mapped_tensor(path: str, record: TensorRecord, size: int) -> torch.Tensor:
    """The tensor of a record; `path` is that of the opened file, and `size` what it had.

    Raises `ModelFileError` where its bytes do not stand in a file as torch has them, or no longer.
    """
    dtype = torch_dtype(record.dtype)
    if record.offset is None or dtype is None:
        raise ModelFileError(f"{shown(record.name)} cannot be mapped into memory: {_why(record)}")
    with opened(path) as source:
        if source.size != size:
            raise ModelFileError(f"{shown(source.name)} has another size than when it was opened: open it again")
        if not record.file:
            return _mapped(source, record, dtype)
        with source.beside(record.file) as other:
            return _mapped(other, record, dtype)


def _why(record: TensorRecord) -> str:
    if torch_dtype(record.dtype) is None:
        return f"it is {shown(record.dtype)}, which torch has not: only its shape can be told"
    return "its bytes are packed, or stand in the file in another form: load it with the library that wrote it"


def _mapped(source: FileSource, record: TensorRecord, dtype: torch.dtype) -> torch.Tensor:
    start, extent = record.offset or 0, _extent(record) * dtype.itemsize
    if extent < 0 or start < 0 or start + extent > source.size:
        raise ModelFileError(
            f"{shown(record.name)} would end at byte {start + extent:,} of {shown(source.name)}, which has "
            f"{source.size:,}: it is cut off or forged"
        )
    if not extent:
        return torch.empty(record.shape, dtype=dtype)
    flat = _flat(source, start, extent, dtype)
    return flat.as_strided(record.shape, record.strides if record.strides is not None else _dense(record.shape))


def _flat(source: FileSource, start: int, extent: int, dtype: torch.dtype) -> torch.Tensor:
    # changes stay in memory: the file is never written
    before = start % mmap.ALLOCATIONGRANULARITY
    memory = mmap.mmap(source.file.fileno(), before + extent, access=mmap.ACCESS_COPY, offset=start - before)
    if dtype is torch.bool:  # a byte other than 0 and 1 is no truth value, and torch relies on it
        return torch.frombuffer(memory, dtype=torch.uint8, offset=before) != 0
    if start % dtype.itemsize:
        copied = bytearray(memory[before:])
        return torch.frombuffer(copied, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype, offset=before)


def _extent(record: TensorRecord) -> int:
    """Elements from the first to the last."""
    if 0 in record.shape:
        return 0
    strides = record.strides if record.strides is not None else _dense(record.shape)
    if len(strides) != len(record.shape) or any(stride < 0 for stride in strides):
        raise ModelFileError(f"{shown(record.name)} has the strides {shown(str(list(strides)))}: they are forged")
    return 1 + sum((size - 1) * stride for size, stride in zip(record.shape, strides, strict=True))


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides)) if shape else ()
