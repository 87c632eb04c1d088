"""Archives of `torch.export.save`: the JSON program and the offsets of weights; pickles in them are not opened.

The operators of a subgraph, as a branch of `cond`, come before the operator that has it, which takes what they give.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from modulekg_widgets.engine.errors import ModelFileError, a_type, printable
from modulekg_widgets.engine.file_formats.format_tables import PT2_DTYPES, PT2_LAYOUTS, PT2_MEMORY_FORMATS
from modulekg_widgets.engine.files.graph_building import (
    ATTRIBUTE_COST,
    BODY_COST,
    NO_MODULE,
    OPERATOR_COST,
    TENSOR_COST,
    VALUE_COST,
    NamedModules,
    NameScope,
    ReadBudget,
    UniqueNames,
    abbreviate_text,
    abbreviate_value,
    source_location,
)
from modulekg_widgets.engine.files.records import (
    FileContents,
    FileModuleRecord,
    OperatorGraph,
    OperatorRecord,
    PlainValue,
    TensorRecord,
    ValueRecord,
)
from modulekg_widgets.engine.files.source import FileSource
from modulekg_widgets.engine.files.zip_archive import ZipArchive
from modulekg_widgets.engine.safe_files import parse_json

# -------------------- Operators of the program, from its JSON graph


MAX_DIMENSIONS = 64
_MAX_SIZE = 1 << 60
_SYMBOL = re.compile(r"(?:Symbol\('([^'()]{1,100})'[^()]{0,200}\)|Integer\((-?\d{1,20})\))")
_MAX_EXPRESSION = 400  # characters of an expression
_CALL_NUMBER = re.compile(r"@\d{1,9}(?=\.|\Z)")


def as_text(value: object) -> str:
    """Returns the value if it is a string; raises `ValueError` otherwise."""
    if not isinstance(value, str):
        raise ValueError(f"{a_type(value)} stands where a text should")
    return value


def as_mapping(value: object) -> Mapping[str, object]:
    """Returns the value if it is a JSON object, an empty dict for null; raises `ValueError` otherwise."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{a_type(value)} stands where an object should")
    return value


def as_list(value: object) -> Sequence[object]:
    """Returns the value if it is a list, an empty one for null; raises `ValueError` otherwise."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{a_type(value)} stands where a list should")
    return value


def as_integer(value: object) -> int:
    """Returns the value if it is an integer in the range of sizes and offsets; raises `ValueError` otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MAX_SIZE:
        raise ValueError("something else stands where a whole number should")
    return value


def dtype_of(number: Any) -> str:
    """Returns the dtype name of a number; "" for none, "type N" for unknown ones."""
    if not number:
        return ""
    return PT2_DTYPES[number][0] if number in PT2_DTYPES else f"type {as_integer(number)}"


def itemsize_of(number: Any) -> int:
    """Returns the bytes of an element; 0 if unknown."""
    return PT2_DTYPES.get(number, ("", 0))[1]


def fixed_shape(meta: Mapping[str, object], key: str = "sizes") -> tuple[int, ...]:
    """Returns sizes or strides that must be integers, as those of weights."""
    shape = tuple(as_integer(as_mapping(size)["as_int"]) for size in _dimensions(meta, key))
    if any(size < 0 for size in shape) or math.prod(shape) > _MAX_SIZE:
        raise ValueError("a tensor has sizes that no tensor has")
    return shape


def value_of(meta: Mapping[str, object]) -> ValueRecord:
    """Returns shape and dtype of a value; symbolic sizes are strings."""
    return ValueRecord(tuple(_size(size) for size in _dimensions(meta, "sizes")), dtype_of(meta.get("dtype")))


def size_text(expression: str) -> str:
    """Returns a symbolic size in short: "s77" for "Symbol('s77', positive=True, integer=True)"."""
    return _SYMBOL.sub(lambda found: found[1] or found[2], expression[:_MAX_EXPRESSION])


