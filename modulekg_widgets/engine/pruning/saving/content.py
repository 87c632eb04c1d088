"""What a folder holds of a model: the tensors by the names, shapes and ties that they have where it is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from modulekg_widgets.engine.identity.walk import Walk
from modulekg_widgets.engine.pruning.cut.edits import Edits, slices
from modulekg_widgets.engine.pruning.saving.tensor_file import ToWrite
from modulekg_widgets.engine.pruning.saving.twins import Anatomy
from modulekg_widgets.engine.tracing.held import HeldTensor


@dataclass(frozen=True)
class Content:
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


def content_of(found: Anatomy) -> Content:
    """All of a model."""

    def tensor_of(name: str) -> torch.Tensor:
        return found.by_name[name].tensor

    return Content(found, tensor_of, tensor_of)


def content_of_part(found: Anatomy, cut: Anatomy, before: Walk, edits: Edits) -> Content:
    """What stays of a whole model; `cut` is one without weights that was cut alike, and was `before` as this is."""
    names = _names_before(cut, before)
    by_name = {name: edit for edit in edits.tensors for name in edit.names}
    slice_of = slices(edits, lambda name: found.by_name[name].tensor.detach())

    def tensor_of(name: str) -> torch.Tensor:
        return found.by_name[names[name]].tensor

    def value_of(name: str) -> torch.Tensor:
        edit = by_name.get(names[name])
        return tensor_of(name) if edit is None else slice_of(edit)

    return Content(cut, tensor_of, value_of)


def paths_after(cut: Walk, before: Walk) -> dict[str, str]:
    """Where the modules that stay were and are, by each path that they had: behind one that went they moved up."""
    now = {id(cut.states[index]): path for path, index in reversed(cut.places())}
    return {path: now[key] for path, index in before.places() if (key := id(before.states[index])) in now}


def _names_before(cut: Anatomy, before: Walk) -> Mapping[str, str]:
    """By each name of a tensor the name that it had before modules went."""
    was = {id(before.states[index]): path for path, index in reversed(before.places())}
    paths: dict[int, list[str]] = {}
    for path, index in cut.walked.places():
        paths.setdefault(id(cut.walked.states[index]), []).append(path)
    return {held.name: _joined(was[id(held.state)], _within(held, paths[id(held.state)])) for held in cut.held}


def _within(held: HeldTensor, paths: list[str]) -> str:
    """The name of a tensor within its module, which has several paths where it is shared."""
    own = max((path for path in paths if held.name.startswith(_joined(path, held.attribute))), key=len)
    return held.name[len(own) + 1 :] if own else held.name


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
