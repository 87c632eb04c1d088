"""Newman's modularity of a partition of a graph, and what a partition makes of the graph.

A graph is the symmetric matrix of its weights; the diagonal holds a weight twice, once for each end. A partition is the
number of each node's part, from 0 without gaps.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.sparse import csr_array

from modulekg_widgets.engine.knowledge.analysis.containment import Containment

Partition = NDArray[np.int64]


def adjacency(graph: Containment) -> csr_array:
    """Returns the symmetric adjacency matrix of structures, with ones, without directions and counts."""
    size = len(graph.keys)
    pairs = np.fromiter(chain.from_iterable(graph.counts), np.int64, 2 * len(graph.counts)).reshape(-1, 2)
    one, two = np.divmod(np.unique(pairs.min(axis=1) * size + pairs.max(axis=1)), max(size, 1))
    ends = np.concatenate([one, two]), np.concatenate([two, one])
    return csr_array((np.ones(2 * len(one)), ends), shape=(size, size))


def modularity(links: csr_array, parts: Partition) -> float:
    """Returns the share of weight inside of parts beyond the expectation by degrees (Newman 2004); 0 for no links."""
    total = links.sum()
    if not total:
        return 0.0
    inside = links.data[parts[row_indices(links)] == parts[links.indices]].sum()
    shares = np.bincount(parts, weighted_degrees(links)) / total
    return float(inside / total - (shares**2).sum())


def number_of_nodes(links: csr_array) -> int:
    """The number of nodes."""
    return len(links.indptr) - 1


def weighted_degrees(links: csr_array) -> NDArray[np.float64]:
    """The weight at each node."""
    return np.asarray(links.sum(axis=1))


def row_indices(links: csr_array) -> NDArray[np.int64]:
    """The row of each entry."""
    return np.repeat(np.arange(number_of_nodes(links)), np.diff(links.indptr))


def relabel(parts: Partition) -> Partition:
    """The same parts, numbered from 0 without gaps."""
    taken = np.bincount(parts) > 0
    return (np.cumsum(taken) - 1)[parts]


def indicator_matrix(parts: Partition) -> csr_array:
    """A one where a node, the row, is in a part, the column."""
    count = len(parts)
    return csr_array((np.ones(count), parts, np.arange(count + 1)), shape=(count, parts.max(initial=-1) + 1))


def aggregate(links: csr_array, parts: Partition) -> csr_array:
    """Returns the graph of the parts, in which every partition has the same modularity as in the graph of nodes."""
    members = indicator_matrix(parts)
    return csr_array(members.T @ links @ members)


def merge_leaves(links: csr_array) -> Partition:
    """Returns the partition that joins each node of degree one with its neighbour, as all best partitions do.

    Arenas et al., Size reduction of complex networks preserving modularity (2007).
    """
    parts = np.arange(number_of_nodes(links))
    leaves = np.flatnonzero(np.diff(links.indptr) == 1)
    others = links.indices[links.indptr[leaves]]
    in_pairs = np.isin(others, leaves)
    parts[leaves] = np.where(in_pairs, np.minimum(leaves, others), others)
    return relabel(parts)


# -------------------- Method of Louvain (Blondel et al. 2008) on a sparse matrix, with refinement from coarse to fine
# All nodes choose their best part at once, and most of those that would move do: in one pass over the matrix instead of
# one over each node. What that spoils is undone, since a pass that loses modularity is not kept. After the last
# merging the moves are made again at every level, the coarsest first (Rotta & Noack 2011).


MOVE_PROBABILITY = (
    0.7  # the part of the nodes that want to move which do: two that want to each other's part would swap for ever
)
MAX_LINKS_PER_LEVEL = 1_000_000  # links looked at in one level, so that large graphs take tenths of a second
MIN_PASSES, MAX_PASSES = 5, 50  # passes of one level
TOLERANCE = 1e-9  # a gain that is rounding


def louvain(links: csr_array, seed: int) -> Partition:
    """The part of each node, of a partition with high modularity; the same for the same graph and seed."""
    draw = np.random.default_rng(seed)
    leaves = merge_leaves(links)
    graph = aggregate(links, leaves)
    levels: list[tuple[csr_array, Partition]] = []
    while True:
        parts = _move_nodes(graph, np.arange(number_of_nodes(graph)), draw)
        if parts.max(initial=-1) + 1 == len(parts):
            break
        levels.append((graph, parts))
        graph = aggregate(graph, parts)
    for graph, inner in reversed(levels):
        parts = _move_nodes(graph, parts[inner], draw)
    return parts[leaves]


def _move_nodes(links: csr_array, parts: Partition, draw: Generator) -> Partition:
    """Returns the best partition met in some passes, no worse than `parts`."""
    best, reached = parts, modularity(links, parts)
    for _ in range(int(np.clip(MAX_LINKS_PER_LEVEL // max(links.nnz, 1), MIN_PASSES, MAX_PASSES))):
        wanted = _best_parts(links, parts)
        moves = wanted != parts
        if not moves.any():
            break
        parts = relabel(np.where(moves & (draw.random(len(parts)) < MOVE_PROBABILITY), wanted, parts))
        now = modularity(links, parts)
        if now > reached + TOLERANCE:
            best, reached = parts, now
    return best


def _best_parts(links: csr_array, parts: Partition) -> Partition:
    """Returns for each node the part with the largest gain, its own if none gains more."""
    degree, total = weighted_degrees(links), links.sum()
    to_parts = csr_array(links @ indicator_matrix(parts))
    nodes = row_indices(to_parts)
    sizes = np.bincount(parts, degree)
    gains = to_parts.data - degree[nodes] * sizes[to_parts.indices] / total
    own = to_parts.indices == parts[nodes]
    gains[own] += degree[nodes[own]] ** 2 / total - links.diagonal()[nodes[own]]  # without the node itself
    staying = degree * (degree - sizes[parts]) / total
    staying[nodes[own]] = gains[own]
    most = np.full(len(parts), -np.inf)
    np.maximum.at(most, nodes, gains)
    first = np.flatnonzero(gains == most[nodes])
    first = first[np.diff(nodes[first], prepend=-1) > 0]
    wanted = parts.copy()
    wanted[nodes[first]] = to_parts.indices[first]
    return np.where(most > staying + TOLERANCE, wanted, parts)
