"""Values that hold indices of an axis, as a router's choice of experts, and the axes that they index.

Top-k and argmax over an axis give such values; a table that they index, a one-hot vector and a count run along the same
axis. If every reader follows them, the order of the axis does not matter, and removed indices are those that are never
chosen. If one reader does not, the axis is frozen. Integer buffers hold indices, too, as of a channel shuffle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.axes.terms.algebra import ATOM, PRODUCT, SUM, Algebra, Reason, Term, find, flattened_parts
from modulekg_widgets.engine.operators.arguments import OperatorCall
from modulekg_widgets.engine.operators.recorded_call import RecordedCall, nodes_in
from modulekg_widgets.engine.operators.signature import base_name
from modulekg_widgets.engine.operators.traits import traits_of
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, OperatorNode
from modulekg_widgets.engine.tracing.execution import constant_value

if TYPE_CHECKING:
    import torch


INDICES = "indices"  # each value is an index of the axis
COUNTS = "counts"  # one value per index: how often it was chosen
EXPERT_GROUPS = "expert_groups"  # the role of an outer factor of experts
EXPERTS = "experts"  # the role of an axis from which the data choose the weights that they meet
ENDS = "ends"  # one value per index: where its rows end, of rows sorted by index
MARKS = "marks"  # the same at all indices but at the chosen ones
NOT_FOLLOWED = "its indices are chosen by data, which this operator does not support"
READ_BY_PYTHON = (
    "Python reads the chosen index, for example to select a module of a list: a cut cannot shorten lists of modules"
)
_NEW_VALUES = ("constant_pad_nd", "pad", "cat", "concat", "concatenate")  # they move elements, and add others


@dataclass(frozen=True, slots=True)
class IndexSemantics:
    """The relation of the numbers in a value to an axis: its indices, counts, ends or marks."""

    kind: str
    axis: Term


@dataclass(frozen=True, slots=True)
class MinimumCount:
    """The smallest size that an axis may have, with the operator that requires it."""

    count: int
    reason: Reason


class ChosenIndices:
    """The index semantics of a graph's values: which of them hold indices, counts or ends of an axis."""

    def __init__(self) -> None:
        self.semantics: dict[DataNode, IndexSemantics] = {}
        self.least: dict[Term, MinimumCount] = {}
        self.selected: dict[RecordedCall, Term] = {}  # the calls that select by a chosen index which Python has read
        self.read: dict[Term, OperatorNode] = {}  # the axes whose indices Python reads, each with the first reader
        self._sorted_rows: list[tuple[Term, Term]] = []  # a dimension of rows, and the axis by whose indices they lie
        self._shortlists: list[tuple[Term, int]] = []  # an axis of which only so many indices are chosen at first
        self._statistics: list[tuple[tuple[Term, ...], int, Reason]] = []  # dimensions, the elements that they need

    def axis_of(self, node: DataNode, kind: str = INDICES) -> Term | None:
        """The axis that the numbers in a value are about, if they are of this kind."""
        meaning = self.semantics.get(node)
        return find(meaning.axis) if meaning is not None and meaning.kind == kind else None

    def note(self, node: DataNode, axis: Term, kind: str = INDICES) -> None:
        """The numbers in `node` are indices of `axis`, or its counts or ends."""
        self.semantics[node] = IndexSemantics(kind, axis)

    def propagate(self, operator: OperatorNode) -> bool:
        """Give what an operator made the meaning of the one tensor that it took, where it only moves numbers."""
        traits = traits_of(operator.overload)
        moves = traits.keeps_indices or (
            traits.moves and base_name(operator.name).partition("::")[2] not in _NEW_VALUES
        )
        if not moves or len(operator.inputs) != 1 or any(node.previous is not None for node in operator.outputs):
            return False
        meaning = self.semantics[operator.inputs[0]]
        if meaning.kind == INDICES or traits.keeps_indices:
            self.semantics.update(dict.fromkeys(operator.outputs, meaning))
            return True
        return meaning.kind in (COUNTS, MARKS)

    def freeze(self, node: DataNode, algebra: Algebra, text: str | Reason) -> None:
        """Freeze the axis of which a value holds indices, or ends."""
        meaning = self.semantics.get(node)
        if meaning is not None and meaning.kind not in (COUNTS, MARKS):
            algebra.freeze(meaning.axis, text)

    # ------------------------------------------------------------ rows

    def mark_sorted(self, rows: Term, axis: Term) -> None:
        """The rows lie in the order of the indices of `axis` that belong to them."""
        self._sorted_rows.append((rows, axis))

    def are_sorted(self, rows: Term, axis: Term) -> bool:
        """True if the rows are sorted by their index of the axis."""
        return any(find(a) is find(rows) and find(b) is find(axis) for a, b in self._sorted_rows)

    # ----------------------------------------------------------- counts

    def require_choice(self, axis: Term, count: int, reason: Reason) -> None:
        """Requires that at least `count` indices of `axis` remain, as a top-k takes so many.

        Of a product, of which another choice took some indices of the outer factor before, the inner one must hold as
        many as these need.
        """
        factors = _factors(axis)
        for at, factor in enumerate(factors):
            others = 1
            for other in (*factors[:at], *factors[at + 1 :]):
                others *= min([n for term, n in self._shortlists if find(term) is other], default=other.size)
            self._raise_minimum(factor, -(-count // others), reason)
        self._shortlists.append((axis, count))

    def _raise_minimum(self, term: Term, count: int, reason: Reason) -> None:
        if count > 1 and find(term).kind == ATOM:
            known = self.least.get(term)
            if known is None or known.count < count:
                self.least[term] = MinimumCount(count, reason)

    def require_elements(self, dims: Sequence[Term], count: int, reason: Reason) -> None:
        """Requires at least `count` elements in these dimensions together, as a statistic does."""
        self._statistics.append((tuple(dims), count, reason))

    def minimum_of(self, atom: Term) -> MinimumCount | None:
        """Returns the smallest allowed size of an atom; valid once all axes are known."""
        found = [least for term, least in self.least.items() if find(term) is atom]
        found += [least for term, least in self._statistics_minima() if term is atom]
        return max(found, key=lambda least: least.count, default=None)

    def _statistics_minima(self) -> Iterator[tuple[Term, MinimumCount]]:
        """Yields the minima that statistics require: of several reduced axes the largest free one is responsible."""
        for dims, count, reason in self._statistics:
            fixed = 1
            free: list[Term] = []
            for factor in (factor for term in dims for factor in _factors(term)):
                if factor.kind == ATOM and factor.frozen is None:
                    free += [factor] * (factor.filler is None)  # along a filler all elements are the same
                else:
                    fixed *= (
                        len(flattened_parts(factor)) if factor.kind == SUM else factor.size
                    )  # of each part one stays
            needed = -(-count // max(fixed, 1))
            if free and 1 < needed <= math.prod(each.size for each in free):
                yield max(free, key=lambda each: each.size), MinimumCount(needed, reason)


def _factors(term: Term) -> list[Term]:
    return flattened_parts(term) if find(term).kind == PRODUCT else [find(term)]


# -------------------- Integer buffers that hold indices of an axis; a cut rewrites them


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
