"""Limits on the remaining indices of each axis: `floor` and `ceiling` of a plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from modulekg_widgets.engine.axes.axis import Axis
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.axes.terms.index_semantics import MinimumCount
from modulekg_widgets.engine.errors import CutError, printable
from modulekg_widgets.engine.pruning.plan.selection.request import Limit
from modulekg_widgets.engine.pruning.plan.selection.selection import Proportions

DEFAULT_FLOOR = 0.1  # of what an axis has: a common ranking takes no layer away altogether
DEFAULT_TARGET_FLOOR = 0.05  # where it spends a target: MiniLM does without nearly all of its feed-forward layers


@dataclass(frozen=True)
class Limits:
    """The minimum and maximum count of axes, where the user limits them."""

    minimum: Mapping[Term, int] = field(default_factory=dict)
    maximum: Mapping[Term, int] = field(default_factory=dict)
    code_minimums: Mapping[Term, MinimumCount] = field(
        default_factory=dict
    )  # by the code, at once: more than the user asks for

    def check(self, axis: Axis, count: int, what: str) -> None:
        """Raise `CutError` if a count violates a limit."""
        least, most = self.minimum.get(axis.term, 1), self.maximum.get(axis.term, axis.size)
        if not least <= count <= most:
            limit = f"floor is {least}" if count < least else f"ceiling is {most}"
            if count < least and axis.term in self.code_minimums:
                limit = f"at least {least} must be kept: {self.code_minimums[axis.term].reason}"
            raise CutError(f"{what} leaves {count} of the {axis.size} indices of {printable(axis.name)}, and {limit}")

    def of_groups(
        self, proportions: Proportions, multiples: Mapping[Term, int], name_of: Callable[[Term], str]
    ) -> Limits:
        """The limits of each axis when its whole group meets these.

        Raises `CutError` where the limits of two axes of a group exclude each other.
        """
        least, most = dict(self.minimum), dict(self.maximum)
        for group in proportions.groups:
            low = [-(-self.minimum[term] // group.unit(term)) for term in group.terms if term in self.minimum]
            high = [self.maximum[term] // group.unit(term) for term in group.terms if term in self.maximum]
            round_to = max(multiples.get(group.terms[0], 1) // group.unit(group.terms[0]), 1)
            lowest = min(-(-max(low, default=1) // round_to) * round_to, group.size)
            highest = min(high, default=group.size)
            if lowest > (highest if highest >= group.size else highest // round_to * round_to):
                names = ", ".join(printable(name_of(term)) for term in group.terms[:3])
                raise CutError(
                    f"{names} must be cut together: of {group.size}, floor is {lowest} and ceiling is {highest} at most"
                )
            if low:
                least.update({term: max(low) * group.unit(term) for term in group.terms})
            if high:
                most.update({term: highest * group.unit(term) for term in group.terms})
        return Limits(least, most, self.code_minimums)


def limits_of(
    floor: Limit | None,
    ceiling: Limit | None,
    able: Iterable[Axis],
    named: Callable[[object], list[Axis]],
    multiples: Mapping[Term, int],
) -> Limits:
    """The limits of the axes that a plan may cut.

    `named`: the axes behind a key. `multiples`: of which numbers the counts are multiples. Raises `CutError` for limits
    that exclude each other or name an axis that the plan does not cut, and what `named` raises.
    """
    every = {axis.term: axis for axis in able}
    least = _limits_by_axis("floor", floor, every, named)
    found = {term: axis.least for term, axis in every.items()}
    taken = {term: known for term, known in found.items() if known is not None and known.count > least.get(term, 1)}
    least.update((term, known.count) for term, known in taken.items())
    most = _limits_by_axis("ceiling", ceiling, every, named)
    for term, count in most.items():
        axis, round_to = every[term], multiples.get(term, 1)
        lower = min(axis.size, -(-least.get(term, 1) // round_to) * round_to)
        upper = axis.size if count >= axis.size else count // round_to * round_to
        if lower > upper:
            rounding = f", in multiples of {round_to} for round_to" if round_to > 1 else ""
            low = f"floor is {least[term]}" if term in least else "at least one is kept"
            low = f"at least {least[term]} must be kept ({taken[term].reason})" if term in taken else low
            raise CutError(f"{printable(axis.name)} has {axis.size} indices: {low}, and ceiling is {count}{rounding}")
    return Limits(least, most, taken)


def _limits_by_axis(
    name: str, limit: Limit | None, every: Mapping[Term, Axis], named: Callable[[object], list[Axis]]
) -> dict[Term, int]:
    if limit is None:
        return {}
    if not isinstance(limit, Mapping):
        return {term: _index_count(name, limit, axis) for term, axis in every.items()}
    found: dict[Term, int] = {}
    for key, value in limit.items():
        axes = named(key)
        inside = [axis for axis in axes if axis.term in every]
        for axis in inside:
            found[axis.term] = _index_count(name, value, axis)
        if name == "ceiling" and not inside:
            why = next((axis.frozen for axis in axes if axis.frozen), "only=… and keep=… protect it")
            raise CutError(f"ceiling: the plan cuts no axis of {printable(str(key))!r}: {printable(why, 300)}")
    return found


def _index_count(name: str, value: float | int, axis: Axis) -> int:
    """The count that a limit means for an axis; at least one."""
    if isinstance(value, int):
        return min(max(value, 1), axis.size)
    exact = axis.size * value
    return max(math.ceil(exact - 1e-9) if name == "floor" else math.floor(exact + 1e-9), 1)
