"""Cutting a model in place, wholly or not at all."""

from __future__ import annotations

import torch
from torch import nn

from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.pruning.cut.edits import Edits, places
from modulekg_widgets.engine.pruning.cut.optimizers import OptimizerState
from modulekg_widgets.engine.pruning.cut.parts import (
    EditedAttributes,
    EditedTensors,
    PlainTensors,
    RecurrentWeights,
    Rest,
    computed_tensors,
    flattened,
    moved_along,
)
from modulekg_widgets.engine.pruning.cut.receipt import Receipt
from modulekg_widgets.engine.pruning.cut.transaction import commit


def cut(model: nn.Module, edits: Edits, optimizer: torch.optim.Optimizer | None = None) -> Receipt:
    """Slice every tensor of `edits` in place, set the attributes, and cut the state of `optimizer` alike.

    Parameters and buffers stay the same objects, with their hooks, ties, gradients, dtype, device and memory format. A
    tensor in a plain attribute is replaced by its slices, also where it lies in a container, of which the model gets a
    copy.
    Raises `CutError` when the model or the optimizer does not fit; whatever is raised, all is as it was before.
    """
    walked = walk(model)
    layers = flattened(walked, places(walked, edits))
    found = places(walked, Edits((*edits.tensors, *moved_along(walked, layers, edits))))
    computed = computed_tensors(found)
    tables = [place for place in found if place.plain]
    attributes = EditedAttributes(walked, edits)
    changed = [
        EditedTensors(place for place in found if place.tensor.grad_fn is None and not place.plain),
        *computed,
        attributes,
        PlainTensors(tables, attributes.copies),
        RecurrentWeights(layers),
    ]
    if optimizer is not None:
        changed.append(OptimizerState(optimizer, {place.tensor: place.edit for place in found}))
    plain = f" ({len(tables)} in plain attributes, which no state_dict has)" if tables else ""
    title = f"{len(found)} tensors{plain} and {len(edits.attributes)} attributes cut"
    receipt = Receipt(model, [*changed, Rest(walked, found, computed)], title, edits)
    writes = [write for part in changed for write in part.cut()]  # complete before the first of them
    return commit(writes, receipt, walked.modules)
