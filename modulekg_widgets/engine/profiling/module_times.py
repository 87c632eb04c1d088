"""The time of each module in passes of a model, what it takes to measure it taken off."""

from __future__ import annotations

import statistics
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.profiling.timing import LEAST, SECONDS, Mark, TimedModel, lower_quartile, timed_rounds
from modulekg_widgets.engine.torch_runtime.hooks import hearing_calls
from modulekg_widgets.engine.torch_runtime.private import disable_current_modes

ROOT = -1
EMPTY, TRIALS = 32, 25  # modules that do nothing, and passes of them


@dataclass(slots=True)
class _Interval:
    """One call of one module."""

    module: int
    parent: int  # place of the call around it
    start: Mark
    end: Mark = None


@dataclass(frozen=True)
class ModuleTimes:
    """Milliseconds by the numbers of modules, for those that were called: with all that is called inside, and without.

    A container takes what the modules in it take and what is its own, so the table adds up.
    """

    inclusive: dict[int, float]
    exclusive: dict[int, float]


class _CallTimes:
    """Takes down when each call of a module begins and ends, in this thread."""

    def __init__(self, timed: TimedModel) -> None:
        self.calls: list[_Interval] = []
        self._mark = timed.clock.mark
        self._index_of = {id(module): index for index, module in enumerate(timed.walked.modules)}
        self._open: list[int] = []
        self._thread = threading.get_ident()

    def entered(self, module: nn.Module, args: Any) -> None:
        index = self._index_of.get(id(module))
        if threading.get_ident() != self._thread or index is None:
            return
        parent = self._open[-1] if self._open else ROOT
        self._open.append(len(self.calls))
        self.calls.append(_Interval(index, parent, self._mark()))

    def left(self, module: nn.Module, *_: Any) -> None:
        if threading.get_ident() == self._thread and id(module) in self._index_of:
            self.calls[self._open.pop()].end = self._mark()


def module_times(models: Sequence[TimedModel], least: int = LEAST, seconds: float = SECONDS) -> list[ModuleTimes]:
    """The times of the modules of some models, whose passes take turns."""
    heard: list[list[list[_Interval]]] = [[] for _ in models]
    with torch.inference_mode(False), torch.no_grad():
        for model in models:
            model.warm_up()
        with disable_current_modes():
            runs = [lambda at=at, model=model: _listened(model, heard[at]) for at, model in enumerate(models)]
            timed_rounds(runs, least, seconds * len(runs))
            overheads = [_cost_of_listening(model) for model in models]
    return [_medians(*each) for each in zip(models, heard, overheads, strict=True)]


def _listened(timed: TimedModel, heard: list[list[_Interval]]) -> float:
    listener = _CallTimes(timed)
    with hearing_calls(timed.copies, listener.entered, listener.left):
        taken = timed.time()
    heard.append(listener.calls)
    return taken


def _cost_of_listening(like: TimedModel) -> float:
    """Milliseconds that it takes to listen to one call, on top of what that call takes: seen on calls of nothing."""
    if like.copies is None:
        return 0.0  # all modules of the process are heard, and these must not be taken for the model's
    walked = walk(nn.Sequential(*[nn.Identity() for _ in range(EMPTY)]))
    nothing = TimedModel(walked, walked.modules, ((torch.zeros(()),), {}))
    heard: list[list[_Interval]] = []
    plain, loud = timed_rounds([nothing.time, lambda: _listened(nothing, heard)], TRIALS, 0.0)
    return max(lower_quartile(loud) - lower_quartile(plain), 0.0) / len(heard[0])


def _medians(timed: TimedModel, passes: list[list[_Interval]], overhead: float) -> ModuleTimes:
    """Medians over passes, call by call; of passes that went several ways those that went the most usual one."""
    ways = [tuple(call.module for call in calls) for calls in passes]
    usual = Counter(ways).most_common(1)[0][0]
    alike = [calls for calls, way in zip(passes, ways, strict=True) if way == usual]
    calls, every = alike[0], [_without_inner(timed, calls) for calls in alike]
    below = Counter(call.parent for call in calls)
    sums = [max(statistics.median(own) - overhead * below[at], 0.0) for at, own in enumerate(zip(*every, strict=True))]
    inclusive: dict[int, float] = defaultdict(float)
    exclusive: dict[int, float] = defaultdict(float)
    for place, call in enumerate(calls):
        exclusive[call.module] += sums[place]
    for place, call in reversed(list(enumerate(calls))):  # what is called inside comes later
        if call.parent != ROOT:
            sums[call.parent] += sums[place]
        if not _is_inside_itself(calls, place):
            inclusive[call.module] += sums[place]
    return ModuleTimes(dict(inclusive), dict(exclusive))


def _without_inner(timed: TimedModel, calls: Sequence[_Interval]) -> list[float]:
    """Milliseconds of each call of a pass without those that it makes."""
    taken = [timed.clock.between(call.start, call.end) for call in calls]
    own = list(taken)
    for call, whole in zip(calls, taken, strict=True):
        if call.parent != ROOT:
            own[call.parent] -= whole
    return own


def _is_inside_itself(calls: Sequence[_Interval], place: int) -> bool:
    """Whether a module was called by itself, whose time has this call in it."""
    module, parent = calls[place].module, calls[place].parent
    while parent != ROOT:
        if calls[parent].module == module:
            return True
        parent = calls[parent].parent
    return False
