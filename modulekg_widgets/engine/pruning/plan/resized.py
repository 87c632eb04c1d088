"""Recorded operators on values of other sizes, for counting what they would cost."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from modulekg_widgets.engine.torch_runtime.structure import with_leaves
from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode

Shape = tuple[int, ...]


def resizing(shape_of: Callable[[DataNode], Shape]) -> Callable[[OperatorNode], OperatorNode]:
    """What gives an operator with every value in the shape that `shape_of` says; one value is one twin throughout."""
    twins: dict[DataNode, DataNode] = {}

    def twin(node: DataNode) -> DataNode:
        if node not in twins:
            twins[node] = made = copy.copy(node)
            made.shape = shape_of(node)
        return twins[node]

    def with_twins(value: Any) -> Any:
        return with_leaves(value, DataNode, twin)

    def resized(operator: OperatorNode) -> OperatorNode:
        return replace(
            operator,
            args=with_twins(operator.args),
            kwargs=with_twins(operator.kwargs),
            inputs=with_twins(operator.inputs),
            outputs=with_twins(operator.outputs),
            result=with_twins(operator.result),
        )

    return resized
