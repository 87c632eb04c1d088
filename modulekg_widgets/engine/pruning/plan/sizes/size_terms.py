"""The size of a model as sums of products of axis counts: parameters, bytes and FLOPs."""

from __future__ import annotations

import copy
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np

from modulekg_widgets.engine.axes.axis import Axes, Axis, ListElements
from modulekg_widgets.engine.axes.terms.algebra import ATOM, PRODUCT, Term, find, flattened_parts
from modulekg_widgets.engine.operators.arguments import OperatorCall
from modulekg_widgets.engine.operators.cost import OperationKind, flops_and_kind, operator_flops
from modulekg_widgets.engine.operators.formulas import FLOPS_PER_STEP, elementwise_parts, recurrent_cells
from modulekg_widgets.engine.operators.traits import RECURRENT, traits_of
from modulekg_widgets.engine.residuals.removable_blocks import NO_BLOCK, NestedBlocks
from modulekg_widgets.engine.torch_runtime.pytree import with_leaves
from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode

# -------------------- Recorded operators on values of other shapes, for counting their cost


Shape = tuple[int, ...]


def operator_resizer(shape_of: Callable[[DataNode], Shape]) -> Callable[[OperatorNode], OperatorNode]:
    """A function that returns an operator with all values in the shapes of `shape_of`."""
    twins: dict[DataNode, DataNode] = {}

    def twin(node: DataNode) -> DataNode:
        if node not in twins:
            twins[node] = made = copy.copy(node)
            made.shape = shape_of(node)
        return twins[node]

    def with_twins(value: Any) -> Any:
        return with_leaves(value, DataNode, twin)

    def resized(operator: OperatorNode) -> OperatorNode:
        return replace(
            operator,
            args=with_twins(operator.args),
            kwargs=with_twins(operator.kwargs),
            inputs=with_twins(operator.inputs),
            outputs=with_twins(operator.outputs),
            result=with_twins(operator.result),
        )

    return resized


# ----------------------------------------


Expression = int | tuple[Any, ...]  # an axis by its number, a constant n as -n, or ("*" | "+", parts …)
SAMPLE_POINTS = (1, 2, 3)  # no operator's cost is of a higher degree than 2 in one dimension
MAX_DIMENSIONS = 4  # of one operator that vary, each on its own
PLUS, TIMES = "+", "*"
_Costs = defaultdict[tuple[tuple[int, ...], int], float]  # by terms and block


class TensorSize(NamedTuple):
    """The number of elements of a parameter or buffer: `factor` times its terms.

    Of one that goes with an element of a list it is the mean over the elements: each may be the one that goes.
    """

    name: str
    is_parameter: bool
    itemsize: int  # bytes of an element
    factor: float
    terms: tuple[int, ...]  # places in `SizeTerms.terms`
    block: int = NO_BLOCK  # the innermost block that it goes with


class Cost(NamedTuple):
    """One summand of the FLOPs: `factor` times its terms."""

    factor: float
    terms: tuple[int, ...]
    block: int = NO_BLOCK  # the innermost block that it goes with


class ModelSizes(NamedTuple):
    """The sizes of a model; FLOPs count a multiply-add as 2."""

    params: int
    flops: int
    bytes: int  # parameters and buffers


@dataclass(frozen=True, slots=True)
class SizeTerms:
    """The size formulas of a traced model; axes are referred to by number."""

    terms: tuple[Expression, ...]
    tensors: tuple[TensorSize, ...]
    flops: tuple[Cost, ...]
    is_exact: bool  # whether the FLOPs are; the cost of an operator without a formula in sizes counts as it is

    def sizes(self, counts: Mapping[int, int], full: Sequence[int], removed_blocks: Collection[int] = ()) -> ModelSizes:
        """The sizes for these counts, without the removed blocks.

        `full` has the sizes of all axes.
        """
        values = [evaluate(term, counts, full) for term in self.terms]

        def product(places: Sequence[int]) -> int:
            return math.prod(values[place] for place in places)

        tensors = [tensor for tensor in self.tensors if tensor.block not in removed_blocks]
        elements = [(tensor, tensor.factor * product(tensor.terms)) for tensor in tensors]
        return ModelSizes(
            params=round(sum(count for tensor, count in elements if tensor.is_parameter)),
            flops=round(
                sum(cost.factor * product(cost.terms) for cost in self.flops if cost.block not in removed_blocks)
            ),
            bytes=round(sum(tensor.itemsize * count for tensor, count in elements)),
        )


class NonPolynomialCost(NamedTuple):
    """An operator without a polynomial cost, counted on values of the actual sizes."""

    operator: OperatorNode
    dims: dict[DataNode, list[Expression]]
    flops: int  # at the full sizes, as `SizeTerms` has it
    kind: OperationKind


@dataclass(frozen=True, slots=True)
class DetailedSizeTerms:
    """The size formulas with the units that only the kernel uses."""

    terms: SizeTerms
    macs: tuple[Cost, ...]
    matmul: tuple[Cost, ...]  # the FLOPs of matrix products and convolutions
    others: tuple[NonPolynomialCost, ...]
    times: tuple[Cost, ...]  # nanoseconds, by what is known of the operators


