"""The graph of a file's operators as networkx has graphs: an edge for each value that one gives to another."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from modulekg_widgets.engine.files.records import OperatorGraph, ValueRecord

if TYPE_CHECKING:
    import networkx as nx

INPUT, OUTPUT = "input", "output"


def to_networkx(graph: OperatorGraph, tensors: frozenset[str]) -> nx.MultiDiGraph:
    """Nodes by name with `op`, `module`, `attributes`, `tensors`, `source`; edges with `value`, `shape`, `dtype`.

    Inputs and outputs of the model are nodes, too, of the operators "input" and "output".
    """
    import networkx as nx

    found: Any = nx.MultiDiGraph()
    made_by: dict[str, str] = {}
    taken = {operator.name for operator in graph.operators}

    again: Counter[str] = Counter()

    def port(name: str, op: str) -> str:
        node = name
        while node in taken:
            again[name] += 1
            node = f"{name} ({op} {again[name]})"
        taken.add(node)
        found.add_node(node, op=op, module="", attributes={}, tensors=(), source="")
        return node

    for name in graph.inputs:
        made_by[name] = port(name, INPUT)
    for each in graph.operators:
        found.add_node(
            each.name,
            op=each.op,
            module=each.module,
            attributes=dict(each.attributes),
            tensors=tuple(name for name in each.inputs if name in tensors),
            source=each.source,
        )
        made_by.update(dict.fromkeys(each.outputs, each.name))
    for each in graph.operators:
        for name in each.inputs:
            if name in made_by:
                _connect(found, graph, made_by[name], each.name, name)
    for name in graph.outputs:
        node = port(name, OUTPUT)
        if name in made_by:
            _connect(found, graph, made_by[name], node, name)
    return found


def _connect(found: Any, graph: OperatorGraph, giver: str, taker: str, value: str) -> None:
    known = graph.values.get(value, ValueRecord())
    found.add_edge(giver, taker, value=value, shape=known.shape, dtype=known.dtype)
