"""Sizes of a model for many choices at once: `SizeTerms` evaluated on arrays of counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.operators.cost import operator_flops
from modulekg_widgets.engine.pruning.plan.sizes.size_terms import (
    PLUS,
    TIMES,
    Cost,
    DetailedSizeTerms,
    Expression,
    NonPolynomialCost,
    detailed_size_terms,
    evaluate,
    operator_resizer,
)
from modulekg_widgets.engine.tracing.dataflow import DataNode

CountArray = NDArray[np.int64]  # how many indices stay, of all axes by their numbers
Floats = NDArray[np.float64]
COST_UNITS = ("flops", "matmul_flops", "macs", "latency")  # the units that the operators are asked for


class SizeFormula:
    """The sizes of a traced model in some units, as a function of the counts.

    An operator whose cost is no polynomial is counted on values of the sizes in question. `times`: for the unit
    "latency", the nanoseconds that each operator took, by its number.
    """

    def __init__(
        self, axes: Axes, counted: Axes | None, units: Sequence[str], times: Mapping[int, float] | None = None
    ) -> None:
        self.units = tuple(units)
        self.full: CountArray = np.array([axis.size for axis in axes], dtype=np.int64)
        written = detailed_size_terms(axes, counted, any(unit in COST_UNITS for unit in units), times)
        self._values = _ExpressionValues(written.terms.terms, len(self.full))
        self._sums = [_SumOfProducts(_products_of_unit(written, unit), self._values) for unit in units]
        self._others = [_NonPolynomialTerm(other, self.full.tolist()) for other in written.others]
        self.before: Floats = self.sizes(self.full)

    def sizes(self, counts: CountArray) -> Floats:
        """(units,) for the counts (axes,), or (choices, units) for (choices, axes)."""
        several = np.atleast_2d(counts)
        values = self._values.evaluate(several)
        found = np.stack([each.evaluate(values) for each in self._sums], axis=1)
        for other in self._others:
            more = np.array([other.difference(choice) for choice in several])
            for at, unit in enumerate(self.units):
                found[:, at] += more * other.share_of_unit(unit)
        return found if counts.ndim > 1 else found[0]

    def savings(self, numbers: Sequence[int], unit: str) -> Floats:
        """The saving of each axis when it loses its first index, relative to the model: (axes,)."""
        at = self.units.index(unit)
        choices = np.repeat(self.full[None], len(numbers), axis=0)
        choices[np.arange(len(numbers)), list(numbers)] -= 1
        if not len(numbers):
            return np.empty(0)
        return (self.before[at] - self.sizes(choices)[:, at]) / max(self.before[at], 1.0)


def _products_of_unit(terms: DetailedSizeTerms, unit: str) -> list[Cost]:
    if unit == "flops":
        return list(terms.terms.flops)
    if unit == "macs":
        return list(terms.macs)
    if unit == "matmul_flops":
        return list(terms.matmul)
    if unit == "latency":
        return list(terms.times)
    tensors = terms.terms.tensors
    if unit == "params":
        return [Cost(tensor.factor, tensor.terms) for tensor in tensors if tensor.is_parameter]
    return [Cost(tensor.factor * tensor.itemsize, tensor.terms) for tensor in tensors]


class _ExpressionValues:
    """The values of expressions by column, evaluated by depth."""

    def __init__(self, terms: Sequence[Expression], axes: int) -> None:
        self._columns: dict[Expression, int] = {}
        self._axes: list[tuple[int, int]] = []  # column, number of the axis
        self._constants: list[tuple[int, int]] = [(0, 1)]
        self._levels: dict[tuple[int, str], list[tuple[int, list[int]]]] = {}  # depth and kind: column, its parts
        self._count = 1
        self.columns = [self._add(term)[0] for term in terms]
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
        self._own, self._numbers = own[:, 0], own[:, 1]

    def _add(self, term: Expression) -> tuple[int, int]:
        """The column and the depth of an expression."""
        if isinstance(term, int):
            if term not in self._columns:
                self._columns[term] = self._count
                (self._constants if term < 0 else self._axes).append((self._count, abs(term)))
                self._count += 1
            return self._columns[term], 0
        inside = [self._add(part) for part in term[1:]]
        depth = 1 + max(depth for _, depth in inside)
        if term not in self._columns:
            self._columns[term] = self._count
            kind = TIMES if term[0] == TIMES else PLUS
            self._levels.setdefault((depth, kind), []).append((self._count, [column for column, _ in inside]))
            self._count += 1
        return self._columns[term], depth

    def evaluate(self, counts: CountArray) -> Floats:
        """(choices, columns) for counts (choices, axes)."""
        values = np.empty((len(counts), self._count))
        for column, constant in self._constants:
            values[:, column] = constant
        values[:, self._own] = counts[:, self._numbers]
        for kind, columns, parts, starts in self._steps:
            values[:, columns] = kind.reduceat(values[:, parts], starts, axis=1)
        return values


class _SumOfProducts:
    """A sum of products of expressions."""

    def __init__(self, products: Sequence[Cost], values: _ExpressionValues) -> None:
        most = max((len(product.terms) for product in products), default=0)
        columns = [[values.columns[at] for at in product.terms] for product in products]
        self._columns = np.array([own + [0] * (most - len(own)) for own in columns], dtype=np.int64)
        self._factors = np.array([product.factor for product in products], dtype=np.float64)
        self._most = most

    def evaluate(self, values: Floats) -> Floats:
        """(choices,)."""
        if not len(self._factors):
            return np.zeros(len(values))
        found = np.repeat(self._factors[None], len(values), axis=0)
        for at in range(self._most):
            found *= values[:, self._columns[:, at]]
        return found.sum(axis=1)


class _NonPolynomialTerm:
    """The cost of an operator without a polynomial formula, cached by sizes."""

    def __init__(self, cost: NonPolynomialCost, full: Sequence[int]) -> None:
        self._full = full
        self._other = cost
        self._axes = sorted({axis for dims in cost.dims.values() for dim in dims for axis in _axes_in(dim)})
        self._known: dict[tuple[int, ...], float] = {}

    def share_of_unit(self, unit: str) -> float:
        """The factor of its FLOPs in a unit."""
        kind = self._other.kind
        return {"flops": 1.0, "macs": kind.pairs / 2, "matmul_flops": float(kind.products)}.get(unit, 0.0)

    def difference(self, counts: CountArray) -> float:
        """The cost with these counts, minus that of the whole model."""
        key = tuple(counts[self._axes].tolist())
        if key not in self._known:
            by_number = dict(zip(self._axes, key, strict=True))

            def shape_of(node: DataNode) -> tuple[int, ...]:
                dims = self._other.dims.get(node)
                return node.shape if dims is None else tuple(evaluate(dim, by_number, self._full) for dim in dims)

            found = operator_flops(operator_resizer(shape_of)(self._other.operator))
            self._known[key] = 0.0 if found is None else float(found - self._other.flops)
        return self._known[key]


def _axes_in(expression: Expression) -> list[int]:
    if isinstance(expression, int):
        return [] if expression < 0 else [expression]
    return [axis for part in expression[1:] for axis in _axes_in(part)]
