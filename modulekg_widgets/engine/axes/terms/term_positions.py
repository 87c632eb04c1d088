"""Terms as positions: the indices of an atom in a dimension, and the masks and permutations that follow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.axes.terms.algebra import (
    ATOM,
    PRODUCT,
    REORDERED,
    SUM,
    Term,
    find,
    flattened_parts,
    product,
    sum_of_terms,
)

Ints = NDArray[np.int64]
Occurrence = tuple[Term | None, Ints]  # an atom (None: the branch of a sum) and its index at each position, else -1


def format_term(term: Term, label: Callable[[Term], str]) -> str:
    """The term in the notation of einops: `(heads=12 head_dim=64)`, sums with +, runs of single indices as a number."""
    term = find(term)
    if term.kind == ATOM:
        return f"{label(term)}={term.size}" if term.size != 1 else "1"
    if term.kind == PRODUCT:
        return f"({' '.join(format_term(part, label) for part in flattened_parts(term))})"
    if term.kind == REORDERED:
        return f"reordered({format_term(flattened_parts(term)[0], label)})"
    inside: list[str] = []
    for single, run in groupby(flattened_parts(term), lambda part: part.size == 1):
        parts = list(run)
        inside += [str(len(parts))] if single else [format_term(part, label) for part in parts]
    return inside[0] if len(inside) == 1 else f"({' + '.join(inside)})"


def subterms(term: Term) -> list[Term]:
    """A term, its parts at every depth, and the runs of factors in it."""
    term = find(term)
    if term.kind == ATOM:
        return [term]
    parts = flattened_parts(term)
    found = [term]
    if term.kind == PRODUCT:
        count = len(parts)
        runs = [(start, end) for start in range(count) for end in range(start + 2, count + 1) if end - start < count]
        found += [product(parts[start:end]) for start, end in runs]
    for part in parts:
        found += subterms(part)
    return found


def adjacent_summands(term: Term) -> list[Term]:
    """The runs of several summands of a term, but for all of them."""
    parts = flattened_parts(term) if find(term).kind == SUM else []
    count = len(parts)
    runs = [(start, end) for start in range(count) for end in range(start + 2, count + 1) if end - start < count]
    return [sum_of_terms(parts[start:end]) for start, end in runs]


def leading_factors(term: Term, size: int) -> Term | None:
    """The outermost factors that make `size` together; None where no run of them does."""
    factors = flattened_parts(term) if find(term).kind == PRODUCT else [find(term)]
    for count in range(1, len(factors) + 1):
        if math.prod(factor.size for factor in factors[:count]) == size:
            return product(factors[:count])
    return None


def occurrences(term: Term) -> list[Occurrence]:
    """Every atom of a term with its index at each position, in the order of writing."""
    term = find(term)
    if term.kind == ATOM:
        return [] if term.size == 1 else [(term, np.arange(term.size))]
    parts = flattened_parts(term)
    if term.kind == PRODUCT:
        out: list[Occurrence] = []
        outer, inner = 1, term.size
        for part in parts:
            inner //= part.size
            out += [(atom, np.tile(np.repeat(index, inner), outer)) for atom, index in occurrences(part)]
            outer *= part.size
        return out
    if term.order is not None:
        return [(atom, index[term.order]) for atom, index in occurrences(parts[0])]
    branch = np.repeat(np.arange(len(parts)), [part.size for part in parts])
    summed: list[Occurrence] = [(None, branch)]
    start = 0
    for part in parts:
        for atom, index in occurrences(part):
            full = np.full(term.size, -1)
            full[start : start + part.size] = index
            summed.append((atom, full))
        start += part.size
    return summed


def positions(term: Term, atom: Term, rank: Callable[[Term], int]) -> Ints:
    """(atom.size, k): row i holds the positions of index i, ordered by the other atoms' indices in the order of `rank`.

    The order of the columns depends on the other atoms alone, so it is the same in every dimension that they share.
    """
    every = occurrences(term)
    own = [index for other, index in every if other is atom]
    if not own:
        return np.empty((atom.size, 0), dtype=np.int64)
    keys = [np.where(index < 0, term.size, index) for index in _ranked(every, atom, rank)]
    if _overlap(own):
        # an atom stands twice in one product: a position belongs to each of its indices
        return np.stack(
            [np.flatnonzero(reduce(np.logical_or, [index == i for index in own])) for i in range(atom.size)]
        )
    index = reduce(np.maximum, own)
    order = np.lexsort([np.arange(len(index)), *reversed(keys), index])
    return np.reshape(order[np.count_nonzero(index < 0) :], (atom.size, -1))


def _overlap(own: list[Ints]) -> bool:
    return len(own) > 1 and bool(np.any(sum((index >= 0).astype(np.int64) for index in own) > 1))


def _ranked(every: list[Occurrence], atom: Term, rank: Callable[[Term], int]) -> list[Ints]:
    """Returns the indices of the other atoms in order of significance, with branches before their first atom."""
    keyed: list[tuple[float, int, Ints]] = []
    for at, (other, index) in enumerate(every):
        if other is None:
            behind = [rank(a) for a, _ in every[at + 1 :] if a is not None]
            keyed.append((min(behind, default=0) - 0.5, at, index))
        elif other is not atom:
            keyed.append((rank(other), at, index))
    return [index for _, _, index in sorted(keyed, key=lambda entry: entry[:2])]


def keep_mask(term: Term, keeps: Mapping[Term, NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """Returns the boolean mask of the remaining positions, given the masks of the atoms."""
    term = find(term)
    if term.kind == ATOM:
        keep = keeps.get(term)
        return np.ones(term.size, dtype=bool) if keep is None else keep
    parts = [keep_mask(part, keeps) for part in flattened_parts(term)]
    if term.kind == PRODUCT:
        return reduce(lambda outer, inner: np.ravel(outer[:, None] & inner), parts)
    return np.concatenate(parts) if term.order is None else parts[0][term.order]


def remaining_size(term: Term, counts: Mapping[Term, int]) -> int:
    """Returns the remaining size of a term, given the remaining sizes of its atoms."""
    term = find(term)
    if term.kind == ATOM:
        return counts.get(term, term.size)
    parts = [remaining_size(part, counts) for part in flattened_parts(term)]
    return math.prod(parts) if term.kind == PRODUCT else sum(parts)


def permuted_positions(term: Term, orders: Mapping[Term, Ints]) -> Ints:
    """The positions to read from when each atom's indices are put in a new order."""
    term = find(term)
    if term.kind == ATOM:
        order = orders.get(term)
        return np.arange(term.size) if order is None else order
    parts = [permuted_positions(part, orders) for part in flattened_parts(term)]
    if term.kind == PRODUCT:
        return reduce(lambda outer, inner: np.ravel(outer[:, None] * len(inner) + inner), parts)
    if term.order is not None:
        return np.argsort(term.order)[parts[0][term.order]]
    starts = np.cumsum([0, *(len(part) for part in parts[:-1])])
    return np.concatenate([part + start for part, start in zip(parts, starts, strict=True)])
