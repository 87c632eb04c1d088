"""What a request names itself: axes by name, and what shall go of them whatever the ratio."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from modulekg_widgets.engine.axes.algebra import Term
from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.axes.cut_analysis import position_flags
from modulekg_widgets.engine.errors import CutError, shown
from modulekg_widgets.engine.pruning.plan.choice import Choice, dropped_by_cuts
from modulekg_widgets.engine.pruning.plan.counts import gone
from modulekg_widgets.engine.pruning.plan.repeated import UniformLayers
from modulekg_widgets.engine.pruning.plan.request import Request
from modulekg_widgets.engine.pruning.plan.selection import Ints


class GivenAxis(NamedTuple):
    """How many indices stay of an axis that the user names, and which go first."""

    left: int
    first: Ints


class NamedAxes:
    """The axes behind the keys of a request; `asked` are those of the pass that was traced, `choice` of the plan's."""

    def __init__(self, asked: Axes, choice: Choice) -> None:
        self.asked = asked
        self.axes = choice.axes
        self.choice = choice

    def every(self, name: Any) -> list[Axis]:
        """The axes behind a key of a mapping."""
        is_place = isinstance(name, tuple) and len(name) == 2
        if isinstance(name, str) and name in self.asked and name not in self.axes:
            member = self.asked[name].members[0]  # another pass may have given it another name
            is_place, name = True, (member.name, member.dim)
        return list(self.axes[name].axes) if is_place else self.choice.named(name)

    def free(self, name: Any) -> list[Axis]:
        """The free axes behind a key of `per_axis`."""
        found = self.every(name)
        free = [axis for axis in found if axis.frozen is None]
        if not free:
            why = found[0].frozen if found else "it has none"
            raise CutError(f"per_axis: no axis of {shown(str(name))!r} can be cut: {why}")
        if len(free) == 1:
            return free
        return Choice(self.axes, self.choice.granularity, free, None).independent()


def given_by(request: Request, named: NamedAxes) -> dict[Term, GivenAxis]:
    """What `cuts` and `per_axis` say; raises `CutError` for what cannot go."""
    found: dict[Term, GivenAxis] = {}
    for term, indices in dropped_by_cuts(named.axes, request.cuts or ()).items():
        found[term] = GivenAxis(_left(named.axes.of(term), len(indices)), np.asarray(indices))
    for name, wanted in (request.per_axis or {}).items():
        for axis in named.free(name):
            if isinstance(wanted, float | int):
                if not 0 <= wanted < 1:
                    raise CutError(f"per_axis[{shown(str(name))!r}]={wanted}: give a share of 0 … 1 or indices")
                found[axis.term] = GivenAxis(axis.size - gone(axis.size, wanted), np.empty(0, dtype=np.int64))
            else:
                drop = np.flatnonzero(position_flags(wanted, axis.size, f"axis {shown(axis.name)}"))
                found[axis.term] = GivenAxis(_left(axis, len(drop)), drop)
    return found


def alike(given: Mapping[Term, GivenAxis], layers: UniformLayers, axes: Axes) -> dict[Term, GivenAxis]:
    """What is given of an axis for all that go with it.

    Raises `CutError` where one of them has to stay whole, or two shall lose different shares.
    """
    found: dict[Term, GivenAxis] = {}
    for term, own in given.items():
        if term in layers.whole and own.left < term.size:
            raise CutError(f"per_axis or cuts take from {shown(axes.of(term).name)}: {layers.whole[term]}")
        for other, left in layers.proportions.with_count(term, own.left).items():
            stays = given.get(other, GivenAxis(left, np.empty(0, dtype=np.int64)))
            if stays.left != left:
                raise CutError(
                    f"layers='uniform' keeps {shown(axes.of(term).name)} and {shown(axes.of(other).name)} alike, of "
                    f"which {own.left} and {stays.left} shall stay: name one of them, or let as many stay"
                )
            found[other] = stays
    return found


def _left(axis: Axis, count: int) -> int:
    if count >= axis.size:
        raise CutError(f"{shown(axis.name)} would lose all of its {axis.size} indices: leave one at least")
    return axis.size - count
