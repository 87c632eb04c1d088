"""Cutting a model in place, wholly or not at all."""

from __future__ import annotations

import torch
from torch import nn

from modulekg_widgets.engine.identity.hierarchy import walk
from modulekg_widgets.engine.pruning.edits import Edits, places
from modulekg_widgets.engine.pruning.optimizers import OptimizerState
from modulekg_widgets.engine.pruning.parts import (
    EditedAttributes,
    EditedTensors,
    RecurrentWeights,
    Rest,
    computed_tensors,
    flattened,
    moved_along,
)
from modulekg_widgets.engine.pruning.receipt import Receipt
from modulekg_widgets.engine.pruning.transaction import commit


def cut(model: nn.Module, edits: Edits, optimizer: torch.optim.Optimizer | None = None) -> Receipt:
    """Slice every tensor of `edits` in place, set the attributes, and cut the state of `optimizer` alike.

    Parameters and buffers stay the same objects, with their hooks, ties, gradients, dtype, device and memory format.
    Raises `CutError` when the model or the optimizer does not fit; whatever is raised, all is as it was before.
    """
    walked = walk(model)
    layers = flattened(walked, places(walked, edits))
    found = places(walked, Edits((*edits.tensors, *moved_along(walked, layers, edits))))
    computed = computed_tensors(found)
    changed = [
        EditedTensors(place for place in found if place.tensor.grad_fn is None),
        *computed,
        EditedAttributes(walked, edits),
        RecurrentWeights(layers),
    ]
    if optimizer is not None:
        changed.append(OptimizerState(optimizer, {place.tensor: place.edit for place in found}))
    title = f"{len(found)} tensors and {len(edits.attributes)} attributes cut"
    receipt = Receipt(model, [*changed, Rest(walked, found, computed)], title)
    writes = [write for part in changed for write in part.cut()]  # complete before the first of them
    return commit(writes, receipt, walked.modules)
