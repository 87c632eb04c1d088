"""Masking a model: what would go is set to zero where it is produced, and every size stays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

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


def _produced(found: Sequence[Place]) -> Iterator[Masked]:
    """The weights that produce what goes, each with an edit of these dimensions alone.

    A gain follows where the norm of its direction runs over what goes.
    """
    masked = {id(place.tensor): each for place in found if (each := _masked(place)) is not None}
    by_name = {name: each for each in masked.values() for name in each.edit.names}
    gains = {id(place.tensor): place for place in found if place.edit.gain_of and place.edit.gain_of[0] in by_name}
    yield from (Masked(place) for key, place in masked.items() if key not in gains)
    for key, gain in gains.items():
        assert gain.edit.gain_of is not None
        own = {} if key not in masked else masked[key].edit.kept
        yield Masked(gain._replace(edit=replace(gain.edit, kept=own)), by_name[gain.edit.gain_of[0]])


def _masked(place: Place) -> Place | None:
    edit = place.edit
    kept = {at: edit.kept[at] for at in sorted(edit.produced - edit.by_gain) if len(edit.kept[at]) < edit.shape[at]}
    if not kept:
        return None
    return place._replace(edit=TensorEdit(edit.names, edit.shape, kept))


class Masked(NamedTuple):
    """A parameter that a mask changes; a gain by the direction that it follows."""

    place: Place
    direction: Place | None = None


class ZeroedTensors:
    """The masked parameters of a model, and the gains that follow them."""

    def __init__(self, found: Iterable[Masked]) -> None:
        every = list(found)
        self._zeroed = [
            (each.place, ZeroedTensor.of(each.place.tensor, each.place.edit))
            for each in every if each.direction is None
        ]  # fmt: skip
        self._gains = [FollowingGain.of(each.place, each.direction) for each in every if each.direction is not None]

    def __len__(self) -> int:
        return len(self._zeroed) + len(self._gains)

    def zero(self) -> Iterator[Write]:
        yield from (gain.zero() for gain in self._gains)
        yield from (zeroed.zero(place.tensor) for place, zeroed in self._zeroed)

    def undo(self, walked: Walk) -> Iterator[Write]:
        yield from (gain.zeroed.undo(gain.now(walked)) for gain in self._gains)
        yield from (zeroed.undo(tensor) for zeroed, tensor in self._now(walked))

    def restore(self, walked: Walk) -> Iterator[Write]:
        yield from (gain.restore(walked) for gain in self._gains)
        yield from (zeroed.restore(tensor) for zeroed, tensor in self._now(walked))

    def _now(self, walked: Walk) -> Iterator[tuple[ZeroedTensor, torch.Tensor]]:
        before = [place for place, _ in self._zeroed]
        found = places_again(walked, before, [place.edit for place in before])
        return ((zeroed, place.tensor) for (_, zeroed), place in zip(self._zeroed, found, strict=True))


class FollowingGain(NamedTuple):
    """The gain of a normalised weight whose direction is masked: what is not masked of the weight stays the same."""

    place: Place
    zeroed: ZeroedTensor
    direction: Place
    whole: torch.Tensor  # the direction before
    after: torch.Tensor

    @classmethod
    def of(cls, place: Place, direction: Place) -> FollowingGain:
        edit, whole = direction.edit, direction.tensor.detach().clone()
        after = place.edit.rescaled(place.tensor.detach(), whole, edit.whole(edit.of(whole)))
        after = place.edit.whole(place.edit.of(after))
        return cls(place, ZeroedTensor.of(place.tensor, place.edit), direction, whole, after)

    def now(self, walked: Walk) -> torch.Tensor:
        return places_again(walked, [self.place], [replace(self.place.edit, gain_of=None)])[0].tensor

    def zero(self) -> Write:
        return Write(self.place.tensor.detach().copy_, self.zeroed.before, self.after)

    def restore(self, walked: Walk) -> Write:
        """The gain of before; where it was trained since, one for the direction that is whole again."""
        gain = self.now(walked).detach().clone()
        if torch.equal(gain, self.after):
            return Write(self.now(walked).detach().copy_, gain, self.zeroed.before)
        edit, now = self.direction.edit, self.direction.tensor.detach()
        whole = edit.whole(edit.of(now), self.whole)
        again = self.place.edit.rescaled(gain, now, whole)
        again = self.place.edit.whole(self.place.edit.of(again), self.zeroed.before)
        return Write(self.now(walked).detach().copy_, gain, again)
