"""Outputs of a model without some indices of an axis: only dependent operators run again."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import torch

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.cut_analysis import KeepMasks
from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.axes.proof.control_flow import traced_path
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms
from modulekg_widgets.engine.errors import CutError, TraceError
from modulekg_widgets.engine.operators.traits import RECURRENT, traits_of
from modulekg_widgets.engine.pruning.cut.edits import Edits, slicer
from modulekg_widgets.engine.pruning.cut.transaction import apply_edits
from modulekg_widgets.engine.pruning.plan.corrections.compile_edits import EditCompiler
from modulekg_widgets.engine.pruning.plan.dry_run.masked_reference import MaskedReplay
from modulekg_widgets.engine.pruning.plan.plan import plan
from modulekg_widgets.engine.pruning.plan.saved.pruning_plan import PruningPlan
from modulekg_widgets.engine.pruning.plan.selection.selection import Selection
from modulekg_widgets.engine.torch_runtime.pytree import with_leaves
from modulekg_widgets.engine.torch_runtime.rng import ReproducibleDraws
from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode
from modulekg_widgets.engine.tracing.execution import ForwardReplay
from modulekg_widgets.engine.tracing.trace import run_modified

# -------------------- Outputs of the model with indices cut, for models whose control flow depends on data


class CutRuns:
    """Runs the traced call on a cut model; the model is unchanged."""

    def __init__(self, graph: DataflowGraph) -> None:
        self.graph = graph
        self._compiler = EditCompiler(graph.axes)
        self._plans: dict[Term, PruningPlan] = {}  # one that takes the first index of an axis

    def output(self, keeps: KeepMasks) -> object:
        """The output of the model without some indices; raises `CutError` if no cut runs."""
        graph, edits = self.graph, self._edits(keeps)
        values = {name: node.tensor.detach() for name, node in graph.state.items() if node.tensor is not None}
        slice_of = slicer(edits, values.__getitem__)
        return run_modified(
            graph, lambda copied, sandbox: apply_edits(copied, sandbox, edits, lambda edit, _: slice_of(edit))
        )

    def _edits(self, keeps: KeepMasks) -> Edits:
        if len(keeps) > 1 or any((~flags).sum() > 1 for flags in keeps.values()):
            return self._plan(keeps).edits
        # whichever index of an axis goes, the attributes follow its size alike
        ((term, flags),) = keeps.items()
        if term not in self._plans:
            self._plans[term] = self._plan({term: np.arange(term.size) != 0})
        first = self._plans[term]
        if sum(len(cut.dropped) for cut in first.axes) > 1:
            return self._plan(keeps).edits  # others go along, and not all in the same places
        order = np.argsort(flags, kind="stable")
        edits = self._compiler.edits(Selection({term: order}, {term: term.size - 1}), {})
        return replace(edits, attributes={**edits.attributes, **first.edits.attributes})

    def _plan(self, keeps: KeepMasks) -> PruningPlan:
        axes = self.graph.axes
        return plan(
            self.graph, per_axis={axes.of(term).name: np.flatnonzero(~flags).tolist() for term, flags in keeps.items()}
        )


# ----------------------------------------


Tensor = torch.Tensor


class RecordedRun(ForwardReplay):
    """A recorded run with all values and their storage offsets."""

    def __init__(self, axes: Axes, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        self.offsets: dict[DataNode, int] = {}
        super().__init__(axes.graph, args, kwargs)
        self.all_values = self.run_all()

    def _take(self, node: DataNode, value: Tensor) -> None:
        self.offsets[node] = int(value.storage_offset()) if value.layout is torch.strided else 0
        super()._take(node, value)

    @property
    def output(self) -> object:
        """The model's output, in its own structure."""
        return with_leaves(self.graph.result, DataNode, self.all_values.__getitem__)


