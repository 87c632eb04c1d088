"""Edits on the modules of a look, which stand for the model's: it runs as it would be cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

from modulekg_widgets.engine.identity.walk import Walk
from modulekg_widgets.engine.pruning.cut.edits import Edits, TensorEdit, places, settings
from modulekg_widgets.engine.residuals.removal import remove
from modulekg_widgets.engine.torch_runtime.look import Stage
from modulekg_widgets.engine.torch_runtime.private import BUFFERS, FLAT_WEIGHTS, PARAMETERS
from modulekg_widgets.engine.tracing.held import PARAMETER, held_tensors, put_tables

Tensor = torch.Tensor
Slice = Callable[[TensorEdit, Tensor], Tensor]


def put_in_place(
    walk: Walk, stage: Stage, edits: Edits, slice_of: Slice, others: Mapping[str, Tensor] | None = None
) -> None:
    """Give the modules what `slice_of` makes of the tensors that are edited, `others` by name, and the attributes."""
    new: dict[int, Tensor] = {}
    found = places(walk, edits)
    for place in found:
        new[id(place.tensor)] = stage.hold(place.tensor, _like(place.tensor, slice_of(place.edit, place.tensor)))
    for held in list(held_tensors(walk, walk.places())) if new or others else ():
        if id(held.tensor) not in new and others is not None and held.name in others:  # what goes may have no others
            new[id(held.tensor)] = stage.hold(held.tensor, _like(held.tensor, others[held.name]))
        if id(held.tensor) in new:
            held.state[PARAMETERS if held.kind == PARAMETER else BUFFERS][held.attribute] = new[id(held.tensor)]
    put_tables(walk, {**(others or {}), **{each.name: new[id(each.tensor)] for place in found for each in place.plain}})
    if any(FLAT_WEIGHTS in state for state in walk.states):
        _replace_in_lists(walk, new)
    for setting in settings(walk, edits):
        setting.state[setting.name] = setting.after
    remove(walk, edits.removal)


def _like(tensor: Tensor, value: Tensor) -> Tensor:
    """A value as a parameter, where the tensor is one; one of inference mode could take no gradients."""
    if not isinstance(tensor, nn.Parameter):
        return value
    with torch.inference_mode(False):
        return nn.Parameter(value.clone() if value.is_inference() else value, tensor.requires_grad)


def _replace_in_lists(walk: Walk, new: Mapping[int, Tensor]) -> None:
    """Recurrent layers list their own parameters once more."""
    for state in walk.states:
        for name, value in state.items():
            if isinstance(value, list) and any(id(part) in new for part in value):
                state[name] = [new.get(id(part), part) for part in value]
