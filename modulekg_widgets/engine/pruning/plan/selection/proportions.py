"""Proportions: groups of axes that are pruned by the same share, as with `layers="uniform"`."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.errors import CutError, printable
from modulekg_widgets.engine.pruning.plan.selection.limits import Limits

Ints = NDArray[np.int64]
NameOf = Callable[[Term], str]


@dataclass(frozen=True)
class Proportion:
    """A group of axes that keep the same share; sizes are multiples of the smallest one."""

    terms: tuple[Term, ...]

    @property
    def size(self) -> int:
        """The size of the smallest axis."""
        return min(term.size for term in self.terms)

    def unit(self, term: Term) -> int:
        """The number of indices of an axis for each one of the smallest."""
        return term.size // self.size


@dataclass(frozen=True)
class Proportions:
    """Groups of tied axes; an axis is in one group at most."""

    groups: tuple[Proportion, ...] = ()
    by_term: Mapping[Term, Proportion] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_term", {term: group for group in self.groups for term in group.terms})

    def counts_with(self, term: Term, count: int) -> dict[Term, int]:
        """The counts of an axis and of its group, in whole units."""
        group = self.by_term.get(term)
        if group is None:
            return {term: count}
        units = -(-count // group.unit(term))
        return {each: units * group.unit(each) for each in group.terms}

    def base_axis(self, term: Term) -> tuple[Term, int]:
        """The smallest axis of a group, and the multiple of its count."""
        group = self.by_term.get(term)
        return (term, 1) if group is None else (min(group.terms, key=lambda each: each.size), group.unit(term))

    def with_group_members(self, terms: Iterable[Term]) -> list[Term]:
        """The axes and their group members, each once."""
        found = (group.terms if (group := self.by_term.get(term)) else (term,) for term in terms)
        return list(dict.fromkeys(each for every in found for each in every))

    def restricted_to(self, terms: Container[Term]) -> Proportions:
        """The groups that consist of these axes only."""
        return Proportions(tuple(group for group in self.groups if all(term in terms for term in group.terms)))

    def steps(self, steps: Mapping[Term, int]) -> dict[Term, int]:
        """The multiples of the counts when those of single axes are `steps`."""
        found = dict(steps)
        for group in self.groups:
            units = [_smallest_multiple(steps.get(term, 1), group.unit(term)) for term in group.terms]
            found.update({term: math.lcm(*units) * group.unit(term) for term in group.terms})
        return found

    def limits(self, limits: Limits, steps: Mapping[Term, int], named: NameOf) -> Limits:
        """The limits of each axis when its whole group meets `limits`.

        Raises `CutError` where the limits of two axes of a group exclude each other.
        """
        least, most = dict(limits.minimum), dict(limits.maximum)
        for group in self.groups:
            low = [-(-limits.minimum[term] // group.unit(term)) for term in group.terms if term in limits.minimum]
            high = [limits.maximum[term] // group.unit(term) for term in group.terms if term in limits.maximum]
            step = max(steps.get(group.terms[0], 1) // group.unit(group.terms[0]), 1)
            lowest = min(-(-max(low, default=1) // step) * step, group.size)
            highest = min(high, default=group.size)
            if lowest > (highest if highest >= group.size else highest // step * step):
                names = ", ".join(printable(named(term)) for term in group.terms[:3])
                raise CutError(
                    f"{names} go together: of {group.size}, floor asks for {lowest} at least and ceiling for "
                    f"{highest} at most"
                )
            if low:
                least.update({term: max(low) * group.unit(term) for term in group.terms})
            if high:
                most.update({term: highest * group.unit(term) for term in group.terms})
        return Limits(least, most, limits.code_minimums)


def _smallest_multiple(step: int, unit: int) -> int:
    """The smallest multiple of `unit`, in units, that is a multiple of `step`."""
    return step // math.gcd(step, unit)


NO_PROPORTIONS = Proportions()


class GroupArrays:
    """Proportions as arrays over the positions of some axes."""

    def __init__(self, proportions: Proportions, terms: Sequence[Term]) -> None:
        numbers: dict[int, int] = {}
        self._group: Ints = np.empty(len(terms), dtype=np.int64)
        self._units: Ints = np.ones(len(terms), dtype=np.int64)
        for at, term in enumerate(terms):
            group = proportions.by_term.get(term)
            self._group[at] = numbers.setdefault(id(term if group is None else group), len(numbers))
            self._units[at] = 1 if group is None else group.unit(term)
        self._has_groups = len(numbers) < len(terms)
        self._total = np.bincount(self._group, self._units, minlength=len(numbers))

    @property
    def groups(self) -> list[Ints]:
        """The positions of each group; single axes are groups of one."""
        count = len(self._total)
        return [np.flatnonzero(self._group == number) for number in range(count)]

    def mean(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The mean over its group, for every axis."""
        if not self._has_groups:
            return values
        return (np.bincount(self._group, values) / np.bincount(self._group))[self._group]

    def round_up(self, stay: Ints) -> Ints:
        """The counts rounded up to whole units of each group."""
        if not self._has_groups:
            return stay
        found = np.ceil(np.bincount(self._group, stay, len(self._total)) / self._total - 1e-9)
        return found.astype(np.int64)[self._group] * self._units

    def at_least(self, stay: Ints) -> Ints:
        """The smallest group-wise counts that are at least these."""
        if not self._has_groups:
            return stay
        most = np.zeros(len(self._total), dtype=np.int64)
        np.maximum.at(most, self._group, -(-stay // self._units))
        return most[self._group] * self._units
