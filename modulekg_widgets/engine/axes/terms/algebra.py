"""Terms, the symbolic expressions of dimensions, and their unification by union-find.

Every dimension of every tensor is a term over atoms. An atom is one index set, such as the output channels of a
convolution. A product is row-major, as after `flatten`; a sum is a concatenation, as after `cat`; a reordering is an
index by a constant buffer, as in a channel shuffle. `Algebra.unify(a, b)` states that two terms are one index set:
atoms are merged, and an atom that meets a composite is refined into it. Products align from the innermost factor, sums
from the left, and larger parts are split. Where two terms cannot be aligned, their atoms are frozen with a reason: the
analysis may lose an axis that could be pruned, and never frees one that could not.

>>> algebra = Algebra()
>>> heads, head_dim = Term(2), Term(4)
>>> channels = Term(8)
>>> algebra.unify(channels, product([heads, head_dim]))
>>> channels
(2 · 4)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.torch_runtime.modules import IndexedChildren

if TYPE_CHECKING:
    from modulekg_widgets.engine.tracing.dataflow import OperatorNode

MAX_FACTORS = 4  # of a product whose orders are tried
ATOM, PRODUCT, SUM, REORDERED = "", "·", "+", "∘"


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason why an axis must not change, with the operator that requires it."""

    text: str
    operator: OperatorNode | None = None
    order_only: bool = False  # the sizes agree, but how the indices lie to each other could not be followed

    @property
    def where(self) -> str:
        """The operator that says so, with its line; empty where none does."""
        return "" if self.operator is None else self.operator.where

    def __str__(self) -> str:
        return self.text if self.operator is None else f"{self.text}: {self.where}"


class Term:
    """One index set: an atom, a product (row-major) or a sum (laid end to end); linked to another one once merged.

    Or one term in another order: index i of it is index `order[i]` of its only part, as a buffer of indices says.

    `frozen` holds for atoms: the reason why the indices may not change. `filler` marks an atom born by a fill or an
    expansion: every permutation of it is sound, but its size stands in the code, so it is free only where it meets
    an atom of another origin. `lists` are of an atom whose index i goes with element i of these lists of modules:
    code that picks single indices picks these elements, so that is no reason to freeze it, nor takes it apart.
    """

    __slots__ = ("filler", "frozen", "kind", "link", "lists", "order", "parts", "size")

    def __init__(self, size: int, frozen: Reason | None = None, filler: Reason | None = None) -> None:
        self.size = size
        self.frozen = frozen
        self.filler = filler
        self.lists: tuple[IndexedChildren, ...] = ()
        self.link: Term | None = None
        self.kind = ATOM
        self.parts: list[Term] = []
        self.order: NDArray[np.int64] | None = None

    def __repr__(self) -> str:
        root = find(self)
        if root.kind == ATOM:
            return str(root.size)
        if root.kind == REORDERED:
            return f"reordered({flattened_parts(root)[0]!r})"
        return "(" + f" {root.kind} ".join(map(repr, flattened_parts(root))) + ")"


ONE = Term(1)  # a dimension of one index carries no choice: all of them are the same constant


def find(term: Term) -> Term:
    """The term that `term` has become."""
    root = term
    while root.link is not None:
        root = root.link
    while term.link is not None:
        term.link, term = root, term.link
    return root


def flattened_parts(term: Term) -> list[Term]:
    """The parts of a composite with what they have become, nested ones of its kind opened; an atom is its own part."""
    term = find(term)
    if term.kind == ATOM:
        return [term]
    kind = term.kind
    if kind == REORDERED:  # one inside another has an order of its own
        return [find(term.parts[0])]
    out: list[Term] = []
    waiting = list(reversed(term.parts))
    while waiting:
        part = find(waiting.pop())
        if part.kind == kind:
            waiting.extend(reversed(part.parts))
        elif not (part.size == 1 and kind == PRODUCT):
            out.append(part)
    term.parts = out
    return out


def atoms(term: Term) -> Iterator[Term]:
    """Yields the atoms of a term from left to right; an atom that occurs twice is yielded twice."""
    waiting = [find(term)]
    while waiting:
        part = waiting.pop()
        if part.kind == ATOM:
            yield part
        else:
            waiting.extend(reversed(flattened_parts(part)))


def product(parts: Iterable[Term]) -> Term:
    """The row-major product of terms; factors of size 1 vanish."""
    return _composite(PRODUCT, [part for part in map(find, parts) if part.size != 1])


