"""Numbers of tensors that do not stand in a file as torch has them, decoded when they are asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from modulekg_widgets.engine.errors import ModelFileError, shown
from modulekg_widgets.engine.files.onnx_tensors import PROTOBUF
from modulekg_widgets.engine.files.records import TensorRecord
from modulekg_widgets.engine.files.source import FileSource
from modulekg_widgets.engine.files.torch_dtypes import torch_dtype

BIG_ENDIAN = "big-endian"
LARGEST_MESSAGE = 32 << 20  # bytes of one of protobuf, which takes eight times as many in memory
# lists of numbers in ONNX's TensorProto, by torch's word; all others stand in int32_data, floats as their bits
_LISTS = {
    "float32": ("float_data", np.float32), "complex64": ("float_data", np.float32),
    "float64": ("double_data", np.float64), "complex128": ("double_data", np.float64),
    "int64": ("int64_data", np.int64), "uint32": ("uint64_data", np.uint64), "uint64": ("uint64_data", np.uint64),
}  # fmt: skip
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def decoded_tensor(source: FileSource, record: TensorRecord) -> torch.Tensor:
    """The tensor of a record that is encoded; raises `ModelFileError` where its bytes do not make it."""
    assert record.encoded is not None
    decode = _DECODERS.get(record.encoded.form)
    if decode is None:
        raise ModelFileError(f"{shown(record.name)} is stored as {shown(record.encoded.form)}, which is not decoded")
    return decode(source, record)


def _from_message(source: FileSource, record: TensorRecord) -> torch.Tensor:
    """Numbers of a tensor's message of ONNX, each of which takes one or more bytes there."""
    (part,) = record.encoded.parts if record.encoded else ()
    if part.nbytes > LARGEST_MESSAGE:
        raise ModelFileError(
            f"{shown(record.name)} has {part.nbytes:,} bytes of encoded numbers, and at most {LARGEST_MESSAGE:,} are "
            "decoded: save the model with raw data"
        )
    message = _parsed(source.read(part.start, part.nbytes), record)
    name, kind = _LISTS.get(record.dtype, ("int32_data", np.int32))
    numbers = getattr(message, name)
    values = np.fromiter(numbers, kind, len(numbers))
    dtype = torch_dtype(record.dtype)
    if dtype is None:
        raise ModelFileError(f"{shown(record.name)} is {shown(record.dtype)}, of which torch has no plain values")
    if dtype.is_complex:
        values = values.view(np.complex64 if dtype is torch.complex64 else np.complex128)
    if len(values) != math.prod(record.shape):
        raise ModelFileError(
            f"{shown(record.name)} has {len(values):,} numbers, and its shape takes others: the file is malformed"
        )
    if dtype is torch.bool:
        return torch.from_numpy(values != 0).reshape(record.shape)
    if values.dtype.kind in "iu":  # the bits of what is narrower stand in the lowest
        values = values.astype(_BITS.get(dtype.itemsize, np.uint64))
        return torch.from_numpy(values).view(dtype).reshape(record.shape)
    return torch.from_numpy(values).reshape(record.shape)


def _parsed(content: bytes, record: TensorRecord) -> Any:
    from google.protobuf.message import DecodeError
    from onnx.onnx_ml_pb2 import TensorProto

    try:
        return TensorProto.FromString(content)
    except DecodeError as error:
        raise ModelFileError(f"{shown(record.name)} cannot be decoded: the file is cut off or forged") from error


_DECODERS: dict[str, Callable[[FileSource, TensorRecord], torch.Tensor]] = {PROTOBUF: _from_message}