def module_path(name: str) -> str:
    """Returns the path of a module without call numbers: "act" for "act@1"."""
    return _CALL_NUMBER.sub("", name)


def _dimensions(meta: Mapping[str, object], key: str) -> Sequence[object]:
    dimensions = as_list(meta.get(key))
    if len(dimensions) > MAX_DIMENSIONS:
        raise ValueError(f"a tensor has {len(dimensions):,} dimensions")
    return dimensions


def _size(size: object) -> int | str:
    size = as_mapping(size)
    if "as_int" in size:
        return as_integer(size["as_int"])
    return size_text(as_text(as_mapping(size["as_expr"])["expr_str"]))


# ----------------------------------------


MAX_DEPTH = 30  # graphs within graphs
_PREFIX = "torch.ops."
_MAX_MODULE_STACK = 100  # modules within modules


@dataclass(slots=True)
class CallArguments:
    """Arguments of an operator: values, settings and subgraphs, and the count of values before the operands."""

    values: list[str] = field(default_factory=list)
    settings: dict[str, PlainValue] = field(default_factory=dict)
    graphs: list[Mapping[str, object]] = field(default_factory=list)
    before_operands: int = 0


class ProgramReader:
    """Reads the graph of an exported program; `names` maps values to state-dict names."""

    def __init__(self, allowance: ReadBudget, names: Mapping[str, str]) -> None:
        self._allowance = allowance
        self._modules = NamedModules(allowance)
        self._tensors = set(names.values())
        self._given = UniqueNames(self._tensors)
        self._operator_names = UniqueNames()
        self._top = NameScope()
        for value, name in names.items():
            self._top[value] = name
        self._operators: list[OperatorRecord] = []
        self._values: dict[str, ValueRecord] = {}
        self._stacks: dict[str, str] = {}

    def graph(self, graph: Mapping[str, object], inputs: list[str], outputs: list[object]) -> OperatorGraph:
        """Returns the graph; `inputs` are names of user inputs, `outputs` the output arguments."""
        taken = tuple(self._define(name, self._top) for name in inputs)
        self._run(graph, self._top, "", 0)
        given = [self._top[name] for argument in outputs for name in value_names(argument)]
        return OperatorGraph(tuple(self._operators), taken, tuple(given), self._values)

    def modules(self, calls: object) -> tuple[FileModuleRecord, ...]:
        """Returns the modules that the program calls, and those of its operators, with classes."""
        for call in as_list(calls):
            self._modules.add(module_path(as_text(as_mapping(call)["fqn"])))
        return self._modules.parts()

    def _run(self, graph: Mapping[str, object], scope: NameScope, module: str, depth: int) -> list[str]:
        """Add the operators of a graph; returns the names of its outputs."""
        for node in as_list(graph.get("nodes")):
            self._node(as_mapping(node), scope, module, depth)
        for name, meta in as_mapping(graph.get("tensor_values")).items():
            unique = scope[name]
            if unique not in self._tensors and unique not in self._values:
                self._allowance.charge(VALUE_COST)
                self._values[unique] = value_of(as_mapping(meta))
        return [scope[name] for argument in as_list(graph.get("outputs")) for name in value_names(argument)]

    def _node(self, node: Mapping[str, object], scope: NameScope, module: str, depth: int) -> None:
        self._allowance.charge(OPERATOR_COST)
        metadata = as_mapping(node.get("metadata"))
        target = as_text(node["target"]).removeprefix(_PREFIX)
        module = self._module(as_text(metadata.get("nn_module_stack", ""))) or module
        called = self._arguments(node, scope)
        for graph in called.graphs:
            called.values.extend(self._subgraph(graph, called, scope, module, depth))
        outputs = tuple(
            self._define(name, scope) for part in as_list(node.get("outputs")) for name in value_names(part)
        )
        name = node.get("name") or (outputs[0] if outputs else target)
        self._operators.append(
            OperatorRecord(
                self._allowance.name(self._operator_names.unique(as_text(name))),
                self._allowance.name(target),
                module,
                tuple(dict.fromkeys(called.values)) if called.graphs else tuple(called.values),
                outputs,
                called.settings,
                self._allowance.name(source_location(as_text(metadata.get("stack_trace", "")))),
            )
        )

    def _define(self, name: str, scope: NameScope) -> str:
        unique = scope[name] = self._allowance.name(self._given.unique(name))
        return unique

    def _arguments(self, node: Mapping[str, object], scope: NameScope) -> CallArguments:
        found = CallArguments()
        for place, entry in enumerate(as_list(node.get("inputs"))):
            self._allowance.charge(ATTRIBUTE_COST)
            entry = as_mapping(entry)
            argument = as_mapping(entry["arg"])
            if "as_graph" in argument:
                found.graphs.append(as_mapping(argument["as_graph"]))
                found.before_operands = len(found.values)
                continue
            found.values.extend(self._allowance.name(scope[name]) for name in value_names(argument))
            setting = _setting(argument)
            if setting is not None:
                key = self._allowance.name(abbreviate_text(as_text(entry.get("name") or "") or f"argument {place}"))
                found.settings[key] = self._allowance.name(setting) if isinstance(setting, str) else setting
        return found

    def _subgraph(
        self, argument: Mapping[str, object], called: CallArguments, scope: NameScope, module: str, depth: int
    ) -> list[str]:
        if depth >= MAX_DEPTH:
            raise ValueError(f"it has more than {MAX_DEPTH} graphs within graphs")
        self._allowance.charge(BODY_COST)
        graph = as_mapping(argument["graph"])
        path = f"{module}.{as_text(argument['name'])}".lstrip(".")
        inner = scope.new_child()
        operands = called.values[called.before_operands :]
        names = [name for part in as_list(graph.get("inputs")) for name in value_names(part)]
        for place, name in enumerate(names):
            inner[name] = operands[place] if place < len(operands) else scope[name]
        self._modules.add(path)
        return self._run(graph, inner, path, depth + 1)

    def _module(self, stack: str) -> str:
        """The path of the innermost of the modules in a text as "L__self__,,pkg.Net;L__self__conv1,conv1,pkg.Conv"."""
        known = self._stacks.get(stack)
        if known is not None or not stack:
            return known or ""
        path = ""
        for entry in stack.split(";", _MAX_MODULE_STACK)[:_MAX_MODULE_STACK]:
            parts = entry.split(",")
            if len(parts) == 3 and parts[1] != NO_MODULE:
                path = module_path(parts[1])
                self._modules.add(path, parts[2])
        self._allowance.charge(len(stack) + 200)
        self._stacks[stack] = self._allowance.name(path)
        return path


