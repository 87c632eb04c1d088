"""Groups of structures that are built of each other more than of the rest."""

from __future__ import annotations

from collections.abc import Callable

import networkx as nx
import pandas as pd

from modulekg_widgets.engine.errors import MissingPackageError, UnknownNameError, nearest, shown
from modulekg_widgets.engine.knowledge.analysis.community_names import community_names
from modulekg_widgets.engine.knowledge.analysis.containment import containment
from modulekg_widgets.engine.knowledge.contents import Contents
from modulekg_widgets.engine.knowledge.tables import table

Partition = list[list[int]]


def communities(contents: Contents, method: str = "louvain", seed: int = 0) -> pd.DataFrame:
    """The community of every structure, as `name`, `community`, `class`, `count` (occurrences).

    Communities are numbered from 0 by falling size; in each the most used come first. `attrs["modularity"]` is Newman's
    Q of the partition, `attrs["names"]` what is particular of each, see `community_names`. Containment counts once a
    pair, without direction. "louvain" (Blondel et al. 2008) always runs on networkx; "leiden" (Traag et al. 2019) needs
    igraph and leidenalg. The same seed gives the same answer. Raises `UnknownNameError` for another method or no seed,
    `MissingPackageError` where its packages are not installed.
    """
    number_of, modularity = community_of(contents, method, seed)
    names, uses = contents.names, contents.uses
    rows = [(names[key], number, contents.modules[key].class_name, uses[key]) for key, number in number_of.items()]
    rows.sort(key=lambda row: (row[1], -row[3], row[0]))
    found = table(rows, ["name", "community", "class", "count"])
    found.attrs["modularity"] = modularity
    found.attrs["names"] = community_names(contents, number_of)
    return found


def community_of(contents: Contents, method: str = "louvain", seed: int = 0) -> tuple[dict[str, int], float]:
    """The number of each structure's community by its fingerprint, and the modularity; raises as `communities`."""
    if method not in tuple(METHODS):
        raise UnknownNameError(f"there is no method {shown(str(method))!r}: {nearest(str(method), METHODS)}")
    if type(seed) is not int or seed < 0:
        raise UnknownNameError(f"a seed is a whole number from 0 on, got {shown(repr(seed))}")
    found = containment(contents)
    graph = found.neighbours()
    parts = METHODS[method](graph, seed) if found.counts else [[node] for node in graph]
    parts = sorted((sorted(part) for part in parts), key=lambda part: (-len(part), part))
    modularity = float(nx.community.modularity(graph, parts)) if found.counts else 0.0
    return {found.keys[index]: number for number, part in enumerate(parts) for index in part}, modularity


def _louvain(graph: nx.Graph, seed: int) -> Partition:
    return [list(part) for part in nx.community.louvain_communities(graph, weight=None, seed=seed)]


def _leiden(graph: nx.Graph, seed: int) -> Partition:
    try:
        import igraph
        import leidenalg
    except ImportError as error:
        raise MissingPackageError(
            "the method 'leiden' needs igraph and leidenalg: pip install 'modulekg-widgets[analysis]'"
        ) from error
    same = igraph.Graph(n=len(graph), edges=list(graph.edges))
    return list(leidenalg.find_partition(same, leidenalg.ModularityVertexPartition, seed=seed % 2**31, n_iterations=-1))


METHODS: dict[str, Callable[[nx.Graph, int], Partition]] = {"louvain": _louvain, "leiden": _leiden}
