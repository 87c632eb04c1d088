"""The graph of structures alone: Graphviz DOT and the edge list of csacademy's graph editor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import networkx as nx

from modulekg_widgets.engine.dot import Node, digraph, quoted, quoted_label


def dot(graph: nx.DiGraph) -> Iterator[str]:
    """Graphviz DOT: a box per structure with its number of occurrences, an edge per containment with its count."""
    boxes = (Node(quoted(key), {"label": quoted_label(_label(key, data))}) for key, data in graph.nodes(data=True))
    edges = (
        (quoted(start), quoted(end), {"label": f'"{count}"'} if (count := data.get("count", 1)) > 1 else {})
        for start, end, data in graph.edges(data=True)
    )
    return digraph("ModuleKG", boxes, edges)


def _label(key: str, data: dict[str, Any]) -> str:
    uses = data.get("count", 1)
    return data.get("name", key) + (f" ×{uses}" if uses > 1 else "")


def csacademy(graph: nx.DiGraph) -> Iterator[str]:
    """csacademy's graph editor: a line `from to` per edge and a line per node without edges; names hold no blanks."""
    names = _single_words(graph)
    for key in graph:
        if graph.degree(key) == 0:
            yield names[key]
    for start, end in graph.edges:
        yield f"{names[start]} {names[end]}"


def _single_words(graph: nx.DiGraph) -> dict[str, str]:
    words: dict[str, str] = {}
    taken: set[str] = set()
    for key, data in graph.nodes(data=True):
        word = "".join(c if c.isprintable() and not c.isspace() else "_" for c in str(data.get("name", key))) or "_"
        while word in taken:
            word += "'"
        taken.add(word)
        words[key] = word
    return words