def value_names(argument: object, depth: int = 0) -> Iterator[str]:
    """Returns the names of the values in an argument: tensors, lists of them, and symbolic sizes."""
    if depth > MAX_DEPTH:
        raise ValueError("arguments are nested too deep")
    if isinstance(argument, list):
        for part in argument:
            yield from value_names(part, depth + 1)
        return
    for kind, value in as_mapping(argument).items():
        if kind in ("as_tensor", "as_token"):
            yield from _named(as_mapping(value).get("name"))
        elif kind == "as_name" or (kind == "name" and depth):  # in a list, tensors stand without their kind
            yield from _named(value)
        elif kind == "as_string_to_argument":
            for part in as_mapping(value).values():
                yield from value_names(part, depth + 1)
        elif kind in _HOLDERS:
            yield from value_names(value, depth + 1)


_HOLDERS = {
    "as_tensors", "as_optional_tensor", "as_optional_tensors", "as_nested_tensors", "as_sym_int", "as_sym_ints",
    "as_sym_bool", "as_sym_bools", "as_sym_float", "as_sym_floats",
}  # fmt: skip


def _named(name: object) -> Iterator[str]:
    if name:
        yield as_text(name)


def _setting(argument: Mapping[str, object]) -> PlainValue:
    """An argument that is no value, as a plain setting; None for a value."""
    for kind, value in argument.items():
        if kind in _NUMBERED:
            words = _NUMBERED[kind]
            return words.get(value, abbreviate_text(f"{kind[3:]} {value}")) if isinstance(value, int) else None
        if kind == "as_scalar_type":
            return dtype_of(value)
        if kind == "as_device":
            device = as_mapping(value)
            index = device.get("index")
            return abbreviate_text(as_text(device["type"]) if index is None else f"{as_text(device['type'])}:{index}")
        if kind == "as_custom_obj":
            return abbreviate_text(as_text(as_mapping(value)["class_fqn"]))
        if kind in ("as_sym_ints", "as_sym_floats", "as_sym_bools"):
            return abbreviate_value([next(iter(as_mapping(part).values()), None) for part in as_list(value)[:100]])
        if kind in ("as_sym_int", "as_sym_float", "as_sym_bool"):
            return next((abbreviate_value(part) for key, part in as_mapping(value).items() if key != "as_name"), None)
        if kind not in _HOLDERS and kind not in ("as_none", "as_tensor", "as_token", "as_string_to_argument"):
            return abbreviate_value(value)
    return None


