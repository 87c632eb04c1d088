"""Our side: a copy of the net, cut by `mk.plan` to a share of its FLOPs."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

import modulekg_widgets as mk
from benchmarks.quality.flops import flops
from benchmarks.quality.task import Batch, Task
from modulekg_widgets.engine.pruning.importance.importance import criteria
from modulekg_widgets.engine.pruning.plan.pruning_plan import PruningPlan

MEETS = 0.002  # of the uncut FLOPs
MOST_PLANS = 3
DEFAULT = str(inspect.signature(mk.plan).parameters["importance"].default)


def importances() -> list[str]:
    """All that can be asked for."""
    return list(map(str, criteria))


def cut(
    task: Task, model: nn.Module, batches: Sequence[Batch], importance: str, options: Mapping[str, Any]
) -> tuple[nn.Module, nn.Module, nn.Module]:
    """The net as the cut leaves it, with batch-norm statistics renewed, and with its outputs fitted as well.

    `options` are those of `mk.plan`.
    """
    pairs = [tuple(batch) for batch in batches]
    plan = planned(task, model, {**_importance(importance, pairs, task), **options})
    inputs = [batch.inputs for batch in batches]
    one_shot, renewed, fitted = (copy.deepcopy(model) for _ in range(3))
    plan.cut(one_shot)
    plan.cut(renewed, recalibrate=inputs)
    plan.cut(fitted, recalibrate=inputs, compensate=True)
    return one_shot, renewed, fitted


def planned(task: Task, model: nn.Module, options: Mapping[str, Any]) -> PruningPlan:
    """The plan; where FLOPs alone are the target, the one after which torch counts the share that is asked for.

    Our own count has element-wise operators in it, which lose less than matrix products do.
    """
    graph = mk.trace(model, task.example)
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


def _importance(name: str, pairs: list[Any], task: Task) -> dict[str, Any]:
    """What `mk.plan` is given: a registered criterion, with data where it takes them."""
    entry = criteria[name]
    wanted = inspect.signature(entry).parameters if inspect.isclass(entry) else {}
    given = {key: value for key, value in {"batches": pairs, "loss": task.loss}.items() if key in wanted}
    return {"importance": entry(**given) if given else name}
