"""The graph of structures alone: Graphviz DOT and the edge list of csacademy's graph editor."""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx


def dot(graph: nx.DiGraph) -> Iterator[str]:
    """Graphviz DOT: a box per structure with its number of occurrences, an edge per containment with its count."""
    yield "digraph ModuleKG {"
    yield '  node [shape=box, style=rounded, fontname="sans-serif"];'
    for key, data in graph.nodes(data=True):
        uses = data.get("count", 1)
        label = data.get("name", key) + (f" ×{uses}" if uses > 1 else "")
        yield f"  {quoted(key)} [label={quoted(label)}];"
    for start, end, data in graph.edges(data=True):
        count = data.get("count", 1)
        yield f"  {quoted(start)} -> {quoted(end)}" + (f' [label="{count}"];' if count > 1 else ";")
    yield "}"


def quoted(text: str) -> str:
    # in DOT a backslash starts an escape only within a label, and a newline may stand in a quoted string
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r").replace("\0", "�")
    )
    return f'"{escaped}"'


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
