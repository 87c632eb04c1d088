"""The FLOPs of one operator as products of dimensions: by its cost at small sizes, or cell by cell."""

from __future__ import annotations

import copy
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar, cast

import numpy as np

from modulekg_widgets.engine.operators.arguments import OperatorCall
from modulekg_widgets.engine.operators.cost import OperationKind, operator_flops
from modulekg_widgets.engine.operators.formulas import FLOPS_PER_STEP, elementwise_parts, recurrent_cells
from modulekg_widgets.engine.operators.traits import RECURRENT, traits_of
from modulekg_widgets.engine.pruning.plan.sizes.expressions import (
    CountArray,
    Expression,
    ExpressionBuilder,
    Floats,
    axes_of,
    evaluate,
    is_constant,
)
from modulekg_widgets.engine.torch_runtime.pytree import with_leaves
from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode

SAMPLE_POINTS = (1, 2, 3)  # no operator's cost is of a higher degree than 2 in one dimension
MAX_DIMENSIONS = 4  # of one operator that vary, each on its own
Products = dict[tuple[Expression, ...], float]  # factors of products of dimensions
ShapeOf = Callable[[DataNode], tuple[int, ...]]
Value = TypeVar("Value")


def operator_resizer(shape_of: ShapeOf) -> Callable[[OperatorNode], OperatorNode]:
    """A function that returns a recorded operator with all values in the shapes of `shape_of`."""
    resized: dict[DataNode, DataNode] = {}

    def with_shape(node: DataNode) -> DataNode:
        if node not in resized:
            resized[node] = made = copy.copy(node)
            made.shape = shape_of(node)
        return resized[node]

    def with_shapes(value: Value) -> Value:
        return with_leaves(value, DataNode, with_shape)

    return lambda operator: replace(
        operator,
        args=with_shapes(operator.args),
        kwargs=with_shapes(operator.kwargs),
        inputs=with_shapes(operator.inputs),
        outputs=with_shapes(operator.outputs),
        result=with_shapes(operator.result),
    )


def operator_products(
    operator: OperatorNode, asked: int | None, pairs: bool, builder: ExpressionBuilder
) -> Products | None:
    """The FLOPs of an operator as products with factors; None if they are no polynomial.

    `pairs`: they are of multiply-adds.
    """
    if not asked:
        return {}
    if traits_of(operator.overload).layer == RECURRENT and OperatorCall(operator).has("params"):
        return _recurrent_products(operator, builder)
    nodes = dict.fromkeys([*operator.inputs, *operator.outputs])
    dims = {node: builder.dims(node) for node in nodes}
    if pairs and all(node.dim() <= 2 for node in operator.inputs):  # a product of matrices
        dims = _unified_inner_dims(operator, dims)
    varying = list(dict.fromkeys(dim for every in dims.values() for dim in every if not is_constant(dim)))
    if not varying:
        return {(): float(asked)}
    if len(varying) > MAX_DIMENSIONS:
        return None
    sizes = {dim: size for node, every in dims.items() for dim, size in zip(every, node.shape, strict=True)}
    full = {dim: sizes[dim] for dim in varying}
    cost = _cost_by_size(operator, dims, full)
    grid = np.array([cost(point) for point in itertools.product(SAMPLE_POINTS, repeat=len(varying))], dtype=object)
    if any(value is None for value in grid):
        return None
    found = _coefficients(grid.astype(np.float64).reshape([len(SAMPLE_POINTS)] * len(varying)))
    costs = {
        tuple(itertools.chain.from_iterable([varying[at]] * power for at, power in enumerate(powers))): float(factor)
        for powers, factor in np.ndenumerate(found)
        if factor
    }
    at_full = sum(factor * math.prod(full[dim] for dim in product) for product, factor in costs.items())
    return costs if abs(at_full - asked) <= 1e-9 * asked else None


