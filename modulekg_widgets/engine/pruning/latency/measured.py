"""Cut copies of a model measured beside the uncut one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import nn

from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.profiling.profile import timed_on_copy
from modulekg_widgets.engine.profiling.timing import LEAST, SECONDS, Call, Comparison, TimedModel, in_turn
from modulekg_widgets.engine.pruning.cut.edits import Edits
from modulekg_widgets.engine.pruning.recover.passes import CutStage, on_stage
from modulekg_widgets.engine.torch_runtime.private import disable_current_modes
from modulekg_widgets.engine.torch_runtime.shadow import ALL

T = TypeVar("T")


def timed_as_cut(model: nn.Module, edits: Edits, call: Call, run: Callable[[TimedModel], T]) -> T:
    """What `run` makes of a copy of the model as it would be cut, in eval mode; the model stays as it is."""

    def staged(cut: CutStage) -> T:
        return run(TimedModel(cut.walked, cut.copies, call))

    return on_stage(model, edits, False, staged, own=ALL)


def compared(
    model: nn.Module, before: Edits, after: Edits, call: Call, least: int = LEAST, seconds: float = SECONDS
) -> Comparison:
    """Passes of the model with some edits in turn with those of the model with others."""

    def beside(uncut: TimedModel) -> Comparison:
        with disable_current_modes():  # of that look, for which the model itself is out of bounds
            return timed_as_cut(model, after, call, lambda cut: _rounds(uncut, cut, least, seconds))

    if before.tensors or before.attributes or before.removal:
        return timed_as_cut(model, before, call, beside)
    return timed_on_copy(model, walk(model), call, beside)


def _rounds(uncut: TimedModel, cut: TimedModel, least: int, seconds: float) -> Comparison:
    before, after = in_turn([uncut, cut], least, seconds)
    return Comparison(tuple(before), tuple(after))
