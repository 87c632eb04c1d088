"""Residual additions found in the data flow: sums in which one summand is an input of the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from modulekg_widgets.engine.operators.arguments import OperatorCall
from modulekg_widgets.engine.operators.traits import traits_of
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, OperatorNode

# each element stays where it is in memory: the shape alone may change
_RESHAPES = {"view", "_unsafe_view", "reshape", "_reshape_alias", "squeeze", "unsqueeze", "flatten", "contiguous"}
_IF_SAME_SHAPE = {"slice", "expand", "native_dropout", "dropout"}  # where they change nothing
# of zeros they make zeros, and nothing of another tensor
_KEEP_ZERO = {
    "view", "_unsafe_view", "reshape", "_reshape_alias", "permute", "transpose", "t", "squeeze", "unsqueeze", "slice",
    "select", "clone", "detach", "alias", "contiguous", "_to_copy", "mul", "div", "roll", "flip", "native_dropout",
    "dropout", "expand", "index", "constant_pad_nd", "relu", "neg", "bernoulli", "rsub_", "movedim", "flatten",
}  # fmt: skip
_IDEMPOTENT = {"relu", "hardtanh", "relu6"}  # what they gave once they give again
_NORMALIZATIONS = {"layer_norm", "native_layer_norm"}  # what they gave once they give again, but for their own weights
# what comes of numbers that such a function gave is such numbers
_MOVES = _RESHAPES | {"slice", "clone", "detach", "alias", "_to_copy", "permute", "transpose"}
_KEEP_IDEMPOTENT = _MOVES | {"max_pool2d_with_indices", "max_pool2d", "avg_pool2d", "mean"}


@dataclass(frozen=True, slots=True, eq=False)
class Addition:
    """A sum of the value `skip` and of `branches` that are computed from it."""

    result: DataNode
    skip: DataNode
    branches: tuple[DataNode, ...]
    operators: frozenset[OperatorNode]  # that add up

    @property
    def last_index(self) -> int:
        assert self.result.producer is not None
        return self.result.producer.index


def producer_index(node: DataNode) -> int:
    """The index of the operator that produced a value; -1 for inputs and state."""
    return -1 if node.producer is None else node.producer.index


def source_value(node: DataNode) -> DataNode:
    """The source of a value, back through operators that change shape or memory only."""
    while (producer := node.producer) is not None and producer.inputs:
        before = OperatorCall(producer).inputs[0]
        name = OperatorCall(producer).name
        is_same = name in _RESHAPES and before.numel() == node.numel()
        is_same |= traits_of(producer.overload).copies and before.dtype == node.dtype
        is_same |= name in _IF_SAME_SHAPE and before.shape == node.shape and not _drops_elements(producer)
        if not is_same:
            break
        node = before
    return node


def _drops_elements(operator: OperatorNode) -> bool:
    call = OperatorCall(operator)
    return call.name.endswith("dropout") and bool(call.get("train", True)) and call.get("p", 0.0) != 0


def preserves_zeros(operator: OperatorNode, node: DataNode) -> bool:
    """True if an operator maps zeros in `node` to zeros, whatever its other inputs are."""
    call = OperatorCall(operator)
    if call.name == "mul":
        return node in call.inputs
    return call.name in _KEEP_ZERO and bool(call.inputs) and call.inputs[0] is node


def residual_additions(graph: Dataflow) -> dict[DataNode, Addition]:
    """The residual additions of a trace, by their results."""
    sums = {operator.outputs[0]: operator for operator in graph.operators if _is_addition(operator)}
    found: dict[DataNode, Addition] = {}
    inner: set[OperatorNode] = set()
    for operator in reversed(graph.operators):
        result = operator.outputs[0] if operator.outputs else None
        if result is None or result not in sums or operator in inner:
            continue
        terms, parts = _summands(result, sums)
        addition = _residual_addition(result, terms, frozenset(parts))
        if addition is None and len(terms) > 2:  # the outermost sum may add what is none of it, as a bias of positions
            terms, parts = list(OperatorCall(operator).inputs[:2]), [operator]
            addition = _residual_addition(result, terms, frozenset(parts))
        if addition is not None:
            found[result] = addition
            inner.update(parts)
    return found


def _is_addition(operator: OperatorNode) -> bool:
    call = OperatorCall(operator)
    if call.name not in ("add", "add_") or not operator.outputs or call.get("alpha", 1) != 1:
        return False
    inputs = call.inputs
    shape, kind = operator.outputs[0].shape, operator.outputs[0].dtype
    return (
        len(inputs) == 2 and kind.is_floating_point and len(shape) > 0 and all(each.shape == shape for each in inputs)
    )


def _summands(result: DataNode, sums: dict[DataNode, OperatorNode]) -> tuple[list[DataNode], list[OperatorNode]]:
    """The summands of a sum through inner sums, and the operators that add."""
    terms: list[DataNode] = []
    parts = [sums[result]]
    waiting = list(OperatorCall(sums[result]).inputs)
    while waiting:
        term = waiting.pop(0)
        inside = _inner_sum(term, sums)
        if inside is None:
            terms.append(term)
        else:
            parts.append(sums[inside])
            waiting = [*OperatorCall(sums[inside]).inputs, *waiting]
    return terms, parts


def _inner_sum(term: DataNode, sums: dict[DataNode, OperatorNode]) -> DataNode | None:
    """The inner sum that a summand is, if nothing else reads it."""
    start = source_value(term)
    if start not in sums:
        return None
    node = term
    while True:
        if len(node.consumers) != 1 or node.is_output:
            return None
        if node is start:
            return start
        assert node.producer is not None
        node = node.producer.inputs[0]


def _residual_addition(result: DataNode, terms: list[DataNode], parts: frozenset[OperatorNode]) -> Addition | None:
    for skip in sorted(terms, key=lambda term: producer_index(source_value(term))):
        start = source_value(skip)
        others = [term for term in terms if term is not skip]
        if start.kind in ("parameter", "buffer", "attribute", "constant"):
            continue
        if all(source_value(term) is not start and operators_between(start, [term])[1] for term in others):
            return Addition(result, start, tuple(others), parts)
    return None


def operators_between(start: DataNode, ends: Iterable[DataNode]) -> tuple[set[OperatorNode], bool]:
    """The operators between `start` and `ends`, and True if they read `start`."""
    since, reads = producer_index(start), False
    found: set[OperatorNode] = set()
    waiting = list(ends)
    while waiting:
        node = waiting.pop()
        if node is start:
            reads = True
            continue
        producer = node.producer
        if producer is None or producer.index <= since or producer in found:
            continue
        found.add(producer)
        waiting.extend(producer.inputs)
    return found, reads


def is_idempotent(operator: OperatorNode) -> bool:
    """True for idempotent functions, such as relu."""
    return OperatorCall(operator).name in _IDEMPOTENT


def is_normalization(operator: OperatorNode) -> bool:
    """True for normalizations over each position, which are nearly idempotent."""
    return OperatorCall(operator).name in _NORMALIZATIONS


def is_normalised(node: DataNode) -> bool:
    """True if a value is the result of a normalization, or a part of it."""
    while node.producer is not None and node.producer.inputs:
        if is_normalization(node.producer):
            return True
        call = OperatorCall(node.producer)
        if call.name not in _MOVES:
            return False
        node = call.inputs[0]
    return False


def is_unchanged_by(node: DataNode, by: OperatorNode) -> bool:
    """True if `by` would not change any entry of a value."""
    while node.producer is not None and node.producer.inputs:
        call = OperatorCall(node.producer)
        if node.producer.overload is by.overload or call.name == OperatorCall(by).name:
            theirs, own = (OperatorCall(each) for each in (node.producer, by))
            return [theirs.get(name) for name in ("min_val", "max_val")] == [
                own.get(name) for name in ("min_val", "max_val")
            ]
        if call.name not in _KEEP_IDEMPOTENT:
            return False
        node = call.inputs[0]
    return False
