"""Communities of structures by the method of Louvain or Leiden."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from itertools import count as count_from

import numpy as np
import pandas as pd
from scipy.sparse import csr_array, triu

from modulekg_widgets.engine.errors import MissingPackageError, UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.knowledge.analysis.containment import containment
from modulekg_widgets.engine.knowledge.analysis.modularity import (
    Partition,
    adjacency,
    aggregate,
    louvain,
    merge_leaves,
    modularity,
    number_of_nodes,
    row_indices,
    weighted_degrees,
)
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.facts.tables import data_frame
from modulekg_widgets.engine.knowledge.facts.usage import structures_at_level

# -------------------- Names of communities: the families, models or classes that are most distinctive of each


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
