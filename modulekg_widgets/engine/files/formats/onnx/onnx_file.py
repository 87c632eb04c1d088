"""ONNX files: weights, operators in execution order, modules and metadata, without the numbers of the weights.

Bodies of `If`, `Loop` and `Scan` come before the operator that has them: it takes what they give as further inputs, and
what they take is what it takes. A call of a local function is a module of its class, with the function's operators;
it is one operator where functions call themselves, or would give more operators than `MAX_INLINED`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from modulekg_widgets.engine.errors import MissingReaderError, ModelFileError, printable
from modulekg_widgets.engine.file_formats.format_tables import QUANTIZED_OPERATORS
from modulekg_widgets.engine.files.formats.onnx.onnx_modules import (
    TRACE,
    ModuleSource,
    OnnxModules,
    assign_modules_by_weights,
)
from modulekg_widgets.engine.files.formats.onnx.onnx_tensors import (
    MAX_DIMENSION_SIZE,
    MAX_DIMENSIONS,
    OnnxTensors,
    QuantizedOperands,
    abbreviate_tensor,
    dtype_of,
    is_inline_constant,
    is_weight_dtype,
)
from modulekg_widgets.engine.files.formats.onnx.onnx_wire import (
    LENGTH,
    MAX_DEPTH,
    SMALL_MESSAGE_BYTES,
    WireNode,
    WireReader,
    WireTensor,
    varint_bytes,
)
from modulekg_widgets.engine.files.graph_building import (
    ATTRIBUTE_COST,
    BODY_COST,
    MAX_TEXT,
    OPERATOR_COST,
    VALUE_COST,
    NameScope,
    ReadBudget,
    UniqueNames,
    abbreviate_text,
    abbreviate_value,
    source_location,
)
from modulekg_widgets.engine.files.readers import file_reader
from modulekg_widgets.engine.files.records import (
    FileContents,
    OperatorGraph,
    OperatorRecord,
    PlainValue,
    TensorRecord,
    ValueRecord,
)
from modulekg_widgets.engine.files.source import FileSource

if TYPE_CHECKING:
    from onnx.onnx_ml_pb2 import AttributeProto, FunctionProto, ModelProto, NodeProto, TensorShapeProto, TypeProto

# -------------------- Operators, with those of subgraphs and inlined local functions


MAX_INLINED = 20_000  # operators of local functions
FREE_DIMENSIONS = 4  # that a value has at no further charge
_MAX_CALL_DEPTH = 16

# numbers of fields by https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
_NODE, _INITIALIZER, _SPARSE, _INPUT, _OUTPUT, _VALUE = 1, 5, 15, 11, 12, 13
_FUNCTION_NODE = 7
# what of a function's head is kept: name, input, output, domain, attribute_proto, overload; with the bytes that
# protobuf's objects take for each of its own
_FUNCTION_HEAD = {1: 10, 4: 10, 5: 10, 10: 10, 11: 80, 13: 10}
# AttributeProto.AttributeType
_FIELDS = {1: "f", 2: "i", 3: "s", 6: "floats", 7: "ints", 8: "strings"}
_TENSOR, _HOLDERS = 4, (4, 5, 9, 10)  # one tensor; what holds tensors or graphs

Span = tuple[int, int]  # of bytes in the file


@dataclass(slots=True)
class LocalFunction:
    """A local function: its message without nodes, and the spans of its nodes."""

    message: FunctionProto
    nodes: list[Span]


@dataclass(slots=True)
class GraphBody:
    """A graph or subgraph of the file, before its nodes are read."""

    nodes: list[Span] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    tensors: set[str] = field(default_factory=set)
    values: list[tuple[str, ValueRecord]] = field(default_factory=list)


@dataclass(slots=True)
class NodeContext:
    """Context in which nodes are read: name scope, enclosing module, attributes of the function call, depth."""

    scope: NameScope = field(default_factory=NameScope)
    module: str = ""
    attributes: dict[str, PlainValue] = field(default_factory=dict)
    default_attributes: dict[str, str] = field(default_factory=dict)  # names that the values of a function get
    depth: int = 0
    calls: tuple[str, ...] = ()


class GraphReader:
    """Reads the graph of one file; `tensors` and `modules` collect the weights and modules in it."""

    def __init__(self, source: FileSource, wire: WireReader, allowance: ReadBudget, messages: ModuleType) -> None:
        self._label = printable(source.name)
        self._wire, self._allowance, self._messages = wire, allowance, messages
        self._made = OnnxTensors(source, allowance)
        self.modules = OnnxModules(allowance)
        self.tensors: list[TensorRecord] = []
        self._tensor_names: set[str] = set()
        self._operators: list[OperatorRecord] = []
        self._standings: list[ModuleSource] = []  # of the operators
        self._quantized = QuantizedOperands()
        self._values: dict[str, ValueRecord] = {}
        self._value_names, self._operator_names, self._call_paths = UniqueNames(), UniqueNames(), UniqueNames()
        self._functions: dict[tuple[str, str, str], LocalFunction] = {}
        self._inlined = 0

    def graph(self, spans: Sequence[Span], functions: Sequence[Span]) -> OperatorGraph:
        """Returns the graph in these spans of the file."""
        for span in functions:
            self._add_function(*span)
        place = NodeContext()
        body = self._body(spans, place)
        inputs = [name for name in body.inputs if name not in body.tensors]
        for name in inputs:
            self._value_names.unique(self._allowance.name(name))
        self._run(body, place)
        outputs = tuple(place.scope[name] for name in body.outputs)
        self.tensors = self._quantized.with_roles(self.tensors, self._operators)
        operators = assign_modules_by_weights(self._operators, self._standings, self.tensors, outputs)
        return OperatorGraph(operators, tuple(inputs), outputs, self._values)

    def parsed(self, kind: str, content: bytes) -> Any:
        """Returns the parsed protobuf message; raises `ModelFileError` for invalid bytes."""
        from google.protobuf.message import DecodeError

        try:
            return getattr(self._messages, kind).FromString(content)
        except DecodeError as error:
            raise ModelFileError(
                f"{self._label} has bytes that are not a {kind}: it is cut off or forged, download or copy it again"
            ) from error

    def _body(self, spans: Iterable[Span], place: NodeContext) -> GraphBody:
        body = GraphBody()
        for start, stop in spans:
            for number, _, begin, after in self._wire.fields(start, stop):
                if number == _NODE:
                    self._allowance.charge(200)
                    body.nodes.append((begin, after))
                elif number == _INITIALIZER:
                    wire = self._wire.tensor(begin, after)
                    message = self.parsed("TensorProto", wire.content)
                    self._add_tensor(body, place, self._made.record(message.name, message, wire))
                elif number == _SPARSE:
                    self._add_tensor(body, place, self._sparse(begin, after))
                elif number in (_INPUT, _OUTPUT, _VALUE):
                    self._add_value(body, number, begin, after)
        if not place.depth:
            self.modules.add_owners(tensor.name for tensor in self.tensors)
        return body

    def _run(self, body: GraphBody, place: NodeContext) -> None:
        for begin, after in body.nodes:
            self._node(begin, after, place)
        for name, value in body.values:
            if name not in body.tensors:
                self._values.setdefault(self._allowance.name(place.scope[name]), value)

    def _add_tensor(self, body: GraphBody, place: NodeContext, record: TensorRecord) -> None:
        if not place.depth and record.name in self._tensor_names:
            raise ModelFileError(f"{self._label} has two tensors named {printable(record.name)}: it is forged")
        body.tensors.add(record.name)
        self._keep_tensor(place, record)

    def _keep_tensor(self, place: NodeContext, record: TensorRecord) -> None:
        """Add a tensor, renamed if its name is in use."""
        unique = self._value_names.unique(record.name)
        if place.depth or unique != record.name:
            place.scope[record.name] = unique
        self._tensor_names.add(unique)
        self.tensors.append(record if unique == record.name else replace(record, name=unique))

    def _sparse(self, begin: int, after: int) -> TensorRecord:
        content, parts = self._wire.sparse(begin, after)
        values = self.parsed("TensorProto", parts[0].content)
        return self._made.sparse(self.parsed("SparseTensorProto", content), values, parts)

    def _add_value(self, body: GraphBody, number: int, begin: int, after: int) -> None:
        self._allowance.charge(VALUE_COST + 6 * max(after - begin - 100, 0))  # what protobuf takes to read it
        message = self.parsed("ValueInfoProto", self._wire.content(begin, after))
        name = self._allowance.name(message.name)
        if number == _INPUT:
            body.inputs.append(name)
        elif number == _OUTPUT:
            body.outputs.append(name)
        value = self._value(message.type)
        if value is not None:
            body.values.append((name, value))

    def _value(self, kind: TypeProto) -> ValueRecord | None:
        tensor = kind.tensor_type if kind.HasField("tensor_type") else kind.sparse_tensor_type
        dtype = dtype_of(tensor.elem_type)
        if not tensor.HasField("shape"):
            return ValueRecord(None, dtype) if dtype else None
        dims = tensor.shape.dim
        if len(dims) > MAX_DIMENSIONS:
            raise ModelFileError(f"{self._label} has a value of {len(dims):,} dimensions: it is forged")
        self._allowance.charge(ATTRIBUTE_COST * max(len(dims) - FREE_DIMENSIONS, 0))
        return ValueRecord(tuple(map(self._size, dims)), dtype)

    def _size(self, dim: TensorShapeProto.Dimension) -> int | str:
        """A size as int, or a symbol; an invalid one such as -1 counts as dynamic."""
        if dim.HasField("dim_value") and 0 <= dim.dim_value <= MAX_DIMENSION_SIZE:
            return dim.dim_value
        return self._allowance.name(abbreviate_text(dim.dim_param) or "?")

    def _node(self, begin: int, after: int, place: NodeContext) -> None:
        """Add the operator of a node, after those of its subgraphs."""
        # those of functions are looked at again for every call
        self._allowance.charge((after - begin) // (1 if place.calls else 32))
        wire: WireNode | None = None
        if after - begin <= SMALL_MESSAGE_BYTES:
            node = self.parsed("NodeProto", self._wire.content(begin, after))
            if any(attribute.type in _HOLDERS or not attribute.type for attribute in node.attribute):
                wire = self._wire.node(begin, after)
        else:
            wire = self._wire.node(begin, after)
            node = self.parsed("NodeProto", wire.content)
        if wire is not None and self._is_tensor(node, wire, place):
            return
        self._allowance.charge(ATTRIBUTE_COST * len(node.metadata_props) + 20 * (len(node.input) + len(node.output)))
        metadata = {entry.key: entry.value for entry in node.metadata_props}
        told = self.modules.path_from_metadata(metadata) if metadata else None
        if told is None:
            told = self.modules.path_from_name(node.name)
        module = place.module if told is None else told
        function = self._functions.get((node.domain, node.op_type, node.overload))
        if function is not None and self._can_be_inlined(function, place):
            self._call(node, function, module, place)
            return
        self._allowance.charge(OPERATOR_COST)
        inputs = [place.scope[name] for name in node.input if name]
        given = self._bodies(node, wire, module, place) if wire is not None and wire.graphs else []
        name = node.name or node.op_type
        op = self._allowance.name(f"{node.domain}.{node.op_type}" if _is_custom_domain(node.domain) else node.op_type)
        if op in QUANTIZED_OPERATORS:
            self._quantized.add(op, [place.scope[name] if name else "" for name in node.input])
        self._standings.append(
            ModuleSource.EXPLICIT
            if told is not None
            else ModuleSource.UNKNOWN
            if not place.depth
            else ModuleSource.ENCLOSING
        )
        self._operators.append(
            OperatorRecord(
                self._allowance.name(self._operator_names.unique(name)),
                op,
                module,
                tuple(map(self._allowance.name, (*inputs, *given))),
                tuple(self._define(name, place) for name in node.output if name),
                self._settings(node.attribute, wire, place),
                self._allowance.name(source_location(metadata[TRACE])) if TRACE in metadata else "",
            )
        )

    def _define(self, name: str, place: NodeContext) -> str:
        self._allowance.charge(ATTRIBUTE_COST)
        unique = place.default_attributes.pop(name, "") or self._allowance.name(self._value_names.unique(name))
        if place.depth or unique != name:
            place.scope[name] = unique
        return unique

    def _is_tensor(self, node: NodeProto, wire: WireNode, place: NodeContext) -> bool:
        """True if a node is a `Constant` of many numbers, which is added as a tensor."""
        if (
            node.op_type != "Constant"
            or _is_custom_domain(node.domain)
            or len(node.output) != 1
            or 0 not in wire.tensors
        ):
            return False
        content: WireTensor = wire.tensors[0]
        message = self.parsed("TensorProto", content.content)
        if is_inline_constant(message):
            return False
        role = None if is_weight_dtype(message.data_type) else "constant"  # where weights are kept says nothing of them
        self._keep_tensor(place, self._made.record(node.output[0], message, content, role))
        return True

    def _settings(
        self, attributes: Iterable[AttributeProto], wire: WireNode | None, place: NodeContext
    ) -> dict[str, PlainValue]:
        settings: dict[str, PlainValue] = {}
        for at, attribute in enumerate(attributes):
            self._allowance.charge(ATTRIBUTE_COST)
            name = self._allowance.name(abbreviate_text(attribute.name))
            if wire is not None and at in wire.large_attributes:
                settings[name] = "…"
            elif attribute.ref_attr_name:
                settings[name] = place.attributes.get(attribute.ref_attr_name)
            elif attribute.type in _FIELDS:
                settings[name] = self._setting(getattr(attribute, _FIELDS[attribute.type]))
            elif attribute.type == _TENSOR or (not attribute.type and attribute.HasField("t")):
                settings[name] = self._setting(abbreviate_tensor(attribute.t))
        return settings

    def _setting(self, value: PlainValue | bytes | Sequence[object]) -> PlainValue:
        if isinstance(value, bytes):
            value = value[:1000].decode("utf-8", "replace")
        elif value is not None and not isinstance(value, (int, float, str)):
            value = [part[:1000].decode("utf-8", "replace") if type(part) is bytes else part for part in value[:100]]
        plain = abbreviate_value(value)
        return self._allowance.name(plain) if isinstance(plain, str) else plain

    def _bodies(self, node: NodeProto, wire: WireNode, module: str, place: NodeContext) -> list[str]:
        """Add the operators of the subgraphs of a node; returns the names of their outputs."""
        if place.depth >= MAX_DEPTH:
            raise ModelFileError(f"{self._label} has more than {MAX_DEPTH} graphs within graphs: it is forged")
        given: list[str] = []
        for at, spans in wire.graphs.items():
            path = self.modules.add(f"{module}.{node.attribute[at].name}".lstrip("."))
            for span in spans:
                self._allowance.charge(BODY_COST)
                inner = NodeContext(place.scope.new_child(), path, place.attributes, {}, place.depth + 1, place.calls)
                body = self._body([span], inner)
                own = [name for name in body.inputs if name not in body.tensors]
                taken = [*node.input, *[""] * len(own)]
                for name, outer in zip(own, taken, strict=False):
                    inner.scope[name] = place.scope[outer] if outer else self._value_names.unique(name)
                self._run(body, inner)
                given.extend(inner.scope[name] for name in body.outputs)
        return given

    def _add_function(self, start: int, stop: int) -> None:
        kept, nodes = bytearray(), []
        for number, tag, begin, after in self._wire.fields(start, stop):
            if number == _FUNCTION_NODE:
                self._allowance.charge(200)
                nodes.append((begin, after))
            elif number in _FUNCTION_HEAD:
                self._allowance.charge(_FUNCTION_HEAD[number] * (after - tag))
                kept += self._wire.content(tag, after)
        message = self.parsed("FunctionProto", bytes(kept))
        self._functions.setdefault((message.domain, message.name, message.overload), LocalFunction(message, nodes))

    def _can_be_inlined(self, function: LocalFunction, place: NodeContext) -> bool:
        return (
            self._inlined + len(function.nodes) <= MAX_INLINED
            and len(place.calls) < _MAX_CALL_DEPTH
            and function.message.name not in place.calls
        )

    def _call(self, node: NodeProto, function: LocalFunction, module: str, place: NodeContext) -> None:
        """Add the operators of a local function, in a module named after the call."""
        self._allowance.charge(BODY_COST)
        self._inlined += len(function.nodes)
        message = function.message
        label = node.name.rpartition("/")[2].replace(".", "_") or message.name
        path = self._call_paths.unique(f"{module}.{label}".lstrip("."))
        self.modules.add(path, ".".join(part for part in (message.domain, message.name) if part))
        given = self._settings((*message.attribute_proto, *node.attribute), None, place)
        inner = NodeContext(NameScope(), path, given, {}, place.depth + 1, (*place.calls, message.name))
        for name, outer in zip(message.input, node.input, strict=False):
            if outer:
                inner.scope[name] = self._allowance.name(place.scope[outer])
        for name, outer in zip(message.output, node.output, strict=False):
            if outer:
                inner.default_attributes[name] = self._define(outer, place)
        for span in function.nodes:
            self._node(*span, inner)
        for name, outer in zip(message.output, node.output, strict=False):
            if outer and name in inner.default_attributes:  # it gives what it was given
                place.scope[outer] = inner.scope[name]


def _is_custom_domain(domain: str) -> bool:
    return domain not in ("", "ai.onnx")


# -------------------- Reader of a file


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
        raise ModelFileError(
            f"{printable(source.name)} has no {'opset' if graphs else 'graph'}: it is not an ONNX model"
        )
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
                f"{MAX_METADATA_ENTRIES:,} further graphs: larger files are not opened"
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
