"""What each recorded operator takes of the measured time, from the times of the modules that call them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from modulekg_widgets.engine.operators.cost import operator_flops
from modulekg_widgets.engine.tracing.dataflow import Dataflow, OperatorNode


def operator_times(flow: Dataflow, exclusive: Mapping[str, float]) -> dict[int, float]:
    """Milliseconds of operators by their numbers, from those of modules by path, without what these call.

    A module's time is shared among its operators by their FLOPs. One that was not called in the measured pass, as
    inside of torch's fused attention, belongs to the module around it.
    """
    by_module: dict[str, list[tuple[OperatorNode, int]]] = defaultdict(list)
    for operator in flow.operators:
        if flops := operator_flops(operator):
            by_module[_called(operator.module, exclusive)].append((operator, flops))
    found: dict[int, float] = {}
    for path, own in by_module.items():
        each = exclusive.get(path, 0.0) / sum(flops for _, flops in own)
        found |= {operator.index: each * flops for operator, flops in own}
    return found


def _called(path: str, exclusive: Mapping[str, float]) -> str:
    while path and path not in exclusive:
        path = path.rpartition(".")[0]
    return path
