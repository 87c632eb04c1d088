"""What happened in a forward pass as tables: the steps in order, and the values between them by place."""

from __future__ import annotations

from dataclasses import dataclass

from modulekg_widgets.engine.operators.traits import traits_of
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, OperatorNode
from modulekg_widgets.engine.tracing.held import ATTRIBUTE, BUFFER, PARAMETER
from modulekg_widgets.engine.views.call_tree import CallTree
from modulekg_widgets.engine.views.payload import Distinct

PASS = -1  # in place of an operator's name: a module that hands on what it got


@dataclass(slots=True)
class FlowStep:
    """An operator, or a module in whose call none that does anything ran; `inputs` are places in the values."""

    name: int
    call: int
    inputs: list[int]
    operator: OperatorNode | None = None


class FlowTables:
    """Everything that happened, in order, with the values by place; bookkeeping of torch is no step."""

    def __init__(self, graph: Dataflow, tree: CallTree) -> None:
        self.graph = graph
        self.tree = tree
        self.names = Distinct()
        self.flops = [operator.flops() for operator in graph.operators]
        self.steps: list[FlowStep] = []
        self.nodes: list[DataNode] = []  # of each value
        self.made_by: list[int] = []  # of each value: its step, or -1
        self.inputs: list[list[int]] = [[] for _ in tree.calls]  # of each call
        self.outputs: list[list[int]] = [[] for _ in tree.calls]
        self._present: dict[int, int] = {}  # a tensor's index in the graph -> the value that holds it now
        # before anything ran: a module that hands an input on holds it from then on
        self.model_inputs = [self._value(node) for node in graph.inputs]
        first_steps: dict[int, int] = {}  # of the calls that have not ended
        for kind, call, at in tree.events():
            if kind == "operator":
                self._operator(call, graph.operators[at])
            elif kind == "enter":
                self.inputs[call] = [self._value(node) for node in tree.calls[call].inputs]
                first_steps[call] = len(self.steps)
            else:
                self._leave(call, first_steps.pop(call))
        self.model_outputs = [self._value(node) for node in graph.outputs]

    def _value(self, node: DataNode) -> int:
        place = self._present.get(node.index)
        return self._new(node, -1) if place is None else place

    def _new(self, node: DataNode, step: int) -> int:
        self._present[node.index] = len(self.nodes)
        self.nodes.append(node)
        self.made_by.append(step)
        return len(self.nodes) - 1

    def _operator(self, call: int, operator: OperatorNode) -> None:
        if traits_of(operator.overload).is_bookkeeping and self._is_passed_on(operator):
            return
        flowing = [node for node in operator.inputs if not is_state(node)]
        inputs = [self._value(node) for node in dict.fromkeys(flowing)]
        self.steps.append(FlowStep(self.names.place(operator.name), call, inputs, operator))
        for node in operator.outputs:
            self._new(node, len(self.steps) - 1)

    def _is_passed_on(self, operator: OperatorNode) -> bool:
        """Whether what an operator gives is from now on the value that it got; what the model holds is none."""
        given = dict.fromkeys(operator.inputs)
        if len(given) != 1 or len(operator.outputs) != 1 or any(is_state(node) for node in given):
            return False
        self._present[operator.outputs[0].index] = self._value(next(iter(given)))
        return True

    def _leave(self, call: int, first_step: int) -> None:
        record = self.tree.calls[call]
        if self.tree.is_leaf(call) and len(self.steps) == first_step and record.finished:
            inputs = [place for place in self.inputs[call] if not is_state(self.nodes[place])]
            self.steps.append(FlowStep(PASS, call, list(dict.fromkeys(inputs))))
            for node in dict.fromkeys(record.outputs):
                self._new(node, len(self.steps) - 1)  # whoever reads it from now on has it from here
        self.outputs[call] = [self._value(node) for node in record.outputs]


def is_state(node: DataNode) -> bool:
    """Whether a value is a parameter, a buffer or an attribute of a module."""
    return node.kind in (PARAMETER, BUFFER, ATTRIBUTE)
