"""Centrality measures on the graph of structures, by igraph if it is installed, else by networkx."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import networkx as nx
import pandas as pd

from modulekg_widgets.engine.errors import UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.knowledge.analysis.containment import Containment, containment
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.facts.tables import data_frame
from modulekg_widgets.engine.knowledge.facts.usage import structures_at_level

if TYPE_CHECKING:
    import igraph

DAMPING = 0.85
Measure = Callable[[Containment], Sequence[float]]


def centrality(graph: Containment, measure: str) -> list[float]:
    """Returns "pagerank", "closeness" or "betweenness" of each structure."""
    by = IGRAPH_MEASURES if importlib.util.find_spec("igraph") else NETWORKX_MEASURES
    return [float(value) for value in by[measure](graph)] if graph.keys else []


def _igraph(graph: Containment) -> igraph.Graph:
    import igraph

    return igraph.Graph(
        n=len(graph.keys),
        edges=list(graph.counts),
        directed=True,
        edge_attrs={"count": list(graph.counts.values())},
    )


def _pagerank_by_igraph(graph: Containment) -> Sequence[float]:
    return _igraph(graph).pagerank(directed=True, damping=DAMPING, weights="count")


def _pagerank_by_networkx(graph: Containment) -> Sequence[float]:
    tolerance = 1e-12 / len(graph.keys)  # networkx stops at this much a node
    ranks = nx.pagerank(graph.digraph(), alpha=DAMPING, weight="count", tol=tolerance, max_iter=10_000)
    return _in_order(ranks)


def _closeness_by_igraph(graph: Containment) -> Sequence[float]:
    """Closeness by igraph, scaled by the share of nodes that reach a node (Wasserman & Faust 1994)."""
    made, others = _igraph(graph), max(len(graph.keys) - 1, 1)
    reaching = made.neighborhood_size(order=len(graph.keys), mode="in")  # the node itself is one of them
    means = made.closeness(mode="in")
    return [
        mean * (reached - 1) / others if reached > 1 else 0.0 for mean, reached in zip(means, reaching, strict=True)
    ]


def _closeness_by_levels(graph: Containment) -> Sequence[float]:
    """Closeness as in networkx, by breadth-first search."""
    holders: list[list[int]] = [[] for _ in graph.keys]
    for container, content in graph.counts:
        holders[content].append(container)
    others = max(len(graph.keys) - 1, 1)
    values: list[float] = []
    for node in range(len(graph.keys)):
        distances, reached = _distances_to(node, holders)
        values.append(reached / distances * (reached / others) if reached else 0.0)
    return values


def _distances_to(node: int, holders: list[list[int]]) -> tuple[int, int]:
    """The sum of the steps from all that hold a node at any depth, and how many these are."""
    seen, level, steps, distances = {node}, {node}, 0, 0
    while level:
        level = {holder for inner in level for holder in holders[inner]} - seen
        seen |= level
        steps += 1
        distances += steps * len(level)
    return distances, len(seen) - 1


def _betweenness_by_igraph(graph: Containment) -> Sequence[float]:
    size = len(graph.keys)
    pairs = max((size - 1) * (size - 2), 1)
    return [value / pairs for value in _igraph(graph).betweenness(directed=True)]


def _betweenness_by_networkx(graph: Containment) -> Sequence[float]:
    return _in_order(nx.betweenness_centrality(graph.digraph()))


def _in_order(values: dict[int, float]) -> list[float]:
    return [values[index] for index in range(len(values))]


IGRAPH_MEASURES: dict[str, Measure] = {
    "pagerank": _pagerank_by_igraph,
    "closeness": _closeness_by_igraph,
    "betweenness": _betweenness_by_igraph,
}
NETWORKX_MEASURES: dict[str, Measure] = {
    "pagerank": _pagerank_by_networkx,
    "closeness": _closeness_by_levels,
    "betweenness": _betweenness_by_networkx,
}


# --------------------
# Importance of each structure: centrality in the containment graph, or number of containers or models.


MEASURES = ("pagerank", "in_degree", "models", "closeness", "betweenness")


def importance(contents: Contents, measure: str = "pagerank", level: str | None = None) -> pd.DataFrame:
    """Returns every structure with its importance, highest first, then by name.

    Edges run from container to content, so what many others are built of ranks high.
    - "pagerank": damping 0.85, edges weighted by the number of slots (Page et al. 1999);
    - "in_degree": the number of structures that contain it directly;
    - "models": the number of models in which it occurs;
    - "closeness": nearness, in steps inwards, to what contains it, scaled by how many do (Wasserman & Faust 1994);
    - "betweenness": the share of shortest paths through it (Freeman 1977); slow without igraph.

    With `level`, those that occur at that level of some model, by their importance among all. Raises
    `UnknownNameError` for another measure or level.
    """
    among = structures_at_level(contents, level)
    values = importance_by_key(contents, measure)
    names = contents.names
    rows = sorted(
        ((names[key], value) for key, value in values.items() if key in among),
        key=lambda row: (-_rounded(row[1]), row[0]),
    )
    return data_frame(rows, ["name", measure])


def importance_by_key(contents: Contents, measure: str) -> dict[str, float]:
    """The importance of each structure by its fingerprint; raises `UnknownNameError` for another measure."""
    if measure not in MEASURES:
        raise UnknownNameError(
            f"there is no measure {printable(str(measure))!r}: {closest_match_hint(str(measure), MEASURES)}"
        )
    graph = containment(contents)
    return dict(zip(graph.keys, _values(contents, graph, measure), strict=True))


def _values(contents: Contents, graph: Containment, measure: str) -> Sequence[float]:
    if measure == "models":
        return [len(contents.holders[key]) for key in graph.keys]
    if measure == "in_degree":
        degrees = Counter(content for _, content in graph.counts)
        return [degrees[index] for index in range(len(graph.keys))]
    return centrality(graph, measure)


def _rounded(value: float) -> float:
    """The value to nine digits: equal values stay ties however they were computed."""
    return float(f"{value:.8e}")
