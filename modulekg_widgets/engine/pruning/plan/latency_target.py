"""A plan for a target in milliseconds: cuts are estimated by the times of the uncut modules, then really measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from modulekg_widgets.engine.errors import CutError
from modulekg_widgets.engine.profiling.timing import Comparison
from modulekg_widgets.engine.pruning.latency.stopwatch import Stopwatch
from modulekg_widgets.engine.pruning.plan.counts import Floats
from modulekg_widgets.engine.pruning.plan.latency_search import LatencySearch, MeasuredCut, Proposal
from modulekg_widgets.engine.pruning.plan.obstacles import NEAR
from modulekg_widgets.engine.pruning.plan.repair import Repair
from modulekg_widgets.engine.pruning.plan.request import LATENCY
from modulekg_widgets.engine.pruning.plan.search import MEETS
from modulekg_widgets.engine.pruning.plan.size_formula import SizeFormula
from modulekg_widgets.engine.pruning.plan.targeted import Targeting, Tried

STEPS = (1, 8, 16, 32)  # of sizes: registers and tiles have powers of two


class Planning(Protocol):
    """What is asked of a planner whose sizes are multiples of some step."""

    @property
    def repair(self) -> Repair: ...

    def targeting(self, formula: SizeFormula, goals: Floats) -> Targeting: ...

    def refusal(self, formula: SizeFormula, goals: Floats, targeting: Targeting, found: Tried | None) -> CutError: ...


class LatencyTarget:
    """Finds the cut for a target of which one size is milliseconds.

    `planners`: by the step that their sizes are multiples of; `formula` has the milliseconds of the uncut modules,
    which are taken to go down as their FLOPs.
    """

    def __init__(
        self,
        planners: Mapping[int, Planning],
        formula: SizeFormula,
        goals: Floats,
        stopwatch: Stopwatch,
    ) -> None:
        self.planners = planners
        self.formula = formula
        self.goals = goals
        self.at = formula.units.index(LATENCY)
        self.stopwatch = stopwatch
        self.wanted = float(goals[self.at] / formula.before[self.at])
        self._refused: Callable[[], CutError] | None = None

    def found(self) -> MeasuredCut:
        """The cut that comes nearest; raises `CutError` where none comes near, or none is faster than the model."""
        search = LatencySearch(self.wanted, self._proposal, self._measured, list(self.planners))
        found = search.found()
        if found is None:
            assert self._refused is not None
            raise self._refused()
        return found

    def is_too_slow(self, found: MeasuredCut) -> bool:
        """Whether a cut takes far more than was asked for, or more than the model."""
        return found.share > min(self.wanted * (1 + NEAR), 1.0)

    def _measured(self, tried: Tried, thorough: bool) -> Comparison:
        planner = next(iter(self.planners.values()))
        return self.stopwatch.of(planner.repair.edits(tried.attempt), thorough)

    def _proposal(self, share: float, step: int) -> Proposal | None:
        """The cut that leaves an estimated share, or else the least of it; None where none does."""
        found = self._found(share * float(self.formula.before[self.at]), step)
        if found is None:
            return None
        return Proposal(found, float(found.left[self.at] / self.formula.before[self.at]), found.has_room(self.at))

    def _found(self, estimate: float, step: int, is_least: bool = False) -> Tried | None:
        planner, goals = self.planners[step], self.goals.copy()
        goals[self.at] = estimate
        targeting = planner.targeting(self.formula, goals)
        found = targeting.found()
        if found is not None and found.gaps.min() >= -MEETS:
            return found
        if not is_least and (found is None or found.gaps[self.at] < -MEETS):
            least = targeting.smallest()
            if least is not None:
                return self._found(float(least.left[self.at] + MEETS * self.formula.before[self.at] / 2), step, True)
        # why, is asked where no step does: it takes other plans to tell
        self._refused = self._refused or (lambda: planner.refusal(self.formula, goals, targeting, found))
        return None


def goals_of(target: Mapping[str, float], formula: SizeFormula, whole: float = 1.0) -> Floats:
    """What shall be left by unit, milliseconds in terms of the estimate; `whole`: those of the model as measured."""
    before = dict(zip(formula.units, formula.before.tolist(), strict=True))

    def goal(unit: str, wanted: float) -> float:
        if wanted < 1:
            return wanted * before[unit]
        return wanted / whole * before[unit] if unit == LATENCY else wanted

    return np.array([goal(unit, wanted) for unit, wanted in target.items()])
