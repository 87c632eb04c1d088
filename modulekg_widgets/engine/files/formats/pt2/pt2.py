"""Archives of `torch.export.save`: their JSON and the places of their weights; no pickle in them is opened."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from modulekg_widgets.engine.errors import ModelFileError, shown
from modulekg_widgets.engine.files.archive import Archive
from modulekg_widgets.engine.files.formats.pt2.pt2_graph import (
    ProgramReader,
    bytes_of,
    dtype_of,
    fixed_shape,
    integer,
    listed,
    mapping,
    names_of,
    text,
)
from modulekg_widgets.engine.files.graph_parts import TENSOR, Allowance, short, short_text
from modulekg_widgets.engine.files.records import FileContents, Plain, TensorRecord
from modulekg_widgets.engine.files.source import FileSource
from modulekg_widgets.engine.safe_files import parse_json

LARGEST_JSON = 64 << 20  # bytes
MOST_PARTS = 2_000_000  # lists and objects of it
MOST_PARSED = 320 << 20  # bytes that it takes once it is parsed
_OF_OBJECT, _OF_LIST, _OF_VALUE = 200, 100, 32  # of these, each
MOST_LISTED = 10  # of what warnings name
_PROGRAM = "serialized_exported_program.json"  # of torch before 2.8
_FORMAT = "archive_format"
# kinds of inputs by torch/_export/serde/schema.py's InputSpec: the key of the state-dict name, and the tensor's role
_STATE = {
    "parameter": ("parameter_name", "parameter"),
    "buffer": ("buffer_name", "buffer"),
    "tensor_constant": ("tensor_constant_name", "constant"),
}


@dataclass(slots=True)
class ProgramSignature:
    """What the inputs of the graph are: tensors of the state by their names, with roles, and what the user passes."""

    states: dict[str, str] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)


def is_pt2(archive: Archive) -> bool:
    """Whether an archive is one of torch.export, by the names of what is in it."""
    return _FORMAT in archive or _PROGRAM in archive or bool(_models(archive))


def read_pt2(archive: Archive, source: FileSource) -> FileContents:
    """What is in an archive of torch.export: weights and constants, the graph, modules and metadata."""
    models = _models(archive)
    member = models[0] if models else _PROGRAM
    if member not in archive:
        found = ", ".join(shown(repr(name)) for name in archive.names[:MOST_LISTED]) or "nothing"
        raise ModelFileError(
            f"{shown(source.name)} has no program of torch.export, models/*.json or {_PROGRAM}: it has {found}"
        )
    try:
        return _contents(archive, source, member, models)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, ModelFileError):
            raise
        reason = f"it lacks {error}" if isinstance(error, KeyError) else shown(str(error)) or type(error).__name__
        raise ModelFileError(
            f"{shown(source.name)}: {shown(member)} is not what torch.export writes ({reason})"
        ) from error


def _contents(archive: Archive, source: FileSource, member: str, models: list[str]) -> FileContents:
    program = mapping(_parsed(archive, member))
    module = mapping(program["graph_module"])
    graph = mapping(module["graph"])
    signature = _signature(mapping(module["signature"]))
    allowance = Allowance(source.name)
    payloads = _Payloads(archive, allowance, signature)
    model = member.rpartition("/")[2].removesuffix(".json")
    tensors = payloads.tensors(model if models else "", mapping(graph.get("tensor_values")))
    reader = ProgramReader(allowance, signature.states)
    operators = reader.graph(graph, signature.inputs, signature.outputs)
    others = [f"{_names(models[1:])} of the same archive are not shown"] if len(models) > 1 else []
    return FileContents(
        "pt2",
        tensors,
        metadata=_metadata(program),
        modules=reader.modules(module.get("module_call_graph")),
        graph=operators,
        warnings=tuple(others + payloads.warnings + _pickles(archive)),
    )


def _models(archive: Archive) -> list[str]:
    """The programs in an archive; one named "model" is what `torch.export.save` writes, and comes first."""
    found = [name for name in archive.names if name.startswith("models/") and name.endswith(".json")]
    return sorted(found, key=lambda name: (name != "models/model.json", name))


def _parsed(archive: Archive, member: str) -> Any:
    content = archive.read(member, LARGEST_JSON)
    objects, lists, values = map(content.count, (b"{", b"[", b","))
    parsed = objects * _OF_OBJECT + lists * _OF_LIST + values * _OF_VALUE
    if parsed > MOST_PARSED:
        raise ModelFileError(
            f"{shown(member)} takes some {parsed:,} bytes once it is parsed, and {MOST_PARSED:,} are the most: larger "
            "files are not opened"
        )
    return parse_json(content, ModelFileError, MOST_PARTS)


def _signature(signature: Mapping[str, Any]) -> ProgramSignature:
    found = ProgramSignature()
    for entry in listed(signature.get("input_specs")):
        for kind, spec in mapping(entry).items():
            spec = mapping(spec)
            if kind in _STATE:
                key, role = _STATE[kind]
                name = text(spec[key])
                found.states[text(mapping(spec["arg"])["name"])] = name
                found.roles[name] = role
            elif kind == "user_input":
                found.inputs.extend(names_of(spec["arg"]))
    for entry in listed(signature.get("output_specs")):
        for kind, spec in mapping(entry).items():
            if kind in ("user_output", "loss_output"):
                found.outputs.append(mapping(spec)["arg"])
    return found


class _Payloads:
    """The tensors of an archive; `warnings` tell of those that are pickles."""

    def __init__(self, archive: Archive, allowance: Allowance, signature: ProgramSignature) -> None:
        self._archive, self._allowance, self._signature = archive, allowance, signature
        self.warnings: list[str] = []

    def tensors(self, model: str, values: Mapping[str, Any]) -> tuple[TensorRecord, ...]:
        """The tensors that the archive lists, and those that the program alone tells of."""
        found: dict[str, TensorRecord] = {}
        for folder, kind, role in (
            ("data/weights/", "weights", "buffer"),
            ("data/constants/", "constants", "constant"),
        ):
            config = f"{folder}{model}_{kind}_config.json"
            entries = mapping(mapping(_parsed(self._archive, config))["config"]) if config in self._archive else {}
            for name, entry in entries.items():
                if name not in found:
                    self._add(found, name, mapping(entry), folder, role)
        for value, name in self._signature.states.items():
            if name not in found and value in values:
                found[name] = self._record(name, mapping(values[value]), None, self._signature.roles[name])
        return tuple(found.values())

    def _add(self, found: dict[str, TensorRecord], name: str, entry: Mapping[str, Any], folder: str, role: str) -> None:
        role = self._signature.roles.get(name, "parameter" if entry.get("is_param") else role)
        meta = entry.get("tensor_meta")
        if entry.get("use_pickle"):
            self.warnings.append(f"{shown(name)} is stored as a pickle, which loading it would run")
        if meta is not None:
            member = None if entry.get("use_pickle") else folder + text(entry["path_name"])
            found[name] = self._record(name, mapping(meta), member, role)

    def _record(self, name: str, meta: Mapping[str, Any], member: str | None, role: str) -> TensorRecord:
        self._allowance.take(TENSOR + len(name))
        shape, size = fixed_shape(meta), bytes_of(meta.get("dtype"))
        strides = fixed_shape(meta, "strides")
        own = strides if len(strides) == len(shape) and strides != _contiguous(shape, strides) else None
        nbytes = math.prod(shape) * size
        offset = None if member is None else self._place(name, member, meta, (shape, own), size)
        return TensorRecord(name, shape, dtype_of(meta.get("dtype")), nbytes, offset, "", own, role)

    def _place(
        self,
        name: str,
        member: str,
        meta: Mapping[str, Any],
        layout: tuple[tuple[int, ...], tuple[int, ...] | None],
        size: int,
    ) -> int | None:
        """Where the first of a tensor's elements is, in a member that has to hold all of them."""
        start = self._archive.place(member)
        first = integer(mapping(meta.get("storage_offset")).get("as_int", 0))
        needed = (first + _reach(*layout)) * size
        if first < 0 or needed > self._archive.size(member):
            raise ValueError(
                f"{shown(name)} takes {needed:,} bytes, and {shown(member)} has {self._archive.size(member):,}"
            )
        return None if start is None else start + first * size


