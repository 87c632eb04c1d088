"""Selections: the remaining count of each axis, and the order in which indices are removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.axes.cut_analysis import KeepMasks
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms, find
from modulekg_widgets.engine.axes.terms.term_positions import remaining_size
from modulekg_widgets.engine.pruning.plan.selection.proportions import NO_PROPORTIONS, Proportions

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Selection:
    """An immutable choice of counts and orders; corrections make a new one."""

    orders: Mapping[Term, Ints]  # the indices of each axis that may be cut, the first to go first
    counts: Mapping[Term, int]  # how many stay
    minimum: Mapping[Term, int] = field(default_factory=dict)  # how many must stay, where the user names those that go
    steps: Mapping[Term, int] = field(default_factory=dict)  # what the counts are multiples of, unless all stay
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

    def pin(self, terms: list[Term], reason: str) -> Selection:
        """The selection with these axes and their groups kept whole."""
        terms = self.proportions.with_group_members(terms)
        return replace(
            self,
            counts={**self.counts, **{atom: atom.size for atom in terms}},
            pinned={**self.pinned, **dict.fromkeys(terms, reason)},
        )
