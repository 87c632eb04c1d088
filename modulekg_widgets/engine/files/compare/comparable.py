"""Models in a comparable form: tensors and modules of a file or of a live model, in the same records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import nn

from modulekg_widgets.engine.errors import ModuleKGError
from modulekg_widgets.engine.files.model_file import ModelFile, is_file
from modulekg_widgets.engine.files.records import FileContents, FileModuleRecord, TensorRecord
from modulekg_widgets.engine.files.skeleton import skeleton
from modulekg_widgets.engine.files.tensor_owners import OwnedTensor, renumber_names, split_name, tensor_owners
from modulekg_widgets.engine.identity.classes import class_names
from modulekg_widgets.engine.identity.hierarchy import Hierarchy
from modulekg_widgets.engine.identity.tensors import (
    direct_tensors,
    dtype_of,
    is_uninitialised,
    shape_of,
    without_subclass_code,
)
from modulekg_widgets.engine.identity.walk import class_name, nominal_class, walk
from modulekg_widgets.engine.torch_runtime.private import VOLATILE_BUFFERS

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class ComparableModel:
    """One of two models that are compared; `tied` maps each name of a shared tensor to all of its names.

    `optional` are tensors that the other need not have: buffers that are in no state of a model, which some formats
    write and others do not, and constants of its code.
    """

    title: str
    contents: FileContents
    tensors: Mapping[str, TensorRecord]
    tied: Mapping[str, Sequence[str]]
    file: ModelFile | None = None
    live: Mapping[str, torch.Tensor] | None = None
    optional: frozenset[str] = frozenset()
    equal_files: dict[str, bool] = field(
        default_factory=dict
    )  # by name, those that were compared with the other side's

    def value(self, name: str) -> torch.Tensor | None:
        """Returns the values of a tensor, or its bytes if torch has no such dtype; None if they cannot be read."""
        if self.live is not None:
            tensor = self.live[name]
            return None if tensor.is_meta or tensor.layout is not torch.strided else tensor.detach()
        try:
            return self.file.stored_values(name) if self.file is not None else None
        except ModuleKGError:
            return None

    def has_same_bytes(self, other: ComparableModel, one: TensorRecord, theirs: TensorRecord) -> bool:
        """True if a tensor equals the other one without being read: same location in equal files."""
        if self.file is None or other.file is None or replace(one, name=theirs.name) != theirs:
            return False
        files = {one.file, *(part.file or one.file for part in (one.encoded.parts if one.encoded else ()))}
        for name in files - self.equal_files.keys():
            self.equal_files[name] = self.file.has_bytes_of(other.file, name)
        return all(self.equal_files[name] for name in files)

    def lacks(self, name: str, other: ComparableModel) -> bool:
        """True if a tensor of the other side has no counterpart here, and should have one."""
        if name in self.tensors or any(alias in self.tensors for alias in other.tied.get(name, ())):
            return False
        # between files all that is written counts, also what no state of a model has
        return name not in other.optional or (self.live is None and other.live is None)

    def hierarchy(self, other: ComparableModel, order: ComparableModel) -> Hierarchy:
        """Returns the modules with the facts that both sides know, in the order of `order`."""
        owned = renumber_names([each for each in self._owned_tensors(other) if self._is_compared(each[2].name, other)])
        around = set(_with_ancestors(path for path, _, _ in owned))
        theirs = {part.path: part.class_name for part in other.contents.modules}
        parts = [
            FileModuleRecord(part.path, part.class_name if theirs.get(part.path, any(theirs.values())) else "")
            for part in self.contents.modules
            if part.path in around or part.path in theirs
        ]
        contents = replace(
            self.contents,
            modules=_ordered(parts, [part.path for part in parts], [part.path for part in order.contents.modules]),
            graph=None,
        )
        in_order = _ordered(owned, [each[2].name for each in owned], [*order.tensors])
        # the root may be a module inside of the other
        return Hierarchy(skeleton(contents, self.title, in_order, counts_as=""))

    def module_paths(self, other: ComparableModel) -> dict[str, str]:
        """Returns the module paths in `hierarchy` by tensor name."""
        return {
            record.name: path for path, _, record in self._owned_tensors(other) if self._is_compared(record.name, other)
        }

    def _is_compared(self, name: str, other: ComparableModel) -> bool:
        return name in other.tensors or other.lacks(name, self)

    def _owned_tensors(self, other: ComparableModel) -> Iterator[OwnedTensor]:
        """The tensors in the modules that both sides assign; if these differ, by their names."""
        theirs = {record.name: path for path, _, record in tensor_owners(other.contents)}
        for path, own, record in tensor_owners(self.contents):
            their = theirs.get(record.name, path)
            if their != path:
                told = split_name(record.name)
                path, own = told if told[0] in (path, their) else ("", record.name)
            yield path, own, record


def _with_ancestors(paths: Iterable[str]) -> Iterator[str]:
    """Yields the paths and all their ancestors."""
    for path in dict.fromkeys(paths):
        while path:
            yield path
            path = path.rpartition(".")[0]
    yield ""


def _ordered(entries: Sequence[Entry], names: Sequence[str], order: Sequence[str]) -> tuple[Entry, ...]:
    """Returns the entries in the order of their names in `order`; others stay behind their predecessor."""
    places = {name: place for place, name in enumerate(order)}
    last, ranks = -1, []
    for name in names:
        last = places.get(name, last)
        ranks.append((last, name not in places))
    return tuple(entries[at] for at in sorted(range(len(entries)), key=ranks.__getitem__))


def comparable(model: nn.Module | ModelFile) -> ComparableModel:
    """Returns the comparable form of a file or a live model; raises `NotAModuleError` for anything else."""
    if is_file(model):
        tensors = {each.name: each for each in model.contents.tensors}
        places = {name: _storage_key(each) for name, each in tensors.items()}
        constants = frozenset(name for name, each in tensors.items() if each.role == "constant")
        return ComparableModel(
            model.title, model.contents, tensors, _tied_names(places), file=model, optional=constants
        )
    return _from_module(model)  # type: ignore[arg-type] - the walk refuses what is none


def _from_module(model: nn.Module) -> ComparableModel:
    modules = walk(model)
    live: dict[str, torch.Tensor] = {}
    records: dict[str, TensorRecord] = {}
    unsaved: set[str] = set()
    with without_subclass_code():
        for path, index in modules.all_paths():
            state = modules.states[index]
            for own in direct_tensors(state):
                if own.tensor is not None:
                    name = f"{path}.{own.name}" if path else own.name
                    live[name], records[name] = own.tensor, _record(name, own.tensor, own.role)
                    if own.role == "buffer" and own.name in state.get(VOLATILE_BUFFERS, ()):
                        unsaved.add(name)
    parts = tuple(
        FileModuleRecord(path, ".".join(filter(None, class_names(nominal_class(modules.modules[index])))))
        for path, index in modules.all_paths()
    )
    contents = FileContents("torch", tuple(records.values()), modules=parts)
    tied = _tied_names({name: id(tensor) for name, tensor in live.items()})
    return ComparableModel(
        class_name(modules.modules[0]), contents, records, tied, live=live, optional=frozenset(unsaved)
    )


def _storage_key(record: TensorRecord) -> object:
    """A key that is equal for tied tensors."""
    if record.offset is None or not record.nbytes:
        return record.name
    return (record.file, record.offset, record.shape, record.strides, record.dtype)


def _tied_names(places: Mapping[str, object]) -> dict[str, list[str]]:
    names: dict[object, list[str]] = {}
    for name, place in places.items():
        names.setdefault(place, []).append(name)
    return {name: group for group in names.values() if len(group) > 1 for name in group}


def _record(name: str, tensor: torch.Tensor, role: str) -> TensorRecord:
    shape = () if is_uninitialised(tensor) else shape_of(tensor)
    elements = 1
    for size in shape:
        elements *= size
    dtype = dtype_of(tensor)
    return TensorRecord(name, tuple(shape), str(dtype).removeprefix("torch."), elements * dtype.itemsize, role=role)
