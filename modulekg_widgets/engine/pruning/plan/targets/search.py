"""The numbers of indices with which a model comes as near as possible to the sizes that were asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from modulekg_widgets.engine.pruning.plan.selection.counts import Counts, Floats, Ints
from modulekg_widgets.engine.pruning.plan.sizes.size_formula import SizeFormula

HALVINGS = 24  # of the range of ratios: two that differ by less leave the same of every axis
TILTS = 12  # of the range of tilts, where several sizes are asked for
STEEPEST = 0.98
MEETS = 0.01  # of the model, between what was asked for and what is left
CLOSE = 0.0005  # of the model: not worth another step
ENOUGH = 0.002  # of the model: not worth another kind of step, or another dry run
MOST_EXCHANGES = 30
FEW_EXCHANGES = 3  # of one step for one, where the goals are met already
SMALL_STEP = 1 / 8  # of an axis
FEWER = 3  # steps at most that one axis gives for one that another gets
ALTOGETHER = 64  # such choices at least: where axes are few, one step may be worth many of another
AT_ONCE = 512  # choices
MOST_STRAYING = 12  # steps away, where none comes nearer
AT_HAND = 24  # choices of which each goes on

Settle = Callable[[Ints], Ints]  # what stays of the chosen axes, (choices, chosen), to that of all, (choices, axes)


@dataclass(frozen=True)
class Ground:
    """What is known of an attempt: what becomes of a choice, and which axes move together."""

    settle: Settle
    movers: Sequence[Ints]  # places among the chosen axes


@dataclass(frozen=True)
class _RatioRule:
    """How a ratio becomes numbers of indices."""

    tilt: Floats | float = 0.0  # what each axis gives beyond the common ratio
    held: Ints | None = None  # what stays of some axes whatever the ratio; -1 for the others


class Search:
    """Finds what stays of each axis for sizes given in numbers; `scores` are comparable from axis to axis.

    With `as_budgets` the tightest of several sizes is met, and the others are at most what was asked for; else all are
    met, by axes that cost more of the one than of the other.
    """

    def __init__(
        self, counts: Counts, formula: SizeFormula, scores: Sequence[Floats], as_budgets: bool = False
    ) -> None:
        self.counts = counts
        self.formula = formula
        self.as_budgets = as_budgets
        self.scores = scores
        self._summed = [np.concatenate([[0.0], np.cumsum(np.sort(own))]) for own in scores]

    def gaps(self, stay: Ints, goals: Floats, ground: Ground) -> Floats:
        """How far the sizes are below the goals, relative to the model: (units,) or (choices, units).

        As budgets the gap of the tightest alone counts: (1,) or (choices, 1).
        """
        several = np.atleast_2d(stay)
        parts = [several[at : at + AT_ONCE] for at in range(0, len(several), AT_ONCE)]
        sizes = np.concatenate([self.formula.sizes(ground.settle(part)) for part in parts])
        found = (goals - sizes) / np.maximum(self.formula.before, 1.0)
        found = found.min(axis=1, keepdims=True) if self.as_budgets else found
        return found if stay.ndim > 1 else found[0]

    def with_budgets(self) -> Search:
        """The same search, where the tightest goal alone is met."""
        return Search(self.counts, self.formula, self.scores, as_budgets=True)

    def by_ratio(self, goals: Floats, ground: Ground) -> Ints | None:
        """What stays of the chosen axes by the ratio that the goals need; None where even the largest leaves more."""
        bracket = self._ratios(goals, ground, _RatioRule())
        return None if bracket is None else self._by(bracket[1], _RatioRule())

    def nearest(self, goals: Floats, ground: Ground) -> Ints | None:
        """What stays of the chosen axes; None where even the largest ratio leaves more."""
        whole = self.counts.of(0.0)
        if (self.gaps(whole, goals, ground) >= 0).all():
            return whole
        bracket = self._ratios(goals, ground, way := _RatioRule())
        if bracket is None:
            return None
        if len(goals) > 1 and not self.as_budgets:
            way = _RatioRule(self._tilt(goals, ground, self._by(bracket[1], way)))
            bracket = self._ratios(goals, ground, way) or bracket
        found = self._filled(bracket, goals, ground, way)
        if self.gaps(found, goals, ground).max() <= MEETS:
            return found
        other = self._with_large_steps_held(self._by(bracket[0], way), found, goals, ground, way)
        if other is not None and self.gaps(other, goals, ground).max() < self.gaps(found, goals, ground).max():
            found = other
        return self._wandered(found, goals, ground)

    def _with_large_steps_held(
        self, more: Ints, found: Ints, goals: Floats, ground: Ground, way: _RatioRule
    ) -> Ints | None:
        """Where one step takes a good part of what is missing: what the others have to give without that step."""
        now = self.gaps(found, goals, ground)
        steps = [self.all_stepped(found, replace(ground, movers=[mover]), (1, -1)) for mover in ground.movers]
        is_coarse = [np.abs(self.gaps(own, goals, ground) - now).max() > now.max() / 3 for own in steps]
        coarse = [mover for mover, is_so in zip(ground.movers, is_coarse, strict=True) if is_so]
        fine = [mover for mover, is_so in zip(ground.movers, is_coarse, strict=True) if not is_so]
        if not coarse or not fine:
            return None
        held = np.full(len(found), -1)
        held[np.concatenate(coarse)] = more[np.concatenate(coarse)]
        way = replace(way, held=held)
        bracket = self._ratios(goals, ground, way)
        if bracket is None:
            return None
        other = self._filled(bracket, goals, replace(ground, movers=fine), way)
        return other if (self.gaps(other, goals, ground) >= 0).all() else None

    def _filled(self, bracket: tuple[float, float], goals: Floats, ground: Ground, way: _RatioRule) -> Ints:
        """What the larger of two ratios leaves, and what the goals have room for beyond that."""
        more, stay = (self._by(ratio, way) for ratio in bracket)
        for movers in (self._plain(ground), list(ground.movers)):
            stay = self._given_back(stay, more, goals, replace(ground, movers=movers), 0.0)
            stay = self._given_back(stay, self.counts.most, goals, replace(ground, movers=movers), CLOSE)
            if self.gaps(stay, goals, ground).max() <= ENOUGH:
                break
        stay = self._exchanged(stay, goals, ground, CLOSE if len(goals) > 1 and not self.as_budgets else MEETS)
        return self._refined(stay, goals, replace(ground, movers=self._plain(ground)))

    def _plain(self, ground: Ground) -> list[Ints]:
        """The axes that have no part in heads or groups: of these the code may want several to be of one size."""
        return [mover for mover in ground.movers if all(self.counts.chosen[at].role is None for at in mover)]

    # --------------------------------------------------------------- ratios

    def _by(self, ratio: float, way: _RatioRule) -> Ints:
        """What a ratio leaves."""
        stay = self.counts.of(ratio, way.tilt)
        return stay if way.held is None else np.where(way.held < 0, stay, way.held)

    def _ratios(self, goals: Floats, ground: Ground, way: _RatioRule) -> tuple[float, float] | None:
        """Two ratios next to each other of which the larger one leaves no more than the goals."""
        reach = float(np.max(np.abs(way.tilt), initial=0.0))
        low, high = -reach, 1.0 + reach
        if (self.gaps(self._by(high, way), goals, ground) < 0).any():
            return None
        for _ in range(HALVINGS):
            ratio = (low + high) / 2
            if (self.gaps(self._by(ratio, way), goals, ground) >= 0).all():
                high = ratio
            else:
                low = ratio
        return low, high

    def _tilt(self, goals: Floats, ground: Ground, stay: Ints) -> Floats | float:
        """What each axis gives beyond the common ratio, so that several goals are met at once.

        It goes by how much more of the one size than of the other an axis costs: where the first goal is met and less
        is left of the other than was asked for, more has to come from axes that cost the first.
        """
        gaps = self.gaps(stay, goals, ground)
        first, other = int(np.argmin(gaps)), int(np.argmax(gaps))
        numbers = [axis.number for axis in self.counts.chosen]
        one, two = (self.formula.savings(numbers, self.formula.units[at]) for at in (first, other))
        for mover in ground.movers:  # what is tied can only go together
            if len(mover) > 1:
                one[mover], two[mover] = one[mover].sum(), two[mover].sum()
        lean = (one - two) / np.maximum(one + two, 1e-12)
        lean = lean - np.median(lean)
        largest = float(np.max(np.abs(lean), initial=0.0))
        if first == other or largest < 1e-9:
            return 0.0
        low, high = -STEEPEST, STEEPEST
        best, found = float(np.ptp(gaps)), 0.0 * lean
        for _ in range(TILTS):
            if best <= CLOSE:
                break
            middle = (low + high) / 2
            tilt = lean / largest * middle / (1 - abs(middle))
            bracket = self._ratios(goals, ground, _RatioRule(tilt))
            if bracket is None:
                break
            gaps = self.gaps(self._by(bracket[1], _RatioRule(tilt)), goals, ground)
            if np.ptp(gaps) < best:  # what the first goal has room for, others will get back
                best, found = float(np.ptp(gaps)), tilt
            if gaps[first] <= gaps[other]:
                low = middle
            else:
                high = middle
        return found

    # ---------------------------------------------------------------- steps

    def _given_back(self, stay: Ints, most: Ints, goals: Floats, ground: Ground, until: float) -> Ints:
        """With the most important steps back that the goals leave room for, at most one of each axis at a time."""
        while (self.gaps(stay, goals, ground).min() > until) and (stay < most).any():
            before = stay
            for mover in sorted(ground.movers, key=lambda mover: -self._worth(stay, mover)):
                trial = self._stepped(stay, mover, 1, stay)
                if (trial > most).any() or (trial == stay).all():
                    continue
                gaps = self.gaps(trial, goals, ground)
                if (gaps >= 0).all():
                    stay = trial
                if gaps.min() >= 0 and gaps.min() <= until:
                    break
            if stay is before:
                break
        return stay

    def _exchanged(self, stay: Ints, goals: Floats, ground: Ground, near: float) -> Ints:
        """With steps of some axes given for steps of others, while that comes nearer and it is not near enough."""
        for _ in range(MOST_EXCHANGES):
            now = self.gaps(stay, goals, ground)
            if now.max() <= near:
                return stay
            trials = self._exchanges(stay, now, goals, ground, max(FEWER, ALTOGETHER // max(len(ground.movers), 1)))
            gaps = self.gaps(trials, goals, ground)
            below = np.where((gaps >= 0).all(axis=1), gaps.max(axis=1), np.inf)
            if below.min() <= near:  # what is near enough need not be nearest: the fewer steps, the less an axis strays
                strays = np.abs((trials - stay) / self.counts.sizes).max(axis=1)
                return trials[int(np.lexsort((below, np.where(below <= near, strays, np.inf)))[0])]
            if below.min() < now.max() - 1e-9:
                stay = trials[int(np.argmin(below))]
                continue
            off = np.abs(gaps).max(axis=1)
            return trials[int(np.argmin(off))] if now.max() > MEETS >= off.min() else stay
        return stay

    def _refined(self, stay: Ints, goals: Floats, ground: Ground) -> Ints:
        """With a small step of an axis given for one of another, a few times: what meets its goals strays little."""
        for _ in range(FEW_EXCHANGES):
            now = self.gaps(stay, goals, ground)
            if now.max() <= ENOUGH or now.max() > MEETS:
                break
            trials = self._exchanges(stay, now, goals, ground, 1)
            gaps = self.gaps(trials, goals, ground)
            strays = np.abs((trials - stay) / self.counts.sizes).max(axis=1)
            below = np.where((gaps >= 0).all(axis=1) & (strays <= SMALL_STEP), gaps.max(axis=1), np.inf)
            stay = trials[int(np.argmin(below))] if below.min() < now.max() else stay
        return stay

    def _wandered(self, stay: Ints, goals: Floats, ground: Ground) -> Ints:
        """What is near enough with a few steps more; else the nearest that is below.

        Where steps are large, as those of few multiples, no two of them may come nearer, and three or four do: from the
        best of all that was seen every step goes on, whether it comes nearer or not.
        """
        nearest, least = stay, float(self.gaps(stay, goals, ground).max())
        if least <= MEETS:
            return stay
        seen = {row.tobytes() for row in ground.settle(stay[None])}
        best: Ints = stay[None]
        for _ in range(MOST_STRAYING):
            trials = np.concatenate([self.all_stepped(each, ground, (1, -1)) for each in best])
            fresh: dict[bytes, Ints] = {}
            for trial, row in zip(trials, ground.settle(trials), strict=True):
                fresh.setdefault(row.tobytes(), trial)
            trials = np.array([trial for key, trial in fresh.items() if key not in seen])
            seen.update(fresh)
            if not len(trials):
                break
            gaps = self.gaps(trials, goals, ground)
            off = np.abs(gaps).max(axis=1)
            below = np.where((gaps >= 0).all(axis=1), off, np.inf)
            if below.min() < least:
                nearest, least = trials[int(np.argmin(below))], float(below.min())
            if least <= MEETS:
                return nearest
            if off.min() <= MEETS:
                return trials[int(np.argmin(off))]
            best = trials[np.argsort(off, kind="stable")[:AT_HAND]]
        return nearest

    def _exchanges(self, stay: Ints, now: Floats, goals: Floats, ground: Ground, most: int) -> Ints:
        """Every step up, and those for at most so many steps down that come nearest if what they change adds up."""
        ups = self.all_stepped(stay, ground, (1,))
        downs = self.all_stepped(stay, ground, range(-1, -most - 1, -1))
        if len(ups) < 2 or len(downs) < 2:
            return ups
        more, less = (self.gaps(trials, goals, ground) - now for trials in (ups, downs))
        off = np.abs(now + more[:, None] + less[None]).max(axis=2)
        off[((ups != stay)[:, None] & (downs != stay)[None]).any(axis=2)] = np.inf
        best = np.argsort(off, axis=None)[:AT_ONCE]
        up, down = np.unravel_index(best, off.shape)
        return np.concatenate([ups, ups[up] + downs[down] - stay])

    def all_stepped(self, stay: Ints, ground: Ground, steps: Sequence[int]) -> Ints:
        """What stays and, in rows below, what stays with each of the axes in turn so many steps further."""
        least = self.counts.least_with(stay)
        every = [self._stepped(stay, mover, times, least) for mover in ground.movers for times in steps]
        return np.array([stay, *(each for each in every if (each != stay).any())])

    def _stepped(self, stay: Ints, mover: Ints, steps: int, least: Ints) -> Ints:
        """With an axis some steps further, and with axes that are tied as far in proportion."""
        stepped = stay.copy()

        def go(count: int, at: int) -> int:
            return self.counts.above(count, at) if steps > 0 else self.counts.below(count, at, int(least[at]))

        for _ in range(abs(steps)):
            # the first of them may be whole, and less only for the others
            first = next((int(at) for at in mover if go(int(stepped[at]), int(at)) != stepped[at]), int(mover[0]))
            moved = go(int(stepped[first]), first)
            share = abs(moved - int(stepped[first])) / int(self.counts.sizes[first])
            stepped[first] = moved
            for at in mover[mover != first] if share else ():
                wanted = int(stepped[at]) + round(share * int(self.counts.sizes[at])) * (1 if steps > 0 else -1)
                next_one = go(int(stepped[at]), int(at))
                stepped[at] = max(wanted, next_one) if steps > 0 else min(wanted, next_one)
        return stepped if len(mover) == 1 else self.counts.allowed(stepped, 1.0)

    def _worth(self, stay: Ints, mover: Ints) -> float:
        """The mean score of the indices that a step up gives back."""
        found = []
        for at in mover:
            now, more = int(stay[at]), self.counts.above(int(stay[at]), int(at))
            summed, size = self._summed[at], int(self.counts.sizes[at])
            if more > now:
                found.append((summed[size - now] - summed[size - more]) / (more - now))
        return float(np.mean(found)) if found else -np.inf
