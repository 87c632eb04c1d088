"""The size of a model in the counts of its axes: parameters, bytes, FLOPs and time as sums of products.

A `SizeModel` has one list of terms for each unit. Searches evaluate them for many choices at once, drafts for one, the
page in TypeScript, and plans count what they hold by the terms of tensors. An operator whose cost is no polynomial is
counted on values of the sizes in question.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from modulekg_widgets.engine.axes.axis import Axes, ListElements
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.operators.cost import flops_and_kind
from modulekg_widgets.engine.pruning.plan.sizes.expressions import (
    CountArray,
    Expression,
    ExpressionBuilder,
    Floats,
    SizeTerm,
    SumsOfProducts,
    axis_expressions,
    evaluate,
    is_constant,
    matching_expressions,
)
from modulekg_widgets.engine.pruning.plan.sizes.operator_costs import (
    NonPolynomialCost,
    elementwise_products,
    operator_products,
)
from modulekg_widgets.engine.residuals.removable_blocks import NO_BLOCK, NestedBlocks

COST_UNITS = ("flops", "matmul_flops", "macs", "latency")  # the other ones are of tensors


def has_costs(units: Collection[str]) -> bool:
    """True if operators have to be asked for some of these units."""
    return any(unit in COST_UNITS for unit in units)


class TensorSize(NamedTuple):
    """The number of elements of a parameter or buffer: `factor` times the values of expressions."""

    name: str
    names: tuple[str, ...]  # all that it has
    is_parameter: bool
    itemsize: int  # bytes of an element
    factor: int
    dims: tuple[int, ...]  # places in `SizeModel.expressions`
    list_axes: tuple[int, ...] = ()  # places of the axes whose indices are elements of lists that the tensor is in
    list_length: int = 1  # of these lists together
    block: int = NO_BLOCK  # the innermost block that it goes with

    @property
    def mean(self) -> SizeTerm:
        """The mean over the elements of lists, of which any may be the one that goes."""
        return SizeTerm(self.factor / self.list_length, (*self.dims, *self.list_axes), self.block)


class ModelSizes(NamedTuple):
    """The sizes of a model; FLOPs count a multiply-add as 2."""

    params: int
    flops: int
    bytes: int  # parameters and buffers


class SizeModel:
    """The sizes of a traced model in some units, as a function of the counts of its axes.

    `counted`: the axes of the trace whose FLOPs count. `times`: for the unit "latency", the nanoseconds that each
    operator takes while nothing is cut, by its number; they go down as its FLOPs. With `blocks` each term says which of
    them it goes with.
    """

    def __init__(
        self,
        axes: Axes,
        units: Sequence[str],
        counted: Axes | None = None,
        times: Mapping[int, float] | None = None,
        blocks: NestedBlocks | None = None,
    ) -> None:
        self.units = tuple(units)
        self._numbers = {axis.term: axis.number for axis in axes}
        self.full: CountArray = np.array([axis.size for axis in axes], dtype=np.int64)
        self._places: dict[Expression, int] = {}
        self._blocks = blocks
        builder = axis_expressions(axes)
        self.tensors = self._tensor_sizes(axes, builder)
        self.non_polynomial: list[NonPolynomialCost] = []
        self.costs: dict[str, list[SizeTerm]] = {}
        if has_costs(units):
            other = builder if counted is None or counted is axes else matching_expressions(counted, axes)
            self.costs = self._operator_terms(other, ListElements(axes), times or {})
        self._sums = SumsOfProducts(
            self.expressions,
            [self.costs[unit] if unit in COST_UNITS else self._tensor_terms(unit) for unit in self.units],
        )
        self.before: Floats = self.sizes(self.full)

    @property
    def expressions(self) -> list[Expression]:
        """The expressions that terms refer to by place."""
        return list(self._places)

    @property
    def is_exact(self) -> bool:
        """True if the terms have all FLOPs, and no operator has a cost that is no polynomial."""
        return not self.non_polynomial

    def counts_of(self, left: Mapping[Term, int]) -> CountArray:
        """The counts of all axes, where some are given and the others are whole."""
        found = self.full.copy()
        for term, count in left.items():
            if term in self._numbers:
                found[self._numbers[term]] = count
        return found

    def sizes(self, counts: CountArray, removed_blocks: Collection[int] = ()) -> Floats:
        """(units,) for the counts (axes,), or (choices, units) for (choices, axes)."""
        several = np.atleast_2d(counts)
        found = self._sums.evaluate(several, removed_blocks)
        for cost in self.non_polynomial:
            for at, unit in enumerate(self.units):
                found[:, at] += [cost.added(choice, unit) for choice in several]
        return found if counts.ndim > 1 else found[0]

    def savings(self, numbers: Sequence[int], unit: str) -> Floats:
        """The saving of each axis when it loses its first index, relative to the model: (axes,)."""
        at = self.units.index(unit)
        choices = np.repeat(self.full[None], len(numbers), axis=0)
        choices[np.arange(len(numbers)), list(numbers)] -= 1
        if not len(numbers):
            return np.empty(0)
        return (self.before[at] - self.sizes(choices)[:, at]) / max(self.before[at], 1.0)

    def held(
        self, counts: CountArray, is_removed: Callable[[Sequence[str]], bool] = lambda _: False
    ) -> tuple[int, int]:
        """Parameters and bytes for the counts of all axes, without the tensors that are removed as a whole."""
        values = [evaluate(expression, counts) for expression in self.expressions]
        params = bytes_held = 0
        for tensor in self.tensors:
            if is_removed is None or not is_removed(tensor.names):
                elements = tensor.factor * math.prod(values[place] for place in tensor.dims)
                params += elements * tensor.is_parameter
                bytes_held += elements * tensor.itemsize
        return params, bytes_held

    # ---------------------------------------------------------------- terms

    def _place(self, expression: Expression) -> int:
        return self._places.setdefault(expression, len(self._places))

    def _tensor_sizes(self, axes: Axes, builder: ExpressionBuilder) -> list[TensorSize]:
        found, elements = [], ListElements(axes)
        for node in dict.fromkeys(axes.graph.state.values()):
            if node.is_parameter or node.is_buffer:
                dims, list_axes = builder.dims(node), elements.axes_of(node.label)
                found.append(
                    TensorSize(
                        name=node.label,
                        names=node.names,
                        is_parameter=node.is_parameter,
                        itemsize=node.dtype.itemsize,
                        factor=math.prod(-dim for dim in dims if isinstance(dim, int) and dim < 0),
                        dims=tuple(self._place(dim) for dim in dims if not is_constant(dim)),
                        list_axes=tuple(self._place(axis.number) for axis in list_axes),
                        list_length=math.prod(axis.size for axis in list_axes),
                        block=NO_BLOCK if self._blocks is None else self._blocks.block_of_tensors(node.names),
                    )
                )
        return found

    def _tensor_terms(self, unit: str) -> list[SizeTerm]:
        """The terms of the tensors in parameters or bytes."""
        if unit == "params":
            return [tensor.mean for tensor in self.tensors if tensor.is_parameter]
        return [tensor.mean._replace(factor=tensor.mean.factor * tensor.itemsize) for tensor in self.tensors]

    def _operator_terms(
        self, builder: ExpressionBuilder, elements: ListElements, times: Mapping[int, float]
    ) -> dict[str, list[SizeTerm]]:
        """The terms of the operators by unit; costs that are no polynomials are listed apart."""
        found = {unit: defaultdict[tuple[tuple[int, ...], int], float](float) for unit in COST_UNITS}
        graph = builder.axes.graph
        block_of = [] if self._blocks is None else self._blocks.blocks_of_operators(graph)
        for operator in graph.operators:
            asked, kind = flops_and_kind(operator)
            products = operator_products(operator, asked, kind.pairs, builder)
            if products is None:
                self.non_polynomial.append(NonPolynomialCost(operator, asked or 0, kind, builder, self.full))
                products = {(): float(asked or 0)}
            list_axes = elements.axes_of_cost(operator.module)
            pace = times.get(operator.index, 0.0) / (asked or 1)  # nanoseconds for each FLOP
            beside = elementwise_products(operator, builder)
            for expressions, factor in products.items():
                share = 1.0 - beside.get(expressions, 0.0) / factor if factor else 0.0  # that is made of multiply-adds
                factor /= math.prod(axis.size for axis in list_axes)
                dims = tuple(sorted(map(self._place, (*expressions, *(axis.number for axis in list_axes)))))
                key = dims, block_of[operator.index] if block_of else NO_BLOCK
                found["flops"][key] += factor
                found["latency"][key] += factor * pace
                if share > 0 and kind.pairs:
                    found["macs"][key] += share * factor / 2
                if share > 0 and kind.products:
                    found["matmul_flops"][key] += share * factor
        return {
            unit: [SizeTerm(factor, dims, block) for (dims, block), factor in costs.items() if factor]
            for unit, costs in found.items()
        }
