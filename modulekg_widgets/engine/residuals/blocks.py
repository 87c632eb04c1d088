"""Residual blocks as modules: those that compute `x + f(x)`, and those that are the branch `f`.

The blocks are found in the data flow alone, without module names: `additions.py` finds the sums, and
this file finds the modules that can be removed from them. A whole block is removed from its container
or passes its input on; a branch is replaced by zeros (`placeholders`). `removal_trial` verifies that
the model runs without a block and computes the same apart from it. `graph.blocks()` lists the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from modulekg_widgets.engine.operators.arguments import OperatorCall
from modulekg_widgets.engine.operators.traits import traits_of
from modulekg_widgets.engine.residuals.additions import (
    Addition,
    is_idempotent,
    is_normalised,
    is_normalization,
    is_unchanged_by,
    operators_between,
    preserves_zeros,
    producer_index,
    residual_additions,
    source_value,
)
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, ModuleCall, OperatorNode
from modulekg_widgets.engine.tracing.flops import count_flops

Branch = tuple[DataNode, int]  # the result of an addition, and which of its branches


@dataclass(frozen=True, slots=True, eq=False)
class ResidualBlock:
    """A module that can be removed from `x + f(x)`: all of it, or f alone."""

    path: str
    call: ModuleCall
    is_branch: bool  # f alone: what stands for the module gives zeros, and the addition stays
    source: DataNode  # x
    result: DataNode  # x + f(x)
    output: DataNode  # what the module gives
    branches: frozenset[Branch] = field(repr=False)
    bypassed: tuple[str, ...] = ()  # modules that serve f alone and give what they get, as a normalisation before it
    input_index: int = -1  # of a branch: the input of the module that has the shape of its output
    upstream: tuple[tuple[ModuleCall, int], ...] = ()  # modules of f that let an input through, so that it has
    shared_operators: tuple[OperatorNode, ...] = ()  # what it computes, but not of x, for those behind it, as positions

    @property
    def modules(self) -> tuple[str, ...]:
        """The paths of all removed modules."""
        return (self.path, *(call.path for call, _ in self.upstream), *self.bypassed)

    @property
    def shared_weights(self) -> set[DataNode]:
        """The tensors of the block that later modules need."""
        return {
            node
            for operator in self.shared_operators
            for node in operator.inputs
            if node.is_parameter or node.is_buffer
        }


def candidate_blocks(graph: Dataflow) -> list[ResidualBlock]:
    """The residual blocks in the data flow, in forward order, not yet verified."""
    search = _BlockSearch(graph)
    whole = _without_stacks(graph, list(search.whole_blocks()))
    taken = {
        block.branches for block in whole if not block.shared_operators
    }  # of these the branch may go where all cannot
    branches = [block for block in search.branch_blocks() if block.branches not in taken]
    return sorted([*whole, *branches], key=lambda block: (block.call.start, block.is_branch, -(block.call.end or 0)))


def candidate_layers(graph: Dataflow) -> list[ResidualBlock]:
    """The whole-module blocks, including those with normalizations after their sums.

    Without its branches one of the latter normalises what has been normalised: it goes with its normalisations, and
    those behind it get what they got but for their weights.
    """
    return _without_stacks(graph, list(_BlockSearch(graph, keeps_norms=False).whole_blocks()))


def is_inside(path: str, outer: str) -> bool:
    """True if a path is inside the module at another path."""
    return path.startswith(f"{outer}.")


def outermost_blocks(blocks: Iterable[ResidualBlock]) -> list[ResidualBlock]:
    """The blocks that are in no other block."""
    every = list(blocks)
    paths = {block.path for block in every}
    return [block for block in every if not any(is_inside(block.path, path) for path in paths)]


def block_parameters(graph: Dataflow, block: ResidualBlock) -> list[DataNode]:
    """The parameters that belong to a block alone."""
    roots, stay = block.modules, block.shared_weights

    def goes(name: str) -> bool:
        return any(name.startswith(f"{root}.") for root in roots)

    every = dict.fromkeys(graph.state.values())
    return [node for node in every if node.is_parameter and node not in stay and all(map(goes, node.names))]


def block_flops(graph: Dataflow, block: ResidualBlock) -> int:
    """The FLOPs of a block's modules."""
    operators = [operator for path in block.modules for operator in graph.modules[path].operators]
    return int(count_flops(operator for operator in operators if operator not in block.shared_operators))


