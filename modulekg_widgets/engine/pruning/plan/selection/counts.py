"""Counts of remaining indices: by ratio, for each axis or ranked together, within limits and rounded to multiples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from modulekg_widgets.engine.axes.axis import Axis
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.pruning.plan.selection.limits import DEFAULT_FLOOR, DEFAULT_TARGET_FLOOR, Limits
from modulekg_widgets.engine.pruning.plan.selection.request import GLOBAL, LOCAL
from modulekg_widgets.engine.pruning.plan.selection.selection import NO_PROPORTIONS, Floats, Ints, Proportions
from modulekg_widgets.engine.tracing.dataflow import split_name

Scores = Mapping[Term, Floats]
MAX_AXIS_FACTOR = 1.5  # times the share that goes of all axes; of 1.2 … 2 what serves a ResNet, a ViT and an LSTM
WEAK_SCORE = 0.5  # of the mean score of an axis: what is below may go beyond that


def removed_count(size: int, ratio: float) -> int:
    """The number of indices that a ratio removes; at most the ratio, and never all."""
    return min(size - 1, math.floor(size * ratio + 1e-9))


def round_count(count: int, size: int, round_to: int) -> int:
    """The next multiple of `round_to`, or all."""
    return min(size, -(-count // round_to) * round_to)


class Counts:
    """The possible counts of remaining indices of some axes, and the counts for a ratio.

    `scores`: of every axis, comparable with one another unless the scope is "local"; `is_fair`: no axis may lose much
    more than others; `exponents`: for a target, the powers to which axes keep what a ratio leaves where the scope is
    "local", else all lose the same share; `proportions`: which lose the same in any case. `multiples` of the counts, as
    `round_to` asks for them, and `limits` know of that. Arrays go by the places of `chosen`.
    """

    def __init__(
        self,
        chosen: Sequence[Axis],
        scores: Scores,
        scope: str = LOCAL,
        multiples: Mapping[Term, int] | None = None,
        limits: Limits | None = None,
        is_fair: bool = True,
        exponents: Floats | None = None,
        proportions: Proportions = NO_PROPORTIONS,
    ) -> None:
        limits = limits or Limits()
        terms = [axis.term for axis in chosen]
        self.proportions = proportions
        self.group_arrays = GroupArrays(proportions, terms)
        self._exponents = None if exponents is None else self.group_arrays.mean(exponents)
        self._is_fair = is_fair
        self.chosen = list(chosen)
        self.scores = [scores[term] for term in terms] if scope != LOCAL else []
        self.sizes: Ints = np.array([axis.size for axis in chosen], dtype=np.int64)
        self.multiples: Ints = np.array([(multiples or {}).get(term, 1) for term in terms], dtype=np.int64)
        self._floors: Ints = np.array([limits.minimum.get(term, 0) for term in terms], dtype=np.int64)
        most = np.array([limits.maximum.get(term, term.size) for term in terms], dtype=np.int64)
        self.maximum: Ints = np.where(most < self.sizes, most // self.multiples * self.multiples, self.sizes)
        self._is_local = scope == LOCAL
        self._weak: Ints = np.array([_weak_count(own) for own in self.scores], dtype=np.int64)
        self._ranked = [self._ranking(group) for group in self._groups(scope)]

    def at_ratio(self, ratio: float, tilt: Floats | float = 0.0) -> Ints:
        """The counts for a ratio; `tilt` is added to the ratio of each axis, or lowers its scores in a ranking."""
        if self._is_local:
            share = np.clip(ratio + self._group_tilt(tilt), 0.0, 1.0)
            if self._exponents is not None:
                share = 1 - (1 - share) ** self._exponents
            stay = self.sizes - np.minimum(self.sizes - 1, np.floor(self.sizes * share + 1e-9).astype(np.int64))
        else:
            stay = self.sizes.copy()
            for group, order, owner in self._ranked:
                if np.any(tilt):
                    order, owner = self._ordered(group, np.exp(-np.asarray(self._group_tilt(tilt))[group]))
                stay[group] = self._remove_lowest(group, order, owner, min(max(ratio, 0.0), 1.0))
        return self.allowed(stay, ratio)

    def allowed(self, stay: Ints, ratio: float = 0.0) -> Ints:
        """The next counts that are multiples and within limits."""
        wanted = np.maximum(self.group_arrays.whole_units(stay), self.minimum(ratio))
        return np.minimum(self._round_to_multiples(wanted), self.maximum)

    def minimum(self, ratio: float = 0.0) -> Ints:
        """The minimum counts when this share of all indices is removed."""
        usual = 1 if self._is_local else self._ranked_minimum(ratio)
        least = np.where(self._floors > 0, self._floors, np.maximum(usual, 1)).astype(np.int64)
        return np.minimum(self._round_to_multiples(self.group_arrays.at_least(least)), self.maximum)

    def _group_tilt(self, tilt: Floats | float) -> Floats | float:
        """The tilt, averaged over axes that are tied."""
        return self.group_arrays.mean(tilt) if isinstance(tilt, np.ndarray) else tilt

    def _ranked_minimum(self, ratio: float) -> Ints:
        """The minimum counts of a common ranking when this share of all indices is removed.

        The scores within an axis often differ less than those of two axes, so that all of one would go before any of
        the other: measured on trained nets, an LSTM lost the dimensions of its embedding and nothing else.
        """
        usual = DEFAULT_FLOOR if self._exponents is None else DEFAULT_TARGET_FLOOR
        some = np.ceil(self.sizes * min(usual, max(0.0, 1 - ratio)) - 1e-9)
        if not self._is_fair:
            return some.astype(np.int64)
        fair = np.floor(self.sizes * (1 - MAX_AXIS_FACTOR * ratio) + 1e-9)
        return np.maximum(some, np.minimum(fair, self.sizes - self._weak)).astype(np.int64)

    def next_above(self, count: int, at: int) -> int:
        """The next larger count of an axis, or the same."""
        round_to = int(self.multiples[at])
        return int(min((count // round_to + 1) * round_to, self.maximum[at]))

    def next_below(self, count: int, at: int, least: int) -> int:
        """The next smaller count of an axis that is at least `least`, or the same."""
        round_to = int(self.multiples[at])
        fewer = (-(-count // round_to) - 1) * round_to
        return fewer if fewer >= least else count

    def minimum_with(self, stay: Ints) -> Ints:
        """The minimum counts for the share that a choice removes."""
        whole = int(self.sizes.sum())
        return self.minimum(1 - int(stay.sum()) / whole if whole else 0.0)

    def _round_to_multiples(self, stay: Ints) -> Ints:
        return np.minimum(self.sizes, -(-stay // self.multiples) * self.multiples)

    # -------------------------------------------------------- common rankings

    def _groups(self, scope: str) -> list[Ints]:
        if scope == LOCAL or not self.chosen:
            return []
        if scope == GLOBAL:
            return [np.arange(len(self.chosen))]
        kinds: dict[object, list[int]] = {}
        for at, axis in enumerate(self.chosen):
            kinds.setdefault(_axis_kind(axis), []).append(at)
        return [np.array(group) for group in kinds.values()]

    def _ranking(self, group: Ints) -> tuple[Ints, Ints, Ints]:
        return group, *self._ordered(group, np.ones(len(group)))

    def _ordered(self, group: Ints, factors: Floats) -> tuple[Ints, Ints]:
        """The ranked indices of some axes, the first to be removed first: rank within the axis, and axis."""
        own = zip((self.scores[at] for at in group), factors, strict=True)
        scores = [np.where(score < 0, score / factor, score * factor) for score, factor in own]
        every = np.argsort(np.concatenate(scores), kind="stable")
        owner = np.repeat(np.arange(len(group)), self.sizes[group])
        rank = np.empty(len(every), dtype=np.int64)
        starts = np.cumsum([0, *self.sizes[group][:-1]])
        for start, own in zip(starts, scores, strict=True):
            rank[start + np.argsort(own, kind="stable")] = np.arange(len(own))
        return rank[every], owner[every]

    def _remove_lowest(self, group: Ints, rank: Ints, owner: Ints, ratio: float) -> Ints:
        """The counts after the lowest scores of a group are removed, within limits."""
        sizes = self.sizes[group]
        able = sizes - self.minimum(ratio)[group]
        forced = sizes - self.maximum[group]
        going = np.flatnonzero((rank >= forced[owner]) & (rank < able[owner]))
        left = max(0, math.floor(len(rank) * ratio + 1e-9) - int(forced.sum()))
        return sizes - forced - np.bincount(owner[going[:left]], minlength=len(group))


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

    def mean(self, values: Floats) -> Floats:
        """The mean over its group, for every axis."""
        if not self._has_groups:
            return values
        return (np.bincount(self._group, values) / np.bincount(self._group))[self._group]

    def whole_units(self, stay: Ints) -> Ints:
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


def _weak_count(scores: Floats) -> int:
    """The number of indices of an axis with clearly lower scores."""
    return int((scores < WEAK_SCORE * np.abs(scores).mean()).sum()) if len(scores) else 0


def _axis_kind(axis: Axis) -> frozenset[tuple[str, str, int]]:
    """The attributes, dimensions and module classes that an axis lies on."""
    found = set()
    for node, dim in axis.tensor_dims:
        path, attribute = split_name(node.graph, node.label)
        found.add((type(node.graph.modules[path].module).__name__, attribute, dim))
    return frozenset(found)
