"""Communities of structures by the method of Louvain or Leiden, and Newman's modularity of a partition.

A graph is the symmetric matrix of its weights; the diagonal holds a weight twice, once for each end. A partition is the
number of each node's part, from 0 without gaps.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from itertools import count as count_from

import numpy as np
import pandas as pd
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.sparse import csr_array, triu

from modulekg_widgets.engine.errors import MissingPackageError, UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.knowledge.analysis.containment import Containment, containment
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.facts.tables import data_frame
from modulekg_widgets.engine.knowledge.facts.usage import structures_at_level

# -------------------- Modularity of a partition


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


# -------------------- Communities


TIE_TOLERANCE = 0.05  # terms whose shares differ by less are equally particular: the shorter one is taken
MIN_SECOND_SHARE = 0.1  # least share of a community that a second term has to add
MAX_TERM_LENGTH = 40  # characters of a term
SEPARATORS = "_-. "

Term = str
Terms = Mapping[str, Sequence[Term]]  # of each structure, each once


def community_names(contents: Contents, community_by_key: Mapping[str, int]) -> list[str]:
    """Returns a unique name for each community, by its number.

    A term is a family of models, a model or a class. It is as particular to a community as the share of the structures
    in it that have the term exceeds the share of those outside. One or two families name a community; where that name
    is another's too, one or two models do, then these with a class, with the number of structures, with a number that
    nothing else has. `community_by_key`: each structure's community by its fingerprint, from 0 without gaps.
    """
    parts: list[list[str]] = [[] for _ in range(max(community_by_key.values(), default=-1) + 1)]
    for key, number in community_by_key.items():
        parts[number].append(key)
    of_family, of_model, of_class = _families(contents), contents.holders, _classes(contents)
    totals = [_count_terms(community_by_key, terms) for terms in (of_family, of_model, of_class)]

    def grain(terms: Terms, total: Counter[Term], most: int) -> Callable[[int], list[Term]]:
        return lambda number: _distinctive_terms(parts[number], terms, total, len(community_by_key), most)

    by_family, by_model = grain(of_family, totals[0], 2), grain(of_model, totals[1], 2)
    by_class = grain(of_class, totals[2], 1)

    def with_class(number: int) -> str:
        return " ".join([_joined(by_model(number) or by_family(number)), *by_class(number)]).strip()

    steps: list[Callable[[int], str]] = [
        lambda number: _joined(by_family(number) or by_class(number)),
        lambda number: _joined(by_model(number) or by_class(number)),
        with_class,
        lambda number: f"{with_class(number)}, {len(parts[number])} structure{'s' * (len(parts[number]) > 1)}",
    ]
    return _distinct_names(len(parts), steps)


def _distinct_names(count: int, steps: Sequence[Callable[[int], str]]) -> list[str]:
    """Returns for each the first name that no other has, at last one with a number."""
    names: dict[int, str] = {}
    for step in steps:
        proposed = {number: step(number) for number in range(count) if number not in names}
        uses = Counter([*proposed.values(), *names.values()])
        names.update({number: name for number, name in proposed.items() if name and uses[name] == 1})
    for number in range(count):
        if number not in names:
            taken, longest = set(names.values()), steps[-1](number)
            names[number] = next(name for n in count_from(number) if (name := f"{longest}, no. {n}") not in taken)
    return [names[number] for number in range(count)]


def _distinctive_terms(members: list[str], terms: Terms, total: Counter[Term], size: int, most: int) -> list[Term]:
    """Returns the terms that distinguish a community from the others, each covering what those before it leave."""
    left, found = members, []
    outside = max(1, size - len(members))
    inside = _count_terms(members, terms)
    while left and len(found) < most:
        held = _count_terms(left, terms)
        shares = {
            term: count / len(members) - (total[term] - inside[term]) / outside for term, count in sorted(held.items())
        }
        best = max(shares.values(), default=0.0)
        if found and best < MIN_SECOND_SHARE:
            break
        near = [term for term, share in shares.items() if share > best - TIE_TOLERANCE and term not in found]
        if not near:
            break
        found.append(min(near, key=lambda term: (len(term), -shares[term], term)))
        left = [key for key in left if found[-1] not in terms[key]]
    return found


def _count_terms(keys: Iterable[str], terms: Terms) -> Counter[Term]:
    return Counter(chain.from_iterable(map(terms.__getitem__, keys)))


def _joined(terms: list[Term]) -> str:
    """Returns `swin_v2_b + s`: the common prefix of two terms is written once."""
    shown = [_shortened(term) for term in terms]
    if len(shown) < 2:
        return "".join(shown)
    first, second = shown
    same = next((at for at, (one, two) in enumerate(zip(first, second, strict=False)) if one != two), 0)
    end = max(first.rfind(separator, 0, same) for separator in SEPARATORS) + 1
    return f"{first} + {second[end:]}"


def _shortened(term: Term) -> str:
    half = MAX_TERM_LENGTH // 2 - 1
    return term if len(term) <= MAX_TERM_LENGTH else f"{term[:half]}…{term[-half:]}"


def _families(contents: Contents) -> Terms:
    family = {model.name: contents.modules[model.root].class_name for model in contents.models.values()}
    return {key: tuple(dict.fromkeys([family[name] for name in held])) for key, held in contents.holders.items()}


def _classes(contents: Contents) -> Terms:
    return {key: (node.class_name,) for key, node in contents.modules.items()}


# ----------------------------------------


LEIDEN_ITERATIONS = 10  # of Leiden; later ones gain less than another seed does


def communities(contents: Contents, method: str = "louvain", seed: int = 0, level: str | None = None) -> pd.DataFrame:
    """Returns the community of every structure, as `name`, `community`, `class`, `count` (occurrences).

    Communities are numbered from 0 by falling size; in each the most used come first. `attrs["modularity"]` is Newman's
    Q of the partition, `attrs["names"]` what is particular of each, see `community_names`. Containment counts once a
    pair, without direction. "louvain" is of Blondel et al. (2008); "leiden" (Traag et al. 2019) needs igraph. The same
    seed gives the same answer. With `level`, the structures that occur at that level of some model, in the communities
    of all. Raises `UnknownNameError` for another method or level or no seed, `MissingPackageError` where igraph is not
    installed.
    """
    among = structures_at_level(contents, level)
    number_of, modularity = detect_communities(contents, method, seed)
    names, uses = contents.names, contents.uses
    rows = [
        (names[key], number, contents.modules[key].class_name, uses[key])
        for key, number in number_of.items() if key in among
    ]  # fmt: skip
    rows.sort(key=lambda row: (row[1], -row[3], row[0]))
    found = data_frame(rows, ["name", "community", "class", "count"])
    found.attrs["modularity"] = modularity
    found.attrs["names"] = community_names(contents, number_of)
    return found


def detect_communities(contents: Contents, method: str = "louvain", seed: int = 0) -> tuple[dict[str, int], float]:
    """The number of each structure's community by its fingerprint, and the modularity; raises as `communities`."""
    if method not in tuple(COMMUNITY_METHODS):
        raise UnknownNameError(
            f"there is no method {printable(str(method))!r}: {closest_match_hint(str(method), COMMUNITY_METHODS)}"
        )
    if type(seed) is not int or seed < 0:
        raise UnknownNameError(f"a seed is a whole number from 0 on, got {printable(repr(seed))}")
    graph = containment(contents)
    links = adjacency(graph)
    parts = _by_size(COMMUNITY_METHODS[method](links, seed) if graph.counts else np.arange(len(graph.keys)))
    return dict(zip(graph.keys, parts.tolist(), strict=True)), modularity(links, parts)


