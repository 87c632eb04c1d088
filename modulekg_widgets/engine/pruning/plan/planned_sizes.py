"""How large a model is before and after a plan: counted on what a dry run did, or by formula for a search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.axes.list_elements import ListElements
from modulekg_widgets.engine.pruning.plan.attempt import Attempt
from modulekg_widgets.engine.pruning.plan.counts import Ints
from modulekg_widgets.engine.pruning.plan.dry_run import Rehearsal, planned_operators, run_through
from modulekg_widgets.engine.pruning.plan.repair import Repair
from modulekg_widgets.engine.pruning.plan.selection import Selection
from modulekg_widgets.engine.pruning.plan.size_formula import SizeFormula
from modulekg_widgets.engine.tracing.dataflow import OperatorNode
from modulekg_widgets.engine.tracing.flops import count_flops
from modulekg_widgets.engine.tracing.trace import REAL


class PlannedSizes:
    """Counts what plans leave; `asked` is the pass that was traced, `graph` the one that the plan is made on."""

    def __init__(self, asked: DataflowGraph, graph: DataflowGraph, repair: Repair) -> None:
        self.asked = asked
        self.graph = graph
        self.axes = graph.axes
        self.repair = repair
        # random draws may have led the pass that was asked for another way
        self.counted = graph if asked.traced_on == REAL else asked

    def of(self, attempt: Attempt, rehearsal: Rehearsal) -> dict[str, tuple[int, int]]:
        """Parameters, bytes, FLOPs, those of them in products, and multiply-adds, before and after."""
        if self.asked.traced_on == REAL:
            operators = self._planned(attempt.selection)  # a run would count what other data lead to
        elif self.graph is self.asked and rehearsal.graph is not None:
            operators = rehearsal.graph.operators
        else:
            operators = run_through(self.asked, self.repair.edits(attempt)).operators
        before, after = self.counted.flops(), count_flops(operators)
        return {
            "params": self.repair.outcome.parameters(attempt.selection),
            "bytes": self.repair.outcome.bytes(attempt.selection),
            "flops": (int(before), int(after)),
            "matmul_flops": (before.matmul, after.matmul),
            "macs": (before.macs, after.macs),
        }

    def _planned(self, selection: Selection) -> list[OperatorNode]:
        """The recorded operators in planned sizes, without those that elements of lists take along."""
        operators = planned_operators(self.axes, selection)
        removal = self.repair.outcome.removal(selection.keeps())
        if not removal:
            return operators
        elements = ListElements(self.axes)
        cut = {self.axes.of(term) for term in selection.changed}
        return [each for each in operators if not (
            removal.takes(each.module) and any(axis in cut for axis in elements.axes_of_cost(each.module))
        )]  # fmt: skip

    def formula(self, units: Iterable[str], times: Mapping[int, float] | None = None) -> SizeFormula:
        """The sizes in these units, for many choices at once; `times` of the operators of `counted` for "latency"."""
        wanted = tuple(units)
        if times or self.counted is not self.graph:
            return SizeFormula(self.axes, self.counted.axes, wanted, times)
        known, key = self.axes.size_formulas, (wanted, tuple(axis.number for axis in self.axes.free))
        if key not in known:
            known[key] = SizeFormula(self.axes, self.axes, wanted)
        return known[key]

    def counts(self, selection: Selection) -> Ints:
        """What stays of every axis, by its number, as a formula takes it."""
        return np.array([selection.counts.get(axis.term, axis.size) for axis in self.axes], dtype=np.int64)
