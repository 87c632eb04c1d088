"""Our side: a copy of the net, cut by `mk.plan` to a share of its FLOPs."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

import modulekg_widgets as mk
from benchmarks.research.quality.flops import flops
from benchmarks.research.quality.task import Batch, Task
from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.pruning.importance.importance import Criterion, criteria
from modulekg_widgets.engine.pruning.plan.saved.pruning_plan import PruningPlan

MEETS = 0.002  # of the uncut FLOPs
MOST_PLANS = 3
DEFAULT = str(inspect.signature(mk.plan).parameters["importance"].default)


def importances() -> list[str]:
    """All that can be asked for."""
    return list(map(str, criteria))


class Remembered(Criterion):
    """The scores of a criterion on one graph, which is asked once: the targets of a net are many."""

    def __init__(self, criterion: Criterion) -> None:
        self._criterion = criterion
        self._found: dict[tuple[Term, ...], Any] = {}

    def scores(self, axes: Axes, terms: Sequence[Term]) -> Mapping[Term, Any]:
        key = tuple(terms)
        if key not in self._found:
            self._found[key] = self._criterion.scores(axes, terms)
        return self._found[key]

    def __repr__(self) -> str:
        return repr(self._criterion)


@dataclass
class Ours:
    """Cuts copies of nets; remembers the graph and the scores of the last net."""

    model: nn.Module | None = None
    graph: DataflowGraph | None = None
    known: dict[str, Remembered] = field(default_factory=dict)

    def cut(
        self, task: Task, model: nn.Module, batches: Sequence[Batch], importance: str, options: Mapping[str, Any]
    ) -> tuple[nn.Module, nn.Module, nn.Module]:
        """The net as the cut leaves it, with batch-norm statistics renewed, and with its outputs fitted as well.

        `options` are those of `mk.plan`; the same net comes with the same batches.
        """
        if model is not self.model:
            self.model, self.graph, self.known = model, mk.trace(model, task.example), {}
        if importance not in self.known and takes_data(importance):
            self.known[importance] = Remembered(_with_data(importance, task, batches))
        options = {"importance": self.known.get(importance, importance), **options}
        plan = planned(task, model, options, self.graph)
        inputs = [batch.inputs for batch in batches]
        one_shot, renewed, fitted = (copy.deepcopy(model) for _ in range(3))
        plan.cut(one_shot)
        plan.cut(renewed, recalibrate=inputs)
        plan.cut(fitted, recalibrate=inputs, compensate=True)
        return one_shot, renewed, fitted


def planned(
    task: Task, model: nn.Module, options: Mapping[str, Any], graph: DataflowGraph | None = None
) -> PruningPlan:
    """The plan; where FLOPs alone are the target, the one after which torch counts the share that is asked for.

    Our own count has element-wise operators in it, which lose less than matrix products do.
    """
    graph = graph or mk.trace(model, task.example)
    target = options.get("target") or {}
    if list(target) != ["flops"]:
        return mk.plan(graph, **options)
    wanted = share = target["flops"]
    whole = flops(model, task.example)
    tried = []
    for _ in range(MOST_PLANS):
        plan = mk.plan(graph, **{**options, "target": {"flops": share}})
        cut = copy.deepcopy(model)
        plan.cut(cut)
        miss = flops(cut, task.example) / whole - wanted
        tried.append((abs(miss), len(tried), plan))
        share -= miss
        if abs(miss) <= MEETS or share >= 1:
            break
    return min(tried)[-1]


def takes_data(importance: str) -> bool:
    """Whether a registered criterion can be given batches."""
    entry = criteria[importance]
    return inspect.isclass(entry) and "batches" in inspect.signature(entry).parameters


def _with_data(importance: str, task: Task, batches: Sequence[Batch]) -> Criterion:
    entry: Any = criteria[importance]
    pairs = [tuple(batch) for batch in batches]
    loss = {"loss": task.loss} if "loss" in inspect.signature(entry).parameters else {}
    return entry(batches=pairs, **loss)
