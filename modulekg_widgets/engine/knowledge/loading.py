"""Graphs from files."""

from __future__ import annotations

import os

from modulekg_widgets.engine.knowledge.exchange import read_contents
from modulekg_widgets.engine.knowledge.graph import KnowledgeGraph
from modulekg_widgets.engine.knowledge.store.database import Location


def load_graph(path: str | os.PathLike[str], store: Location | None = None) -> KnowledgeGraph:
    """The graph that `export` wrote as `.graphml`, `.cyjs` or `.jsonld`, in memory or added to what is in `store`.

    Parameters
    ----------
    path
        The file, whose ending names its format.
    store
        As that of `KnowledgeGraph`; by default the graph is in memory.

    Returns
    -------
    KnowledgeGraph
        With everything of the file.

    Raises
    ------
    GraphFileError
        For a file that is not such a graph; nothing is written then.
    DuplicateNameError
        Where the store knows a model, data set, user or job of the same name with other contents.

    Examples
    --------
    >>> import tempfile, torch, modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> digest = kg.add_model(torch.nn.Linear(2, 3), name="linear")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = kg.export(f"{folder}/zoo.graphml")
    ...     mk.load_graph(path).models
    ['linear']
    """
    contents = read_contents(path)
    graph = KnowledgeGraph(store, scheme=contents.scheme)
    graph.merge(contents)
    return graph
