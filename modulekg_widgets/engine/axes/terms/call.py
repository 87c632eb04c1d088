"""The interface of axis rules: one operator call with its arguments, sizes and terms.

An axis rule is a function of a `Call`, registered with `@rule("aten::…")` (users: `@mk.axis_rule`). It reads arguments
by name (`call["dim"]`), the terms of tensors (`call.axes(node)`), and returns the terms of the results. On the way it
may unify dimensions, freeze them with a reason, split them into factors or parts, and make new ones. A rule never sees
a module or data, so that it can be tested alone. A rule that raises freezes everything that its operator touches.

    @rule("aten::diff")
    def diff(call):
        dims = call.axes(call["self"])
        call.freeze(dims[call["dim"]], "neighbours are compared")
        ...
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from modulekg_widgets.engine.axes.terms.algebra import (
    PRODUCT,
    SUM,
    Algebra,
    Term,
    atoms,
    find,
    product,
    reordered,
    sum_of_terms,
)
from modulekg_widgets.engine.axes.terms.index_semantics import INDICES, ChosenIndices, IndexBuffers
from modulekg_widgets.engine.operators.arguments import OperatorCall
from modulekg_widgets.engine.operators.traits import traits_of
from modulekg_widgets.engine.registry import Registry
from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode

Dims = list[Term]
MAX_OPERATORS_BETWEEN = 6  # operators, between a number that Python reads and its use on the same line


class Call(OperatorCall):
    """One call as its rule sees it; tensors are `DataNode`s, their dimensions are lists of terms.

    Of a user's operator that is like another one it reads as a call of that one, which is what its rule knows.
    """

    __slots__ = ("_algebra", "_dims", "_indices", "_roles", "chosen", "followed", "live")

    def __init__(
        self,
        operator: OperatorNode,
        algebra: Algebra,
        dims: Callable[[DataNode], Dims],
        roles: dict[Term, str],
        indices: IndexBuffers | None = None,
        chosen: ChosenIndices | None = None,
    ) -> None:
        super().__init__(operator)
        self.chosen = ChosenIndices() if chosen is None else chosen
        self.followed: set[DataNode] = set()  # the values that hold indices of an axis, of which the rule takes care
        self.live: Collection[OperatorNode] | None = None  # the operators that the outputs depend on, where it is known
        self._algebra = algebra
        self._dims = dims
        self._roles = roles
        self._indices = indices

    def is_read(self, node: DataNode) -> bool:
        """True if a result is used by an operator, or returned by the model."""
        return node.is_read

    def counts(self, node: DataNode) -> bool:
        """True if an output of the model depends on a result."""
        return (
            self.is_read(node) if self.live is None else node.is_output or any(o in self.live for o in node.consumers)
        )

    # -------------------------------------------------------------- terms

    def axes(self, node: DataNode) -> Dims:
        """The terms of the dimensions of a tensor; a new list."""
        return list(self._dims(node))

    def unify(self, a: Term, b: Term) -> None:
        """State that two dimensions are one index set."""
        self._algebra.unify(a, b)

    def unify_all(self, left: Sequence[Term], right: Sequence[Term]) -> None:
        """State it for dimensions in pairs."""
        for a, b in zip(left, right, strict=True):
            self._algebra.unify(a, b)

    def with_fresh_fillers(self, term: Term) -> Term:
        """Returns a uniform dimension with new atoms, so that it couples nothing."""
        return self._algebra.with_fresh_fillers(term)

    def unify_broadcast(self, node: DataNode, dims: Sequence[Term]) -> None:
        """Unifies the dimensions of `node` with `dims`, right-aligned as in broadcasting."""
        own = self.axes(node)
        for a, b in zip(reversed(own), reversed(dims), strict=False):
            if a.size == b.size:
                self._algebra.unify(a, b)

    def freeze(self, term: Term, text: str) -> None:
        """Freezes a dimension: its indices must not change, for the reason in `text`."""
        self._algebra.freeze(term, text)

    def freeze_all(self, terms: Sequence[Term], text: str) -> None:
        for term in terms:
            self._algebra.freeze(term, text)

    def fix_size(self, term: Term, text: str) -> None:
        """Say that the code does not run with another size of a dimension, whatever its indices are."""
        self._algebra.fixed_sizes.append((term, self._algebra.reason(text)))

    def frozen(self, size: int, text: str) -> Term:
        """A new dimension that may not change."""
        return self._algebra.fresh(size, frozen=text)

    def frozen_all(self, sizes: Sequence[int], text: str) -> Dims:
        return [self._algebra.fresh(size, frozen=text) for size in sizes]

    def filler(self, size: int, text: str) -> Term:
        """A new dimension along which all is equal; its size is fixed in the code."""
        return self._algebra.fresh(size, filler=text)

    def freeze_fillers(self, term: Term, text: str) -> None:
        """Freeze those atoms of a dimension that are fillers: their number is written into a shape."""
        for atom in atoms(term):
            if atom.filler is not None:
                self._algebra.freeze(atom, text)

    def new(self, size: int) -> Term:
        """A new free dimension."""
        return self._algebra.fresh(size)

    def product(self, *factors: Term) -> Term:
        """Dimensions merged, the first outermost."""
        return product(factors)

    def sum(self, *parts: Term) -> Term:
        """Dimensions laid end to end."""
        return sum_of_terms(parts)

    def factors(self, term: Term, *sizes: int) -> list[Term]:
        """Splits a dimension into factors of these sizes, the first outermost."""
        return self._algebra.split(term, PRODUCT, sizes)

    def parts(self, term: Term, *sizes: int) -> list[Term]:
        """Splits a dimension into consecutive parts of these sizes."""
        return self._algebra.split(term, SUM, sizes)

    def pick_by_buffer(self, term: Term, places: DataNode, at: int = 0) -> Term | None:
        """Returns the term of `term[indices]` for indices from a buffer of the model; None for other indices.

        `at` is the dimension of `places` along which they lie. The buffer follows the axis, and is written anew.
        """
        found = None if self._indices is None else self._indices.order(places, at, term.size)
        if found is None or self._indices is None:
            return None
        buffer, order = found
        count = buffer.shape[0]
        chosen = reordered(term, order)
        if count < term.size:
            chosen = self.parts(chosen, count, term.size - count)[0]
        self.unify(self.axes(buffer)[0], chosen)
        self._indices.note(buffer, self.operator, term, self._algebra)
        return chosen

    def choose(self, node: DataNode, term: Term, count: int = 1) -> None:
        """States that a result holds indices of `term`, of which `count` are chosen at once."""
        if count > 1:
            self.chosen.require_choice(term, count, self._algebra.reason(f"{count} indices are taken at once"))
        if self.is_read(node):
            self.chosen.note(node, term)

    def require_elements(self, dims: Sequence[Term], text: str, count: int = 2) -> None:
        """State that a statistic runs over all elements of these dimensions, and needs `count` of them."""
        self.chosen.require_elements(dims, count, self._algebra.reason(text))

    def chosen_axis(self, node: Any, kind: str = INDICES) -> Term | None:
        """Returns the axis whose indices a value holds, or None; the calling rule takes responsibility for it."""
        axis = self.chosen.axis_of(node, kind) if isinstance(node, DataNode) else None
        if axis is not None:
            self.followed.add(node)
        return axis

    def unify_with_index_axis(self, term: Term, places: object) -> bool:
        """True if `places` holds chosen indices of an axis; then `term` is unified with that axis."""
        axis = self.chosen_axis(places)
        if axis is None:
            return False
        self.unify_with_choice(term, axis)
        return True

    def follow_python_index(self, node: DataNode) -> bool:
        """True if Python reads a chosen index only for the next call on the same line, as in `weight[index]`.

        That is what `weight[index]` does; a permutation has yet to prove that it is the same number.
        """
        axis, operator = self.chosen.axis_of(node), self.operator
        if not isinstance(operator, OperatorNode):
            return False
        following = operator.graph.operators[operator.index + 1 :][:MAX_OPERATORS_BETWEEN]
        on_line = [each for each in following if each.source == operator.source]
        if axis is None or node.numel() != 1 or not on_line:
            return False
        if traits_of(on_line[0].overload).selects and on_line[0] is following[0]:
            self.chosen.selected[on_line[0]] = axis
        elif not self._is_one_hot_range_check(node, on_line):
            return False
        self.followed.add(node)
        self.chosen.read.setdefault(axis, operator)
        return True

    def _is_one_hot_range_check(self, node: DataNode, on_line: Sequence[OperatorNode]) -> bool:
        """True if the value is the minimum or maximum of the indices, read by `one_hot` to check their range."""
        made = node.producer
        return (
            made is not None and made.name == "aten::aminmax" and any(each.name == "aten::scatter_" for each in on_line)
        )

    def unify_with_choice(self, term: Term, axis: Term) -> None:
        """Unifies `term` with the axis that indices are chosen from; the excess of the longer one is frozen."""
        size = min(axis.size, term.size)
        first, *beyond = self.parts(term, size, term.size - size) if term.size > size else [term]
        other, *_ = self.parts(axis, size, axis.size - size) if axis.size > size else [axis]
        for rest in beyond:
            self.freeze(rest, "beyond the indices that can be chosen")
        self.unify(first, other)

    def replace_dim(self, node: DataNode, at: int, term: Term) -> None:
        """Replaces a dimension of a value that no other operator uses."""
        self._dims(node)[at] = term

    def role(self, term: Term, role: str) -> None:
        """Sets the role of an axis, as `heads`; the first role of an atom wins."""
        self._roles.setdefault(find(term), role)

    def dim(self, index: int, count: int) -> int:
        """A dimension's index counted from the front."""
        return index % count if count else 0


Rule = Callable[[Call], Any]
rules: Registry[Rule] = Registry("axis rule")
rule = rules.register