class IndexRemoval:
    """The outputs of a recorded run when indices are zero wherever they are produced.

    Operators that go by all indices of a dimension, as the mean of a layer norm, leave out what is removed. Where data
    decide which way forward takes, the cut model runs.
    """

    def __init__(self, axes: Axes, whole: RecordedRun) -> None:
        self.axes = axes
        self.whole = whole
        graph = axes.graph
        self._runs = CutRuns(graph) if graph.data_dependent and isinstance(graph, DataflowGraph) else None
        self._affected: dict[Term, list[OperatorNode]] = {}

    def output(self, keeps: KeepMasks) -> object:
        """The model's output, in its own structure; raises `CutError` if it cannot be computed."""
        if self._runs is None:
            return self._replay(keeps)
        try:
            return self._runs.output(keeps)
        except CutError as refused:  # what no plan takes can be masked, where the recorded operators go on
            try:
                return self._replay(keeps)
            except (RuntimeError, ValueError, LookupError):
                raise refused from None

    def _replay(self, keeps: KeepMasks) -> object:
        replay = _PartialReplay(self.axes, keeps, self.whole)
        concerned = [self.affected_operators(atom) for atom in keeps]
        operators = concerned[0] if len(concerned) == 1 else _merged_in_order(concerned)
        draws = any(torch.Tag.nondeterministic_seeded in operator.overload.tags for operator in operators)
        seed = 0 if self.axes.graph.seed is None else self.axes.graph.seed
        with ReproducibleDraws(seed) if draws else nullcontext(), torch.no_grad():
            for operator in operators:
                replay.run_operator(operator, operator)
        return with_leaves(self.axes.graph.result, DataNode, replay.value_of)

    def affected_operators(self, atom: Term) -> list[OperatorNode]:
        """The operators whose results depend on an atom, in order."""
        if atom not in self._affected:
            dims = self.axes.inference.dims
            changed: set[DataNode] = set()
            found = []
            for operator in self.axes.graph.operators:
                made = any(atom in atoms(term) for node in operator.outputs for term in dims(node))
                if made or not changed.isdisjoint(operator.inputs):
                    found.append(operator)
                    changed.update(operator.outputs)
            self._affected[atom] = found
        return self._affected[atom]


def _merged_in_order(parts: list[list[OperatorNode]]) -> list[OperatorNode]:
    return sorted({operator for part in parts for operator in part}, key=lambda operator: operator.index)


class _PartialReplay(MaskedReplay):
    """Runs some operators; all other values are those of the recorded run."""

    def __init__(self, axes: Axes, keeps: KeepMasks, whole: RecordedRun) -> None:
        self.axes = axes
        self.keeps = keeps
        self.known_positions = {}
        self.values = {}
        self.way = traced_path(axes)
        self.decisions = {}
        self._decision_points = set()
        self._runs_recurrent_layer = False  # whether a recurrent layer runs, as one operator
        self.whole = whole
        self.device = next((value.device for value in whole.all_values.values()), torch.device("cpu"))

    def value_of(self, node: DataNode) -> Tensor:
        value = self.values.get(node)
        return self.whole.all_values[node] if value is None else value

    def _value(self, node: DataNode) -> Tensor:
        if self._runs_recurrent_layer and node.producer is None and self.positions(node):
            value = self.value_of(node).clone()  # between the steps nothing else sets what goes to zero
            self._zero_removed(node, value)
            return value
        return self.value_of(node).clone() if node.is_buffer_like else self.value_of(node)

    def _free_inputs(self, operator: OperatorNode) -> None:
        """Nothing is freed, as the recorded values serve the next index too."""

    def run_operator(self, operator: OperatorNode, call: OperatorNode) -> None:
        versions = {node: node.previous for node in operator.outputs if node.previous is not None}
        if any(previous not in self.values for previous in versions.values()):
            self._copy_memory(list(versions.values()), operator)
        self._runs_recurrent_layer = traits_of(operator.overload).layer == RECURRENT
        super().run_operator(operator, call)
        for node, previous in versions.items():
            self.values[node] = self.values[previous]

    def _copy_memory(self, sharing: list[DataNode], operator: OperatorNode) -> None:
        """Copy the shared memory of values that an operator writes into."""
        largest = max(sharing, key=DataNode.numel)
        first = self.whole.offsets[largest]
        memory = self.value_of(largest).clone()
        if not _is_dense(memory) or self.value_of(largest).stride() != memory.stride():
            raise TraceError(
                f"{operator.where} writes into a part of a tensor, which cannot be repeated", self.axes.graph
            )
        for node in sharing:
            value = self.value_of(node)
            if value.stride() != node.stride:
                raise TraceError(
                    f"{operator.where} writes into a view whose memory lies otherwise now", self.axes.graph
                )
            self.values[node] = memory.as_strided(value.shape, value.stride(), self.whole.offsets[node] - first)


def _is_dense(value: Tensor) -> bool:
    """True if a tensor uses all of its storage."""
    return value.numel() * value.itemsize == value.untyped_storage().nbytes()
