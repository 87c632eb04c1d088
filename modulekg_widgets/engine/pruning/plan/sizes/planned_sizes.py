"""Sizes of a model before and after a plan: held by its tensors, and counted on the operators of its dry run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from modulekg_widgets.engine.axes.axis import ListElements
from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.pruning.cut.edits import Edits
from modulekg_widgets.engine.pruning.plan.corrections.candidate import PlanCandidate
from modulekg_widgets.engine.pruning.plan.corrections.compile_edits import EditCompiler
from modulekg_widgets.engine.pruning.plan.dry_run.dry_run import DryRunResult, run_with_edits
from modulekg_widgets.engine.pruning.plan.selection.selection import Selection
from modulekg_widgets.engine.pruning.plan.sizes.operator_costs import operator_resizer
from modulekg_widgets.engine.pruning.plan.sizes.size_model import SizeModel, has_costs
from modulekg_widgets.engine.tracing.dataflow import OperatorNode
from modulekg_widgets.engine.tracing.flops import count_flops
from modulekg_widgets.engine.tracing.trace import REAL


class PlannedSizes:
    """Counts the sizes that plans leave, on the traced pass or on that of the plan."""

    def __init__(
        self,
        traced_graph: DataflowGraph,
        graph: DataflowGraph,
        compiler: EditCompiler,
        edits_of: Callable[[PlanCandidate], Edits],
    ) -> None:
        self.traced_graph = traced_graph
        self.graph = graph
        self.axes = graph.axes
        self.compiler = compiler
        self.edits_of = edits_of
        # random draws may have led the pass that was asked for another way
        self.counted = graph if traced_graph.traced_on == REAL else traced_graph

    def count(self, candidate: PlanCandidate, result: DryRunResult) -> dict[str, tuple[int, int]]:
        """Parameters, bytes, FLOPs, matmul FLOPs and multiply-adds, before and after."""
        if self.traced_graph.traced_on == REAL:
            operators = self._planned_operators(candidate.selection)  # a run would count what other data lead to
        elif self.graph is self.traced_graph and result.graph is not None:
            operators = result.graph.operators
        else:
            operators = run_with_edits(self.traced_graph, self.edits_of(candidate)).operators
        before, after = self.counted.flops(), count_flops(operators)
        held = self.model(["params", "bytes"])
        removal = self.compiler.removal(candidate.selection.keep_masks())
        left = held.counts_of(candidate.selection.counts)
        params, nbytes = zip(held.held(held.full), held.held(left, removal.removes_all), strict=True)
        return {
            "params": params,
            "bytes": nbytes,
            "flops": (int(before), int(after)),
            "matmul_flops": (before.matmul, after.matmul),
            "macs": (before.macs, after.macs),
        }

    def _planned_operators(self, selection: Selection) -> list[OperatorNode]:
        """The recorded operators in planned sizes, without those of removed list elements."""
        dims = self.axes.inference.dims
        resized = operator_resizer(lambda node: tuple(selection.size(term) for term in dims(node)))
        removal = self.compiler.removal(selection.keep_masks())
        operators = self.axes.graph.operators
        if removal:
            elements = ListElements(self.axes)
            cut = {self.axes.of(term) for term in selection.changed}
            operators = [each for each in operators if not (
                removal.removes(each.module) and any(axis in cut for axis in elements.axes_of_cost(each.module))
            )]  # fmt: skip
        return [resized(operator) for operator in operators]

    def model(self, units: Iterable[str], times: Mapping[int, float] | None = None) -> SizeModel:
        """The sizes in these units for many choices at once."""
        wanted = tuple(units)
        if times or (self.counted is not self.graph and has_costs(wanted)):
            return SizeModel(self.axes, wanted, self.counted.axes, times)
        known, key = self.axes.size_models, (wanted, tuple(axis.number for axis in self.axes.free))
        if key not in known:
            known[key] = SizeModel(self.axes, wanted)
        return known[key]
