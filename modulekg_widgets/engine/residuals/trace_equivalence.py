"""Checks that the trace after removing blocks equals the original trace minus those blocks.

What a module that went would have given is, for those behind it, what it lets through, or zeros.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from modulekg_widgets.engine.operators.arguments import OperatorCall
from modulekg_widgets.engine.residuals.blocks import ResidualBlock
from modulekg_widgets.engine.residuals.module_removal import ModuleRemoval, RemovedModule
from modulekg_widgets.engine.tracing.dataflow import CONSTANT, Dataflow, DataNode, ModuleCall, OperatorNode

Passthrough = dict[DataNode, DataNode]  # what a module gave -> what stands for it now
ZEROS = "zeros_like"


def is_equivalent_trace(
    graph: Dataflow, trace: Dataflow, blocks: Sequence[ResidualBlock], removal: ModuleRemoval
) -> bool:
    """True if a trace equals the original one without the removed modules.

    A cache that has less in it is read less often, and of a tensor that nobody reads no operator is needed: operators
    that read nothing which the model holds may be missing, where nobody reads what they gave.
    """
    return _TraceComparison(graph, blocks, removal).is_equivalent(trace)


class _TraceComparison:
    def __init__(self, graph: Dataflow, blocks: Sequence[ResidualBlock], removal: ModuleRemoval) -> None:
        self.graph = graph
        self.matches: Passthrough = {}  # values of the whole pass -> those of the other
        self.passthrough: Passthrough = {}
        self.zeros: list[tuple[DataNode, DataNode]] = []  # what a branch gave, and what zeros are made like
        by_path = {block.path: block for block in blocks}
        gone: set[int] = set()
        for each in sorted(removal.modules, key=lambda each: graph.modules[each.path].calls[0].start):
            call = graph.modules[each.path].calls[0]
            gone.update(range(call.start, call.end or call.start))
            self._add_placeholder(each, call, by_path.get(each.path))
        self.shared = [operator for block in blocks for operator in block.shared_operators]  # others make them now
        self.expected = [operator for operator in graph.operators if operator.index not in gone]

    def _add_placeholder(self, removed: RemovedModule, call: ModuleCall, block: ResidualBlock | None) -> None:
        output = block.output if block is not None else call.outputs[0]
        if removed.placeholder is None:
            assert block is not None
            self.passthrough[output] = block.source
            return
        argument = removed.placeholder.argument
        places = (argument.position, argument.keyword)
        given = next(node for node, place in zip(call.inputs, call.places, strict=True) if place in places)
        if removed.placeholder.gives_zeros:
            self.zeros.append((output, given))
        else:
            self.passthrough[output] = given

    def is_equivalent(self, trace: Dataflow) -> bool:
        at = 0
        for operator in trace.operators:
            expected = self.expected[at] if at < len(self.expected) else None
            if self._is_placeholder_zeros(operator, expected) or self._is_shared(operator, expected):
                continue
            while at < len(self.expected) and not self._is_same_call(self.expected[at], operator):
                if _reads_state(self.expected[at].inputs):
                    return False
                at += 1
            if at == len(self.expected):
                return False
            self.matches.update(zip(self.expected[at].outputs, operator.outputs, strict=True))
            at += 1
        missing = [*self.expected[at:], *self.shared]
        if self.zeros or any(_reads_state(operator.inputs) for operator in missing):
            return False
        return all(
            self._is_value(old, new) for old, new in zip(self.graph.fixed_outputs, trace.fixed_outputs, strict=True)
        )

    def _is_placeholder_zeros(self, operator: OperatorNode, expected: OperatorNode | None) -> bool:
        """True if an operator makes the zeros of the next placeholder."""
        if not self.zeros or OperatorCall(operator).name != ZEROS:
            return False
        if expected is not None and self._is_same_call(expected, operator):
            return False
        output, given = self.zeros[0]
        if not self._is_value(given, operator.inputs[0]):
            return False
        self.zeros.pop(0)
        self.matches[output] = operator.outputs[0]
        return True

    def _is_shared(self, operator: OperatorNode, expected: OperatorNode | None) -> bool:
        """True if an operator was part of a removed block and is shared by later ones."""
        if not self.shared or (expected is not None and self._is_same_call(expected, operator)):
            return False
        if not self._is_same_call(self.shared[0], operator):
            return False
        self.matches.update(zip(self.shared.pop(0).outputs, operator.outputs, strict=True))
        return True

    def _is_same_call(self, old: OperatorNode, new: OperatorNode) -> bool:
        return (
            old.overload is new.overload
            and len(old.outputs) == len(new.outputs)
            and self._is_argument(old.args, new.args)
            and self._is_argument(old.kwargs, new.kwargs)
        )

    def _is_argument(self, old: Any, new: Any) -> bool:
        if isinstance(old, DataNode):
            return isinstance(new, DataNode) and self._is_value(old, new)
        if type(old) is not type(new):
            return False
        if isinstance(old, list | tuple):
            return len(old) == len(new) and all(map(self._is_argument, old, new))
        if isinstance(old, Mapping):
            return old.keys() == new.keys() and all(self._is_argument(value, new[key]) for key, value in old.items())
        if isinstance(old, int | float | complex | str | bool | torch.dtype | torch.layout | torch.memory_format):
            return old == new or (old != old and new != new)
        return True  # a device, a generator

    def _is_value(self, old: DataNode, new: DataNode) -> bool:
        while old in self.passthrough:
            old = self.passthrough[old]
        if old in self.matches:
            return self.matches[old] is new
        if old.producer is not None or new.producer is not None:
            return False
        # from without: what the model holds, an input; or a constant, whose label is no more than its number
        known = (old.kind, old.shape, old.dtype) == (new.kind, new.shape, new.dtype)
        known = known and (_are_equal(old.tensor, new.tensor) if old.kind == CONSTANT else old.label == new.label)
        if known:
            self.matches[old] = new
        return known


def _are_equal(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """True if two constants are equal, as far as their values are known."""
    if one is None or other is None or one.is_meta or other.is_meta or one.layout is not torch.strided:
        return True
    return one is other or torch.equal(one.nan_to_num(), other.nan_to_num())


def _reads_state(inputs: Iterable[DataNode]) -> bool:
    return any(node.is_parameter or node.is_buffer for node in inputs)
