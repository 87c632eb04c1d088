"""Tensors of ONNX files as records: dtypes by their names in torch, offsets, and external data files."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from modulekg_widgets.engine.errors import ModelFileError, printable
from modulekg_widgets.engine.file_formats.format_tables import (
    DATA_MOVEMENT_OPERATORS,
    FLOAT_LAYOUTS,
    ONNX_DTYPES,
    QUANTIZED_OPERATORS,
)
from modulekg_widgets.engine.files.formats.onnx.onnx_wire import WireTensor
from modulekg_widgets.engine.files.graph_building import TENSOR_COST, ReadBudget, abbreviate_value
from modulekg_widgets.engine.files.records import EncodedPart, EncodedValues, OperatorRecord, PlainValue, TensorRecord
from modulekg_widgets.engine.files.source import FileSource

if TYPE_CHECKING:
    from onnx.onnx_ml_pb2 import SparseTensorProto, StringStringEntryProto, TensorProto

# -------------------- Floats of 8 and 16 bits, decoded from integers with their bits


_POWERS = "float8_e8m0fnu"  # an exponent alone


def is_small_float(dtype: str) -> bool:
    """True if `small_float` decodes this dtype."""
    return dtype in FLOAT_LAYOUTS or dtype == _POWERS


def small_float(bits: int, dtype: str) -> float:
    """Returns the number in the lowest bits of an integer."""
    if dtype == _POWERS:
        return math.nan if bits & 0xFF == 0xFF else math.ldexp(1.0, (bits & 0xFF) - 127)
    layout = FLOAT_LAYOUTS[dtype]
    width = layout.exponent + layout.fraction
    bits &= (1 << width + 1) - 1
    exponent = bits >> layout.fraction & (1 << layout.exponent) - 1
    fraction = bits & (1 << layout.fraction) - 1
    sign = -1.0 if bits >> width else 1.0
    if bits in layout.nan:
        return math.nan
    if layout.has_infinities and exponent == (1 << layout.exponent) - 1:
        return math.nan if fraction else sign * math.inf
    whole = fraction if not exponent else fraction + (1 << layout.fraction)
    return sign * math.ldexp(whole, max(exponent, 1) - layout.bias - layout.fraction)


# ----------------------------------------


_STRUCT_CODES = {1: "f", 2: "B", 3: "b", 4: "H", 5: "h", 6: "i", 7: "q", 9: "B", 11: "d", 12: "I", 13: "Q"}
_BOOL = 9
_FLOAT_LIST_TYPES = (1, 11, 14, 15)  # whose numbers stand in lists of floats as they do in bytes
PROTOBUF = "protobuf"
MAX_DIMENSIONS = 64
MAX_INLINE_ELEMENTS = 8  # elements: a constant of no more is a setting, one of more a tensor
MAX_DIMENSION_SIZE = (1 << 53) - 1  # of a value: up to it the page has all whole numbers
_MAX_ELEMENTS = 1 << 60
_EXTERNAL_LOCATION = 1  # TensorProto.DataLocation


_DYNAMIC_QUANTIZE = "DynamicQuantizeLinear"  # gives a scale and a zero point


class QuantizedOperands:
    """Tensors that quantisation operators read: quantised numbers, and scales and zero points."""

    def __init__(self) -> None:
        self._numbers: set[str] = set()
        self._scales: set[str] = set()

    def add(self, op: str, inputs: Sequence[str]) -> None:
        """Note the inputs of an operator of `QUANTIZED_OPERATORS`, by position; "" is an omitted one."""
        for noted, places in zip((self._numbers, self._scales), QUANTIZED_OPERATORS[op], strict=True):
            noted.update(inputs[place] for place in places if place < len(inputs))

    def with_roles(self, tensors: list[TensorRecord], operators: Sequence[OperatorRecord]) -> list[TensorRecord]:
        """Returns the tensors with roles: quantised weights are parameters, scales and zero points buffers."""
        if not self._numbers and not self._scales and not any(each.op == _DYNAMIC_QUANTIZE for each in operators):
            return tensors
        self._follow(operators)
        return [
            replace(each, role="parameter" if each.name in self._numbers else "buffer")
            if each.name in self._numbers or each.name in self._scales
            else each
            for each in tensors
        ]

    def _follow(self, operators: Sequence[OperatorRecord]) -> None:
        """Note weights that are moved before they are quantised, and scales that are multiplied."""
        for each in reversed(operators):
            if each.op in DATA_MOVEMENT_OPERATORS and each.inputs and not self._numbers.isdisjoint(each.outputs):
                self._numbers.add(each.inputs[0])
        given: set[str] = set()  # scales that are computed
        for each in operators:
            if each.op == _DYNAMIC_QUANTIZE:
                given.update(each.outputs[1:])
            elif each.op == "Mul" and not given.isdisjoint(each.inputs):
                self._scales.update(each.inputs)
                given.update(each.outputs)


def dtype_of(number: int) -> str:
    """Returns the dtype name of a `TensorProto.DataType`; "" for undefined, "type N" for unknown numbers."""
    if not number:
        return ""
    return ONNX_DTYPES[number][0] if number in ONNX_DTYPES else f"type {number}"


def is_weight_dtype(number: int) -> bool:
    """True for a floating or complex `TensorProto.DataType`."""
    return dtype_of(number).startswith(("float", "bfloat", "complex"))


class OnnxTensors:
    """Makes records of the tensors of one file, and checks the external files that they name."""

    def __init__(self, source: FileSource, allowance: ReadBudget) -> None:
        self._source, self._allowance = source, allowance
        self._places: dict[str, str] = {}  # by what tensors name: paths of other files

    def record(self, name: str, message: TensorProto, wire: WireTensor, role: str | None = None) -> TensorRecord:
        """Returns the record of a tensor, from its message without the numbers."""
        name = self._allowance.name(name)
        shape = self.shape(message.dims, name)
        dtype = dtype_of(message.data_type)
        self._allowance.charge(TENSOR_COST + 40 * len(shape))
        expected = _bytes_of(shape, message.data_type)
        if message.data_location == _EXTERNAL_LOCATION:
            return self._external(name, shape, dtype, expected, message.external_data, role)
        if wire.raw is not None and expected is not None and wire.nbytes != expected:
            raise self._error(
                f"{printable(name)} has {wire.nbytes:,} bytes, and its shape takes {expected:,}: it is forged"
            )
        place, encoded = wire.raw, None
        if place is None and wire.nbytes == expected and message.data_type in _FLOAT_LIST_TYPES:
            place = wire.packed
        if place is None:
            begin, end = wire.span
            encoded = EncodedValues(PROTOBUF, (EncodedPart(begin, end - begin),))
        return TensorRecord(name, shape, dtype, wire.nbytes, place, role=role, encoded=encoded)

    def sparse(self, message: SparseTensorProto, values: TensorProto, parts: Sequence[WireTensor]) -> TensorRecord:
        """Returns the record of a sparse tensor; its bytes are those of values and indices."""
        self._allowance.charge(TENSOR_COST)
        name = self._allowance.name(values.name)
        shape = self.shape(message.dims, name)
        return TensorRecord(name, shape, dtype_of(values.data_type), sum(part.nbytes for part in parts))

    def shape(self, dims: Sequence[int], name: str) -> tuple[int, ...]:
        """Returns the checked sizes of a tensor."""
        shape = tuple(dims) if len(dims) <= MAX_DIMENSIONS else (-1,)
        if any(size < 0 for size in shape) or math.prod(shape) > _MAX_ELEMENTS:
            raise self._error(f"{printable(name)} has sizes that no tensor has: it is forged")
        return shape

    def _external(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        expected: int | None,
        entries: Iterable[StringStringEntryProto],
        role: str | None,
    ) -> TensorRecord:
        told = {entry.key: entry.value for entry in entries}
        location = self._external_path(told.get("location", ""))
        offset = self._number(told.get("offset", "0"), name)
        length = self._number(told["length"], name) if "length" in told else expected
        if expected is not None and length != expected:
            raise self._error(
                f"{printable(name)} has {length:,} bytes in {printable(location)}, and its shape takes {expected:,}"
            )
        return TensorRecord(name, shape, dtype, length or 0, offset, location, role=role)

    def _external_path(self, location: str) -> str:
        """Returns the path of an external file in this folder or below; raises `ModelFileError` for any other."""
        if location not in self._places:
            self._source.path_beside(location)
            self._places[location] = self._allowance.name(location.removeprefix("./"))
        return self._places[location]

    def _number(self, text: str, name: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) <= 18):
            raise self._error(
                f"{printable(name)} begins or ends at {printable(repr(text))} of another file: it is forged"
            )
        return int(text)

    def _error(self, found: str) -> ModelFileError:
        return ModelFileError(f"{printable(self._source.name)}: {found}")


def abbreviate_tensor(message: TensorProto) -> PlainValue:
    """Returns a tensor attribute as a setting: the numbers of a small one, else dtype and shape."""
    shape = tuple(message.dims[:MAX_DIMENSIONS])
    values = _values(message, math.prod(shape)) if is_inline_constant(message) else None
    if values is None:
        return f"{dtype_of(message.data_type)} of {shape}"
    return abbreviate_value(values) if shape else abbreviate_value(values[0])


def is_inline_constant(message: TensorProto) -> bool:
    """True if a tensor has few numbers, and these are in the file itself: it is shown as a setting."""
    return (
        message.data_location != _EXTERNAL_LOCATION and math.prod(message.dims[:MAX_DIMENSIONS]) <= MAX_INLINE_ELEMENTS
    )


def _values(message: TensorProto, count: int) -> Sequence[float] | None:
    """The numbers of a small tensor. Not by `onnx.numpy_helper`, which opens the files that a tensor names."""
    dtype, bits = ONNX_DTYPES.get(message.data_type, ("", 0))
    is_coded = is_small_float(dtype)
    letter = {8: "B", 16: "H"}[bits] if is_coded else _STRUCT_CODES.get(message.data_type)
    if bits < 8:  # two or more stand in one byte
        values = []
    elif message.raw_data and letter and len(message.raw_data) == count * struct.calcsize(letter):
        values = list(struct.unpack(f"<{count}{letter}", message.raw_data))
    elif is_coded:
        values = list(message.int32_data) if len(message.int32_data) == count else []
    else:
        lists = (message.float_data, message.int32_data, message.int64_data, message.double_data, message.uint64_data)
        values = next((list(typed) for typed in lists if len(typed) == count), [])
    if is_coded:
        values = [small_float(int(value), dtype) for value in values]
    if message.data_type == _BOOL:
        values = [bool(value) for value in values]
    return values or None


def _bytes_of(shape: tuple[int, ...], dtype: int) -> int | None:
    bits = ONNX_DTYPES.get(dtype, ("", 0))[1]
    return -(-math.prod(shape) * bits // 8) if bits else None
