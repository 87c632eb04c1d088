"""A plan for a target in milliseconds: cuts are estimated by the times of the uncut modules, then really measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from modulekg_widgets.engine.errors import CutError, TraceError
from modulekg_widgets.engine.profiling.timing import Comparison
from modulekg_widgets.engine.pruning.latency.stopwatch import Stopwatch
from modulekg_widgets.engine.pruning.plan.counts import Floats
from modulekg_widgets.engine.pruning.plan.latency_search import Candidate, LatencySearch, Proposal
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
        self._failed: CutError | None = None

    def found(self) -> Candidate:
        """The cut that comes nearest; raises `CutError` where none comes near, or none is faster than the model."""
        search = LatencySearch(self.wanted, self._proposal, self._measured, list(self.planners))
        found = search.found()
        if found is None:
            assert self._failed is not None
            raise self._failed
        return found

    def is_too_slow(self, found: Candidate) -> bool:
        """Whether a cut takes far more than was asked for, or more than the model."""
        return found.share > min(self.wanted * (1 + NEAR), 1.0)

    def _measured(self, tried: Tried, thorough: bool) -> Comparison:
        planner = next(iter(self.planners.values()))
        return self.stopwatch.of(planner.repair.edits(tried.attempt), thorough)

    def _proposal(self, share: float, step: int) -> Proposal | None:
        """The cut that leaves an estimated share, or else the least of it; None where none does."""
        planner, before = self.planners[step], float(self.formula.before[self.at])
        try:
            goals = self.goals.copy()
            goals[self.at] = share * before
            targeting = planner.targeting(self.formula, goals)
            found, is_least = targeting.found(), False
            if found is None or found.gaps[self.at] < -MEETS:
                is_least = True
                least = targeting.smallest()
                if least is None:
                    raise planner.refusal(self.formula, goals, targeting, found)
                goals[self.at] = least.left[self.at] + MEETS * before / 2
                targeting = planner.targeting(self.formula, goals)
                found = targeting.found()
            if found is None or found.gaps.min() < -MEETS:
                raise planner.refusal(self.formula, goals, targeting, found)
        except TraceError:
            raise
        except CutError as error:
            self._failed = self._failed or error
            return None
        return Proposal(found, float(found.left[self.at]) / before, is_least)


def goals_of(target: Mapping[str, float], formula: SizeFormula, whole: float = 1.0) -> Floats:
    """What shall be left by unit, milliseconds in terms of the estimate; `whole`: those of the model as measured."""
    before = dict(zip(formula.units, formula.before.tolist(), strict=True))

    def goal(unit: str, wanted: float) -> float:
        if wanted < 1:
            return wanted * before[unit]
        return wanted / whole * before[unit] if unit == LATENCY else wanted

    return np.array([goal(unit, wanted) for unit, wanted in target.items()])
