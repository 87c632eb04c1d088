"""Which operators the model's outputs depend on; the results of the others are not used."""

from __future__ import annotations

from modulekg_widgets.engine.tracing.dataflow import Dataflow, OperatorNode
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


def _writes_state(operator: OperatorNode) -> bool:
    for node in operator.outputs:
        while node.previous is not None:
            node = node.previous
            if node.kind in _STATE:
                return True
    return False
