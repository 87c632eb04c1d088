"""Normal forms of operators: one form for calls that compute the same function up to rounding.

Few, and each for a reason that the function states: what has no form here is compared as it is written, so that two
functions are never taken for one. Copies, moves of elements and writing in place are met in flow_reader.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from modulekg_widgets.engine.knowledge.equivalence.data_movement import DataMovement, element_indices, has_same_strides
from modulekg_widgets.engine.knowledge.equivalence.value_numbering import FlowValue, ValueTable
from modulekg_widgets.engine.operators.signature import plain_name
from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode


class NormalizedCall:
    """An operator call with values in place of tensors, as a normal form reads it."""

    def __init__(
        self, flow: ValueTable, moves: DataMovement, operator: OperatorNode, of: Callable[[DataNode], FlowValue]
    ) -> None:
        self.flow, self.moves, self.operator = flow, moves, operator
        self.name = plain_name(operator.name)
        self.arguments: dict[str, Any] = dict(operator.arguments)
        self.value_of = of

    def tensor(self, name: str) -> FlowValue:
        return self.value_of(self.arguments[name])


Form = Callable[[NormalizedCall], "FlowValue | None"]
FORMS: dict[str, Form] = {}


def form(*names: str) -> Callable[[Form], Form]:
    """Registers a function that returns the result of an operator, or None for the call with changed arguments."""

    def register(function: Form) -> Form:
        FORMS.update(dict.fromkeys(names, function))
        return function

    return register


@form("native_batch_norm")
def batch_norm(call: NormalizedCall) -> None:
    """Drops the momentum, which has no effect on running statistics that are not updated."""
    if call.arguments["training"] is False:
        call.arguments["momentum"] = 0


@form("max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d")
def pool(call: NormalizedCall) -> None:
    """Sets a missing stride to the kernel size."""
    call.arguments["stride"] = call.arguments["stride"] or call.arguments["kernel_size"]


@form("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def adaptive_pool(call: NormalizedCall) -> FlowValue | None:
    """Replaces a pool whose windows have one element by its input."""
    value, sizes = call.tensor("self"), tuple(call.arguments["output_size"])
    return value if value.shape[-len(sizes) :] == sizes else None


@form("mean")
def mean(call: NormalizedCall) -> FlowValue | None:
    """Sorts dimensions and keeps them; a pool to one pixel becomes a mean, too."""
    value, dims = call.tensor("self"), call.arguments.get("dim")
    (result,) = call.operator.outputs[:1]
    if not dims or result.dtype != value.dtype:
        return None
    over = sorted(dim % len(value.shape) for dim in dims)
    kept = tuple(1 if at in over else size for at, size in enumerate(value.shape))
    made = call.flow.value("aten::mean", {"dim": str(over)}, (value,), kept, value.dtype)
    made.operator = made.operator or call.operator
    return call.moves.reshape(call.flow, made, result.shape)


@form("as_strided")
def as_strided(call: NormalizedCall) -> FlowValue | None:
    """Replaces a view with the same sizes and strides by its input."""
    given = call.arguments
    same = has_same_strides(given["self"], given["size"], given["stride"], given["storage_offset"])
    return call.tensor("self") if same else None


@form("mm")
def matmul(call: NormalizedCall) -> FlowValue | None:
    """Sorts the rows of a matrix product, which are independent of each other."""
    if "out_dtype" in call.arguments:
        return None
    return _matmul(call, call.tensor("self"), call.tensor("mat2"))


@form("addmm")
def matmul_and_bias(call: NormalizedCall) -> FlowValue | None:
    """Splits a product with bias into a product and a sum."""
    bias, rows = call.tensor("self"), call.tensor("mat1")
    plain = (call.arguments["beta"], call.arguments["alpha"]) == (1, 1) and "out_dtype" not in call.arguments
    if not plain or len(bias.shape) != 1:
        return None
    result = _matmul(call, rows, call.tensor("mat2"))
    return _add_vector(call, result, bias) or _add(call, result, bias)


@form("add")
def addition(call: NormalizedCall) -> FlowValue | None:
    """Adds a vector to the last dimension before other dimensions are moved."""
    one, other = call.arguments["self"], call.arguments["other"]
    if call.arguments["alpha"] != 1 or not (isinstance(one, DataNode) and isinstance(other, DataNode)):
        return None
    a, b = call.value_of(one), call.value_of(other)
    if a.dtype != b.dtype:
        return None
    return _add_vector(call, a, b) or _add_vector(call, b, a) or _add(call, a, b)


def _matmul(call: NormalizedCall, rows: FlowValue, columns: FlowValue) -> FlowValue:
    """Returns the product with rows sorted by their first element, and moved back."""
    shape = (rows.shape[0], columns.shape[1])
    order = np.arange(rows.shape[0])
    if rows.positions is not None and rows.positions.size:
        order = np.argsort(rows.positions[:, 0], kind="stable")
        rows = call.moves.gather(call.flow, rows, element_indices(rows.shape)[order])
    made = call.flow.value("aten::mm", {}, (rows, columns), shape, rows.dtype)
    made.operator = made.operator or call.operator
    return call.moves.gather(call.flow, made, element_indices(shape)[np.argsort(order)])


def _add_vector(call: NormalizedCall, value: FlowValue, vector: FlowValue) -> FlowValue | None:
    """Returns the sum before the move, if that keeps the last dimension."""
    if value.positions is None or len(vector.shape) != 1 or len(value.shape) < 2:
        return None
    base, size = value.inputs[0], vector.shape[0]
    if not size or len(base.shape) < 2 or base.shape[-1] != size or value.shape[-1] != size:
        return None
    if (value.positions % size != np.arange(size)).any():
        return None
    return call.moves.gather(call.flow, _add(call, base, vector), value.positions)


def _add(call: NormalizedCall, a: FlowValue, b: FlowValue) -> FlowValue:
    shape = np.broadcast_shapes(a.shape, b.shape)
    made = call.flow.value("aten::add", {}, (a, b), shape, a.dtype, commutes=True)
    made.operator = made.operator or call.operator
    return made