def _by_size(parts: Partition) -> Partition:
    """Returns the partition numbered by falling size, equal sizes by their first node."""
    _, first, number_of, sizes = np.unique(parts, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -sizes))
    return np.argsort(order)[number_of]


def _leiden(links: csr_array, seed: int) -> Partition:
    try:
        import igraph
    except ImportError as error:
        raise MissingPackageError(
            "the method 'leiden' needs igraph: pip install 'modulekg-widgets[analysis]'"
        ) from error
    leaves = merge_leaves(links)
    merged_links = aggregate(links, leaves)
    half = csr_array(triu(merged_links, 1))
    ends = zip(row_indices(half).tolist(), half.indices.tolist(), strict=True)
    graph = igraph.Graph(n=number_of_nodes(half), edges=list(ends))
    igraph.set_random_number_generator(random.Random(seed))
    try:
        # modularity, with the degrees told: igraph would count what is inside of a node otherwise
        found = graph.community_leiden(
            "CPM",
            weights=half.data.tolist(),
            resolution=1 / float(links.sum()),
            node_weights=weighted_degrees(merged_links).tolist(),
            n_iterations=LEIDEN_ITERATIONS,
        )
    finally:
        igraph.set_random_number_generator(random)
    return np.array(found.membership)[leaves]


COMMUNITY_METHODS: dict[str, Callable[[csr_array, int], Partition]] = {"louvain": louvain, "leiden": _leiden}
