"""Formats for drawing: Graphviz DOT, and the edge list of csacademy's graph editor."""

from __future__ import annotations

from collections.abc import Iterator

from modulekg_widgets.engine.dot import Node, digraph, quoted, quoted_label
from modulekg_widgets.engine.knowledge.exchange.property_graph import Attributes, GraphLike

# shapes of the nodes that are no module, which is a box
_SHAPES = {
    "Model": "box3d", "DataSet": "cylinder", "User": "house", "Job": "note", "Operator": "plain",
    "ModuleType": "ellipse",
}  # fmt: skip


def dot(graph: GraphLike) -> Iterator[str]:
    """Graphviz DOT: a box per structure with its number of occurrences, an edge per containment with its count.

    Other nodes have shapes of their own, and edges of other relations the name of the relation.
    """
    boxes = (Node(quoted(key), _node_attributes(key, data)) for key, data in graph.nodes.items())
    edges = (
        (quoted(start), quoted(end), _edge_attributes(data))
        for start, ends in graph.adj.items()
        for end, data in ends.items()
    )
    return digraph("ModuleKG", boxes, edges)


def _node_attributes(key: str, data: Attributes) -> dict[str, str]:
    label = {"label": quoted_label(_label(key, data))}
    shape = _SHAPES.get(data.get("type", ""))
    return label if shape is None else {**label, "shape": shape, "tooltip": quoted_label(data["type"])}


def _edge_attributes(data: Attributes) -> dict[str, str]:
    relation = data.get("type", "contains")
    if relation == "contains":
        return {"label": f'"{count}"'} if (count := data.get("count", 1)) > 1 else {}
    return {"label": quoted_label(str(relation)), "style": "dashed"}


def _label(key: str, data: Attributes) -> str:
    uses = data.get("count") or 1
    return str(data.get("name", key)) + (f" ×{uses}" if uses > 1 else "")


def csacademy(graph: GraphLike) -> Iterator[str]:
    """csacademy's graph editor: a line `from to` per edge and a line per node without edges; names hold no blanks."""
    names = _single_words(graph)
    linked = {key for start, ends in graph.adj.items() if ends for key in (start, *ends)}
    yield from (word for key, word in names.items() if key not in linked)
    for start, ends in graph.adj.items():
        for end in ends:
            yield f"{names[start]} {names[end]}"


def _single_words(graph: GraphLike) -> dict[str, str]:
    words: dict[str, str] = {}
    taken: set[str] = set()
    for key, data in graph.nodes.items():
        word = "".join(c if c.isprintable() and not c.isspace() else "_" for c in str(data.get("name", key))) or "_"
        while word in taken:
            word += "'"
        taken.add(word)
        words[key] = word
    return words