def _reach(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> int:
    """How many elements lie from the first of a tensor to its last."""
    if strides is None or not math.prod(shape):
        return math.prod(shape)
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def _contiguous(shape: tuple[int, ...], like: tuple[int, ...]) -> tuple[int, ...]:
    """The strides that a contiguous tensor has; for dimensions that are never stepped along, those of `like`."""
    strides, step = [], 1
    for size, given in zip(reversed(shape), reversed(like), strict=False):
        strides.append(step if size > 1 else given)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _metadata(program: Mapping[str, Any]) -> dict[str, Plain]:
    version = mapping(program.get("schema_version"))
    told: dict[str, Plain] = {
        "producer": f"torch {short_text(text(program.get('torch_version', '')))}".strip(),
        "schema": short_text(f"{version.get('major')}.{version.get('minor')}") if version else None,
        "opset": short_text(", ".join(f"{name} {short(number)}" for name, number in _first(program, "opset_version"))),
        "dynamic_sizes": short_text(
            ", ".join(_range(name, mapping(limits)) for name, limits in _first(program, "range_constraints"))
        ),
    }
    return {key: value for key, value in told.items() if value}


def _first(program: Mapping[str, Any], key: str) -> list[tuple[str, Any]]:
    return [entry for entry, _ in zip(mapping(program.get(key)).items(), range(100), strict=False)]


def _range(name: str, limits: Mapping[str, Any]) -> str:
    low, high = short(limits.get("min_val")), short(limits.get("max_val"))
    return f"{name} from {0 if low is None else low}" + ("" if high is None else f" to {high}")


def _pickles(archive: Archive) -> list[str]:
    """What is in an archive that whoever loads it would unpickle."""
    found = [name for name in archive.names if name.endswith(".pt")]
    return [f"loading it opens pickles in it: {_names(found)}"] if found else []


def _names(names: list[str]) -> str:
    return ", ".join(map(shown, names[:MOST_LISTED])) + (", …" if len(names) > MOST_LISTED else "")
