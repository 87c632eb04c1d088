"""Groups of structures that are built of each other more than of the rest."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.sparse import csr_array, triu

from modulekg_widgets.engine.errors import MissingPackageError, UnknownNameError, nearest, shown
from modulekg_widgets.engine.knowledge.analysis.community_names import community_names
from modulekg_widgets.engine.knowledge.analysis.containment import containment
from modulekg_widgets.engine.knowledge.analysis.louvain import louvain
from modulekg_widgets.engine.knowledge.analysis.modularity import (
    Parts,
    degrees,
    links_of,
    merged,
    modularity,
    rows_of,
    size_of,
    with_leaves,
)
from modulekg_widgets.engine.knowledge.contents import Contents
from modulekg_widgets.engine.knowledge.tables import table
from modulekg_widgets.engine.knowledge.usage import keys_at_level

ROUNDS = 10  # of Leiden; later ones gain less than another seed does


def communities(contents: Contents, method: str = "louvain", seed: int = 0, level: str | None = None) -> pd.DataFrame:
    """The community of every structure, as `name`, `community`, `class`, `count` (occurrences).

    Communities are numbered from 0 by falling size; in each the most used come first. `attrs["modularity"]` is Newman's
    Q of the partition, `attrs["names"]` what is particular of each, see `community_names`. Containment counts once a
    pair, without direction. "louvain" is of Blondel et al. (2008); "leiden" (Traag et al. 2019) needs igraph. The same
    seed gives the same answer. With `level`, the structures that occur at that level of some model, in the communities
    of all. Raises `UnknownNameError` for another method or level or no seed, `MissingPackageError` where igraph is not
    installed.
    """
    among = keys_at_level(contents, level)
    number_of, modularity = community_of(contents, method, seed)
    names, uses = contents.names, contents.uses
    rows = [
        (names[key], number, contents.modules[key].class_name, uses[key])
        for key, number in number_of.items() if key in among
    ]  # fmt: skip
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
    graph = containment(contents)
    links = links_of(graph)
    parts = _by_size(METHODS[method](links, seed) if graph.counts else np.arange(len(graph.keys)))
    return dict(zip(graph.keys, parts.tolist(), strict=True)), modularity(links, parts)


def _by_size(parts: Parts) -> Parts:
    """The same parts, numbered by falling size, those of one size by their first node."""
    _, first, number_of, sizes = np.unique(parts, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -sizes))
    return np.argsort(order)[number_of]


def _leiden(links: csr_array, seed: int) -> Parts:
    try:
        import igraph
    except ImportError as error:
        raise MissingPackageError(
            "the method 'leiden' needs igraph: pip install 'modulekg-widgets[analysis]'"
        ) from error
    leaves = with_leaves(links)
    merged_links = merged(links, leaves)
    half = csr_array(triu(merged_links, 1))
    ends = zip(rows_of(half).tolist(), half.indices.tolist(), strict=True)
    graph = igraph.Graph(n=size_of(half), edges=list(ends))
    igraph.set_random_number_generator(random.Random(seed))
    try:
        # modularity, with the degrees told: igraph would count what is inside of a node otherwise
        found = graph.community_leiden(
            "CPM",
            weights=half.data.tolist(),
            resolution=1 / float(links.sum()),
            node_weights=degrees(merged_links).tolist(),
            n_iterations=ROUNDS,
        )
    finally:
        igraph.set_random_number_generator(random)
    return np.array(found.membership)[leaves]


METHODS: dict[str, Callable[[csr_array, int], Parts]] = {"louvain": louvain, "leiden": _leiden}
