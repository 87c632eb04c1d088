"""Attempts for tests: a plan that cuts one axis as the planner holds it before its dry run."""

from __future__ import annotations

import numpy as np

import modulekg_widgets as mk
from modulekg_widgets.engine.axes.axis import Axis
from modulekg_widgets.engine.pruning.plan.corrections.candidate import PlanCandidate
from modulekg_widgets.engine.pruning.plan.selection.selection import Selection


def attempt_of(axis: Axis, plan: mk.PruningPlan) -> PlanCandidate:
    """The attempt of a plan that cuts nothing but this axis."""
    dropped = np.array(plan.axes[0].dropped)
    order = np.concatenate([dropped, np.setdiff1d(np.arange(axis.size), dropped)])
    selection = Selection({axis.term: order}, {axis.term: axis.size - len(dropped)})
    return PlanCandidate(selection, selection.counts)
