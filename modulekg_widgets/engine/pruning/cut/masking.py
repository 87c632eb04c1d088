"""Masking a model: what would go is set to zero where it is produced, and every size stays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import nn

from modulekg_widgets.engine.errors import CutError, shown
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.pruning.cut.edits import Edits, Place, TensorEdit, places
from modulekg_widgets.engine.pruning.cut.parts import places_again
from modulekg_widgets.engine.pruning.cut.receipt import Receipt
from modulekg_widgets.engine.pruning.cut.replicas import refuse_sharded
from modulekg_widgets.engine.pruning.cut.tensors import ZeroedTensor
from modulekg_widgets.engine.pruning.cut.transaction import Write, commit
from modulekg_widgets.engine.torch_runtime.parallel import inside
from modulekg_widgets.engine.torch_runtime.private import PARAMETERS


class MaskReceipt(Receipt):
    """The way back from one mask, which serves once.

    `undo` makes the masked parameters byte for byte as before; `restore` puts back only what was set to zero, and the
    rest of them keeps what was trained since. Both raise `CutError` when a parameter has another shape by now.
    """

    _done = "mask"
    _resizes = False


def mask(model: nn.Module, edits: Edits) -> MaskReceipt:
    """Set to zero in place what `edits` would cut, in the parameters and along the dimensions that produce it.

    Raises `CutError` when the model does not fit; whatever is raised, all is as it was before.
    """
    if edits.removal:
        names = ", ".join(shown(each.path) for each in edits.removal.modules[:3])
        raise CutError(
            f"a mask sets slices of weights to zero, and {names} go as a whole: cut instead, plan.cut(model)"
        )
    walked = walk(inside(model))
    refuse_sharded(walked)
    zeroed = ZeroedTensors(_produced(places(walked, edits)))
    receipt = MaskReceipt(walked.modules[0], [zeroed], f"{len(zeroed)} parameters masked")
    return commit(list(zeroed.zero()), receipt, walked.modules)


def _produced(found: Iterable[Place]) -> Iterator[Place]:
    """The weights that produce what goes, each with an edit of these dimensions alone."""
    for place in found:
        edit = place.edit
        kept = {at: edit.kept[at] for at in sorted(edit.produced) if len(edit.kept[at]) < edit.shape[at]}
        if kept and _makes(place):
            yield place._replace(edit=TensorEdit(edit.names, edit.shape, kept))


def _makes(place: Place) -> bool:
    """Whether zeros in a tensor make zeros: not in the running statistics beside a gain that is zero already."""
    if isinstance(place.tensor, nn.Parameter) or place.tensor.dim() > 1:
        return True
    return bool(place.owners) and not any(state[PARAMETERS] for state, _ in place.owners)


class ZeroedTensors:
    """The masked parameters of a model."""

    def __init__(self, found: Iterable[Place]) -> None:
        self._zeroed = [(place, ZeroedTensor.of(place.tensor, place.edit)) for place in found]

    def __len__(self) -> int:
        return len(self._zeroed)

    def zero(self) -> Iterator[Write]:
        return (zeroed.zero(place.tensor) for place, zeroed in self._zeroed)

    def undo(self, walked: Walk) -> Iterator[Write]:
        return (zeroed.undo(tensor) for zeroed, tensor in self._now(walked))

    def restore(self, walked: Walk) -> Iterator[Write]:
        return (zeroed.restore(tensor) for zeroed, tensor in self._now(walked))

    def _now(self, walked: Walk) -> Iterator[tuple[ZeroedTensor, torch.Tensor]]:
        before = [place for place, _ in self._zeroed]
        found = places_again(walked, before, [place.edit for place in before])
        return ((zeroed, place.tensor) for (_, zeroed), place in zip(self._zeroed, found, strict=True))
