"""Liveness analysis: the operators that the outputs depend on, and dead operators."""

from __future__ import annotations

from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, OperatorNode, Storage
from modulekg_widgets.engine.tracing.unregistered_tensors import ATTRIBUTE, BUFFER, PARAMETER

_STATE = (PARAMETER, BUFFER, ATTRIBUTE)


def live_operators(graph: Dataflow) -> set[OperatorNode]:
    """The operators that an output, a written parameter or buffer, or a question of Python's depends on.

    A recurrent layer stacks the last states of all layers though no operator reads them; this couples no axes.
    """
    read = [node.producer for node, _ in graph.escaped]
    read += [operator for operator in graph.operators if not operator.outputs]
    return _ancestors([*_output_producers(graph), *read])


def output_operators(graph: Dataflow) -> set[OperatorNode]:
    """The operators that more than a question of Python's depends on; all that are live where that is all there is."""
    return _ancestors(_output_producers(graph)) if graph.outputs else live_operators(graph)


def _output_producers(graph: Dataflow) -> list[OperatorNode | None]:
    """The operators that make outputs and what the model holds afterwards."""
    if not graph.outputs:
        return [*graph.operators]  # forward stopped, or returned nothing: all that ran counts
    ends = [node.producer for node in graph.outputs]
    ends += [after.producer for _, after in graph.assigned]
    held = {node.storage for node in graph.state.values()}
    return ends + [operator for operator in graph.operators if _writes(operator, held)]


def _ancestors(ends: list[OperatorNode | None]) -> set[OperatorNode]:
    """Returns these operators and all that they depend on."""
    found: set[OperatorNode] = set()
    waiting = list(ends)
    while waiting:
        operator = waiting.pop()
        if operator is not None and operator not in found:
            found.add(operator)
            waiting.extend(node.producer for node in operator.inputs)
    return found


def _writes(operator: OperatorNode, memory: set[Storage]) -> bool:
    """True if an operator writes into one of these storages."""
    return any(
        node.previous is not None and node.storage in memory and not _is_statistic(node) for node in operator.outputs
    )


def _is_statistic(node: DataNode) -> bool:
    """True if the value is a running statistic that torch's own normalization updates."""
    while node.previous is not None:
        node = node.previous
    return node.producer is not None and node.producer.name == "aten::alias"


def contributing_values(graph: Dataflow) -> set[DataNode]:
    """The values of which the outputs are made, other than by a decision of Python's or by rows of which none came."""
    found: set[DataNode] = set()
    waiting = [*graph.outputs, *(after for _, after in graph.assigned)]
    while waiting:
        node = waiting.pop()
        if node in found or not node.numel():
            continue
        found.add(node)
        waiting += [] if node.producer is None else node.producer.inputs
        waiting += [] if node.previous is None else [node.previous]
    return found


def unused_weight_operator(graph: Dataflow) -> OperatorNode | None:
    """Returns the first operator that computes only with weights and whose result nothing reads."""
    of_weights: set[DataNode] = {node for node in graph.state.values() if node.dtype.is_floating_point}
    for operator in graph.operators:
        if operator.inputs and of_weights.issuperset(operator.inputs) and not _writes_state(operator):
            of_weights.update(operator.outputs)
            if operator.outputs and not any(node.consumers or node.is_output for node in operator.outputs):
                return operator
    return None


def _writes_state(operator: OperatorNode) -> bool:
    for node in operator.outputs:
        while node.previous is not None:
            node = node.previous
            if node.kind in _STATE:
                return True
    return False