def evaluate(term: Expression, counts: Mapping[int, int], full: Sequence[int]) -> int:
    """The size of a dimension for these counts."""
    if isinstance(term, int):
        return -term if term < 0 else counts.get(term, full[term])
    parts = (evaluate(part, counts, full) for part in term[1:])
    return math.prod(parts) if term[0] == TIMES else sum(parts)


def size_terms(axes: Axes, counted: Axes | None = None, blocks: NestedBlocks | None = None) -> SizeTerms:
    """The size formulas of a traced model; `counted` are the axes of the trace whose FLOPs count.

    With `blocks` each part of a formula says which of them it goes with.
    """
    return detailed_size_terms(axes, counted, blocks=blocks).terms


def detailed_size_terms(
    axes: Axes,
    counted: Axes | None = None,
    with_costs: bool = True,
    times: Mapping[int, float] | None = None,
    blocks: NestedBlocks | None = None,
) -> DetailedSizeTerms:
    """The size formulas in all units; without costs only parameters and bytes.

    `times`: the nanoseconds of operators by their numbers, as long as nothing is cut; they go down as the FLOPs.
    """
    table = _ExpressionTable()
    own = _ExpressionBuilder(axes, {axis.term: axis.number for axis in axes.free})
    registered = [node for node in dict.fromkeys(axes.graph.state.values()) if node.is_parameter or node.is_buffer]
    holders = [NO_BLOCK if blocks is None else blocks.block_of_tensors(node.names) for node in registered]
    elements = ListElements(axes)
    tensors = [
        _tensor_size(node, own, table, block, elements.axes_of(node.label))
        for node, block in zip(registered, holders, strict=True)
    ]
    other = own if counted is None or counted is axes else _ExpressionBuilder(counted, _matching_atoms(counted, axes))
    costs: _Costs = defaultdict(float)
    macs: _Costs = defaultdict(float)
    matmul: _Costs = defaultdict(float)
    taken: _Costs = defaultdict(float)
    block_of = [] if blocks is None or not with_costs else blocks.blocks_of_operators(other.axes.graph)
    others: list[NonPolynomialCost] = []
    for operator in other.axes.graph.operators if with_costs else ():
        asked, kind = flops_and_kind(operator)
        found = _operator_costs(operator, asked, kind.pairs, other)
        if found is None:
            dims = {node: other.dims(node) for node in dict.fromkeys([*operator.inputs, *operator.outputs])}
            others.append(NonPolynomialCost(operator, dims, asked or 0, kind))
        goes_with = elements.axes_of_cost(operator.module)
        pace = (times or {}).get(operator.index, 0.0) / (asked or 1)  # nanoseconds for each FLOP
        beside = _non_matmul_costs(operator, other)
        for expressions, factor in (found or {(): float(asked or 0)}).items():
            share = 1.0 - beside.get(expressions, 0.0) / factor if factor else 0.0  # that is made of multiply-adds
            expressions = (*expressions, *(axis.number for axis in goes_with))
            factor /= math.prod(axis.size for axis in goes_with)
            key = tuple(sorted(map(table.index_of, expressions))), block_of[operator.index] if block_of else NO_BLOCK
            costs[key] += factor
            taken[key] += factor * pace
            if share > 0 and kind.pairs:
                macs[key] += share * factor / 2
            if share > 0 and kind.products:
                matmul[key] += share * factor
    terms = SizeTerms(tuple(table.places), tuple(tensors), _cost_tuple(costs), not others)
    return DetailedSizeTerms(terms, _cost_tuple(macs), _cost_tuple(matmul), tuple(others), _cost_tuple(taken))


def _cost_tuple(costs: _Costs) -> tuple[Cost, ...]:
    return tuple(Cost(factor, places, block) for (places, block), factor in costs.items() if factor)


class _ExpressionTable:
    """Expressions by index, each stored once."""

    def __init__(self) -> None:
        self.places: dict[Expression, int] = {}

    def index_of(self, expression: Expression) -> int:
        return self.places.setdefault(expression, len(self.places))


class _ExpressionBuilder:
    """Builds expressions for the dimensions of a trace; unknown atoms are constants."""

    def __init__(self, axes: Axes, expressions: Mapping[Term, Expression]) -> None:
        self.axes, self._atoms = axes, expressions
        self._written: dict[Term, Expression] = {}

    def dims(self, node: DataNode) -> list[Expression]:
        return [self.expression(term) for term in self.axes.inference.dims(node)]

    def expression(self, term: Term) -> Expression:
        term = find(term)
        if term not in self._written:
            self._written[term] = self._build(term)
        return self._written[term]

    def _build(self, term: Term) -> Expression:
        if term.kind == ATOM:
            return self._atoms.get(term, -term.size)
        parts = [self.expression(part) for part in flattened_parts(term)]
        constants = [-part for part in parts if isinstance(part, int) and part < 0]
        varying = [part for part in parts if not (isinstance(part, int) and part < 0)]
        is_product = term.kind == PRODUCT
        constant = math.prod(constants) if is_product else sum(constants)
        if not varying:
            return -constant
        kept = [*varying, *([-constant] if constants and not (is_product and constant == 1) else [])]
        return kept[0] if len(kept) == 1 else (TIMES if is_product else PLUS, *kept)