_NUMBERED = {"as_memory_format": PT2_MEMORY_FORMATS, "as_layout": PT2_LAYOUTS}

# -------------------- Archive


MAX_JSON_BYTES = 64 << 20  # bytes
MAX_PARTS = 2_000_000  # lists and objects of it
MAX_PARSED_BYTES = 320 << 20  # bytes that it takes once it is parsed
_OBJECT_BYTES, _LIST_BYTES, _VALUE_BYTES = 200, 100, 32  # of these, each
MAX_LISTED = 10  # of what warnings name
_PROGRAM = "serialized_exported_program.json"  # of torch before 2.8
_FORMAT = "archive_format"
# kinds of inputs by torch/_export/serde/schema.py's InputSpec: the key of the state-dict name, and the tensor's role
_STATE_KINDS = {
    "parameter": ("parameter_name", "parameter"),
    "buffer": ("buffer_name", "buffer"),
    "tensor_constant": ("tensor_constant_name", "constant"),
}


@dataclass(slots=True)
class ProgramSignature:
    """Inputs of the graph: state tensors by value name with their roles, user inputs, and outputs."""

    states: dict[str, str] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[object] = field(default_factory=list)


def is_pt2(archive: ZipArchive) -> bool:
    """True if an archive is one of torch.export, by the names of its members."""
    return _FORMAT in archive or _PROGRAM in archive or bool(_models(archive))


def read_pt2(archive: ZipArchive, source: FileSource) -> FileContents:
    """Reads an archive of torch.export: weights and constants, graph, modules and metadata."""
    models = _models(archive)
    member = models[0] if models else _PROGRAM
    if member not in archive:
        found = ", ".join(printable(repr(name)) for name in archive.names[:MAX_LISTED]) or "nothing"
        raise ModelFileError(
            f"{printable(source.name)} has no program of torch.export, models/*.json or {_PROGRAM}: it has {found}"
        )
    try:
        return _contents(archive, source, member, models)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, ModelFileError):
            raise
        reason = f"it lacks {error}" if isinstance(error, KeyError) else printable(str(error)) or type(error).__name__
        raise ModelFileError(
            f"{printable(source.name)}: {printable(member)} is not what torch.export writes ({reason})"
        ) from error


