"""How many indices of each axis stay, and in which order they go."""

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
    """The state of a plan; corrections make a new one."""

    orders: Mapping[Term, Ints]  # the indices of each axis that may be cut, the first to go first
    counts: Mapping[Term, int]  # how many stay
    minimum: Mapping[Term, int] = field(default_factory=dict)  # how many must stay, where the user names those that go
    steps: Mapping[Term, int] = field(default_factory=dict)  # what the counts are multiples of, unless all stay
    pinned: Mapping[Term, str] = field(default_factory=dict)  # axes that had to stay whole, and why
    proportions: Proportions = NO_PROPORTIONS  # axes that lose the same share

    @cached_property
    def changed(self) -> dict[Term, int]:
        """How many indices stay of the axes that lose some."""
        return {atom: count for atom, count in self.counts.items() if count < atom.size}

    @cached_property
    def _sizes(self) -> dict[Term, int]:
        """The sizes that were asked for: a dry run asks at every operator."""
        return {}

    def keep_masks(self) -> KeepMasks:
        """Which indices stay, of the axes that lose some."""
        found = {}
        for atom, count in self.changed.items():
            keep = np.ones(atom.size, dtype=bool)
            keep[self.orders[atom][: atom.size - count]] = False
            found[atom] = keep
        return found

    def size(self, term: Term) -> int:
        """The size of a dimension afterwards."""
        if term not in self._sizes:
            self._sizes[term] = remaining_size(term, self.changed)
        return self._sizes[term]

    def free_atoms(self, term: Term) -> list[Term]:
        """The atoms of a dimension whose count may be set, each once."""
        return [atom for atom in dict.fromkeys(atoms(term)) if atom in self.counts and atom not in self.pinned]

    def cut_atoms(self, term: Term) -> list[Term]:
        """The atoms of a dimension that lose indices, each once."""
        return [atom for atom in dict.fromkeys(atoms(find(term))) if atom in self.changed]

    def restricted_to(self, terms: Sequence[Term]) -> Selection:
        """The same of these axes alone, the others whole."""
        return Selection({atom: self.orders[atom] for atom in terms}, {atom: self.counts[atom] for atom in terms})

    def with_count(self, atom: Term, count: int) -> Selection:
        """The same with another number of indices for one axis, and as many in proportion for those that go with it."""
        return replace(self, counts={**self.counts, **self.proportions.counts_with(atom, count)})

    def pin(self, terms: list[Term], reason: str) -> Selection:
        """The same with these axes kept whole, and those that go with them."""
        terms = self.proportions.with_group_members(terms)
        return replace(
            self,
            counts={**self.counts, **{atom: atom.size for atom in terms}},
            pinned={**self.pinned, **dict.fromkeys(terms, reason)},
        )
