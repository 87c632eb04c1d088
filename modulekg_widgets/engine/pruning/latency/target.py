"""A plan for a target in milliseconds: cuts are estimated by the times of the uncut modules, then really measured."""

from __future__ import annotations

import statistics
import weakref
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.errors import CutError, TraceError
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.profiling.module_times import module_times
from modulekg_widgets.engine.profiling.profile import timed_on_copy
from modulekg_widgets.engine.profiling.timing import Comparison, TimedModel, check_real, in_turn
from modulekg_widgets.engine.pruning.cut.edits import Edits
from modulekg_widgets.engine.pruning.latency.measured import compared, timed_as_cut
from modulekg_widgets.engine.pruning.latency.operator_times import operator_times
from modulekg_widgets.engine.pruning.latency.search import Candidate, LatencySearch, Proposal
from modulekg_widgets.engine.pruning.plan.counts import Floats
from modulekg_widgets.engine.pruning.plan.obstacles import NANOSECONDS, NEAR
from modulekg_widgets.engine.pruning.plan.repair import Repair
from modulekg_widgets.engine.pruning.plan.request import LATENCY
from modulekg_widgets.engine.pruning.plan.search import MEETS
from modulekg_widgets.engine.pruning.plan.size_formula import SizeFormula
from modulekg_widgets.engine.pruning.plan.targeted import Targeting, Tried
from modulekg_widgets.engine.residuals.removal import NOTHING_REMOVED
from modulekg_widgets.engine.torch_runtime.state import registered_tensors
from modulekg_widgets.engine.tracing.dataflow import Dataflow

T = TypeVar("T")
STEPS = (1, 8, 16, 32)  # of sizes: registers and tiles have powers of two
QUICK, THOROUGH = 0.4, 1.0  # seconds of passes of each model

# what was measured on a device, by traced model: the times of modules, and cuts by the sizes that they leave
_known: weakref.WeakKeyDictionary[Dataflow, dict[Hashable, Any]] = weakref.WeakKeyDictionary()


class Planning(Protocol):
    """What is asked of a planner whose sizes are multiples of some step."""

    @property
    def repair(self) -> Repair: ...

    def targeting(self, formula: SizeFormula, goals: Floats) -> Targeting: ...

    def refusal(self, formula: SizeFormula, goals: Floats, targeting: Targeting, found: Tried | None) -> CutError: ...


class Stopwatch:
    """Measures a traced model and its cuts; what is known of it on this device is not measured again."""

    def __init__(self, graph: DataflowGraph) -> None:
        self.graph = graph
        self.walked = walk(graph.model)
        check_real(self.walked, graph.call)
        self._uncut = Edits((), {}, graph.removal or NOTHING_REMOVED)
        own = [tensor for state in self.walked.states for tensor in registered_tensors(state).values()]
        # where and how it computes, which may have changed since the trace
        self._place = (torch.get_num_threads(), *dict.fromkeys((str(t.device), str(t.dtype)) for t in own))

    def whole(self) -> float:
        """Milliseconds of the uncut model."""
        return self._once(("whole",), lambda: self._uncut_runs(lambda timed: statistics.median(in_turn([timed])[0])))

    def times(self, counted: Dataflow) -> dict[int, float]:
        """Nanoseconds of the operators of a pass over the uncut model, by their numbers."""
        return operator_times(counted, {path: taken * NANOSECONDS for path, taken in self._exclusive().items()})

    def slowest(self) -> list[tuple[str, float]]:
        """The modules by what they take without those in them, the slowest first."""
        exclusive = self._exclusive()
        return sorted(exclusive.items(), key=lambda entry: -entry[1])

    def of(self, edits: Edits, thorough: bool) -> Comparison:
        """The cut model beside the uncut one."""
        sizes = tuple((edit.names, edit.shape_after) for edit in edits.tensors)
        sizes += tuple((each.path,) for each in edits.removal.modules)
        seconds = THOROUGH if thorough else QUICK
        return self._once(
            ("cut", thorough, sizes),
            lambda: compared(self.graph.model, self._uncut, edits, self.graph.call, seconds=seconds),
        )

    def _exclusive(self) -> dict[str, float]:
        """Milliseconds of each module, by path, without what it calls."""
        found = self._once(
            ("modules",), lambda: self._uncut_runs(lambda timed: module_times([timed], seconds=QUICK)[0].exclusive)
        )
        return {self.walked.path(index): taken for index, taken in found.items()}

    def _uncut_runs(self, run: Callable[[TimedModel], T]) -> T:
        if self._uncut.removal:
            return timed_as_cut(self.graph.model, self._uncut, self.graph.call, run)
        return timed_on_copy(self.graph.model, self.walked, self.graph.call, run)

    def _once(self, key: tuple[Hashable, ...], measure: Any) -> Any:
        known = _known.setdefault(self.graph, {})
        key = (*self._place, *key)
        if key not in known:
            known[key] = measure()
        return known[key]


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