def _contents(archive: ZipArchive, source: FileSource, member: str, models: list[str]) -> FileContents:
    program = as_mapping(_parsed(archive, member))
    module = as_mapping(program["graph_module"])
    graph = as_mapping(module["graph"])
    signature = _signature(as_mapping(module["signature"]))
    allowance = ReadBudget(source.name)
    payloads = _ArchiveTensors(archive, allowance, signature)
    model = member.rpartition("/")[2].removesuffix(".json")
    tensors = payloads.tensors(model if models else "", as_mapping(graph.get("tensor_values")))
    reader = ProgramReader(allowance, signature.states)
    operators = reader.graph(graph, signature.inputs, signature.outputs)
    others = [f"{_abbreviated(models[1:])} of the same archive are not shown"] if len(models) > 1 else []
    return FileContents(
        "pt2",
        tensors,
        metadata=_metadata(program),
        modules=reader.modules(module.get("module_call_graph")),
        graph=operators,
        warnings=tuple(others + payloads.warnings + _pickles(archive)),
    )


def _models(archive: ZipArchive) -> list[str]:
    """The programs in an archive; "model", the name that `torch.export.save` uses, comes first."""
    found = [name for name in archive.names if name.startswith("models/") and name.endswith(".json")]
    return sorted(found, key=lambda name: (name != "models/model.json", name))


def _parsed(archive: ZipArchive, member: str) -> object:
    content = archive.read(member, MAX_JSON_BYTES)
    objects, lists, values = map(content.count, (b"{", b"[", b","))
    parsed = objects * _OBJECT_BYTES + lists * _LIST_BYTES + values * _VALUE_BYTES
    if parsed > MAX_PARSED_BYTES:
        raise ModelFileError(
            f"{printable(member)} takes some {parsed:,} bytes once it is parsed, and {MAX_PARSED_BYTES:,} are the "
            "most: larger "
            "files are not opened"
        )
    return parse_json(content, ModelFileError, MAX_PARTS)


def _signature(signature: Mapping[str, object]) -> ProgramSignature:
    found = ProgramSignature()
    for entry in as_list(signature.get("input_specs")):
        for kind, spec in as_mapping(entry).items():
            spec = as_mapping(spec)
            if kind in _STATE_KINDS:
                key, role = _STATE_KINDS[kind]
                name = as_text(spec[key])
                found.states[as_text(as_mapping(spec["arg"])["name"])] = name
                found.roles[name] = role
            elif kind == "user_input":
                found.inputs.extend(value_names(spec["arg"]))
    for entry in as_list(signature.get("output_specs")):
        for kind, spec in as_mapping(entry).items():
            if kind in ("user_output", "loss_output"):
                found.outputs.append(as_mapping(spec)["arg"])
    return found


