"""Which operators the model's outputs depend on; the results of the others are not used."""

from __future__ import annotations

from modulekg_widgets.engine.tracing.dataflow import Dataflow, OperatorNode, Storage


def live_operators(graph: Dataflow) -> set[OperatorNode]:
    """The operators that an output, a written parameter or buffer, or a question of Python's depends on.

    A recurrent layer stacks the last states of all layers though no operator reads them; this couples no axes.
    """
    read = [node.producer for node, _ in graph.escaped]
    read += [operator for operator in graph.operators if not operator.outputs]
    return _above([*_ends(graph), *read])


def returned_operators(graph: Dataflow) -> set[OperatorNode]:
    """The operators that more than a question of Python's depends on; all that are live where that is all there is."""
    return _above(_ends(graph)) if graph.outputs else live_operators(graph)


def _ends(graph: Dataflow) -> list[OperatorNode | None]:
    """The operators that make outputs and what the model holds afterwards."""
    if not graph.outputs:
        return [*graph.operators]  # forward stopped, or returned nothing: all that ran counts
    ends = [node.producer for node in graph.outputs]
    ends += [after.producer for _, after in graph.assigned]
    held = {node.storage for node in graph.state.values()}
    return ends + [operator for operator in graph.operators if _writes(operator, held)]


def _above(ends: list[OperatorNode | None]) -> set[OperatorNode]:
    """Some operators and all that they depend on."""
    found: set[OperatorNode] = set()
    waiting = list(ends)
    while waiting:
        operator = waiting.pop()
        if operator is not None and operator not in found:
            found.add(operator)
            waiting.extend(node.producer for node in operator.inputs)
    return found


def _writes(operator: OperatorNode, memory: set[Storage]) -> bool:
    """Whether an operator writes into this memory, as into that of a buffer or a view of it."""
    return any(node.previous is not None and node.storage in memory for node in operator.outputs)
