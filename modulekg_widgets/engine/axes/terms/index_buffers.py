"""Integer buffers that hold indices of an axis, as of a channel shuffle; a cut rewrites them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.axes.terms.algebra import Algebra, Term
from modulekg_widgets.engine.operators.arguments import OperatorCall
from modulekg_widgets.engine.operators.recorded_call import RecordedCall, nodes_in
from modulekg_widgets.engine.operators.traits import traits_of
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, OperatorNode
from modulekg_widgets.engine.tracing.execution import constant_value

if TYPE_CHECKING:
    import torch

Ints = NDArray[np.int64]


class IndexBuffers:
    """The integer buffers that serve as indices alone, and the dimensions that they index."""

    def __init__(self, graph: Dataflow) -> None:
        self._uses: dict[DataNode, set[OperatorNode]] = {}  # the operators that pick by each
        self._noted: dict[DataNode, set[RecordedCall]] = {}
        self.picked_from: dict[DataNode, Term] = {}
        for node in dict.fromkeys(graph.state.values()):
            if node.is_buffer_like and node.dim() == 1 and not _is_not_index_dtype(node.dtype) and node.shape[0] > 1:
                uses = _uses(node)
                if uses:
                    self._uses[node] = uses

    def __contains__(self, node: DataNode) -> bool:
        return node in self._uses

    def order(self, places: DataNode, at: int, size: int) -> tuple[DataNode, Ints] | None:
        """Returns the buffer behind an index tensor, and the permutation that it selects (the rest appended).

        None where it is no such buffer, picks something twice, or counts from the end.
        """
        buffer = index_source(places)
        if buffer not in self._uses or places.shape[at] != buffer.shape[0] or buffer.shape[0] > size:
            return None
        value, held = constant_value(places), constant_value(buffer)
        if value is None or held is None:
            return None
        rows = value.movedim(at, -1).reshape(-1, buffer.shape[0])
        if not bool((rows == held).all()):
            return None
        first = held.numpy().astype(np.int64)
        if first.min() < 0 or first.max() >= size:
            return None
        picks = np.bincount(first, minlength=size)
        return None if picks.max() > 1 else (buffer, np.concatenate([first, np.flatnonzero(picks == 0)]))

    def note(self, buffer: DataNode, operator: RecordedCall, term: Term, algebra: Algebra) -> None:
        """An operator picks by the buffer from `term`; all that do so pick from one index set."""
        self._noted.setdefault(buffer, set()).add(operator)
        algebra.unify(self.picked_from.setdefault(buffer, term), term)

    def unfollowed(self) -> Iterator[DataNode]:
        """Yields the buffers with a use that no rule followed."""
        return (buffer for buffer, uses in self._uses.items() if uses != self._noted.get(buffer, set()))


def _is_not_index_dtype(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex or dtype.itemsize < 4  # bool and bytes are masks


def _uses(node: DataNode) -> set[OperatorNode]:
    """The operators that pick by a buffer; none where it serves for anything else."""
    found: set[OperatorNode] = set()
    waiting = [node]
    while waiting:
        now = waiting.pop()
        if now.is_output or now.escapes or now.previous is not None:
            return set()
        for operator in now.consumers:
            if traits_of(operator.overload).keeps_indices:
                waiting.extend(operator.outputs)
            elif _is_index(operator, now):
                found.add(operator)
            else:
                return set()
    return found


def _is_index(operator: OperatorNode, node: DataNode) -> bool:
    call, name = OperatorCall(operator), traits_of(operator.overload).index
    index = call.get(name) if name else None
    return any(each is node for each in nodes_in(index)) and operator.inputs.count(node) == 1


def index_source(node: DataNode) -> DataNode:
    """Returns the value that holds the indices, before operators that only reshape it."""
    while node.producer is not None and traits_of(node.producer.overload).keeps_indices and node.previous is None:
        node = OperatorCall(node.producer).inputs[0]
    return node