class _ArchiveTensors:
    """Tensors of an archive; `warnings` name those that are pickles."""

    def __init__(self, archive: ZipArchive, allowance: ReadBudget, signature: ProgramSignature) -> None:
        self._archive, self._allowance, self._signature = archive, allowance, signature
        self.warnings: list[str] = []

    def tensors(self, model: str, values: Mapping[str, object]) -> tuple[TensorRecord, ...]:
        """Returns the tensors that the archive lists, and those that only the program has."""
        found: dict[str, TensorRecord] = {}
        for folder, kind, role in (
            ("data/weights/", "weights", "buffer"),
            ("data/constants/", "constants", "constant"),
        ):
            config = f"{folder}{model}_{kind}_config.json"
            entries = (
                as_mapping(as_mapping(_parsed(self._archive, config))["config"]) if config in self._archive else {}
            )
            for name, entry in entries.items():
                if name not in found:
                    self._add(found, name, as_mapping(entry), folder, role)
        for value, name in self._signature.states.items():
            if name not in found and value in values:
                found[name] = self._record(name, as_mapping(values[value]), None, self._signature.roles[name])
        return tuple(found.values())

    def _add(
        self, found: dict[str, TensorRecord], name: str, entry: Mapping[str, object], folder: str, role: str
    ) -> None:
        role = self._signature.roles.get(name, "parameter" if entry.get("is_param") else role)
        meta = entry.get("tensor_meta")
        if entry.get("use_pickle"):
            self.warnings.append(f"{printable(name)} is stored as a pickle, which loading it would run")
        if meta is not None:
            member = None if entry.get("use_pickle") else folder + as_text(entry["path_name"])
            found[name] = self._record(name, as_mapping(meta), member, role)

    def _record(self, name: str, meta: Mapping[str, object], member: str | None, role: str) -> TensorRecord:
        self._allowance.charge(TENSOR_COST + len(name))
        shape, size = fixed_shape(meta), itemsize_of(meta.get("dtype"))
        strides = fixed_shape(meta, "strides")
        own = strides if len(strides) == len(shape) and strides != _contiguous(shape, strides) else None
        nbytes = math.prod(shape) * size
        offset = None if member is None else self._place(name, member, meta, (shape, own), size)
        return TensorRecord(name, shape, dtype_of(meta.get("dtype")), nbytes, offset, "", own, role)

    def _place(
        self,
        name: str,
        member: str,
        meta: Mapping[str, object],
        layout: tuple[tuple[int, ...], tuple[int, ...] | None],
        size: int,
    ) -> int | None:
        """Returns the offset of the first element; raises `ValueError` if the member is too small for the tensor."""
        start = self._archive.data_offset(member)
        first = as_integer(as_mapping(meta.get("storage_offset")).get("as_int", 0))
        needed = (first + _extent(*layout)) * size
        if first < 0 or needed > self._archive.size(member):
            raise ValueError(
                f"{printable(name)} takes {needed:,} bytes, and {printable(member)} has {self._archive.size(member):,}"
            )
        return None if start is None else start + first * size


def _extent(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> int:
    """Returns the count of elements from the first to the last one of a strided tensor."""
    if strides is None or not math.prod(shape):
        return math.prod(shape)
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def _contiguous(shape: tuple[int, ...], like: tuple[int, ...]) -> tuple[int, ...]:
    """Contiguous strides; dimensions of size 0 and 1 take those of `like`."""
    strides, step = [], 1
    for size, given in zip(reversed(shape), reversed(like), strict=False):
        strides.append(step if size > 1 else given)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _metadata(program: Mapping[str, object]) -> dict[str, PlainValue]:
    version = as_mapping(program.get("schema_version"))
    told: dict[str, PlainValue] = {
        "producer": f"torch {abbreviate_text(as_text(program.get('torch_version', '')))}".strip(),
        "schema": abbreviate_text(f"{version.get('major')}.{version.get('minor')}") if version else None,
        "opset": abbreviate_text(
            ", ".join(f"{name} {abbreviate_value(number)}" for name, number in _first(program, "opset_version"))
        ),
        "dynamic_sizes": abbreviate_text(
            ", ".join(_range(name, as_mapping(limits)) for name, limits in _first(program, "range_constraints"))
        ),
    }
    return {key: value for key, value in told.items() if value}


def _first(program: Mapping[str, object], key: str) -> list[tuple[str, object]]:
    return [entry for entry, _ in zip(as_mapping(program.get(key)).items(), range(100), strict=False)]


def _range(name: str, limits: Mapping[str, object]) -> str:
    low, high = abbreviate_value(limits.get("min_val")), abbreviate_value(limits.get("max_val"))
    return f"{name} from {0 if low is None else low}" + ("" if high is None else f" to {high}")


def _pickles(archive: ZipArchive) -> list[str]:
    """Warnings for the pickles in an archive, which loading it opens."""
    found = [name for name in archive.names if name.endswith(".pt")]
    return [f"loading it opens pickles in it: {_abbreviated(found)}"] if found else []


def _abbreviated(names: list[str]) -> str:
    return ", ".join(map(printable, names[:MAX_LISTED])) + (", …" if len(names) > MAX_LISTED else "")
