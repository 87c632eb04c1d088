"""Search for the counts of remaining indices that come nearest to size goals, on size formulas.

A bisection over the ratio brackets the goals, steps of single indices fill the rest, exchanges between
axes come nearer, and a beam search is the last resort where steps are large. Several goals are met by
tilting the ratio towards axes that cost more of one unit. No model code runs here: `target_solver` runs
the dry runs, and searches again with the corrections that they find.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from modulekg_widgets.engine.pruning.plan.selection.counts import Counts, Floats, Ints
from modulekg_widgets.engine.pruning.plan.sizes.size_model import SizeModel
from modulekg_widgets.engine.pruning.plan.targets.target_solution import GOOD_ENOUGH, TOLERANCE

RATIO_BISECTIONS = 24  # of the range of ratios: two that differ by less leave the same of every axis
TILT_BISECTIONS = 12  # of the range of tilts, where several sizes are asked for
MAX_TILT = 0.98
FINE_TOLERANCE = 0.0005  # of the model: not worth another step
MAX_EXCHANGES = 30
MAX_FINAL_EXCHANGES = 3  # of one step for one, where the goals are met already
SMALL_STEP = 1 / 8  # of an axis
MAX_STEPS_DOWN = 3  # steps at most that one axis gives for one that another gets
MIN_CHOICES = 64  # such choices at least: where axes are few, one step may be worth many of another
BATCH_SIZE = 512  # choices
MAX_BEAM_STEPS = 12  # steps away, where none comes nearer
BEAM_WIDTH = 24  # choices of which each goes on

ResolveCounts = Callable[
    [Ints], Ints
]  # what stays of the chosen axes, (choices, chosen), to that of all, (choices, axes)


@dataclass(frozen=True)
class SearchContext:
    """The corrections that are known to a search, and what each axis gives beyond the common ratio."""

    resolve: ResolveCounts
    groups: Sequence[Ints]  # places among the chosen axes that change together
    tilt: Floats | float = 0.0
    fixed: Ints | None = None  # what stays of some axes whatever the ratio; -1 for the others


class SizeSearch:
    """Finds counts for size goals; `scores` are comparable across axes.

    With `as_budgets` the tightest of several sizes is met, and the others are at most what was asked for; else all are
    met, by axes that cost more of the one than of the other.
    """

    def __init__(self, counts: Counts, formula: SizeModel, scores: Sequence[Floats], is_budget: bool = False) -> None:
        self.counts = counts
        self.formula = formula
        self.is_budget = is_budget
        self.scores = scores
        self._summed = [np.concatenate([[0.0], np.cumsum(np.sort(own))]) for own in scores]

    def gaps(self, stay: Ints, goals: Floats, context: SearchContext) -> Floats:
        """The distance of the sizes below the goals, relative to the model: (units,) or (choices, units).

        As budgets the gap of the tightest alone counts: (1,) or (choices, 1).
        """
        several = np.atleast_2d(stay)
        parts = [several[at : at + BATCH_SIZE] for at in range(0, len(several), BATCH_SIZE)]
        sizes = np.concatenate([self.formula.sizes(context.resolve(part)) for part in parts])
        found = (goals - sizes) / np.maximum(self.formula.before, 1.0)
        found = found.min(axis=1, keepdims=True) if self.is_budget else found
        return found if stay.ndim > 1 else found[0]

    def as_budget_search(self) -> SizeSearch:
        """The same search with the goals as budgets."""
        return SizeSearch(self.counts, self.formula, self.scores, is_budget=True)

    def by_ratio(self, goals: Floats, context: SearchContext) -> Ints | None:
        """The counts for the smallest sufficient ratio; None if the largest ratio leaves too much."""
        bracket = self._bracket_ratio(goals, context)
        return None if bracket is None else self._at_ratio(bracket[1], context)

    def nearest(self, goals: Floats, context: SearchContext) -> Ints | None:
        """The counts nearest to the goals; None if the largest ratio leaves too much."""
        whole = self.counts.at_ratio(0.0)
        if (self.gaps(whole, goals, context) >= 0).all():
            return whole
        bracket, tilted = self._bracket_ratio(goals, context), context
        if bracket is None:
            return None
        if len(goals) > 1 and not self.is_budget:
            tilted = replace(context, tilt=self._tilt(goals, context, self._at_ratio(bracket[1], context)))
            bracket = self._bracket_ratio(goals, tilted) or bracket
        found = self._fill_bracket(bracket, goals, tilted)
        if self.gaps(found, goals, context).max() <= TOLERANCE:
            return found
        other = self._with_coarse_axes_fixed(self._at_ratio(bracket[0], tilted), found, goals, tilted)
        if other is not None and self.gaps(other, goals, context).max() < self.gaps(found, goals, context).max():
            found = other
        return self._beam_search(found, goals, context)

    def _with_coarse_axes_fixed(self, more: Ints, found: Ints, goals: Floats, context: SearchContext) -> Ints | None:
        """The counts with coarse axes fixed, where one step exceeds a third of the gap."""
        now = self.gaps(found, goals, context)
        steps = [self.neighbours(found, replace(context, groups=[mover]), (1, -1)) for mover in context.groups]
        is_coarse = [np.abs(self.gaps(own, goals, context) - now).max() > now.max() / 3 for own in steps]
        coarse = [mover for mover, is_so in zip(context.groups, is_coarse, strict=True) if is_so]
        fine = [mover for mover, is_so in zip(context.groups, is_coarse, strict=True) if not is_so]
        if not coarse or not fine:
            return None
        held = np.full(len(found), -1)
        held[np.concatenate(coarse)] = more[np.concatenate(coarse)]
        context = replace(context, fixed=held)
        bracket = self._bracket_ratio(goals, context)
        if bracket is None:
            return None
        other = self._fill_bracket(bracket, goals, replace(context, groups=fine))
        return other if (self.gaps(other, goals, context) >= 0).all() else None

    def _fill_bracket(self, bracket: tuple[float, float], goals: Floats, context: SearchContext) -> Ints:
        """The counts of the larger ratio of a bracket, with steps added back while the goals allow."""
        more, stay = (self._at_ratio(ratio, context) for ratio in bracket)
        for movers in (self._groups_without_role(context), list(context.groups)):
            stay = self._restore_steps(stay, more, goals, replace(context, groups=movers), 0.0)
            stay = self._restore_steps(
                stay, self.counts.maximum, goals, replace(context, groups=movers), FINE_TOLERANCE
            )
            if self.gaps(stay, goals, context).max() <= GOOD_ENOUGH:
                break
        stay = self._exchange_steps(
            stay, goals, context, FINE_TOLERANCE if len(goals) > 1 and not self.is_budget else TOLERANCE
        )
        return self._refine(stay, goals, replace(context, groups=self._groups_without_role(context)))

    def _groups_without_role(self, context: SearchContext) -> list[Ints]:
        """The groups of axes without a role in heads or groups."""
        return [mover for mover in context.groups if all(self.counts.chosen[at].role is None for at in mover)]

    # --------------------------------------------------------------- ratios

    def _at_ratio(self, ratio: float, context: SearchContext) -> Ints:
        """The counts for a ratio."""
        stay = self.counts.at_ratio(ratio, context.tilt)
        return stay if context.fixed is None else np.where(context.fixed < 0, stay, context.fixed)

    def _bracket_ratio(self, goals: Floats, context: SearchContext) -> tuple[float, float] | None:
        """Two adjacent ratios of which the larger one meets the goals."""
        reach = float(np.max(np.abs(context.tilt), initial=0.0))
        low, high = -reach, 1.0 + reach
        if (self.gaps(self._at_ratio(high, context), goals, context) < 0).any():
            return None
        for _ in range(RATIO_BISECTIONS):
            ratio = (low + high) / 2
            if (self.gaps(self._at_ratio(ratio, context), goals, context) >= 0).all():
                high = ratio
            else:
                low = ratio
        return low, high

    def _tilt(self, goals: Floats, context: SearchContext, stay: Ints) -> Floats | float:
        """The extra ratio of each axis, so that several goals are met at once.

        It goes by how much more of the one size than of the other an axis costs: where the first goal is met and less
        is left of the other than was asked for, more has to come from axes that cost the first.
        """
        gaps = self.gaps(stay, goals, context)
        first, other = int(np.argmin(gaps)), int(np.argmax(gaps))
        numbers = [axis.number for axis in self.counts.chosen]
        one, two = (self.formula.savings(numbers, self.formula.units[at]) for at in (first, other))
        for mover in context.groups:  # what is tied can only go together
            if len(mover) > 1:
                one[mover], two[mover] = one[mover].sum(), two[mover].sum()
        lean = (one - two) / np.maximum(one + two, 1e-12)
        lean = lean - np.median(lean)
        largest = float(np.max(np.abs(lean), initial=0.0))
        if first == other or largest < 1e-9:
            return 0.0
        low, high = -MAX_TILT, MAX_TILT
        best, found = float(np.ptp(gaps)), 0.0 * lean
        for _ in range(TILT_BISECTIONS):
            if best <= FINE_TOLERANCE:
                break
            middle = (low + high) / 2
            tilted = replace(context, tilt=lean / largest * middle / (1 - abs(middle)))
            bracket = self._bracket_ratio(goals, tilted)
            if bracket is None:
                break
            gaps = self.gaps(self._at_ratio(bracket[1], tilted), goals, context)
            if np.ptp(gaps) < best:  # what the first goal has room for, others will get back
                best, found = float(np.ptp(gaps)), tilted.tilt
            if gaps[first] <= gaps[other]:
                low = middle
            else:
                high = middle
        return found

    # ---------------------------------------------------------------- steps

    def _restore_steps(self, stay: Ints, most: Ints, goals: Floats, context: SearchContext, until: float) -> Ints:
        """The counts with the most important steps added back, at most one for each axis at a time."""
        while (self.gaps(stay, goals, context).min() > until) and (stay < most).any():
            before = stay
            for mover in sorted(context.groups, key=lambda mover: -self._step_score(stay, mover)):
                trial = self._step_group(stay, mover, 1, stay)
                if (trial > most).any() or (trial == stay).all():
                    continue
                gaps = self.gaps(trial, goals, context)
                if (gaps >= 0).all():
                    stay = trial
                if gaps.min() >= 0 and gaps.min() <= until:
                    break
            if stay is before:
                break
        return stay

    def _exchange_steps(self, stay: Ints, goals: Floats, context: SearchContext, near: float) -> Ints:
        """The counts after exchanges of steps between axes, until they are near enough."""
        for _ in range(MAX_EXCHANGES):
            now = self.gaps(stay, goals, context)
            if now.max() <= near:
                return stay
            trials = self._exchange_options(
                stay, now, goals, context, max(MAX_STEPS_DOWN, MIN_CHOICES // max(len(context.groups), 1))
            )
            gaps = self.gaps(trials, goals, context)
            below = np.where((gaps >= 0).all(axis=1), gaps.max(axis=1), np.inf)
            if below.min() <= near:  # what is near enough need not be nearest: the fewer steps, the less an axis strays
                strays = np.abs((trials - stay) / self.counts.sizes).max(axis=1)
                return trials[int(np.lexsort((below, np.where(below <= near, strays, np.inf)))[0])]
            if below.min() < now.max() - 1e-9:
                stay = trials[int(np.argmin(below))]
                continue
            off = np.abs(gaps).max(axis=1)
            return trials[int(np.argmin(off))] if now.max() > TOLERANCE >= off.min() else stay
        return stay

    def _refine(self, stay: Ints, goals: Floats, context: SearchContext) -> Ints:
        """The counts after a few exchanges of small steps."""
        for _ in range(MAX_FINAL_EXCHANGES):
            now = self.gaps(stay, goals, context)
            if now.max() <= GOOD_ENOUGH or now.max() > TOLERANCE:
                break
            trials = self._exchange_options(stay, now, goals, context, 1)
            gaps = self.gaps(trials, goals, context)
            strays = np.abs((trials - stay) / self.counts.sizes).max(axis=1)
            below = np.where((gaps >= 0).all(axis=1) & (strays <= SMALL_STEP), gaps.max(axis=1), np.inf)
            stay = trials[int(np.argmin(below))] if below.min() < now.max() else stay
        return stay

    def _beam_search(self, stay: Ints, goals: Floats, context: SearchContext) -> Ints:
        """The counts found by a beam search; else the nearest feasible ones.

        Where steps are large, as those of few multiples, no two of them may come nearer, and three or four do: from the
        best of all that was seen every step goes on, whether it comes nearer or not.
        """
        nearest, least = stay, float(self.gaps(stay, goals, context).max())
        if least <= TOLERANCE:
            return stay
        seen = {row.tobytes() for row in context.resolve(stay[None])}
        best: Ints = stay[None]
        for _ in range(MAX_BEAM_STEPS):
            trials = np.concatenate([self.neighbours(each, context, (1, -1)) for each in best])
            fresh: dict[bytes, Ints] = {}
            for trial, row in zip(trials, context.resolve(trials), strict=True):
                fresh.setdefault(row.tobytes(), trial)
            trials = np.array([trial for key, trial in fresh.items() if key not in seen])
            seen.update(fresh)
            if not len(trials):
                break
            gaps = self.gaps(trials, goals, context)
            off = np.abs(gaps).max(axis=1)
            below = np.where((gaps >= 0).all(axis=1), off, np.inf)
            if below.min() < least:
                nearest, least = trials[int(np.argmin(below))], float(below.min())
            if least <= TOLERANCE:
                return nearest
            if off.min() <= TOLERANCE:
                return trials[int(np.argmin(off))]
            best = trials[np.argsort(off, kind="stable")[:BEAM_WIDTH]]
        return nearest

    def _exchange_options(self, stay: Ints, now: Floats, goals: Floats, context: SearchContext, most: int) -> Ints:
        """All single steps up, and the best combinations with steps down."""
        ups = self.neighbours(stay, context, (1,))
        downs = self.neighbours(stay, context, range(-1, -most - 1, -1))
        if len(ups) < 2 or len(downs) < 2:
            return ups
        more, less = (self.gaps(trials, goals, context) - now for trials in (ups, downs))
        off = np.abs(now + more[:, None] + less[None]).max(axis=2)
        off[((ups != stay)[:, None] & (downs != stay)[None]).any(axis=2)] = np.inf
        best = np.argsort(off, axis=None)[:BATCH_SIZE]
        up, down = np.unravel_index(best, off.shape)
        return np.concatenate([ups, ups[up] + downs[down] - stay])

    def neighbours(self, stay: Ints, context: SearchContext, steps: Sequence[int]) -> Ints:
        """The counts and, in further rows, the counts after steps of each group."""
        least = self.counts.minimum_with(stay)
        every = [self._step_group(stay, mover, times, least) for mover in context.groups for times in steps]
        return np.array([stay, *(each for each in every if (each != stay).any())])

    def _step_group(self, stay: Ints, group: Ints, steps: int, least: Ints) -> Ints:
        """The counts after some steps of a group; tied axes change in proportion."""
        stepped = stay.copy()

        def go(count: int, at: int) -> int:
            return self.counts.next_above(count, at) if steps > 0 else self.counts.next_below(count, at, int(least[at]))

        for _ in range(abs(steps)):
            # the first of them may be whole, and less only for the others
            first = next((int(at) for at in group if go(int(stepped[at]), int(at)) != stepped[at]), int(group[0]))
            moved = go(int(stepped[first]), first)
            share = abs(moved - int(stepped[first])) / int(self.counts.sizes[first])
            stepped[first] = moved
            for at in group[group != first] if share else ():
                wanted = int(stepped[at]) + round(share * int(self.counts.sizes[at])) * (1 if steps > 0 else -1)
                next_one = go(int(stepped[at]), int(at))
                stepped[at] = max(wanted, next_one) if steps > 0 else min(wanted, next_one)
        return stepped if len(group) == 1 else self.counts.allowed(stepped, 1.0)

    def _step_score(self, stay: Ints, group: Ints) -> float:
        """The mean score of the indices that a step up restores."""
        found = []
        for at in group:
            now, more = int(stay[at]), self.counts.next_above(int(stay[at]), int(at))
            summed, size = self._summed[at], int(self.counts.sizes[at])
            if more > now:
                found.append((summed[size - now] - summed[size - more]) / (more - now))
        return float(np.mean(found)) if found else -np.inf
