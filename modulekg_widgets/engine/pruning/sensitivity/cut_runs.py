"""What the model itself gives once indices are cut: where data decide its way, recorded operators do not tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from modulekg_widgets.engine.axes.algebra import Term
from modulekg_widgets.engine.axes.cut_analysis import Keeps
from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.pruning.cut.edits import Edits, slices
from modulekg_widgets.engine.pruning.cut.staging import put_in_place
from modulekg_widgets.engine.pruning.plan.outcome import Outcome
from modulekg_widgets.engine.pruning.plan.plan import plan
from modulekg_widgets.engine.pruning.plan.pruning_plan import PruningPlan
from modulekg_widgets.engine.pruning.plan.selection import Selection
from modulekg_widgets.engine.tracing.changed_call import changed_call


class CutRuns:
    """Runs the traced call on a model without some indices; the model stays as it is."""

    def __init__(self, graph: DataflowGraph) -> None:
        self.graph = graph
        self._outcome = Outcome(graph.axes)
        self._plans: dict[Term, PruningPlan] = {}  # one that takes the first index of an axis

    def output(self, keeps: Keeps) -> Any:
        """What the model gives, in the structure of its own output; raises `CutError` where no cut runs."""
        graph, edits = self.graph, self._edits(keeps)
        values = {name: node.tensor.detach() for name, node in graph.state.items() if node.tensor is not None}
        slice_of = slices(edits, values.__getitem__)
        return changed_call(
            graph, lambda copied, stage: put_in_place(copied, stage, edits, lambda edit, _: slice_of(edit))
        )

    def _edits(self, keeps: Keeps) -> Edits:
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
        edits = self._outcome.edits(Selection({term: order}, {term: term.size - 1}), {})
        return replace(edits, attributes={**edits.attributes, **first.edits.attributes})

    def _plan(self, keeps: Keeps) -> PruningPlan:
        axes = self.graph.axes
        return plan(
            self.graph, per_axis={axes.of(term).name: np.flatnonzero(~flags).tolist() for term, flags in keeps.items()}
        )
