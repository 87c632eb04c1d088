"""Masks: removed indices are set to zero in the parameters that produce them, sizes stay.

`plan.mask(model)` and the mask editor call `mask` to try a plan before it is cut. Only producers are
zeroed: the weights and biases whose outputs are the removed indices, not the weights that read them,
and no running statistics. Where a weight is normalised, its gain is rescaled so that the remaining
indices compute as before. All writes are one transaction. `undo` of the `MaskReceipt` restores every
byte; `restore` puts back the zeroed slices and keeps what was trained since. A mask cannot remove
whole modules: those are cut.

    receipt = plan.mask(model)
    evaluate(model)
    receipt.undo()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import nn

from modulekg_widgets.engine.errors import CutError, printable
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.pruning.cut.distributed_models import refuse_sharded
from modulekg_widgets.engine.pruning.cut.edits import Edits, TensorEdit, TensorTarget, locate_tensors
from modulekg_widgets.engine.pruning.cut.receipt import Receipt, ReceiptPart, Way
from modulekg_widgets.engine.pruning.cut.receipt_parts import relocate_tensors
from modulekg_widgets.engine.pruning.cut.tensor_cuts import ZeroedTensor
from modulekg_widgets.engine.pruning.cut.transaction import Write, commit
from modulekg_widgets.engine.torch_runtime.parallel import unwrap_model
from modulekg_widgets.engine.torch_runtime.private import PARAMETERS


class MaskReceipt(Receipt):
    """Undoes one mask; it can be used once.

    `undo` makes the masked parameters byte for byte as before; `restore` puts back only what was set to zero, and the
    rest of them keeps what was trained since. Both raise `CutError` when a parameter has another shape by now.
    """

    _action = "mask"
    _resizes = False


def mask(model: nn.Module, edits: Edits) -> MaskReceipt:
    """Set to zero in place the parameters that produce the indices that `edits` removes.

    Raises `CutError` when the model does not fit; whatever is raised, all is as it was before.
    """
    if edits.removal:
        names = ", ".join(printable(each.path) for each in edits.removal.modules[:3])
        raise CutError(
            f"a mask sets slices of weights to zero, and {names} are removed as a whole: cut instead, plan.cut(model)"
        )
    walked = walk(unwrap_model(model))
    refuse_sharded(walked)
    zeroed = ZeroedTensors(*_masked_parameters(locate_tensors(walked, edits)))
    receipt = MaskReceipt(walked.modules[0], [zeroed], f"{len(zeroed)} parameters masked")
    return commit(list(zeroed.cut()), receipt, walked.modules)


def _masked_parameters(targets: Sequence[TensorTarget]) -> tuple[list[TensorTarget], list[RescaledGain]]:
    """The parameters that produce removed indices, each with an edit of those dimensions only, and their gains.

    A gain follows where the norm of its direction runs over what is removed.
    """
    masked = {id(target.tensor): each for target in targets if (each := _masked_target(target)) is not None}
    by_name = {name: each for each in masked.values() for name in each.edit.names}
    gains = {
        id(target.tensor): target for target in targets if target.edit.gain_of and target.edit.gain_of[0] in by_name
    }
    rescaled = []
    for key, gain in gains.items():
        assert gain.edit.gain_of is not None
        own = {} if key not in masked else masked[key].edit.kept
        gain_target = gain._replace(edit=replace(gain.edit, kept=own))
        rescaled.append(RescaledGain.of(gain_target, by_name[gain.edit.gain_of[0]]))
    return [target for key, target in masked.items() if key not in gains], rescaled


def _masked_target(target: TensorTarget) -> TensorTarget | None:
    edit = target.edit
    kept = {at: edit.kept[at] for at in sorted(edit.produced - edit.by_gain) if len(edit.kept[at]) < edit.shape[at]}
    if not kept or not _zeros_propagate(target):
        return None
    return target._replace(edit=TensorEdit(edit.names, edit.shape, kept))


def _zeros_propagate(target: TensorTarget) -> bool:
    """True if zeros in a tensor produce zeros; False for running statistics beside a gain."""
    if isinstance(target.tensor, nn.Parameter) or target.tensor.dim() > 1:
        return True
    return bool(target.owners) and not any(state[PARAMETERS] for state, _ in target.owners)


class ZeroedTensors(ReceiptPart):
    """The masked parameters of a model, and the gains that are rescaled with them."""

    def __init__(self, masked: Iterable[TensorTarget], gains: Sequence[RescaledGain]) -> None:
        self._zeroed = [(target, ZeroedTensor.of(target.tensor, target.edit)) for target in masked]
        self._gains = gains

    def __len__(self) -> int:
        return len(self._zeroed) + len(self._gains)

    def tensors(self, way: Way) -> list[torch.Tensor]:
        return [target.tensor for target, _ in self._zeroed] + [gain.target.tensor for gain in self._gains]

    def cut(self) -> Iterator[Write]:
        yield from (gain.zero() for gain in self._gains)
        yield from (zeroed.zero(target.tensor) for target, zeroed in self._zeroed)

    def undo(self, walked: Walk) -> Iterator[Write]:
        yield from (gain.zeroed.undo(gain.current_gain(walked)) for gain in self._gains)
        yield from (zeroed.undo(tensor) for zeroed, tensor in self._current_tensors(walked))

    def restore(self, walked: Walk) -> Iterator[Write]:
        yield from (gain.restore(walked) for gain in self._gains)
        yield from (zeroed.restore(tensor) for zeroed, tensor in self._current_tensors(walked))

    def _current_tensors(self, walked: Walk) -> Iterator[tuple[ZeroedTensor, torch.Tensor]]:
        before = [target for target, _ in self._zeroed]
        targets = relocate_tensors(walked, before, [target.edit for target in before])
        return ((zeroed, target.tensor) for (_, zeroed), target in zip(self._zeroed, targets, strict=True))


class RescaledGain(NamedTuple):
    """The gain of a weight-normalised parameter whose direction is masked; the rest of the weight is unchanged."""

    target: TensorTarget
    zeroed: ZeroedTensor
    direction: TensorTarget
    direction_before: torch.Tensor  # the direction before
    gain_after: torch.Tensor

    @classmethod
    def of(cls, target: TensorTarget, direction: TensorTarget) -> RescaledGain:
        edit, whole = direction.edit, direction.tensor.detach().clone()
        after = target.edit.rescaled(target.tensor.detach(), whole, edit.scatter(edit.slice(whole)))
        after = target.edit.scatter(target.edit.slice(after))
        return cls(target, ZeroedTensor.of(target.tensor, target.edit), direction, whole, after)

    def current_gain(self, walked: Walk) -> torch.Tensor:
        return relocate_tensors(walked, [self.target], [replace(self.target.edit, gain_of=None)])[0].tensor

    def zero(self) -> Write:
        return Write(self.target.tensor.detach().copy_, self.zeroed.before, self.gain_after)

    def restore(self, walked: Walk) -> Write:
        """The gain of before; where it was trained since, one for the direction that is whole again."""
        gain = self.current_gain(walked).detach().clone()
        if torch.equal(gain, self.gain_after):
            return Write(self.current_gain(walked).detach().copy_, gain, self.zeroed.before)
        edit, now = self.direction.edit, self.direction.tensor.detach()
        whole = edit.scatter(edit.slice(now), self.direction_before)
        again = self.target.edit.rescaled(gain, now, whole)
        again = self.target.edit.scatter(self.target.edit.slice(again), self.zeroed.before)
        return Write(self.current_gain(walked).detach().copy_, gain, again)
