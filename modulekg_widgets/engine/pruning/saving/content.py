"""What a folder holds of a model: the tensors by the names, shapes and ties that they have where it is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from modulekg_widgets.engine.pruning.cut.derived import renewed_values
from modulekg_widgets.engine.pruning.cut.edits import Edits, slices
from modulekg_widgets.engine.pruning.saving.tensor_file import ToWrite
from modulekg_widgets.engine.pruning.saving.twins import Anatomy


@dataclass(frozen=True)
class SavedContent:
    """The tensors of a model that is cut already, or what stays of those of a whole one, which is read in turn."""

    anatomy: Anatomy  # of the cut model: its own, or that of one without weights
    tensor_of: Callable[[str], torch.Tensor]  # as it is in the model that is saved
    value_of: Callable[[str], torch.Tensor]  # as the folder has it

    def tensors(self, unsaved: bool) -> Iterator[ToWrite]:
        """Each tensor once, under its first name: those of a state_dict, or those that it has not."""
        for held in self.anatomy.held:
            name = held.name
            if (name in self.anatomy.unsaved) is unsaved and self.anatomy.first_names[name] == name:
                yield ToWrite(name, tuple(held.tensor.shape), self.tensor_of(name).dtype, partial(self.value_of, name))


def content_of(found: Anatomy) -> SavedContent:
    """All of a model."""

    def tensor_of(name: str) -> torch.Tensor:
        return found.by_name[name].tensor

    return SavedContent(found, tensor_of, tensor_of)


def content_of_part(found: Anatomy, cut: Anatomy, edits: Edits, moved: Mapping[str, str]) -> SavedContent:
    """What stays of a whole model; `cut` is one without weights that was cut alike, `moved` the paths in it."""
    paths = {now: before for before, now in moved.items()}
    names = {held.name: _renamed(held.name, paths) for held in cut.held}
    by_name = {name: edit for edit in edits.tensors for name in edit.names}
    slice_of = slices(edits, lambda name: found.by_name[name].tensor.detach())
    derived = renewed_values(found.walked, edits)

    def tensor_of(name: str) -> torch.Tensor:
        return found.by_name[names[name]].tensor

    def value_of(name: str) -> torch.Tensor:
        if names[name] in derived:
            return derived[names[name]].tensor
        edit = by_name.get(names[name])
        return tensor_of(name) if edit is None else slice_of(edit)

    return SavedContent(cut, tensor_of, value_of)


def _renamed(name: str, paths: Mapping[str, str]) -> str:
    """The name of a tensor where the module that holds it has another path."""
    path = name.rpartition(".")[0]
    while path not in paths:
        path = path.rpartition(".")[0]
    within = name[len(path) + 1 :] if path else name
    return f"{paths[path]}.{within}" if paths[path] else within
