"""Graphs from files."""

from __future__ import annotations

import os

from modulekg_widgets.engine.knowledge.exchange import read_contents
from modulekg_widgets.engine.knowledge.graph import KnowledgeGraph
from modulekg_widgets.engine.knowledge.store.database import Location


def load_graph(path: str | os.PathLike[str], store: Location | None = None) -> KnowledgeGraph:
    """The graph that `export` wrote as `.graphml`, `.cyjs` or `.jsonld`, in memory or added to what is in `store`.

    Raises `GraphFileError` for a file that is not such a graph, and then has written nothing.
    """
    contents = read_contents(path)
    graph = KnowledgeGraph(store, scheme=contents.scheme)
    graph.merge(contents)
    return graph
