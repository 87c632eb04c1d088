"""Times of operators by the sizes of what they compute: a layer of a size is measured once, whichever model has it."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from modulekg_widgets.engine.operators.cost import operator_flops
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, OperatorNode

# nanoseconds of operators, by where they ran and what they computed
_measured: dict[tuple[Hashable, Hashable], float] = {}


def times_by_size(flow: Dataflow, place: Hashable, measure: Callable[[], Mapping[int, float]]) -> dict[int, float]:
    """The times of a pass's operators by their numbers; `measure` is called where one of a size is not yet known.

    Operators of one size take the same: the mean of those that were measured together. `place`: the device, and all
    else that times depend on.
    """
    sizes = {operator.index: (place, _size(operator)) for operator in flow.operators if operator_flops(operator)}
    if any(size not in _measured for size in sizes.values()):
        found = defaultdict(list)
        for index, taken in measure().items():
            found[sizes[index]].append(taken)
        for size, taken in found.items():
            _measured.setdefault(size, statistics.fmean(taken))
    return {index: _measured[size] for index, size in sizes.items()}


def _size(operator: OperatorNode) -> Hashable:
    """What an operator computes: its name, the sizes of its tensors, and its other arguments."""
    return str(operator.overload), _plain(operator.args), _plain(operator.kwargs)


def _plain(value: Any) -> Hashable:
    if isinstance(value, DataNode):
        return tuple(value.shape), str(value.dtype)
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    if isinstance(value, Mapping):
        return tuple((key, _plain(each)) for key, each in value.items())
    return str(value)
