"""What a request names itself: axes by name, and what shall go of them whatever the ratio."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.axes.cut_analysis import position_flags
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.errors import CutError, shown
from modulekg_widgets.engine.pruning.plan.selection.choice import Choice, dropped_by_cuts
from modulekg_widgets.engine.pruning.plan.selection.counts import gone
from modulekg_widgets.engine.pruning.plan.selection.repeated import UniformLayers
from modulekg_widgets.engine.pruning.plan.selection.request import Request
from modulekg_widgets.engine.pruning.plan.selection.selection import Ints


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
            why = f"{shown(found[0].name)} is frozen, {found[0].frozen}" if found else "it has none"
            raise CutError(f"per_axis: no axis of {shown(str(name))!r} can be cut: {why}")
        if len(free) == 1:
            return free
        return Choice(self.axes, self.choice.granularity, free, None).independent()


def given_by(request: Request, named: NamedAxes) -> dict[Term, GivenAxis]:
    """What `cuts` and `per_axis` say; raises `CutError` for what cannot go, and where two of them contradict."""
    found: dict[Term, GivenAxis] = {}
    for term, indices in dropped_by_cuts(named.axes, request.cuts or ()).items():
        found[term] = GivenAxis(_left(named.axes.of(term), len(indices)), np.asarray(indices))
    for axis, (key, wanted) in _by_axis(request.per_axis or {}, named).items():
        own = _given(axis, key, wanted)
        found[axis.term] = own if axis.term not in found else _merged(axis, found[axis.term], own)
    _check_spared(found, request, named)
    return found


def _by_axis(per_axis: Mapping[Any, Any], named: NamedAxes) -> dict[Axis, tuple[Any, Any]]:
    """The entry that says what goes of each axis: where several name it, the one that names the fewest others."""
    entries = [(key, wanted, named.free(key)) for key, wanted in per_axis.items()]
    found: dict[Axis, tuple[Any, Any, int]] = {}
    for key, wanted, axes in sorted(entries, key=lambda entry: -len(entry[2])):
        for axis in axes:
            other = found.get(axis)
            if other is not None and other[2] == len(axes) and not _is_same(axis, other[1], wanted):
                raise CutError(
                    f"per_axis[{shown(str(other[0]))!r}] and per_axis[{shown(str(key))!r}] both name "
                    f"{shown(axis.name)} and say different things of it: name it once"
                )
            found[axis] = key, wanted, len(axes)
    return {axis: (key, wanted) for axis, (key, wanted, _) in found.items()}


def _is_same(axis: Axis, one: Any, other: Any) -> bool:
    first, second = (_given(axis, axis.name, wanted) for wanted in (one, other))
    return first.left == second.left and np.array_equal(first.first, second.first)


def _given(axis: Axis, key: Any, wanted: Any) -> GivenAxis:
    """What an entry of `per_axis` says of an axis."""
    if isinstance(wanted, float | int):
        if not 0 <= wanted < 1:
            raise CutError(f"per_axis[{shown(str(key))!r}]={wanted}: give a share of 0 … 1 or indices")
        return GivenAxis(axis.size - gone(axis.size, wanted), np.empty(0, dtype=np.int64))
    drop = np.flatnonzero(position_flags(wanted, axis.size, f"axis {shown(axis.name)}"))
    return GivenAxis(_left(axis, len(drop)), drop)


def _merged(axis: Axis, cut: GivenAxis, own: GivenAxis) -> GivenAxis:
    """What `cuts` and `per_axis` take of an axis together; a share has to be what the cuts take."""
    drop = np.union1d(cut.first, own.first).astype(np.int64)
    if not len(own.first) and own.left != cut.left:
        raise CutError(
            f"cuts take {axis.size - cut.left} of the {axis.size} indices of {shown(axis.name)}, and per_axis "
            f"{axis.size - own.left}: name it in one of them"
        )
    return GivenAxis(_left(axis, len(drop)), drop)


def _check_spared(given: Mapping[Term, GivenAxis], request: Request, named: NamedAxes) -> None:
    """Raise `CutError` where something is to go of an axis that `keep` or `only` spares."""
    if request.keep is None and request.only is None:
        return
    spared = [named.axes.of(term) for term, own in given.items() if own.left < term.size]
    spared = [axis for axis in spared if axis not in named.choice.allowed]
    if spared:
        names = ", ".join(shown(axis.name) for axis in spared[:3]) + (", …" if len(spared) > 3 else "")
        options = " and ".join(f"{name}=…" for name in ("only", "keep") if getattr(request, name) is not None)
        raise CutError(f"per_axis or cuts take from {names}, which {options} spares: ask for one of them")


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