def sum_of_terms(parts: Iterable[Term]) -> Term:
    """The terms laid end to end; empty ones vanish."""
    return _composite(SUM, [part for part in map(find, parts) if part.size != 0])


def reordered(term: Term, order: NDArray[np.int64]) -> Term:
    """The indices of a term in another order: the i-th is `order[i]` of `term`.

    Where that is the factors of a product in another order, it is said so.
    """
    term = find(term)
    if term.kind == REORDERED and term.order is not None:
        return reordered(term.parts[0], term.order[order])
    every = np.arange(term.size)
    if np.array_equal(order, every):
        return term
    factors = flattened_parts(term) if term.kind == PRODUCT else []
    if len(factors) <= MAX_FACTORS:
        grid = np.reshape(every, [factor.size for factor in factors] or [-1])
        for places in permutations(range(len(factors))):
            if np.array_equal(order, np.ravel(np.transpose(grid, places or [0]))):
                return product(factors[at] for at in places)  # as a channel shuffle does
    out = Term(term.size)
    out.kind, out.parts, out.order = REORDERED, [term], order
    return out


def _composite(kind: str, parts: list[Term]) -> Term:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return ONE if kind == PRODUCT else Term(0)
    sizes = [part.size for part in parts]
    out = Term(math.prod(sizes) if kind == PRODUCT else sum(sizes))
    out.kind = kind
    out.parts = parts
    flattened_parts(out)
    return out


