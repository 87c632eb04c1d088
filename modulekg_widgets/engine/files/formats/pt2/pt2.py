"""Archives of `torch.export.save`: the JSON program and the offsets of weights; pickles in them are not opened."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from modulekg_widgets.engine.errors import ModelFileError, printable
from modulekg_widgets.engine.files.formats.pt2.pt2_graph import (
    ProgramReader,
    as_integer,
    as_list,
    as_mapping,
    as_text,
    dtype_of,
    fixed_shape,
    itemsize_of,
    value_names,
)
from modulekg_widgets.engine.files.graph_building import TENSOR_COST, ReadBudget, abbreviate_text, abbreviate_value
from modulekg_widgets.engine.files.records import FileContents, PlainValue, TensorRecord
from modulekg_widgets.engine.files.source import FileSource
from modulekg_widgets.engine.files.zip_archive import ZipArchive
from modulekg_widgets.engine.safe_files import parse_json

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
