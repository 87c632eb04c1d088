"""Solutions for a target: candidates that run, the distance of their sizes from the goals, and the tolerances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modulekg_widgets.engine.pruning.plan.corrections.candidate import PlanCandidate
from modulekg_widgets.engine.pruning.plan.dry_run.dry_run import DryRunResult
from modulekg_widgets.engine.pruning.plan.selection.selection import Floats

TOLERANCE = 0.01  # of the model, between what was asked for and what is left
GOOD_ENOUGH = 0.002  # of the model: not worth another kind of step, or another dry run
LATENCY_TOLERANCE = 0.1  # of a time that was asked for


@dataclass(frozen=True)
class TargetSolution:
    """A candidate that runs, and the distance of its sizes from the goals."""

    candidate: PlanCandidate
    dry_run: DryRunResult
    sizes: Floats
    gaps: Floats
    is_budget: bool = False  # of several goals the tightest is to be met, and the others are kept

    @property
    def error(self) -> float:
        """The distance from the goals; sizes above a goal count as far more."""
        gaps = self.gaps.min(keepdims=True) if self.is_budget else self.gaps
        return float(np.max(np.where(gaps >= 0, gaps, np.where(gaps >= -TOLERANCE, TOLERANCE, 1.0) - gaps)))

    def has_slack(self, at: int) -> bool:
        """True if a budget has more slack than the tightest one."""
        return self.is_budget and bool(self.gaps[at] > max(TOLERANCE, float(self.gaps.min())))
