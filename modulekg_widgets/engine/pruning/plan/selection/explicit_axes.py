"""Explicit counts and indices of a request: `cuts` and `per_axis`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.axes.cut_analysis import position_mask
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.errors import CutError, printable
from modulekg_widgets.engine.pruning.plan.selection.axis_choice import AxisChoice, indices_dropped_by_cuts
from modulekg_widgets.engine.pruning.plan.selection.counts import removed_count
from modulekg_widgets.engine.pruning.plan.selection.repeated_layers import UniformLayers
from modulekg_widgets.engine.pruning.plan.selection.request import PerAxis, Request
from modulekg_widgets.engine.pruning.plan.selection.selection import Ints

Wanted = float | Iterable[int]  # a ratio, or the indices that go


class ExplicitAxis(NamedTuple):
    """The remaining count of an axis that the user names, and the indices to remove first."""

    remaining: int
    drop_first: Ints


def explicit_axes(request: Request, choice: AxisChoice) -> dict[Term, ExplicitAxis]:
    """The explicit axes of `cuts` and `per_axis`; raises `CutError` for contradictions."""
    found: dict[Term, ExplicitAxis] = {}
    for term, indices in indices_dropped_by_cuts(choice.axes, request.cuts or ()).items():
        found[term] = ExplicitAxis(_remaining_count(choice.axes.of(term), len(indices)), np.asarray(indices))
    for axis, (key, wanted) in _entries_by_axis(request.per_axis or {}, choice).items():
        own = _explicit_axis(axis, key, wanted)
        found[axis.term] = own if axis.term not in found else _merge(axis, found[axis.term], own)
    _check_protected(found, request, choice)
    return found


def _entries_by_axis(per_axis: PerAxis, choice: AxisChoice) -> dict[Axis, tuple[object, Wanted]]:
    """The entry of `per_axis` for each axis; of several, the one that names the fewest axes."""
    entries = [(key, wanted, choice.free_axes_of(key)) for key, wanted in per_axis.items()]
    found: dict[Axis, tuple[object, Wanted, int]] = {}
    for key, wanted, axes in sorted(entries, key=lambda entry: -len(entry[2])):
        for axis in axes:
            other = found.get(axis)
            if other is not None and other[2] == len(axes) and not _is_same_request(axis, other[1], wanted):
                raise CutError(
                    f"per_axis[{printable(str(other[0]))!r}] and per_axis[{printable(str(key))!r}] both name "
                    f"{printable(axis.name)} with different values: name it once"
                )
            found[axis] = key, wanted, len(axes)
    return {axis: (key, wanted) for axis, (key, wanted, _) in found.items()}


def _is_same_request(axis: Axis, one: Wanted, other: Wanted) -> bool:
    first, second = (_explicit_axis(axis, axis.name, wanted) for wanted in (one, other))
    return first.remaining == second.remaining and np.array_equal(first.drop_first, second.drop_first)


def _explicit_axis(axis: Axis, key: object, wanted: Wanted) -> ExplicitAxis:
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
            f"cuts remove {axis.size - cut.remaining} of the {axis.size} indices of {printable(axis.name)}, and "
            "per_axis "
            f"{axis.size - own.remaining}: name it in one of them"
        )
    return ExplicitAxis(_remaining_count(axis, len(drop)), drop)


def _check_protected(explicit: Mapping[Term, ExplicitAxis], request: Request, choice: AxisChoice) -> None:
    """Raise `CutError` if indices of a protected axis are to be removed."""
    if request.keep is None and request.only is None:
        return
    spared = [choice.axes.of(term) for term, own in explicit.items() if own.remaining < term.size]
    spared = [axis for axis in spared if axis not in choice.allowed_axes]
    if spared:
        names = ", ".join(printable(axis.name) for axis in spared[:3]) + (", …" if len(spared) > 3 else "")
        options = " and ".join(f"{name}=…" for name in ("only", "keep") if getattr(request, name) is not None)
        raise CutError(f"per_axis or cuts remove from {names}, which {options} protects: use one of them")


def extend_to_groups(
    explicit: Mapping[Term, ExplicitAxis], layers: UniformLayers, axes: Axes
) -> dict[Term, ExplicitAxis]:
    """Explicit axes, extended to all axes that are tied to them.

    Raises `CutError` where one of them must not be cut, or two would lose different shares.
    """
    found: dict[Term, ExplicitAxis] = {}
    for term, own in explicit.items():
        if term in layers.pinned and own.remaining < term.size:
            raise CutError(f"per_axis or cuts remove from {printable(axes.of(term).name)}: {layers.pinned[term]}")
        for other, left in layers.proportions.counts_with(term, own.remaining).items():
            tied = explicit.get(other, ExplicitAxis(left, np.empty(0, dtype=np.int64)))
            if tied.remaining != left:
                raise CutError(
                    f"layers='uniform' keeps {printable(axes.of(term).name)} and {printable(axes.of(other).name)} "
                    "alike, of "
                    f"which {own.remaining} and {tied.remaining} are kept: name one of them, or keep as many"
                )
            found[other] = tied
    return found


def _remaining_count(axis: Axis, count: int) -> int:
    if count >= axis.size:
        raise CutError(f"{printable(axis.name)} would lose all of its {axis.size} indices: keep at least one")
    return axis.size - count
