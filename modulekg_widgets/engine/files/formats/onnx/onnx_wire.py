"""Protobuf wire format of ONNX files: spans of messages, and messages without the numbers of tensors.

What is read here is protobuf's wire format: fields of a tag and a value, of which those with a length may be messages.
The parts that are needed are handed to the `onnx` package one after another, so memory does not grow with weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from modulekg_widgets.engine.errors import ModelFileError, printable
from modulekg_widgets.engine.files.graph_building import FIELD_COST, ReadBudget
from modulekg_widgets.engine.files.source import FileSource

MAX_MESSAGE_BYTES = 1 << 20  # bytes of a message without its tensors; protobuf's objects take a hundred times as much
MAX_DEPTH = 30  # graphs within graphs
MAX_INLINE_BYTES = 64  # of numbers that stay
MAX_GRAPHS = 1_000  # of an attribute
SMALL_MESSAGE_BYTES = 1 << 14  # bytes of a message that is handed on as it is
_WINDOW_BYTES = 1 << 18  # bytes that are read at a time where one message follows the other, or nearly so,
_PEEK_BYTES = 1 << 10  # and after a jump over a payload
_MAX_TAG_BYTES = 20  # bytes of a tag and a length

LAST_FIELD = 30  # of a model, or one soon to come

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

# numbers of fields by https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
_NODE_ATTRIBUTE_FIELD = 5
_ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS, _ATTRIBUTE_SPARSE = (5, 10), (6, 11), (22, 23)
_ATTRIBUTE_LISTS = (7, 8, 9)
_TENSOR_RAW, _TENSOR_TYPED, _TENSOR_FLOATS = 9, (4, 5, 6, 7, 10, 11), (4, 10)
_SPARSE_TENSORS = (1, 2)

# a field's number, negative where its value has no length, and where its tag, its value and what follows it begin
Field = tuple[int, int, int, int]


@dataclass(slots=True)
class WireTensor:
    """A `TensorProto` without its numbers: the count of their bytes, and their offset unless they are encoded.

    `packed` is where floats stand one behind the other in the list of their type, `span` the whole message.
    """

    content: bytes = b""
    nbytes: int = 0
    raw: int | None = None
    packed: int | None = None
    span: tuple[int, int] = (0, 0)


@dataclass(slots=True)
class WireNode:
    """A `NodeProto` without tensor numbers and subgraphs, which are kept by index of the attribute.

    The keys are the places of attributes in the node's list.
    """

    content: bytes = b""
    graphs: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    tensors: dict[int, WireTensor] = field(default_factory=dict)
    large_attributes: set[int] = field(default_factory=set)  # attributes that hold long lists, which are left out


class WireReader:
    """Reader of the messages of a file, through a moving window."""

    def __init__(self, source: FileSource, allowance: ReadBudget) -> None:
        self._source, self._allowance = source, allowance
        self._label = printable(source.name)
        self._data, self._begin, self._end = b"", 0, 0

    def fields(self, start: int, stop: int) -> Iterator[Field]:
        """Yields the fields of a message, without reading their content."""
        at = start
        while at < stop:
            self._allowance.charge(FIELD_COST)
            if at < self._begin or at + _MAX_TAG_BYTES > self._end:
                self._move(at)
            tag = at
            key, at = self._varint(at)
            begin = at
            kind = key & 7
            if kind == LENGTH:
                length, begin = self._varint(at)
                at = begin + length
            elif kind == VARINT:
                _, at = self._varint(at)
            elif kind == FIXED32:
                at += 4
            elif kind == FIXED64:
                at += 8
            else:
                raise self._malformed(tag)
            if at > stop == self._source.size and kind == LENGTH and 0 < key >> 3 <= LAST_FIELD:
                raise self._error(
                    f"it is cut off: it has {stop:,} bytes, and one of its parts ends at {at:,}: download or copy "
                    "it again"
                )
            if at > stop or not 0 < key >> 3 < 1 << 29:
                raise self._malformed(tag)
            yield (key >> 3 if kind == LENGTH else -(key >> 3)), tag, begin, at

    def content(self, start: int, stop: int) -> bytes:
        """Returns the bytes of a message below the size limit."""
        if stop - start > MAX_MESSAGE_BYTES:
            raise self._error(f"a message at {start:,} has {stop - start:,} bytes besides numbers, too many to be read")
        if start < self._begin or stop > self._end:
            self._move(start)
            if stop > self._end:
                return self._source.read(start, stop - start)
        return self._data[start - self._begin : stop - self._begin]

    def tensor(self, start: int, stop: int) -> WireTensor:
        """Reads a `TensorProto`; few numbers are kept in it."""
        found = WireTensor(span=(start, stop))
        kept = bytearray()
        for number, tag, begin, after in self.fields(start, stop):
            if number == _TENSOR_RAW:  # protobuf's rule for what stands twice: the last counts
                found.raw, found.nbytes = begin, after - begin
            elif abs(number) in _TENSOR_TYPED:
                found.packed = begin if number in _TENSOR_FLOATS and not found.nbytes else None
                found.nbytes += after - begin
            else:
                self._keep(kept, tag, after)
                continue
            if found.nbytes <= MAX_INLINE_BYTES:
                self._keep(kept, tag, after)
        found.content = bytes(kept)
        return found

    def sparse(self, start: int, stop: int) -> tuple[bytes, list[WireTensor]]:
        """Reads a `SparseTensorProto` without its tensors, and the two tensors: values and indices."""
        kept = bytearray()
        tensors = [WireTensor(), WireTensor()]
        for number, tag, begin, after in self.fields(start, stop):
            if number in _SPARSE_TENSORS:
                tensors[number - 1] = self.tensor(begin, after)
            else:
                self._keep(kept, tag, after)
        return bytes(kept), tensors

    def node(self, start: int, stop: int) -> WireNode:
        """Reads a `NodeProto`."""
        found = WireNode()
        kept = bytearray()
        place = 0
        for number, tag, begin, after in self.fields(start, stop):
            if number == _NODE_ATTRIBUTE_FIELD:
                content = self._attribute(found, place, begin, after)
                kept += b"\x2a" + varint_bytes(len(content)) + content
                place += 1
                self._check_operator(start, len(kept))
            else:
                self._keep(kept, tag, after)
        self._check_operator(start, len(kept))
        found.content = bytes(kept)
        return found

    def _check_operator(self, start: int, length: int) -> None:
        if length > MAX_MESSAGE_BYTES:
            raise self._error(f"an operator at {start:,} has {length:,} bytes besides numbers, too many to be read")

    def _attribute(self, node: WireNode, place: int, start: int, stop: int) -> bytes:
        kept = bytearray()
        for number, tag, begin, after in self.fields(start, stop):
            if number in _ATTRIBUTE_GRAPHS:
                graphs = node.graphs.setdefault(place, [])
                if len(graphs) >= MAX_GRAPHS:
                    raise self._error(f"an operator at {start:,} has more than {MAX_GRAPHS:,} graphs: it is forged")
                graphs.append((begin, after))
            elif number in _ATTRIBUTE_TENSORS:
                tensor = node.tensors[place] = self.tensor(begin, after)
                kept += varint_bytes(number << 3 | LENGTH) + varint_bytes(len(tensor.content)) + tensor.content
            elif number in _ATTRIBUTE_SPARSE:
                continue
            elif abs(number) in _ATTRIBUTE_LISTS and stop - start > SMALL_MESSAGE_BYTES:
                node.large_attributes.add(
                    place
                )  # decision trees have millions, each a field: the rest is not looked at
                break
            else:
                self._keep(kept, tag, after)
        return bytes(kept)

    def _keep(self, kept: bytearray, start: int, stop: int) -> None:
        if len(kept) + stop - start > MAX_MESSAGE_BYTES:
            raise self._error(f"a message at {start:,} has more than {MAX_MESSAGE_BYTES:,} bytes besides numbers")
        kept += self.content(start, stop)

    def _varint(self, at: int) -> tuple[int, int]:
        data, place = self._data, at - self._begin
        try:
            byte = data[place]
            if byte < 0x80:
                return byte, at + 1
            value = byte & 0x7F
            for shift in range(7, 70, 7):
                place += 1
                byte = data[place]
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    return value, self._begin + place + 1
        except IndexError:
            pass
        raise self._malformed(at)

    def _move(self, at: int) -> None:
        follows = self._begin <= at <= self._end + SMALL_MESSAGE_BYTES
        length = min(_WINDOW_BYTES if follows else _PEEK_BYTES, self._source.size - at)
        self._data = self._source.read(at, length)
        self._begin, self._end = at, at + length
        if at + length >= self._source.size:
            self._end = at + length + _MAX_TAG_BYTES  # there is no more to be read

    def _malformed(self, at: int) -> ModelFileError:
        return self._error(
            f"the bytes at {at:,} are no field of protobuf: it is cut off or forged, download or copy it again"
        )

    def _error(self, found: str) -> ModelFileError:
        return ModelFileError(f"{self._label}: {found}")


def varint_bytes(value: int) -> bytes:
    """Returns a number as a protobuf varint."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
