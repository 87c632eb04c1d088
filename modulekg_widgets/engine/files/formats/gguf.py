"""GGUF files: metadata, and tensors with their types, which may be quantised.

The layout is that of docs/gguf.md in ggml-org/ggml, versions 1 to 3, in either order of bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import NamedTuple

from modulekg_widgets.engine.errors import ModelFileError, printable
from modulekg_widgets.engine.file_formats.format_tables import AMBIGUOUS_GGML_TYPES, GGML_TYPES, GGUF_NUMBERS, GGMLType
from modulekg_widgets.engine.files.readers import file_reader
from modulekg_widgets.engine.files.records import EncodedPart, EncodedValues, FileContents, PlainValue, TensorRecord
from modulekg_widgets.engine.files.source import FileSource

MAX_TENSORS = 50_000  # the largest models have a tenth of it
MAX_KEYS = 20_000
MAX_ELEMENTS_READ = 2_000_000  # texts and arrays in arrays, and elements of short arrays, which are read one by one
MAX_NAME_BYTES = 1 << 16
MAX_TEXT_BYTES = 1 << 16  # kept of a text of the metadata
MAX_TOTAL_TEXT_BYTES = 64 << 20  # bytes of names and texts together
MAX_LISTED_ELEMENTS = 8  # elements of an array that are told one by one
MAX_DIMENSIONS = 8
MAX_ARRAY_DEPTH = 4
MAX_ELEMENTS = 1 << 62
WINDOW_BYTES = 1 << 20  # bytes read at a time
BIG_ENDIAN = "big-endian"

# `enum gguf_type`: numbers have a code of `struct`
NUMBER_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING_TYPE, ARRAY_TYPE = 8, 9


class TensorInfo(NamedTuple):
    """A tensor in the header; `start` is its offset in the data section."""

    name: str
    shape: tuple[int, ...]
    kind: int
    start: int


class HeaderReader:
    """Sequential reader of the header, through a window, in the byte order of the file."""

    def __init__(self, source: FileSource) -> None:
        self.source, self.position, self._passed, self._kept = source, 4, 0, 0
        self._window, self._window_start = b"", 0
        self.order, self.version = "<", 0
        version = self.bytes(4)
        if version[:2] == b"\0\0":  # no version is as large as that, so its bytes are in the other order
            self.order = ">"
        self.version = int.from_bytes(version, "little" if self.order == "<" else "big")
        # version 1 counts in 32 bits
        self._count = struct.Struct(self.order + ("I" if self.version == 1 else "Q"))
        self._numbers = {kind: struct.Struct(self.order + code) for kind, code in NUMBER_CODES.items()}
        self.numbers = {kind: number.size for kind, number in self._numbers.items()}
        counted = self._count.format[-1:]
        self._layouts = [struct.Struct(f"{self.order}{dims}{counted}IQ") for dims in range(MAX_DIMENSIONS + 1)]

    def bytes(self, length: int) -> bytes:
        start = self.position - self._window_start
        if not 0 <= start <= len(self._window) - length:
            self._window_start, start = self.position, 0
            left = max(self.source.size - self.position, 0)
            self._window = self.source.read(self.position, max(length, min(WINDOW_BYTES, left)))
        self.position += length
        return self._window[start : start + length]

    def skip(self, length: int) -> None:
        if length > self.source.size - self.position:
            raise ModelFileError(
                f"{printable(self.source.name)} ends within its header: it is cut off or forged, download or copy it "
                "again"
            )
        self.position += length

    def number(self, kind: int) -> int | float | bool:
        number = self._numbers[kind]
        return number.unpack(self.bytes(number.size))[0]

    def whole(self, kind: int = 4) -> int:
        return int(self.number(kind))

    def count(self) -> int:
        return self._count.unpack(self.bytes(self._count.size))[0]

    def read_counts(self, number: int) -> tuple[int, ...]:
        return tuple(self.count() for _ in range(number))

    def layout(self, dimensions: int) -> tuple[int, ...]:
        """Returns the sizes of a tensor, its type and its offset."""
        layout = self._layouts[dimensions]
        return layout.unpack(self.bytes(layout.size))

    def name(self) -> str:
        length = self.count()
        if length > MAX_NAME_BYTES:
            raise ModelFileError(
                f"{printable(self.source.name)} has a name of {length:,} bytes, and at most {MAX_NAME_BYTES:,} are read"
            )
        self._charge_text(length)
        return self.bytes(length).decode()

    def text(self) -> str:
        length = self.count()
        self._charge_text(min(length, MAX_TEXT_BYTES))
        kept = self.bytes(min(length, MAX_TEXT_BYTES)).decode(errors="replace")
        self.skip(max(length - MAX_TEXT_BYTES, 0))
        return kept + ("…" if length > MAX_TEXT_BYTES else "")

    def skip_texts(self, number: int) -> None:
        self.charge(number)
        for _ in range(number):
            self.skip(self.count())

    def charge(self, number: int) -> None:
        self._passed += number
        if self._passed > MAX_ELEMENTS_READ:
            raise ModelFileError(
                f"{printable(self.source.name)} has more than {MAX_ELEMENTS_READ:,} elements in its metadata: larger "
                "files are "
                "not opened"
            )

    def _charge_text(self, length: int) -> None:
        self._kept += length
        if self._kept > MAX_TOTAL_TEXT_BYTES:
            raise ModelFileError(
                f"{printable(self.source.name)} has more than {MAX_TOTAL_TEXT_BYTES:,} bytes of names and texts: "
                "larger files are "
                "not opened"
            )


@file_reader(".gguf", magic=b"GGUF")
def read_gguf(source: FileSource) -> FileContents:
    """Reads the tensors and metadata from the header alone."""
    header = HeaderReader(source)
    if header.version not in (1, 2, 3):
        raise ModelFileError(
            f"{printable(source.name)} is GGUF of version {header.version:,}, and versions 1 to 3 are read: "
            "convert it with llama.cpp"
        )
    number, keys = header.read_counts(2)
    _check_limit(source, "tensors", number, MAX_TENSORS)
    _check_limit(source, "keys", keys, MAX_KEYS)
    metadata = _metadata(header, keys)
    entries = _tensor_infos(header, number)
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise ModelFileError(
            f"{printable(source.name)} aligns tensors by {printable(str(alignment))}, which is not a power of two: it "
            "is forged"
        )
    begin = -(-header.position // alignment) * alignment
    rooms = _available_bytes(entries, source.size - begin)
    known = [_type_of(entry, room, alignment) for entry, room in zip(entries, rooms, strict=True)]
    tensors = tuple(_tensors(source, entries, begin, rooms, known, is_big=header.order == ">"))
    untold = [entry for entry, kind in zip(entries, known, strict=True) if kind is None]
    return FileContents(
        "gguf",
        tensors,
        title=str(metadata.get("general.name") or metadata.get("general.architecture") or ""),
        metadata=metadata | _bits_per_weight(tensors),
        warnings=(*_split_warning(metadata), *_ambiguous_type_warnings(untold), *_unknown_type_warnings(untold)),
    )


def _check_limit(source: FileSource, things: str, number: int, most: int) -> None:
    if number > most:
        raise ModelFileError(
            f"{printable(source.name)} claims {number:,} {things}, and at most {most:,} are read: larger "
            "files are not opened"
        )


def _metadata(header: HeaderReader, keys: int) -> dict[str, PlainValue]:
    metadata: dict[str, PlainValue] = {}
    for _ in range(keys):
        key = header.name()
        if key in metadata:
            raise ModelFileError(
                f"{printable(header.source.name)} has the key {printable(repr(key))} twice: it is forged"
            )
        metadata[key] = _value(header, header.whole())
    return metadata


def _value(header: HeaderReader, kind: int, depth: int = 0) -> PlainValue:
    if kind in NUMBER_CODES:
        return header.number(kind)
    if kind == STRING_TYPE:
        return header.text()
    if kind == ARRAY_TYPE and depth < MAX_ARRAY_DEPTH:
        return _array(header, depth)
    raise ModelFileError(
        f"{printable(header.source.name)} has a value of the type {kind:,} in its metadata, which GGUF does not have: "
        "it is damaged or forged"
    )


def _array(header: HeaderReader, depth: int) -> str:
    """A short array as text, a long one as its count and type."""
    kind, number = header.whole(), header.count()
    if number <= MAX_LISTED_ELEMENTS:
        header.charge(4 + number)  # an array takes as long as four elements
        return "[" + ", ".join(str(_value(header, kind, depth + 1)) for _ in range(number)) + "]"
    if kind in NUMBER_CODES:
        header.skip(number * header.numbers[kind])
        return f"{number:,} × {GGUF_NUMBERS[kind]}"
    if kind == STRING_TYPE:
        header.skip_texts(number)
        return f"{number:,} strings"
    header.charge(4 * number)  # which takes four times as long
    for _ in range(number):
        _value(header, kind, depth + 1)
    return f"{number:,} arrays"


def _tensor_infos(header: HeaderReader, number: int) -> list[TensorInfo]:
    entries: dict[str, TensorInfo] = {}
    for _ in range(number):
        name, dimensions = header.name(), header.whole()
        _check_limit(header.source, f"dimensions of {printable(name)}", dimensions, MAX_DIMENSIONS)
        *sizes, kind, start = header.layout(dimensions)
        if name in entries:
            raise ModelFileError(
                f"{printable(header.source.name)} has the tensor {printable(repr(name))} twice: it is forged"
            )
        entries[name] = TensorInfo(name, tuple(sizes[::-1]), kind, start)
    return list(entries.values())


def _available_bytes(entries: list[TensorInfo], size: int) -> list[int]:
    """The bytes from each tensor to the next one, or to the end of the file."""
    order = sorted(range(len(entries)), key=lambda index: entries[index].start)
    rooms = [0] * len(entries)
    for place, index in enumerate(order):
        following = entries[order[place + 1]].start if place + 1 < len(order) else size
        rooms[index] = following - entries[index].start
    return rooms


def _type_of(entry: TensorInfo, room: int, alignment: int) -> GGMLType | None:
    """The type of a tensor; None if it is unknown, or ambiguous and does not fit the available bytes."""
    known = GGML_TYPES.get(entry.kind)
    if known is None or entry.kind not in AMBIGUOUS_GGML_TYPES:
        return known
    is_cut = bool(entry.shape) and entry.shape[-1] % known.block == 0
    return known if is_cut and 0 <= room - _bytes_of(entry, known) < alignment else None


def _bytes_of(entry: TensorInfo, kind: GGMLType) -> int:
    return math.prod(entry.shape) // kind.block * kind.nbytes


def _tensors(
    source: FileSource,
    entries: list[TensorInfo],
    start: int,
    rooms: list[int],
    known: list[GGMLType | None],
    is_big: bool,
) -> Iterator[TensorRecord]:
    """Yields the tensors in the order of the header; raises `ModelFileError` if they overlap or exceed the file."""
    for entry, room, kind in zip(entries, rooms, known, strict=True):
        length = _length(source, entry, room, kind)
        dtype, place = kind.name if kind else f"ggml type {entry.kind}", start + entry.start
        encoded = EncodedValues(BIG_ENDIAN, (EncodedPart(place, length),)) if is_big else None
        yield TensorRecord(entry.name, entry.shape, dtype, length, offset=place, encoded=encoded)


def _length(source: FileSource, entry: TensorInfo, room: int, known: GGMLType | None) -> int:
    """Returns the bytes of a tensor; of an unknown type, all that are available."""
    length = _bytes_of(entry, known) if known else max(room, 0)
    if math.prod(entry.shape) > MAX_ELEMENTS:
        raise ModelFileError(
            f"{printable(source.name)}: {printable(entry.name)} has more elements than any memory: it is forged"
        )
    if known and known.block > 1 and (not entry.shape or entry.shape[-1] % known.block):
        raise ModelFileError(
            f"{printable(source.name)}: rows of {printable(entry.name)}, {printable(str(entry.shape))}, cannot be "
            "cut into "
            f"blocks of {known.block} as {known.name} needs: it is damaged or forged"
        )
    if length > room:
        raise ModelFileError(
            f"{printable(source.name)}: {printable(entry.name)} takes {length:,} bytes and has {max(room, 0):,} up "
            "to the next "
            "tensor or the end: the file is cut off or forged, download or copy it again"
        )
    return length


def _bits_per_weight(tensors: tuple[TensorRecord, ...]) -> dict[str, PlainValue]:
    elements = sum(math.prod(tensor.shape) for tensor in tensors)
    if not elements:
        return {}
    return {"bits per weight": round(8 * sum(tensor.nbytes for tensor in tensors) / elements, 3)}


def _split_warning(metadata: dict[str, PlainValue]) -> tuple[str, ...]:
    """The warning for one of several files made by `llama-gguf-split`."""
    number, count = metadata.get("split.no"), metadata.get("split.count")
    if type(number) is not int or type(count) is not int or count < 2:
        return ()
    return (f"this is part {number + 1:,} of {count:,}: tensors of the other parts are not shown",)


def _ambiguous_type_warnings(untold: list[TensorInfo]) -> tuple[str, ...]:
    kinds = sorted({entry.kind for entry in untold if entry.kind in AMBIGUOUS_GGML_TYPES})
    return tuple(
        f"{sum(entry.kind == kind for entry in untold):,} tensors have the type {kind}, which readers use differently "
        f"({AMBIGUOUS_GGML_TYPES[kind]}): their bytes are counted up to the next one"
        for kind in kinds
    )


def _unknown_type_warnings(untold: list[TensorInfo]) -> tuple[str, ...]:
    unknown = [entry for entry in untold if entry.kind not in AMBIGUOUS_GGML_TYPES]
    if not unknown:
        return ()
    kinds = ", ".join(str(kind) for kind in sorted({entry.kind for entry in unknown})[:8])
    text = (
        f"{len(unknown):,} tensors have types that are not known ({kinds}): their bytes are counted up to the next one"
    )
    return (text,)