def _recurrent_products(operator: OperatorNode, builder: ExpressionBuilder, matmul: bool = True) -> Products:
    """The FLOPs of a recurrent layer, cell by cell; without `matmul` those outside of its matrix products."""
    call, found = OperatorCall(operator), defaultdict[tuple[Expression, ...], float](float)
    steps = builder.dims(call.inputs[0])[:-1]

    def add(factor: float, dims: Sequence[Expression]) -> None:
        constants = [-dim for dim in dims if isinstance(dim, int) and dim < 0]
        found[tuple(dim for dim in dims if not is_constant(dim))] += factor * math.prod(constants)

    transposed = call.get("batch_first") and call["has_biases"] and min(call.inputs[0].shape[:2]) > 1
    first = 2 if call["bidirectional"] else 1
    for at, cell in enumerate(cast("list[list[DataNode]]", recurrent_cells(call))):
        weights = [node for node in cell if node.dim() == 2]
        dims = [builder.dims(node) for node in weights]
        for own in dims if matmul else ():
            add(2, (*steps, *own))
        add(FLOPS_PER_STEP[call.name], (*steps, dims[-1][-1]))
        if transposed and at < first:
            add(1, (*steps, dims[0][0]))
    return dict(found)


def elementwise_products(operator: OperatorNode, builder: ExpressionBuilder) -> Products:
    """The FLOPs of an operator outside of its matrix products."""
    return _recurrent_products(operator, builder, matmul=False) if operator.name in elementwise_parts else {}


def _unified_inner_dims(
    operator: OperatorNode, dims: Mapping[DataNode, list[Expression]]
) -> dict[DataNode, list[Expression]]:
    """Dimensions in which a constant inner size of a matrix product follows the other operand.

    So are first states of zeros, whose size is a number in the code that follows the size of what they meet.
    """
    kept = {dim for node in operator.outputs for dim in dims[node]}
    summed: dict[int, set[Expression]] = {}
    for node in operator.inputs:
        for dim, size in zip(dims[node], node.shape, strict=True):
            if not is_constant(dim):
                summed.setdefault(size, set()).add(dim)
    alike: dict[Expression, Expression] = {}
    for size, own in summed.items():
        likely = own - kept or own  # a square weight has one size on both sides
        if len(likely) == 1 and -size not in kept:
            alike[-size] = next(iter(likely))
    inputs = set(operator.inputs)
    return {node: [alike.get(dim, dim) if node in inputs else dim for dim in own] for node, own in dims.items()}


def _cost_by_size(
    operator: OperatorNode, dims: Mapping[DataNode, list[Expression]], full: Mapping[Expression, int]
) -> Callable[[Sequence[int]], int | None]:
    """A function that returns the cost for sizes of the varying dimensions."""

    def cost(point: Sequence[int]) -> int | None:
        sizes = dict(zip(full, point, strict=True))

        def shape_of(node: DataNode) -> tuple[int, ...]:
            return tuple(sizes.get(dim, size) for dim, size in zip(dims[node], node.shape, strict=True))

        return operator_flops(operator_resizer(shape_of)(operator))

    return cost


def _coefficients(grid: Floats) -> Floats:
    """The coefficients of a polynomial from its values at `SAMPLE_POINTS`."""
    inverse = np.array([[3, -3, 1], [-2.5, 4, -1.5], [0.5, -1, 0.5]])  # of the powers of 1, 2, 3
    for at in range(grid.ndim):
        grid = np.moveaxis(np.tensordot(inverse, grid, axes=(1, at)), 0, at)
    return np.where(np.abs(grid) < 1e-6, 0.0, grid)


class NonPolynomialCost:
    """An operator whose cost is no polynomial, counted on values of the sizes in question."""

    def __init__(
        self, operator: OperatorNode, flops: int, kind: OperationKind, builder: ExpressionBuilder, full: CountArray
    ) -> None:
        self.operator = operator
        self.flops = flops  # at the full sizes
        self._full = full
        self._shares = {"flops": 1.0, "macs": kind.pairs / 2, "matmul_flops": float(kind.products)}
        self._dims = {node: builder.dims(node) for node in dict.fromkeys([*operator.inputs, *operator.outputs])}
        self._axes = sorted(set[int]().union(*(axes_of(dim) for dims in self._dims.values() for dim in dims)))
        self._known: dict[bytes, float] = {}

    def added(self, counts: CountArray, unit: str) -> float:
        """The cost with these counts in a unit, minus that of the whole model."""
        own = counts[self._axes]
        key = own.tobytes()
        if key not in self._known:
            sizes = self._full.copy()
            sizes[self._axes] = own

            def shape_of(node: DataNode) -> tuple[int, ...]:
                dims = self._dims.get(node)
                return node.shape if dims is None else tuple(evaluate(dim, sizes) for dim in dims)

            found = operator_flops(operator_resizer(shape_of)(self.operator))
            self._known[key] = 0.0 if found is None else float(found - self.flops)
        return self._known[key] * self._shares.get(unit, 0.0)
