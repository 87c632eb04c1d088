"""A few entries of each weight that a cut is of, by which the model before it is known again."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from modulekg_widgets.engine.pruning.cut.edits import Place

MOST_ENTRIES = 2_000  # of one weight

Samples = dict[str, torch.Tensor]  # by the first name of a tensor


def samples_of(found: Iterable[Place]) -> Samples:
    """Of the weights alone: norms and biases of different models are alike."""
    weights = (place for place in found if place.tensor.dim() >= 2 and place.tensor.is_floating_point())
    return {place.edit.names[0]: entries(place.tensor) for place in weights if not place.tensor.is_meta}


def entries(tensor: torch.Tensor) -> torch.Tensor:
    """Entries of a tensor that are evenly spread, in double precision on the CPU."""
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, -(-len(flat) // MOST_ENTRIES))].to("cpu", torch.float64, copy=True)
