"""Which operators the model's outputs depend on; the results of the others are not used."""

from __future__ import annotations

from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, OperatorNode
from modulekg_widgets.engine.tracing.held import ATTRIBUTE, BUFFER, PARAMETER

_STATE = (PARAMETER, BUFFER, ATTRIBUTE)


def live_operators(graph: Dataflow) -> set[OperatorNode]:
    """The operators that an output, a written parameter or buffer, or a question of Python's depends on.

    A recurrent layer stacks the last states of all layers though no operator reads them; this couples no axes.
    """
    live: set[OperatorNode] = set()
    waiting = [node.producer for node in graph.outputs]
    waiting += [node.producer for node, _ in graph.escaped]
    waiting += [operator for operator in graph.operators if not operator.outputs or _writes_state(operator)]
    if not graph.outputs:
        waiting += graph.operators  # forward stopped, or returned nothing: all that ran counts
    while waiting:
        operator = waiting.pop()
        if operator is not None and operator not in live:
            live.add(operator)
            waiting.extend(node.producer for node in operator.inputs)
    return live


def reaching_values(graph: Dataflow) -> set[DataNode]:
    """The values of which the outputs are made, other than by a decision of Python's or by rows of which none came."""
    found: set[DataNode] = set()
    waiting = list(graph.outputs)
    while waiting:
        node = waiting.pop()
        if node in found or not node.numel():
            continue
        found.add(node)
        waiting += [] if node.producer is None else node.producer.inputs
        waiting += [] if node.previous is None else [node.previous]
    return found


def weights_into_nothing(graph: Dataflow) -> OperatorNode | None:
    """The first operator that computes with weights alone what nothing reads: it goes where no operator sees it."""
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
