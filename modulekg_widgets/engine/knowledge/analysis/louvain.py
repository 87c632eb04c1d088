"""The method of Louvain (Blondel et al. 2008) on a sparse matrix, with refinement from coarse to fine.

All nodes choose their best part at once, and most of those that would move do: in one pass over the matrix instead of
one over each node. What that spoils is undone, since a pass that loses modularity is not kept. After the last
merging the moves are made again at every level, the coarsest first (Rotta & Noack 2011).
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from scipy.sparse import csr_array

from modulekg_widgets.engine.knowledge.analysis.modularity import (
    Parts,
    degrees,
    membership,
    merged,
    modularity,
    numbered,
    rows_of,
    size_of,
    with_leaves,
)

MOVING = 0.7  # the part of the nodes that want to move which do: two that want to each other's part would swap for ever
WORK = 1_000_000  # links looked at in one level, so that large graphs take tenths of a second
LEAST, MOST = 5, 50  # passes of one level
SAME = 1e-9  # a gain that is rounding


def louvain(links: csr_array, seed: int) -> Parts:
    """The part of each node, of a partition with high modularity; the same for the same graph and seed."""
    draw = np.random.default_rng(seed)
    leaves = with_leaves(links)
    graph = merged(links, leaves)
    levels: list[tuple[csr_array, Parts]] = []
    while True:
        parts = _moved(graph, np.arange(size_of(graph)), draw)
        if parts.max(initial=-1) + 1 == len(parts):
            break
        levels.append((graph, parts))
        graph = merged(graph, parts)
    for graph, inner in reversed(levels):
        parts = _moved(graph, parts[inner], draw)
    return parts[leaves]


def _moved(links: csr_array, parts: Parts, draw: Generator) -> Parts:
    """The best partition on the way of some passes; none is worse than `parts`."""
    best, reached = parts, modularity(links, parts)
    for _ in range(int(np.clip(WORK // max(links.nnz, 1), LEAST, MOST))):
        wanted = _wanted(links, parts)
        moves = wanted != parts
        if not moves.any():
            break
        parts = numbered(np.where(moves & (draw.random(len(parts)) < MOVING), wanted, parts))
        now = modularity(links, parts)
        if now > reached + SAME:
            best, reached = parts, now
    return best


def _wanted(links: csr_array, parts: Parts) -> Parts:
    """For each node the part that gains most by having it, the first of equal ones; its own if none gains more."""
    degree, total = degrees(links), links.sum()
    to_parts = csr_array(links @ membership(parts))
    nodes = rows_of(to_parts)
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
    return np.where(most > staying + SAME, wanted, parts)