def _matching_atoms(counted: Axes, axes: Axes) -> dict[Term, Expression]:
    """The atoms of another trace as expressions, matched by parameters."""
    writer = _ExpressionBuilder(axes, {axis.term: axis.number for axis in axes.free})
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
            expression = writer.expression(other)
            if not _is_constant(expression):
                found.setdefault(own, expression)
        elif own.kind == other.kind:
            parts = list(zip(flattened_parts(own), flattened_parts(other), strict=False))
            if len(flattened_parts(own)) == len(flattened_parts(other)) and all(
                one.size == two.size for one, two in parts
            ):
                waiting += parts
    return found


def _is_constant(expression: Expression) -> bool:
    return isinstance(expression, int) and expression < 0


def _tensor_size(
    node: DataNode, writer: _ExpressionBuilder, table: _ExpressionTable, block: int, element_axes: Sequence[Axis]
) -> TensorSize:
    dims = writer.dims(node)
    factor: float = math.prod(-dim for dim in dims if isinstance(dim, int) and dim < 0)
    places = tuple(table.index_of(dim) for dim in dims if not _is_constant(dim))
    factor /= math.prod(axis.size for axis in element_axes)
    places = (*places, *(table.index_of(axis.number) for axis in element_axes))
    return TensorSize(node.label, node.is_parameter, node.dtype.itemsize, factor, places, block)


# ------------------------------------------------------------------ the cost of one operator


def _operator_costs(
    operator: OperatorNode, asked: int | None, pairs: bool, writer: _ExpressionBuilder
) -> dict[tuple[Expression, ...], float] | None:
    """The FLOPs of an operator as products with factors; None if they are no polynomial.

    `pairs`: they are of multiply-adds.
    """
    if not asked:
        return {}
    if traits_of(operator.overload).layer == RECURRENT and OperatorCall(operator).has("params"):
        return _recurrent_costs(operator, writer)
    nodes = dict.fromkeys([*operator.inputs, *operator.outputs])
    dims = {node: writer.dims(node) for node in nodes}
    if pairs and all(node.dim() <= 2 for node in operator.inputs):  # a product of matrices
        dims = _unified_inner_dims(operator, dims)
    varying = list(dict.fromkeys(dim for every in dims.values() for dim in every if not _is_constant(dim)))
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


def _recurrent_costs(
    operator: OperatorNode, writer: _ExpressionBuilder, products: bool = True
) -> dict[tuple[Expression, ...], float]:
    """The FLOPs of a recurrent layer, cell by cell."""
    call = OperatorCall(operator)
    steps, found = writer.dims(call.inputs[0])[:-1], _CostSum()
    transposed = call.get("batch_first") and call["has_biases"] and min(call.inputs[0].shape[:2]) > 1
    first = 2 if call["bidirectional"] else 1
    for at, cell in enumerate(cast("list[list[DataNode]]", recurrent_cells(call))):
        weights = [node for node in cell if node.dim() == 2]
        dims = [writer.dims(node) for node in weights]
        for own in dims if products else ():
            found.add(2, (*steps, *own))
        found.add(FLOPS_PER_STEP[call.name], (*steps, dims[-1][-1]))
        if transposed and at < first:
            found.add(1, (*steps, dims[0][0]))
    return dict(found.costs)


def _non_matmul_costs(operator: OperatorNode, writer: _ExpressionBuilder) -> dict[tuple[Expression, ...], float]:
    """The FLOPs of an operator outside of its matrix products."""
    return _recurrent_costs(operator, writer, products=False) if operator.name in elementwise_parts else {}


class _CostSum:
    """A sum of products with factors."""

    def __init__(self) -> None:
        self.costs: dict[tuple[Expression, ...], float] = defaultdict(float)

    def add(self, factor: float, dims: Sequence[Expression]) -> None:
        """Add a product of dimensions, times a number."""
        constants = [-dim for dim in dims if isinstance(dim, int) and dim < 0]
        self.costs[tuple(dim for dim in dims if not _is_constant(dim))] += factor * math.prod(constants)


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
            if not _is_constant(dim):
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


def _coefficients(grid: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The coefficients of a polynomial from its values at `SAMPLE_POINTS`."""
    inverse = np.array([[3, -3, 1], [-2.5, 4, -1.5], [0.5, -1, 0.5]])  # of the powers of 1, 2, 3
    for at in range(grid.ndim):
        grid = np.moveaxis(np.tensordot(inverse, grid, axes=(1, at)), 0, at)
    return np.where(np.abs(grid) < 1e-6, 0.0, grid)
