"""Tensors of a file: memory-mapped copy-on-write, or decoded on access where their bytes in it differ.

Pages are read on access, and the file is never written.
"""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from modulekg_widgets.engine.errors import ModelFileError, ModuleKGError, printable
from modulekg_widgets.engine.files.formats.gguf import BIG_ENDIAN
from modulekg_widgets.engine.files.formats.onnx.onnx_tensors import PROTOBUF
from modulekg_widgets.engine.files.formats.pickle.distributed_checkpoint import STREAM
from modulekg_widgets.engine.files.formats.pickle.torch_checkpoint import read_torch
from modulekg_widgets.engine.files.readers import MALFORMED, MALFORMED_BEYOND_VALUES
from modulekg_widgets.engine.files.records import EncodedPart, TensorRecord
from modulekg_widgets.engine.files.source import FilePart, FileSource, open_source

if TYPE_CHECKING:
    from onnx.onnx_ml_pb2 import TensorProto

# -------------------- Memory mapping


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


# -------------------- Decoding


MAX_MESSAGE_BYTES = 32 << 20  # bytes of one of protobuf, which takes eight times as many in memory
# lists of numbers in ONNX's TensorProto, by torch's word; all others stand in int32_data, floats as their bits
_LISTS = {
    "float32": ("float_data", np.float32), "complex64": ("float_data", np.float32),
    "float64": ("double_data", np.float64), "complex128": ("double_data", np.float64),
    "int64": ("int64_data", np.int64), "uint32": ("uint64_data", np.uint64), "uint64": ("uint64_data", np.uint64),
}  # fmt: skip
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def decode_tensor(source: FileSource, record: TensorRecord) -> torch.Tensor:
    """Returns the tensor of an encoded record; raises `ModelFileError` if its bytes do not fit."""
    assert record.encoded is not None
    decode = _DECODERS.get(record.encoded.form)
    if decode is None:
        raise ModelFileError(
            f"{printable(record.name)} is stored as {printable(record.encoded.form)}, which is not decoded"
        )
    try:
        return decode(source, record)
    except (*MALFORMED, *MALFORMED_BEYOND_VALUES) as error:
        if isinstance(error, ModuleKGError):
            raise
        reason = printable(str(error), 300) or type(error).__name__
        raise ModelFileError(f"{printable(record.name)} cannot be decoded: {reason}") from error


def _from_message(source: FileSource, record: TensorRecord) -> torch.Tensor:
    """Decodes the varint or typed lists of a `TensorProto`."""
    part = _only_part(record)
    if part.nbytes > MAX_MESSAGE_BYTES:
        raise ModelFileError(
            f"{printable(record.name)} has {part.nbytes:,} bytes of encoded numbers, and at most "
            f"{MAX_MESSAGE_BYTES:,} are "
            "decoded: save the model with raw data"
        )
    message = _parsed(source.read(part.start, part.nbytes), record)
    name, kind = _LISTS.get(record.dtype, ("int32_data", np.int32))
    numbers = getattr(message, name)
    values = np.fromiter(numbers, kind, len(numbers))
    dtype = torch_dtype(record.dtype)
    if dtype is None:
        raise ModelFileError(
            f"{printable(record.name)} is {printable(record.dtype)}, of which torch has no plain values"
        )
    if dtype.is_complex:
        values = values.view(np.complex64 if dtype is torch.complex64 else np.complex128)
    if len(values) != math.prod(record.shape):
        raise ModelFileError(
            f"{printable(record.name)} has {len(values):,} numbers, and its shape takes others: the file is malformed"
        )
    if dtype is torch.bool:
        return torch.from_numpy(values != 0).reshape(record.shape)
    if values.dtype.kind in "iu":  # the bits of what is narrower stand in the lowest
        values = values.astype(_BITS.get(dtype.itemsize, np.uint64))
        return torch.from_numpy(values).view(dtype).reshape(record.shape)
    return torch.from_numpy(values).reshape(record.shape)


def _only_part(record: TensorRecord) -> EncodedPart:
    parts = record.encoded.parts if record.encoded else ()
    if len(parts) != 1:
        raise ModelFileError(
            f"{printable(record.name)} has {len(parts):,} parts, and should have one: the file is malformed"
        )
    return parts[0]


def _parsed(content: bytes, record: TensorRecord) -> TensorProto:
    from google.protobuf.message import DecodeError
    from onnx import onnx_ml_pb2

    try:
        return onnx_ml_pb2.TensorProto.FromString(content)
    except DecodeError as error:
        raise ModelFileError(
            f"{printable(record.name)} cannot be decoded: the file is cut off or forged, download or copy it again"
        ) from error


def _from_big_endian(source: FileSource, record: TensorRecord) -> torch.Tensor:
    """Decodes numbers in big-endian byte order."""
    part = _only_part(record)
    dtype = torch_dtype(record.dtype)
    if dtype is None:
        raise ModelFileError(
            f"{printable(record.name)} is {printable(record.dtype)} in blocks whose numbers are big-endian, which is "
            "not "
            "decoded: convert the file to little-endian, as gguf-convert-endian of the package gguf does"
        )
    whole = replace(record, offset=part.start, encoded=None)
    stored = map_part(source, whole, dtype)
    if dtype.itemsize == 1:
        return stored
    flat = stored.reshape(-1).view(torch.uint8).numpy()
    width = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
    swapped = np.ascontiguousarray(flat.reshape(-1, width)[:, ::-1]).reshape(-1)
    return torch.from_numpy(swapped).view(dtype).reshape(record.shape)


def _from_streams(source: FileSource, record: TensorRecord) -> torch.Tensor:
    """Joins a tensor whose parts are separate `torch.save` streams in files of the same folder."""
    parts = record.encoded.parts if record.encoded else ()
    if len(parts) == 1 and parts[0].sizes == record.shape:
        return _from_stream(source, record, parts[0])
    found = [(part, _from_stream(source, record, part)) for part in parts]
    elements = sum(values.numel() for _, values in found)
    if elements != math.prod(record.shape):
        raise ModelFileError(
            f"{printable(record.name)} has {elements:,} numbers in its parts, and its shape takes others: a file is "
            "missing"
        )
    whole = torch.empty(record.shape, dtype=torch_dtype(record.dtype))
    for part, values in found:
        places = zip(part.offsets or (), part.sizes or (), strict=True)
        whole[tuple(slice(start, start + size) for start, size in places)] = values
    return whole


def _from_stream(source: FileSource, record: TensorRecord, part: EncodedPart) -> torch.Tensor:
    with source.beside(part.file) as file:
        stream = FilePart(file, part.start, part.nbytes)
        stored = read_torch(stream).tensors
        dtype = torch_dtype(record.dtype)
        if len(stored) != 1 or stored[0].shape != part.sizes or stored[0].dtype != record.dtype or dtype is None:
            raise ModelFileError(
                f"{printable(record.name)} is not what lies at byte {part.start:,} of {printable(file.name)}: the "
                "files are of "
                "several checkpoints, or forged"
            )
        if stored[0].offset is None:
            raise ModelFileError(
                f"{printable(record.name)} stands in {printable(file.name)} in another form: load it with torch"
            )
        return map_part(file, replace(stored[0], offset=stored[0].offset + part.start), dtype)


_DECODERS: dict[str, Callable[[FileSource, TensorRecord], torch.Tensor]] = {
    PROTOBUF: _from_message,
    BIG_ENDIAN: _from_big_endian,
    STREAM: _from_streams,
}