def is_integer(value: object) -> bool:
    """True if the value is an integer of Python or NumPy (and not a bool)."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


class Algebra:
    """Unification of terms; `cause` is the operator at work, which every freezing names.

    While an idle operator is at work (`settled` is a set of atoms), of the settled atoms, those of what is used, sizes
    alone count: the order of their indices is no matter, so they are not frozen, and taken apart at most, never merged.

    What cannot be aligned is frozen: the analysis may lose an axis that could be cut, never free one that could not.
    """

    def __init__(self) -> None:
        self.cause: OperatorNode | None = None
        self.settled: set[Term] | None = None
        self.fillers = 0  # how many were made
        self.fixed_sizes: list[tuple[Term, Reason]] = []  # dimensions whose size stands in the code

    def reason(self, text: str) -> Reason:
        return Reason(text, self.cause)

    def freeze(self, term: Term, text: str | Reason) -> None:
        """Freezes every atom of `term`; an atom that is frozen already keeps its first reason."""
        self._freeze(term, text, () if self.settled is None else self.settled)

    def _freeze(self, term: Term, text: str | Reason, but: Collection[Term] = ()) -> None:
        reason = text if isinstance(text, Reason) else Reason(text, self.cause)
        for atom in atoms(term):
            if atom.frozen is None and atom.size > 1 and not atom.lists and atom not in but:
                atom.frozen = reason

    def fresh(self, size: int, frozen: str | None = None, filler: str | None = None) -> Term:
        """Returns a new atom, frozen or marked as filler for a reason; of size 1 it is the constant `ONE`."""
        if size == 1:
            return ONE
        self.fillers += filler is not None
        return Term(
            size, None if frozen is None else self.reason(frozen), None if filler is None else self.reason(filler)
        )

    def with_fresh_fillers(self, term: Term) -> Term:
        """Returns the term with new atoms in place of its fillers, so that uniform dimensions couple nothing."""
        term = find(term)
        if term.kind == ATOM:
            return term if term.filler is None else Term(term.size, term.frozen, term.filler)
        parts = [self.with_fresh_fillers(part) for part in flattened_parts(term)]
        if term.order is not None:
            return reordered(parts[0], term.order)
        return product(parts) if term.kind == PRODUCT else sum_of_terms(parts)

    def unify(self, a: Term, b: Term) -> None:
        """State that two terms are one index set."""
        a, b = find(a), find(b)
        if a is b or a.size == b.size == 1:
            return
        if a.size != b.size:
            self._freeze_both(a, b, f"sizes {a.size} and {b.size} meet")
        elif a.kind == ATOM or b.kind == ATOM:
            self._refine(*((a, b) if a.kind == ATOM else (b, a)))
        elif a.kind == REORDERED:
            self._unify_reordered(a, b)
        elif b.kind == REORDERED:
            self._unify_reordered(b, a)
        elif not self._align(a, b):
            self._freeze_unaligned(a, b)
        else:
            a, b = find(a), find(b)
            whole = self.settled is None  # else parts of them may have been left apart
            if whole and a is not b and not _occurs(a, b) and not _occurs(b, a):
                a.link = b

    def _unify_reordered(self, a: Term, b: Term) -> None:
        """Unifies the term below the reordering `a` with `b` in the inverse order."""
        assert a.order is not None
        below, other = find(a.parts[0]), reordered(b, np.argsort(a.order))
        if below.kind == ATOM or other.kind != REORDERED:
            self.unify(below, other)
        else:
            self._freeze_unaligned(a, b)

    def _freeze_unaligned(self, a: Term, b: Term) -> None:
        self._freeze_both(a, b, Reason(f"{a!r} and {b!r} cannot be aligned", self.cause, order_only=True))

    def _freeze_both(self, a: Term, b: Term, text: str | Reason) -> None:
        self._freeze(a, text)
        self._freeze(b, text)

    def _refine(self, atom: Term, term: Term) -> None:
        if self.settled is not None and atom in self.settled:
            if term.kind == ATOM and term not in self.settled:
                atom, term = term, atom
            elif not self.settled.isdisjoint(atoms(term)):
                return  # an idle operator wants two used axes of one size, and not in one order
            else:
                self.settled.update(atoms(term))
        if term.kind != ATOM and _occurs(atom, term):
            self._freeze(term, "the axis would contain itself")
            return
        if term.kind == ATOM:
            if term.filler is not None and atom.filler is None:
                atom, term = term, atom
        elif atom.filler is None:
            for part in atoms(term):
                part.filler = None
        atom.link = term
        if atom.lists and term.kind == ATOM:
            term.lists = tuple(dict.fromkeys((*term.lists, *atom.lists)))
            term.frozen = term.filler = None
        if atom.frozen is not None:
            self._freeze(term, atom.frozen)

    def split(self, term: Term, kind: str, sizes: Sequence[int]) -> list[Term]:
        """Splits `term` into a product or a sum of parts of these sizes (a part of size 1 is `ONE`)."""
        root = find(term)
        if root.lists and kind == SUM:
            return [self.fresh(size, "part of the modules of a list") for size in sizes]
        parts = [ONE if size == 1 else Term(size, filler=root.filler) for size in sizes]
        neutral = 1 if kind == PRODUCT else 0
        real = [part for part in parts if part.size != neutral]
        if len(real) == 1:
            return [term if part is real[0] else part for part in parts]
        self.unify(root, product(real) if kind == PRODUCT else sum_of_terms(real))
        return parts

    def _align(self, a: Term, b: Term) -> bool:
        if a.kind == b.kind:
            return self._align_parts(a.kind, flattened_parts(a), flattened_parts(b))
        return self._align_sum_with_product(a, b) if a.kind == SUM else self._align_sum_with_product(b, a)

    def _align_parts(self, kind: str, left: Sequence[Term], right: Sequence[Term]) -> bool:
        """Aligns two lists of parts, splitting the larger part: factors from the innermost, summands from the left."""
        order = 1 if kind == PRODUCT else -1  # the next parts stand at the end
        a, b = list(left[::order]), list(right[::order])
        while a and b:
            x, y = find(a.pop()), find(b.pop())
            if x.kind == kind or y.kind == kind:
                a.extend(flattened_parts(x)[::order] if x.kind == kind else [x])
                b.extend(flattened_parts(y)[::order] if y.kind == kind else [y])
                continue
            if x.size == y.size:
                self.unify(x, y)
                continue
            if x.size < y.size:
                a, b, x, y = b, a, y, x
            if kind == SUM:
                same, rest = self.split(x, SUM, [y.size, x.size - y.size])
            elif x.size % y.size == 0:
                rest, same = self.split(x, PRODUCT, [x.size // y.size, y.size])
            else:
                return False
            self.unify(same, y)
            a.append(rest)
        return not a and not b

    def _align_sum_with_product(self, summed: Term, multiplied: Term) -> bool:
        """Distribute over the outermost factor: (A + B)·H = A·H + B·H."""
        parts, factors = flattened_parts(summed), flattened_parts(multiplied)
        common = math.gcd(*(part.size for part in parts))
        inner, at = 1, len(factors)
        while at > 1 and common % (inner * factors[at - 1].size) == 0:
            at -= 1
            inner *= factors[at].size
        if inner == 1:
            return False
        outers = self.split(product(factors[:at]), SUM, [part.size // inner for part in parts])
        for part, outer in zip(parts, outers, strict=True):
            self.unify(part, product([outer, *factors[at:]]))
        return True


def _occurs(inner: Term, outer: Term) -> bool:
    waiting = [outer]
    while waiting:
        part = find(waiting.pop())
        if part is inner:
            return True
        if part.kind != ATOM:
            waiting.extend(flattened_parts(part))
    return False
