"""Expressions for the sizes of dimensions in the counts of axes, and sums of products of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.terms.algebra import ATOM, PRODUCT, Term, find, flattened_parts
from modulekg_widgets.engine.residuals.removable_blocks import NO_BLOCK
from modulekg_widgets.engine.tracing.dataflow import DataNode

Expression: TypeAlias = (
    "int | tuple[str | Expression, ...]"  # an axis by number, a constant n as -n, or ("*" | "+", parts …)
)
CountArray = NDArray[np.int64]  # how many indices stay, of all axes by their numbers
Floats = NDArray[np.float64]
PLUS, TIMES = "+", "*"


def is_constant(expression: Expression) -> bool:
    return isinstance(expression, int) and expression < 0


def parts_of(expression: Expression) -> Iterator[Expression]:
    """The parts of a sum or product; none for an axis or a constant."""
    if not isinstance(expression, int):
        yield from (part for part in expression[1:] if not isinstance(part, str))


def axes_of(expression: Expression) -> set[int]:
    """The numbers of the axes in an expression."""
    if isinstance(expression, int):
        return set() if expression < 0 else {expression}
    return set().union(*map(axes_of, parts_of(expression)))


def evaluate(expression: Expression, counts: CountArray) -> int:
    """The size of one dimension for the counts of all axes."""
    if isinstance(expression, int):
        return -expression if expression < 0 else int(counts[expression])
    parts = (evaluate(part, counts) for part in parts_of(expression))
    return math.prod(parts) if expression[0] == TIMES else sum(parts)


class ExpressionBuilder:
    """Builds expressions for the dimensions of a trace; atoms without an expression are constants."""

    def __init__(self, axes: Axes, atoms: Mapping[Term, Expression]) -> None:
        self.axes, self._atoms = axes, atoms
        self._built: dict[Term, Expression] = {}

    def dims(self, node: DataNode) -> list[Expression]:
        return [self.expression(term) for term in self.axes.inference.dims(node)]

    def expression(self, term: Term) -> Expression:
        term = find(term)
        if term not in self._built:
            self._built[term] = self._build(term)
        return self._built[term]

    def _build(self, term: Term) -> Expression:
        if term.kind == ATOM:
            return self._atoms.get(term, -term.size)
        parts = [self.expression(part) for part in flattened_parts(term)]
        constants = [-part for part in parts if isinstance(part, int) and part < 0]
        varying = [part for part in parts if not is_constant(part)]
        is_product = term.kind == PRODUCT
        constant = math.prod(constants) if is_product else sum(constants)
        if not varying:
            return -constant
        kept = [*varying, *([-constant] if constants and not (is_product and constant == 1) else [])]
        return kept[0] if len(kept) == 1 else (TIMES if is_product else PLUS, *kept)


def axis_expressions(axes: Axes) -> ExpressionBuilder:
    """The builder in which every axis that may be cut stands for itself."""
    return ExpressionBuilder(axes, {axis.term: axis.number for axis in axes.free})


def matching_expressions(counted: Axes, axes: Axes) -> ExpressionBuilder:
    """The builder for another trace of the model, whose atoms are matched by the dimensions of parameters."""
    builder = axis_expressions(axes)
    found: dict[Term, Expression] = {}
    waiting = [
        (counted.term(node.label, dim), axes.term(node.label, dim))
        for axis in counted
        for node, dim in axis.tensor_dims
        if node.label in axes.graph.state
    ]
    while waiting:
        own, other = (find(term) for term in waiting.pop())
        if own.kind == ATOM:
            expression = builder.expression(other)
            if not is_constant(expression):
                found.setdefault(own, expression)
        elif own.kind == other.kind:
            parts = list(zip(flattened_parts(own), flattened_parts(other), strict=False))
            if len(flattened_parts(own)) == len(flattened_parts(other)) and all(
                one.size == two.size for one, two in parts
            ):
                waiting += parts
    return ExpressionBuilder(counted, found)


class SizeTerm(NamedTuple):
    """One summand of a size: `factor` times the values of expressions, by their places in a list of them."""

    factor: float
    dims: tuple[int, ...]
    block: int = NO_BLOCK  # the innermost block that it goes with


class SumsOfProducts:
    """Sums of products of expressions, evaluated for many choices of counts at once.

    Every expression is a column of an array; columns are filled by depth, the sums and the products of one depth
    together.
    """

    def __init__(self, expressions: Sequence[Expression], sums: Sequence[Sequence[SizeTerm]]) -> None:
        self._columns: dict[Expression, int] = {}
        self._axes: list[tuple[int, int]] = []  # column, number of the axis
        self._constants: list[tuple[int, int]] = [(0, 1)]
        self._levels: dict[tuple[int, str], list[tuple[int, list[int]]]] = {}  # depth and kind: column, its parts
        self._count = 1
        columns = [self._add(expression)[0] for expression in expressions]
        self._steps = [
            (
                np.multiply if kind == TIMES else np.add,
                np.array([column for column, _ in entries]),
                np.concatenate([parts for _, parts in entries]),
                np.cumsum([0, *(len(parts) for _, parts in entries[:-1])]),
            )
            for (_, kind), entries in sorted(self._levels.items())
        ]
        own = np.array(self._axes, dtype=np.int64).reshape(-1, 2)
        self._axis_columns, self._axis_numbers = own[:, 0], own[:, 1]
        self._factors = [np.array([term.factor for term in terms], dtype=np.float64) for terms in sums]
        self._blocks = [np.array([term.block for term in terms], dtype=np.int64) for terms in sums]
        self._products: list[CountArray] = []  # the columns of each term, filled up with the column of ones
        for terms in sums:
            most = max((len(term.dims) for term in terms), default=0)
            filled = [[columns[at] for at in term.dims] + [0] * (most - len(term.dims)) for term in terms]
            self._products.append(np.array(filled, dtype=np.int64).reshape(len(terms), most))

    def _add(self, expression: Expression) -> tuple[int, int]:
        """The column and the depth of an expression."""
        if isinstance(expression, int):
            if expression not in self._columns:
                self._columns[expression] = self._count
                (self._constants if expression < 0 else self._axes).append((self._count, abs(expression)))
                self._count += 1
            return self._columns[expression], 0
        inside = [self._add(part) for part in parts_of(expression)]
        depth = 1 + max(depth for _, depth in inside)
        if expression not in self._columns:
            self._columns[expression] = self._count
            kind = TIMES if expression[0] == TIMES else PLUS
            self._levels.setdefault((depth, kind), []).append((self._count, [column for column, _ in inside]))
            self._count += 1
        return self._columns[expression], depth

    def evaluate(self, counts: CountArray, removed_blocks: Collection[int] = ()) -> Floats:
        """(choices, sums) for the counts (choices, axes), without the terms of some blocks."""
        values = np.empty((len(counts), self._count))
        for column, constant in self._constants:
            values[:, column] = constant
        values[:, self._axis_columns] = counts[:, self._axis_numbers]
        for kind, columns, parts, starts in self._steps:
            values[:, columns] = kind.reduceat(values[:, parts], starts, axis=1)
        found = np.zeros((len(counts), len(self._factors)))
        for at, (factors, blocks, products) in enumerate(zip(self._factors, self._blocks, self._products, strict=True)):
            if removed_blocks:
                factors = np.where(np.isin(blocks, list(removed_blocks)), 0.0, factors)
            terms = np.repeat(factors[None], len(counts), axis=0)
            for columns in products.T:
                terms *= values[:, columns]
            found[:, at] = terms.sum(axis=1)
        return found
