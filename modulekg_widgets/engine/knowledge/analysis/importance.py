"""How important each structure is among all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from modulekg_widgets.engine.errors import UnknownNameError, nearest, shown
from modulekg_widgets.engine.knowledge.analysis.centrality import measured
from modulekg_widgets.engine.knowledge.analysis.containment import Containment, containment
from modulekg_widgets.engine.knowledge.contents import Contents
from modulekg_widgets.engine.knowledge.tables import table
from modulekg_widgets.engine.knowledge.usage import keys_at_level

MEASURES = ("pagerank", "in_degree", "models", "closeness", "betweenness")


def importance(contents: Contents, measure: str = "pagerank", level: str | None = None) -> pd.DataFrame:
    """Every structure with its importance, as `name` and a column called like the measure; highest first, then by name.

    Edges run from container to content, so what many others are built of ranks high.
    - "pagerank": damping 0.85, edges weighted by the number of slots (Page et al. 1999);
    - "in_degree": the number of structures that contain it directly;
    - "models": the number of models in which it occurs;
    - "closeness": nearness, in steps inwards, to what contains it, scaled by how many do (Wasserman & Faust 1994);
    - "betweenness": the share of shortest paths through it (Freeman 1977); slow without igraph.

    With `level`, those that occur at that level of some model, by their importance among all. Raises
    `UnknownNameError` for another measure or level.
    """
    among = keys_at_level(contents, level)
    values = importance_of(contents, measure)
    names = contents.names
    rows = sorted(
        ((names[key], value) for key, value in values.items() if key in among),
        key=lambda row: (-_rounded(row[1]), row[0]),
    )
    return table(rows, ["name", measure])


def importance_of(contents: Contents, measure: str) -> dict[str, float]:
    """The importance of each structure by its fingerprint; raises `UnknownNameError` for another measure."""
    if measure not in MEASURES:
        raise UnknownNameError(f"there is no measure {shown(str(measure))!r}: {nearest(str(measure), MEASURES)}")
    graph = containment(contents)
    return dict(zip(graph.keys, _values(contents, graph, measure), strict=True))


def _values(contents: Contents, graph: Containment, measure: str) -> Sequence[float]:
    if measure == "models":
        return [len(contents.holders[key]) for key in graph.keys]
    if measure == "in_degree":
        degrees = Counter(content for _, content in graph.counts)
        return [degrees[index] for index in range(len(graph.keys))]
    return measured(graph, measure)


def _rounded(value: float) -> float:
    """To nine digits: equal values stay ties however they were computed."""
    return float(f"{value:.8e}")