def _without_stacks(graph: Dataflow, blocks: list[ResidualBlock]) -> list[ResidualBlock]:
    """The blocks without stacks of several blocks and without wrappers of one block."""
    found = []
    for block in blocks:
        inside = outermost_blocks(other for other in blocks if is_inside(other.path, block.path))
        classes = Counter(type(graph.modules[other.path].module) for other in inside)
        is_stack = any(count > 1 for count in classes.values())
        is_wrapper = any(other.branches == block.branches for other in inside)
        if not is_stack and not is_wrapper:
            found.append(block)
    return found


class _BlockSearch:
    def __init__(self, graph: Dataflow, keeps_norms: bool = True) -> None:
        self.graph = graph
        self.keeps_norms = keeps_norms
        self.additions = residual_additions(graph)
        self.counted = set(graph.fixed_outputs)
        once = [node for node in dict.fromkeys(graph.modules.values()) if len(node.calls) == 1 and node.path]
        self.calls = [node.calls[0] for node in once if node.calls[0].end is not None]

    # ---------------------------------------------------------------- whole

    def whole_blocks(self) -> Iterator[ResidualBlock]:
        for call in self.calls:
            inputs = {source_value(node): node for node in call.inputs}
            for output in dict.fromkeys(call.outputs):
                found = self._skip_source(output, call)
                if found is None or found[0] not in inputs or inputs[found[0]].shape != output.shape:
                    continue
                source, branches = found
                shared = self._shared_operators(call, source, {output, source_value(output)})
                if shared is not None:
                    yield ResidualBlock(
                        call.path,
                        call,
                        False,
                        inputs[source],
                        output,
                        output,
                        frozenset(branches),
                        shared_operators=shared,
                    )
                    break

    def _skip_source(self, output: DataNode, call: ModuleCall) -> tuple[DataNode, set[Branch]] | None:
        """The value that a module's output equals without its branches, and these branches."""
        branches: set[Branch] = set()
        functions: list[OperatorNode] = []
        has_norms = False
        node = source_value(output)
        while producer_index(node) >= call.start:
            addition = self.additions.get(node)
            if addition is not None:
                branches |= {(addition.result, at) for at in range(len(addition.branches))}
                node = addition.skip
            elif node.producer is not None and is_idempotent(node.producer):
                functions.append(node.producer)
                node = source_value(OperatorCall(node.producer).inputs[0])
            elif not self.keeps_norms and node.producer is not None and is_normalization(node.producer):
                has_norms = True
                node = source_value(OperatorCall(node.producer).inputs[0])
            else:
                return None
        if not branches or (has_norms and not is_normalised(node)):
            return None
        if not all(is_unchanged_by(node, function) for function in functions):
            return None
        return node, branches

    def _escapes(self, call: ModuleCall, allowed: set[DataNode]) -> bool:
        """True if other values of a call are used after it."""
        return next(self._values_used_later(call, allowed), None) is not None

    def _values_used_later(self, call: ModuleCall, allowed: set[DataNode]) -> Iterator[DataNode]:
        assert call.end is not None
        for operator in self.graph.operators[call.start : call.end]:
            for node in operator.outputs:
                is_used = node in self.counted or any(reader.index >= call.end for reader in node.consumers)
                if is_used and node not in allowed:
                    yield node

    def _shared_operators(
        self, call: ModuleCall, source: DataNode, allowed: set[DataNode]
    ) -> tuple[OperatorNode, ...] | None:
        """The operators for other values used later; None if they depend on the block's input."""
        found: set[OperatorNode] = set()
        open_ends = list(self._values_used_later(call, allowed))
        while open_ends:
            node = open_ends.pop()
            if producer_index(node) < call.start:
                if source_value(node) is source:
                    return None
            elif node.producer is not None and node.producer not in found:
                found.add(node.producer)
                open_ends += node.producer.inputs
        return tuple(sorted(found, key=lambda operator: operator.index))

    # ------------------------------------------------------------- branches

    def branch_blocks(self) -> Iterator[ResidualBlock]:
        for addition in self.additions.values():
            for at, branch in enumerate(addition.branches):
                block = self._branch(addition, at, branch)
                if block is not None:
                    yield block

    def _branch(self, addition: Addition, at: int, branch: DataNode) -> ResidualBlock | None:
        operators, _ = operators_between(addition.skip, [branch])
        ends = sorted(self._branch_ends(addition, branch, operators), key=lambda end: end[0].start - (end[0].end or 0))
        for call, output in ends:
            way = self._input_path(addition, call, output, operators)
            if way is not None:
                beside = self._bypassed_modules(addition, call, operators, [other.path for other, _ in way[1:]])
                return ResidualBlock(
                    call.path, call, True, addition.skip, addition.result, output,
                    frozenset([(addition.result, at)]), tuple(beside), way[0][1], tuple(way[1:]),
                )  # fmt: skip
        return None

    def _input_path(
        self, addition: Addition, call: ModuleCall, output: DataNode, operators: set[OperatorNode]
    ) -> list[tuple[ModuleCall, int]] | None:
        """The module and upstream modules with the inputs through which x reaches the output.

        None where it gets nothing of the shape that it gives, even when those before it give what they get.
        """
        fed = matching_inputs(call, output)
        own = [at for at in fed if call.inputs[at] is addition.skip or call.inputs[at].producer in operators]
        if fed:
            return [(call, (own or fed)[0])]
        for at, node in enumerate(call.inputs):
            for earlier in _pointwise_sources(node, operators):
                for before in self._calls_by_output.get(earlier, ()):
                    if self._is_only_for_branch(before, addition, call, operators) and (
                        others := matching_inputs(before, output)
                    ):
                        return [(call, at), (before, others[0])]
        return None

    def _is_only_for_branch(
        self, call: ModuleCall, addition: Addition, block: ModuleCall, operators: set[OperatorNode]
    ) -> bool:
        """True if a module is used by a branch alone, before the block's module."""
        assert call.end is not None
        inside = self.graph.operators[call.start : call.end]
        allowed = {node for node in call.outputs if operators.issuperset(node.consumers) and node not in self.counted}
        return (
            producer_index(addition.skip) < call.start < call.end <= block.start
            and any(operator in operators for operator in inside)
            and not self._escapes(call, allowed)
        )

    def _branch_ends(
        self, addition: Addition, branch: DataNode, operators: set[OperatorNode]
    ) -> Iterator[tuple[ModuleCall, DataNode]]:
        """The modules of a branch that make it zero when they return zeros, with their outputs."""
        since, node = producer_index(addition.skip), branch
        users = operators | addition.operators
        while True:
            if not users.issuperset(node.consumers) or node in self.counted or producer_index(node) <= since:
                return
            for call in self._calls_by_output.get(node, ()):
                if call.start > since and not self._escapes(call, {node}) and not _contains_addition(call, addition):
                    yield call, node
            producer = node.producer
            if producer is None:
                return
            inputs = [each for each in producer.inputs if producer_index(each) > since]
            if not inputs or not preserves_zeros(producer, inputs[0]):
                return
            node = inputs[0]

    @cached_property
    def _calls_by_output(self) -> dict[DataNode, list[ModuleCall]]:
        found: dict[DataNode, list[ModuleCall]] = {}
        for call in self.calls:
            assert call.end is not None
            if call.start < call.end:
                for node in dict.fromkeys(call.outputs):
                    found.setdefault(node, []).append(call)
        return found

    def _bypassed_modules(
        self, addition: Addition, block: ModuleCall, operators: set[OperatorNode], others: list[str]
    ) -> Iterator[str]:
        """The outermost modules used by a branch alone that return a tensor in the shape of an input."""
        assert block.end is not None
        since, chosen = producer_index(addition.skip), [block.path, *others]
        for call in self.calls:
            assert call.end is not None
            if call.start <= since or call.end <= call.start or call.end > addition.last_index:
                continue
            if any(is_inside(call.path, path) or is_inside(path, call.path) or call.path == path for path in chosen):
                continue
            inside = self.graph.operators[call.start : call.end]
            if not operators.issuperset(inside) or (call.start < block.end and block.start < call.end):
                continue
            output = call.outputs[0] if len(call.outputs) == 1 and call.result is call.outputs[0] else None
            if output is None or not matching_inputs(call, output) or self._escapes(call, {output}):
                continue
            if operators.issuperset(output.consumers) or _is_only_added(output, addition):
                chosen.append(call.path)
                yield call.path


def _pointwise_sources(node: DataNode, operators: set[OperatorNode]) -> Iterator[DataNode]:
    """A value and its pointwise sources."""
    while True:
        yield node
        producer = node.producer
        if producer is None or producer not in operators:
            return
        inputs = [each for each in producer.inputs if each.shape == node.shape and each.producer in operators]
        is_simple = traits_of(producer.overload).pointwise or producer.inputs == inputs
        if not inputs or not is_simple:
            return
        node = inputs[0]


def _is_only_added(output: DataNode, addition: Addition) -> bool:
    return addition.operators.issuperset(output.consumers)


def _contains_addition(call: ModuleCall, addition: Addition) -> bool:
    assert call.end is not None
    return any(call.start <= operator.index < call.end for operator in addition.operators)


def matching_inputs(call: ModuleCall, output: DataNode) -> list[int]:
    """The positions of the inputs of a call with the shape and dtype of an output."""
    return [at for at, node in enumerate(call.inputs) if (node.shape, node.dtype) == (output.shape, output.dtype)]
