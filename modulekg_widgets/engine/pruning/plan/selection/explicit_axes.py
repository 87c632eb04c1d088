"""Explicit counts and indices of a request: `cuts` and `per_axis`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.axes.cut_analysis import position_mask
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.errors import CutError, printable
from modulekg_widgets.engine.pruning.plan.selection.axis_choice import AxisChoice, indices_dropped_by_cuts
from modulekg_widgets.engine.pruning.plan.selection.counts import removed_count
from modulekg_widgets.engine.pruning.plan.selection.repeated_layers import UniformLayers
from modulekg_widgets.engine.pruning.plan.selection.request import Request
from modulekg_widgets.engine.pruning.plan.selection.selection import Ints


class ExplicitAxis(NamedTuple):
    """The remaining count of an axis that the user names, and the indices to remove first."""

    remaining: int
    drop_first: Ints


class AxisLookup:
    """Finds the axes for keys of a request, in the traced pass and in that of the plan."""

    def __init__(self, traced_axes: Axes, choice: AxisChoice) -> None:
        self.traced_axes = traced_axes
        self.axes = choice.axes
        self.choice = choice

    def axes_of(self, name: Any) -> list[Axis]:
        """The axes for a key of a mapping."""
        is_place = isinstance(name, tuple) and len(name) == 2
        if isinstance(name, str) and name in self.traced_axes and name not in self.axes:
            member = self.traced_axes[name].members[0]  # another pass may have given it another name
            is_place, name = True, (member.name, member.dim)
        return list(self.axes[name].axes) if is_place else self.choice.resolve(name)

    def free_axes_of(self, name: Any) -> list[Axis]:
        """The free axes for a key of `per_axis`."""
        found = self.axes_of(name)
        free = [axis for axis in found if axis.frozen is None]
        if not free:
            why = f"{printable(found[0].name)} is frozen, {found[0].frozen}" if found else "it has none"
            raise CutError(f"per_axis: no axis of {printable(str(name))!r} can be cut: {why}")
        if len(free) == 1:
            return free
        return AxisChoice(self.axes, self.choice.granularity, free, None).independent()


def explicit_axes(request: Request, named: AxisLookup) -> dict[Term, ExplicitAxis]:
    """The explicit axes of `cuts` and `per_axis`; raises `CutError` for contradictions."""
    found: dict[Term, ExplicitAxis] = {}
    for term, indices in indices_dropped_by_cuts(named.axes, request.cuts or ()).items():
        found[term] = ExplicitAxis(_remaining_count(named.axes.of(term), len(indices)), np.asarray(indices))
    for axis, (key, wanted) in _entries_by_axis(request.per_axis or {}, named).items():
        own = _explicit_axis(axis, key, wanted)
        found[axis.term] = own if axis.term not in found else _merge(axis, found[axis.term], own)
    _check_protected(found, request, named)
    return found


def _entries_by_axis(per_axis: Mapping[Any, Any], named: AxisLookup) -> dict[Axis, tuple[Any, Any]]:
    """The entry of `per_axis` for each axis; of several, the one that names the fewest axes."""
    entries = [(key, wanted, named.free_axes_of(key)) for key, wanted in per_axis.items()]
    found: dict[Axis, tuple[Any, Any, int]] = {}
    for key, wanted, axes in sorted(entries, key=lambda entry: -len(entry[2])):
        for axis in axes:
            other = found.get(axis)
            if other is not None and other[2] == len(axes) and not _is_same_request(axis, other[1], wanted):
                raise CutError(
                    f"per_axis[{printable(str(other[0]))!r}] and per_axis[{printable(str(key))!r}] both name "
                    f"{printable(axis.name)} and say different things of it: name it once"
                )
            found[axis] = key, wanted, len(axes)
    return {axis: (key, wanted) for axis, (key, wanted, _) in found.items()}


def _is_same_request(axis: Axis, one: Any, other: Any) -> bool:
    first, second = (_explicit_axis(axis, axis.name, wanted) for wanted in (one, other))
    return first.remaining == second.remaining and np.array_equal(first.drop_first, second.drop_first)


def _explicit_axis(axis: Axis, key: Any, wanted: Any) -> ExplicitAxis:
    """The explicit count or indices of one entry of `per_axis`."""
    if isinstance(wanted, float | int):
        if not 0 <= wanted < 1:
            raise CutError(f"per_axis[{printable(str(key))!r}]={wanted}: give a share of 0 … 1 or indices")
        return ExplicitAxis(axis.size - removed_count(axis.size, wanted), np.empty(0, dtype=np.int64))
    drop = np.flatnonzero(position_mask(wanted, axis.size, f"axis {printable(axis.name)}"))
    return ExplicitAxis(_remaining_count(axis, len(drop)), drop)


def _merge(axis: Axis, cut: ExplicitAxis, own: ExplicitAxis) -> ExplicitAxis:
    """The union of `cuts` and `per_axis` on one axis; a share must match the cuts."""
    drop = np.union1d(cut.drop_first, own.drop_first).astype(np.int64)
    if not len(own.drop_first) and own.remaining != cut.remaining:
        raise CutError(
            f"cuts take {axis.size - cut.remaining} of the {axis.size} indices of {printable(axis.name)}, and per_axis "
            f"{axis.size - own.remaining}: name it in one of them"
        )
    return ExplicitAxis(_remaining_count(axis, len(drop)), drop)


def _check_protected(explicit: Mapping[Term, ExplicitAxis], request: Request, named: AxisLookup) -> None:
    """Raise `CutError` if indices of a protected axis are to be removed."""
    if request.keep is None and request.only is None:
        return
    spared = [named.axes.of(term) for term, own in explicit.items() if own.remaining < term.size]
    spared = [axis for axis in spared if axis not in named.choice.allowed_axes]
    if spared:
        names = ", ".join(printable(axis.name) for axis in spared[:3]) + (", …" if len(spared) > 3 else "")
        options = " and ".join(f"{name}=…" for name in ("only", "keep") if getattr(request, name) is not None)
        raise CutError(f"per_axis or cuts take from {names}, which {options} spares: ask for one of them")


def extend_to_groups(
    explicit: Mapping[Term, ExplicitAxis], layers: UniformLayers, axes: Axes
) -> dict[Term, ExplicitAxis]:
    """Explicit axes, extended to all axes that are tied to them.

    Raises `CutError` where one of them has to stay whole, or two shall lose different shares.
    """
    found: dict[Term, ExplicitAxis] = {}
    for term, own in explicit.items():
        if term in layers.pinned and own.remaining < term.size:
            raise CutError(f"per_axis or cuts take from {printable(axes.of(term).name)}: {layers.pinned[term]}")
        for other, left in layers.proportions.counts_with(term, own.remaining).items():
            stays = explicit.get(other, ExplicitAxis(left, np.empty(0, dtype=np.int64)))
            if stays.remaining != left:
                raise CutError(
                    f"layers='uniform' keeps {printable(axes.of(term).name)} and {printable(axes.of(other).name)} "
                    "alike, of "
                    f"which {own.remaining} and {stays.remaining} shall stay: name one of them, or let as many stay"
                )
            found[other] = stays
    return found


def _remaining_count(axis: Axis, count: int) -> int:
    if count >= axis.size:
        raise CutError(f"{printable(axis.name)} would lose all of its {axis.size} indices: leave one at least")
    return axis.size - count
