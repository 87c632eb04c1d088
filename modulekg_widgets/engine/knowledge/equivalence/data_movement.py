"""Operators that only move elements, represented by the source index of each element of the result.

`x.flatten(1)` and `x.view(n, -1)`, `permute` and two `transpose`s, `chunk` and slices are then one and the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import xxhash

from modulekg_widgets.engine.knowledge.equivalence.value_numbering import MOVED, FlowValue, ValueTable
from modulekg_widgets.engine.operators.recorded_call import nodes_in
from modulekg_widgets.engine.operators.traits import AS_STRIDED, CAT, PAD, traits_of
from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode
from modulekg_widgets.engine.tracing.execution import run_operator

MAX_ELEMENTS = 1 << 24  # elements of a tensor whose places are followed
_EXCLUDED = {*CAT, *PAD, *AS_STRIDED}  # join tensors, add elements, or read memory as it lies


class DataMovement:
    """Source indices of moved elements, with equal arrays stored once."""

    def __init__(self) -> None:
        self._known: dict[str, np.ndarray] = {}

    def gather(self, flow: ValueTable, value: FlowValue, positions: np.ndarray) -> FlowValue:
        """Returns the value whose elements are those of `value` at these positions."""
        base, positions = _source(value, positions)
        if positions.shape == base.shape and np.array_equal(positions.ravel(), np.arange(positions.size)):
            return base
        positions = np.ascontiguousarray(positions, dtype=np.int32)
        digest = xxhash.xxh3_128_hexdigest(positions.tobytes())
        made = flow.value(MOVED, {"places": digest}, (base,), positions.shape, value.dtype)
        made.positions = self._known.setdefault(f"{digest} {positions.shape}", positions)
        return made

    def reshape(self, flow: ValueTable, value: FlowValue, shape: tuple[int, ...]) -> FlowValue:
        """Returns the value in another shape, with its elements in the same order."""
        return self.gather(flow, value, element_indices(value.shape).reshape(shape))

    def operator_results(self, flow: ValueTable, operator: OperatorNode, value: FlowValue) -> list[FlowValue] | None:
        """Returns the results of an operator that only moves elements; None for other operators."""
        if not moves_elements(operator, value):
            return None
        own = torch.from_numpy(element_indices(value.shape))
        try:
            given = run_operator(operator, lambda _: own)
        except (RuntimeError, TypeError, ValueError, IndexError):
            return None
        parts = [given] if isinstance(given, torch.Tensor) else list(given)
        return [self.gather(flow, value, part.contiguous().numpy()) for part in parts]


def element_indices(shape: tuple[int, ...]) -> np.ndarray:
    """Returns the indices of the elements of a tensor in its shape."""
    return np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.int32).reshape(shape)


def moves_elements(operator: OperatorNode, value: FlowValue) -> bool:
    """True if the operator moves elements of one tensor of limited size and changes none."""
    arguments: dict[str, object] = operator.arguments
    results = nodes_in(operator.result)
    return (
        traits_of(operator.overload).moves
        and operator.name not in _EXCLUDED
        and len(operator.inputs) == 1
        and not any(isinstance(argument, torch.dtype) for argument in arguments.values())
        and all(each.dtype == value.dtype and each.numel() <= MAX_ELEMENTS for each in results)
        and int(np.prod(value.shape, dtype=np.int64)) <= MAX_ELEMENTS
    )


def has_same_strides(node: DataNode, size: Sequence[int], stride: Sequence[int], offset: int | None) -> bool:
    """True if sizes and strides are those of the tensor; dimensions of one element do not count."""
    pairs = zip(node.shape, node.stride, stride, strict=False)
    same = tuple(size) == node.shape and len(stride) == len(node.stride) == len(node.shape)
    return same and offset is None and all(length < 2 or own == other for length, own, other in pairs)


def _source(value: FlowValue, positions: np.ndarray) -> tuple[FlowValue, np.ndarray]:
    """Returns the value before earlier moves, and the positions in it."""
    if value.positions is None:
        return value, positions
    return value.inputs[0], value.positions.ravel()[positions]
