"""Search for the cut that leaves a given share of the model's latency, by measuring cuts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from modulekg_widgets.engine.profiling.timing import LatencyComparison
from modulekg_widgets.engine.pruning.plan.targets.target_solution import TargetSolution

MULTIPLES = (1, 8, 16, 32)  # of sizes: registers and tiles have powers of two
MAX_CUTS = 8  # that are measured beyond the first of each of these
CLOSE_ENOUGH = 0.02  # of the wanted share: not worth another cut
COARSE_TOLERANCE = 0.05  # of the wanted share: what is further off is so by the rounding of sizes
SIGNIFICANT_DIFFERENCE = 0.03  # of the time: a difference that is more than chance
BRACKET_MARGIN = 0.15  # of what lies between a cut that is too quick and one that is too slow
MIN_SLOPE = 0.5  # of what a cut leaves: so far below it goes the next one


class Proposal(NamedTuple):
    """A cut, and the share of the latency that it leaves by estimate.

    `is_bound`: another budget is tighter, so that no goal for the time leaves more.
    """

    solution: TargetSolution
    estimate: float
    is_bounded: bool = False


@dataclass(frozen=True)
class MeasuredCut:
    """A measured cut; its sizes are multiples of `round_to`."""

    proposal: Proposal
    round_to: int
    comparison: LatencyComparison
    is_confirmed: bool = False

    @property
    def share(self) -> float:
        return self.comparison.share


class LatencySearch:
    """Measures cuts until one leaves the wanted share of the latency.

    `propose` gives a cut for an estimated share with sizes in multiples of a number, or None where there is none;
    `measure` runs it beside the model, the more exactly the second time.
    """

    def __init__(
        self,
        wanted: float,
        propose: Callable[[float, int], Proposal | None],
        measure: Callable[[TargetSolution, bool], LatencyComparison],
        multiples: Sequence[int],
    ) -> None:
        self.wanted = wanted
        self._propose = propose
        self._measure = measure
        self._multiples = multiples

    def run(self) -> MeasuredCut | None:
        """The nearest cut among those measured twice; None if there is none."""
        firsts = [each for round_to in self._multiples if (each := self._measure_at(self.wanted, round_to)) is not None]
        if not firsts:
            return None
        chosen = self._preferred_rounding(firsts)
        best = self._nearest(chosen)
        for first in firsts:
            if (
                self._relative_error(best) > COARSE_TOLERANCE and first is not chosen
            ):  # the rounding was too coarse, or fell on slow sizes
                best = min(best, self._nearest(first), key=self._relative_error)
        return best

    def _preferred_rounding(self, firsts: Sequence[MeasuredCut]) -> MeasuredCut:
        """The cut with the smallest rounding that is not clearly slower than others."""

        def aside(each: MeasuredCut) -> float:
            return each.proposal.estimate - self.wanted

        close = [each for each in firsts if abs(aside(each)) <= COARSE_TOLERANCE * self.wanted] or firsts[:1]
        quickest = min(each.share - aside(each) for each in close)
        return next(each for each in close if each.share - aside(each) <= quickest * (1 + SIGNIFICANT_DIFFERENCE))

    def _nearest(self, first: MeasuredCut) -> MeasuredCut:
        """The nearest cut of one rounding."""
        tried = [first]
        for _ in range(MAX_CUTS):
            best = min(tried, key=self._relative_error)
            if self._relative_error(best) > CLOSE_ENOUGH:
                another = self._measure_at(self._next_share(tried), best.round_to)
                same = [each for each in tried if another is not None and _has_same_counts(another, each)]
                if another is not None and not same:
                    tried.append(another)
                    continue
                best = next(iter(same), best)  # the rounding comes no nearer, if it was measured well
                if best.is_confirmed:
                    best = self._least_expected(tried) or best
            if best.is_confirmed:
                break
            tried[tried.index(best)] = self._confirm(best)
        best = min(tried, key=self._relative_error)
        return best if best.is_confirmed else self._confirm(best)

    def _least_expected(self, measured: Sequence[MeasuredCut]) -> MeasuredCut | None:
        """The cut, measured once, that deviates most from the fit of all."""
        steepness = _slope(measured)
        once = [each for each in measured if not each.is_confirmed]
        return max(once, key=lambda each: abs(1 - each.share - steepness * (1 - each.proposal.estimate)), default=None)

    def _relative_error(self, candidate: MeasuredCut) -> float:
        off = candidate.share / self.wanted - 1
        return max(off, 0.0) if candidate.proposal.is_bounded else abs(off)

    def _measure_at(self, goal: float, round_to: int) -> MeasuredCut | None:
        proposal = self._propose(goal, round_to)
        return None if proposal is None else MeasuredCut(proposal, round_to, self._measure(proposal.solution, False))

    def _confirm(self, candidate: MeasuredCut) -> MeasuredCut:
        more = self._measure(candidate.proposal.solution, True)
        return replace(candidate, comparison=candidate.comparison.with_more(more), is_confirmed=True)

    def _next_share(self, measured: Sequence[MeasuredCut]) -> float:
        """The estimated share to try next: a secant step, or an interpolation within the bracket.

        A line through two cuts alone would make much of chance where these are near each other. It is taken where the
        step would lead to a cut that is known to be too quick or too slow: sizes may be quick by leaps.
        """
        best = min(measured, key=self._relative_error)
        now = best.proposal.estimate
        found = max(now + (self.wanted - best.share) / max(_slope(measured), MIN_SLOPE), now * MIN_SLOPE)
        quick = max((each for each in measured if each.share < self.wanted), key=_estimate, default=None)
        slow = min((each for each in measured if each.share > self.wanted), key=_estimate, default=None)
        if quick is None or slow is None or _estimate(quick) >= _estimate(slow):
            return found
        low, width = _estimate(quick), _estimate(slow) - _estimate(quick)
        if low + BRACKET_MARGIN * width < found < low + (1 - BRACKET_MARGIN) * width:
            return found
        return low + width * (self.wanted - quick.share) / (slow.share - quick.share)


def _estimate(cut: MeasuredCut) -> float:
    return cut.proposal.estimate


def _slope(measured: Sequence[MeasuredCut]) -> float:
    """The slope of measured over estimated savings."""
    gone = [(1 - each.proposal.estimate, 1 - each.share) for each in measured]
    return sum(one * other for one, other in gone) / max(sum(one * one for one, _ in gone), 1e-9)


def _has_same_counts(one: MeasuredCut, other: MeasuredCut) -> bool:
    counts = (each.proposal.solution.candidate.selection.counts for each in (one, other))
    return next(counts) == next(counts)
