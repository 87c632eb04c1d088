"""Newman's modularity of a partition of a graph, and what a partition makes of the graph; read louvain.py next.

A graph is the symmetric matrix of its weights; the diagonal holds a weight twice, once for each end. A partition is the
number of each node's part, from 0 without gaps.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from modulekg_widgets.engine.knowledge.analysis.containment import Containment

Parts = NDArray[np.int64]


def links_of(graph: Containment) -> csr_array:
    """Which structures hold each other: ones, without directions and counts."""
    size = len(graph.keys)
    pairs = np.fromiter(chain.from_iterable(graph.counts), np.int64, 2 * len(graph.counts)).reshape(-1, 2)
    one, two = np.divmod(np.unique(pairs.min(axis=1) * size + pairs.max(axis=1)), max(size, 1))
    ends = np.concatenate([one, two]), np.concatenate([two, one])
    return csr_array((np.ones(2 * len(one)), ends), shape=(size, size))


def modularity(links: csr_array, parts: Parts) -> float:
    """The share of weight inside of parts beyond what the degrees alone would have there (Newman 2004); 0 of none."""
    total = links.sum()
    if not total:
        return 0.0
    inside = links.data[parts[rows_of(links)] == parts[links.indices]].sum()
    shares = np.bincount(parts, degrees(links)) / total
    return float(inside / total - (shares**2).sum())


def size_of(links: csr_array) -> int:
    """The number of nodes."""
    return len(links.indptr) - 1


def degrees(links: csr_array) -> NDArray[np.float64]:
    """The weight at each node."""
    return np.asarray(links.sum(axis=1))


def rows_of(links: csr_array) -> NDArray[np.int64]:
    """The row of each entry."""
    return np.repeat(np.arange(size_of(links)), np.diff(links.indptr))


def numbered(parts: Parts) -> Parts:
    """The same parts, numbered from 0 without gaps."""
    taken = np.bincount(parts) > 0
    return (np.cumsum(taken) - 1)[parts]


def membership(parts: Parts) -> csr_array:
    """A one where a node, the row, is in a part, the column."""
    count = len(parts)
    return csr_array((np.ones(count), parts, np.arange(count + 1)), shape=(count, parts.max(initial=-1) + 1))


def merged(links: csr_array, parts: Parts) -> csr_array:
    """The graph of the parts, in which every partition has the modularity that it has in the graph of the nodes."""
    members = membership(parts)
    return csr_array(members.T @ links @ members)


def with_leaves(links: csr_array) -> Parts:
    """Each node that is linked to one other alone is one part with it, as in all best partitions.

    Arenas et al., Size reduction of complex networks preserving modularity (2007).
    """
    parts = np.arange(size_of(links))
    leaves = np.flatnonzero(np.diff(links.indptr) == 1)
    others = links.indices[links.indptr[leaves]]
    in_pairs = np.isin(others, leaves)
    parts[leaves] = np.where(in_pairs, np.minimum(leaves, others), others)
    return numbered(parts)
