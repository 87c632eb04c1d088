"""Selections: the remaining count of each axis, the order of removal, and what ties the counts of several axes."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.axes.cut_analysis import KeepMasks
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms, find
from modulekg_widgets.engine.axes.terms.term_positions import remaining_size

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


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

    def multiples(self, multiples: Mapping[Term, int]) -> dict[Term, int]:
        """The multiples of the counts when those of single axes are `multiples`."""
        found = dict(multiples)
        for group in self.groups:
            units = [_smallest_multiple(multiples.get(term, 1), group.unit(term)) for term in group.terms]
            found.update({term: math.lcm(*units) * group.unit(term) for term in group.terms})
        return found


def _smallest_multiple(round_to: int, unit: int) -> int:
    """The smallest multiple of `unit`, in units, that is a multiple of `round_to`."""
    return round_to // math.gcd(round_to, unit)


NO_PROPORTIONS = Proportions()


@dataclass(frozen=True)
class Selection:
    """An immutable choice of counts and orders; corrections make a new one."""

    orders: Mapping[Term, Ints]  # the indices of each axis that may be cut, the first to go first
    counts: Mapping[Term, int]  # how many stay
    minimum: Mapping[Term, int] = field(default_factory=dict)  # how many must stay, where the user names those that go
    multiples: Mapping[Term, int] = field(default_factory=dict)  # what the counts are multiples of, unless all stay
    pinned: Mapping[Term, str] = field(default_factory=dict)  # axes that had to stay whole, and why
    proportions: Proportions = NO_PROPORTIONS  # axes that lose the same share

    @cached_property
    def changed(self) -> dict[Term, int]:
        """The remaining counts of the axes that lose indices."""
        return {atom: count for atom, count in self.counts.items() if count < atom.size}

    @cached_property
    def _sizes(self) -> dict[Term, int]:
        """Cached sizes of dimensions."""
        return {}

    def keep_masks(self) -> KeepMasks:
        """The boolean masks of remaining indices, for the axes that lose some."""
        found = {}
        for atom, count in self.changed.items():
            keep = np.ones(atom.size, dtype=bool)
            keep[self.orders[atom][: atom.size - count]] = False
            found[atom] = keep
        return found

    def size(self, term: Term) -> int:
        """The size of a dimension after the cut."""
        if term not in self._sizes:
            self._sizes[term] = remaining_size(term, self.changed)
        return self._sizes[term]

    def free_atoms(self, term: Term) -> list[Term]:
        """The atoms of a dimension whose count may change, each once."""
        return [atom for atom in dict.fromkeys(atoms(term)) if atom in self.counts and atom not in self.pinned]

    def cut_atoms(self, term: Term) -> list[Term]:
        """The atoms of a dimension that lose indices, each once."""
        return [atom for atom in dict.fromkeys(atoms(find(term))) if atom in self.changed]

    def restricted_to(self, terms: Sequence[Term]) -> Selection:
        """The selection of these axes alone; the others stay whole."""
        return Selection({atom: self.orders[atom] for atom in terms}, {atom: self.counts[atom] for atom in terms})

    def with_count(self, atom: Term, count: int) -> Selection:
        """The selection with another count for one axis and its group."""
        return replace(self, counts={**self.counts, **self.proportions.counts_with(atom, count)})

    def pin(self, terms: Iterable[Term], reason: str) -> Selection:
        """The selection with these axes and their groups kept whole."""
        terms = self.proportions.with_group_members(terms)
        return replace(
            self,
            counts={**self.counts, **{atom: atom.size for atom in terms}},
            pinned={**self.pinned, **dict.fromkeys(terms, reason)},
        )


@dataclass(frozen=True, slots=True)
class SizeConstraint:
    """A constraint on sizes: `size(left) · times == size(right)`, or `size(left) == times`."""

    left: Term
    right: Term | None
    times: int = 1

    def is_met(self, selection: Selection) -> bool:
        """True if a selection meets the constraint."""
        if self.right is None:
            return selection.size(self.left) == self.times
        return selection.size(self.left) * self.times == selection.size(self.right)
