"""Export of the graph to networkx and to files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import networkx as nx

from modulekg_widgets.engine.knowledge.repository import GraphParts


def to_networkx(self: GraphParts, types: Iterable[str] | str | None = None) -> nx.DiGraph:
    """The graph for networkx, which may be changed: nothing of it is shared.

    Parameters
    ----------
    types : str or iterable of str, optional
        Types of nodes: some of Module, Model, DataSet, User, Job, Operator and ModuleType, or "all". By default a
        graph that knows models alone gives its modules, and any other all but ModuleType.

    Returns
    -------
    networkx.DiGraph
        The key of a module is its fingerprint, of others `<type>:<name>`; each node and edge has a `type`. Modules
        have `name`, `class`, `hyperparameters`, `count`, `models` and more; the edge from a container to what it
        contains has `count` and `order`.

    Raises
    ------
    UnknownNameError
        For another type.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> digest = kg.add_model(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU()), name="two")
    >>> graph = kg.to_networkx()
    >>> [edge["count"] for _, _, edge in graph.edges(data=True)]
    [2]
    >>> list(kg.to_networkx("Model"))
    ['Model:two']
    """
    from modulekg_widgets.engine.knowledge.exchange.property_graph import to_networkx

    return to_networkx(self.contents(), types)


def number_of_nodes(self: GraphParts) -> int:
    """The number of nodes of `to_networkx()`."""
    from modulekg_widgets.engine.knowledge.exchange.property_graph import node_count

    return node_count(self.contents())


def number_of_edges(self: GraphParts) -> int:
    """The number of edges of `to_networkx()`."""
    from modulekg_widgets.engine.knowledge.exchange.property_graph import edge_count

    return edge_count(self.contents())


def export(self: GraphParts, path: str | Path) -> Path:
    """Write the graph in the format of the file's extension; the file appears whole or not at all.

    Parameters
    ----------
    path : str or path
        Its extension is one of graphml, cyjs and jsonld, which `mk.load_graph` reads, of dot, gv, edges, gexf and
        csv, or one that `mk.exporter` registered.

    Returns
    -------
    pathlib.Path
        The path.

    Raises
    ------
    UnknownNameError
        For an extension that no exporter is registered for.
    UnknownPathError
        Where there is no such folder.
    UnwritableFileError
        For what cannot be written for another reason; what was there stays.

    Examples
    --------
    >>> import tempfile, torch, modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> digest = kg.add_model(torch.nn.ReLU(), name="one")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kg.export(f"{folder}/zoo.dot").read_text()[:7]
    'digraph'
    """
    from modulekg_widgets.engine.knowledge.exchange import export_contents

    return export_contents(self.contents(), path)
