"""ONNX files: weights, operators, modules and metadata, without the numbers of the weights."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from modulekg_widgets.engine.errors import MissingReaderError, ModelFileError, printable
from modulekg_widgets.engine.files.formats.onnx.onnx_graph import GraphReader, Span
from modulekg_widgets.engine.files.formats.onnx.onnx_wire import LENGTH, WireReader, varint_bytes
from modulekg_widgets.engine.files.graph_building import MAX_TEXT, ReadBudget, abbreviate_text
from modulekg_widgets.engine.files.readers import file_reader
from modulekg_widgets.engine.files.records import FileContents, PlainValue
from modulekg_widgets.engine.files.source import FileSource

if TYPE_CHECKING:
    from onnx.onnx_ml_pb2 import ModelProto

MAX_METADATA_ENTRIES = 1_000  # of the metadata
MAX_FUNCTIONS = 100_000
# numbers of ModelProto's fields by https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
_GRAPH_FIELD, _TRAINING_FIELD, _FUNCTION_FIELD = 7, 20, 25
_TEXT_FIELDS, _METADATA_FIELD = (2, 3, 4, 6), 14
_MAX_TEXT_BYTES = 4 * MAX_TEXT + 4  # bytes: a text that has as many is longer than is shown, and is cut there
_MAX_HEAD_BYTES = 1 << 20  # bytes of what a model has beside graphs and functions


@file_reader(".onnx")
def read_onnx(source: FileSource) -> FileContents:
    """Reads an ONNX file; needs the package `onnx`, of which only the message classes are used."""
    allowance = ReadBudget(source.name)
    wire = WireReader(source, allowance)
    reader = GraphReader(source, wire, allowance, _messages())
    head, graphs, functions = _parts(source, wire)
    model = reader.parsed("ModelProto", head)
    if not graphs or not model.opset_import:
        raise ModelFileError(f"{printable(source.name)} has no {'opset' if graphs else 'graph'}: it is no ONNX model")
    graph = reader.graph(graphs, functions)
    return FileContents(
        "onnx",
        tuple(reader.tensors),
        metadata=_metadata(model),
        modules=reader.modules.parts(reader.tensors, graph.operators),
        graph=graph,
        warnings=_warnings(reader),
    )


def _parts(source: FileSource, wire: WireReader) -> tuple[bytes, list[Span], list[Span]]:
    """Returns the model message without graphs and functions, and the spans of these."""
    head, graphs, functions = bytearray(), [], []
    for number, tag, begin, after in wire.fields(0, source.size):
        if number == _GRAPH_FIELD:
            graphs.append((begin, after))
        elif number == _FUNCTION_FIELD:
            functions.append((begin, after))
        elif number in _TEXT_FIELDS and after - begin > _MAX_TEXT_BYTES:
            head += _field(number, wire.content(begin, begin + _MAX_TEXT_BYTES))
        elif number == _METADATA_FIELD and after - begin > _MAX_TEXT_BYTES:
            head += _field(number, _short_entry(wire, begin, after))
        elif number != _TRAINING_FIELD:
            head += wire.content(tag, after)
        if len(head) > _MAX_HEAD_BYTES or len(functions) > MAX_FUNCTIONS or len(graphs) > MAX_METADATA_ENTRIES:
            raise ModelFileError(
                f"{printable(source.name)} has more than {_MAX_HEAD_BYTES:,} bytes, {MAX_FUNCTIONS:,} functions or "
                f"{MAX_METADATA_ENTRIES:,} graphs beside its graph: larger files are not opened"
            )
    return bytes(head), graphs, functions


def _short_entry(wire: WireReader, start: int, stop: int) -> bytes:
    """A metadata entry with key and value cut to the length that is shown."""
    kept = [
        _field(number, wire.content(begin, min(after, begin + _MAX_TEXT_BYTES)))
        for number, _, begin, after in wire.fields(start, stop)
        if number in (1, 2)
    ]
    return b"".join(kept[-2:])


def _field(number: int, content: bytes) -> bytes:
    return varint_bytes(number << 3 | LENGTH) + varint_bytes(len(content)) + content


def _metadata(model: ModelProto) -> dict[str, PlainValue]:
    producer = f"{model.producer_name} {model.producer_version}".strip()
    opsets = ", ".join(
        f"{entry.domain or 'ai.onnx'} {entry.version}" for entry in model.opset_import[:MAX_METADATA_ENTRIES]
    )
    told: dict[str, PlainValue] = {
        "producer": abbreviate_text(producer),
        "opset": abbreviate_text(opsets),
        "ir_version": model.ir_version,
        "domain": _text(model.domain),
        "model_version": model.model_version,
        "description": _text(model.doc_string),
    }
    told = {key: value for key, value in told.items() if value}
    for entry in model.metadata_props[:MAX_METADATA_ENTRIES]:
        told.setdefault(_text(entry.key), _text(entry.value))
    return told


def _text(text: str | bytes) -> str:
    """Returns a text, cut; protobuf gives bytes for invalid UTF-8."""
    return abbreviate_text(text if isinstance(text, str) else text[:MAX_TEXT].decode("utf-8", "replace"))


def _warnings(reader: GraphReader) -> tuple[str, ...]:
    files = sorted({tensor.file for tensor in reader.tensors if tensor.file})
    return tuple(f"weights lie in {printable(file)}, which has to be in the same folder" for file in files[:10])


def _messages() -> ModuleType:
    try:
        from onnx import onnx_ml_pb2
    except ImportError as error:
        raise MissingReaderError(
            "this is an ONNX file: pip install 'modulekg-widgets[files]' brings the package that reads it"
        ) from error
    return onnx_ml_pb2
