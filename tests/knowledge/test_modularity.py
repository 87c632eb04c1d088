"""Modularity, merging nodes without changing it, and Louvain's method on a sparse matrix, against networkx."""

import networkx as nx
import numpy as np
import pytest

from knowledge.graphs import made_up, zoo_contents
from knowledge.test_communities import TWO, ring_of
from knowledge.test_importance import GRAPHS
from modulekg_widgets.engine.knowledge.analysis.communities import (
    Partition,
    adjacency,
    aggregate,
    louvain,
    merge_leaves,
    modularity,
    relabel,
)
from modulekg_widgets.engine.knowledge.analysis.containment import Containment, containment
from modulekg_widgets.engine.knowledge.facts.contents import Contents

SLOTS = {**GRAPHS, "two groups": TWO}
CONTENTS = {name: made_up(slots) for name, slots in SLOTS.items() if any(slots.values())} | {"ring": ring_of(97)}


def graph_of(contents: Contents) -> nx.Graph:
    """The same graph for networkx."""
    found = containment(contents)
    graph = nx.Graph()
    graph.add_nodes_from(range(len(found.keys)))
    graph.add_edges_from(found.counts)
    return graph


def sets_of(parts: Partition) -> list[set[int]]:
    return [set(np.flatnonzero(parts == part).tolist()) for part in range(parts.max() + 1)]


def random_parts(size: int, seed: int) -> Partition:
    draw = np.random.default_rng(seed)
    return relabel(draw.integers(0, draw.integers(1, size + 1), size))


@pytest.mark.parametrize("contents", CONTENTS.values(), ids=CONTENTS)
def test_modularity_is_that_of_networkx(contents: Contents) -> None:
    links, graph = adjacency(containment(contents)), graph_of(contents)
    for seed in range(20):
        parts = random_parts(len(graph), seed)
        assert modularity(links, parts) == pytest.approx(nx.community.modularity(graph, sets_of(parts)), abs=1e-12)


def test_a_graph_without_links_has_none() -> None:
    assert modularity(adjacency(Containment(["a", "b"], {})), np.array([0, 1])) == 0
    assert modularity(adjacency(Containment([], {})), np.array([], np.int64)) == 0


@pytest.mark.parametrize("contents", CONTENTS.values(), ids=CONTENTS)
def test_merging_keeps_modularity(contents: Contents) -> None:
    links = adjacency(containment(contents))
    for seed in range(5):
        inner = random_parts(len(contents.modules), seed)
        outer = random_parts(int(inner.max()) + 1, seed)
        assert modularity(aggregate(links, inner), outer) == pytest.approx(modularity(links, outer[inner]), abs=1e-12)


def test_leaves_are_one_with_what_they_hang_on() -> None:
    # a star, a pair, a triangle of which one node has a leaf, and a node that holds itself
    pairs = [(0, 1), (0, 2), (0, 3), (4, 5), (6, 7), (7, 8), (8, 6), (8, 9), (10, 10)]
    parts = merge_leaves(adjacency(Containment([str(node) for node in range(11)], dict.fromkeys(pairs, 1))))
    assert sets_of(parts) == [{0, 1, 2, 3}, {4, 5}, {6}, {7}, {8, 9}, {10}]


@pytest.mark.parametrize("contents", [*CONTENTS.values(), zoo_contents()], ids=[*CONTENTS, "torchvision"])
def test_louvain_is_as_good_as_that_of_networkx(contents: Contents) -> None:
    links, graph = adjacency(containment(contents)), graph_of(contents)
    found, theirs = [], []
    for seed in range(5):
        parts = louvain(links, seed)
        assert sorted(set(parts.tolist())) == list(range(parts.max() + 1))
        assert (parts == louvain(links, seed)).all()
        found.append(modularity(links, parts))
        other = nx.community.louvain_communities(graph, weight=None, seed=seed)
        theirs.append(nx.community.modularity(graph, other))
    assert np.mean(found) > np.mean(theirs) - 1e-9


def test_a_graph_of_known_communities_is_parted_into_them() -> None:
    graph = nx.planted_partition_graph(8, 32, 0.4, 0.01, seed=0)
    parts = louvain(adjacency(Containment([str(node) for node in graph], dict.fromkeys(graph.edges, 1))), 0)
    assert sorted(map(sorted, sets_of(parts))) == [list(range(start, start + 32)) for start in range(0, 256, 32)]
