"""Traces, or single calls of modules, as functions of inputs and weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import xxhash

from modulekg_widgets.engine.knowledge.equivalence.data_movement import DataMovement
from modulekg_widgets.engine.knowledge.equivalence.normal_forms import FORMS, NormalizedCall
from modulekg_widgets.engine.knowledge.equivalence.value_numbering import (
    INPUT,
    STATE,
    TABLE,
    FlowFunction,
    FlowValue,
    ValueTable,
)
from modulekg_widgets.engine.operators.recorded_call import nodes_in
from modulekg_widgets.engine.operators.signature import base_name
from modulekg_widgets.engine.operators.traits import traits_of
from modulekg_widgets.engine.torch_runtime.private import VOLATILE_BUFFERS, overload_name_of
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, ModuleCall, OperatorNode, split_name

# of arguments that say where a result lies, or as what, which its own type tells
_PLACEMENT_ARGUMENTS = frozenset({"device", "dtype", "layout", "memory_format", "non_blocking", "pin_memory"})
_PLAIN = (bool, int, float, complex, str, type(None), torch.dtype, torch.layout)


class FlowReader:
    """Reads a range of operators into expressions of the given inputs."""

    def __init__(self, graph: Dataflow, inputs: Sequence[DataNode], moves: DataMovement, start: int = 0) -> None:
        self.graph = graph
        self.flow = ValueTable()
        self.moves = moves
        self.start = start
        self.known: dict[DataNode, FlowValue] = {}
        for at, node in enumerate(inputs):
            if node not in self.known:
                self.known[node] = self.flow.value(INPUT, {"at": str(at)}, (), node.shape, node.dtype)

    def read(self, end: int) -> None:
        """Reads the operators up to `end`."""
        for operator in self.graph.operators[self.start : end]:
            results = nodes_in(operator.result)
            for node in operator.outputs:
                if node not in results:
                    self.known[node] = self.flow.unknown(node, "memory is written through another view")
            values = self._values(operator, results)
            for node, value in zip(results, values, strict=True):
                value.operator = value.operator or operator
                self.known[node] = value

    def value_of(self, node: DataNode) -> FlowValue:
        """Returns the value of a node: computed, held by the model, or unknown."""
        if node not in self.known:
            self.known[node] = self._model_value(node)
        return self.known[node]

    def function(self, outputs: Sequence[DataNode]) -> FlowFunction:
        return FlowFunction(self.flow, [self.value_of(node) for node in outputs])

    # ---------------------------------------------------------- what the model holds

    def _model_value(self, node: DataNode) -> FlowValue:
        if node.producer is not None or node.is_input:
            return self.flow.unknown(node, "a value comes from outside of the call")
        if node.is_parameter or self._is_state(node):
            kind = {"kind": node.kind}
            return self.flow.value(STATE, kind, (), node.shape, node.dtype, own=node)
        return self._table(node)

    def _is_state(self, node: DataNode) -> bool:
        """True for a buffer of floats that is saved with the weights, such as running statistics."""
        if not node.is_buffer or not node.dtype.is_floating_point:
            return False
        path, name = split_name(self.graph, node.label)
        return name not in vars(self.graph.modules[path].module).get(VOLATILE_BUFFERS, ())

    def _table(self, node: DataNode) -> FlowValue:
        """Returns a constant tensor as a value identified by its content."""
        tensor = node.tensor
        if tensor is None or tensor.is_meta or tensor.layout is not torch.strided or tensor.is_quantized:
            return self.flow.unknown(node, f"the numbers of {node.name} are not known, as on the meta device")
        with torch.no_grad():
            content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        digest = xxhash.xxh3_128_hexdigest(content)
        flat = self.flow.value(TABLE, {"content": digest}, (), (node.numel(),), node.dtype)
        return self.moves.reshape(self.flow, flat, node.shape)

    # --------------------------------------------------------------- operators

    def _values(self, operator: OperatorNode, results: list[DataNode]) -> list[FlowValue]:
        if torch.Tag.nondeterministic_seeded in operator.overload.tags:
            return [self.flow.unknown(node, "numbers are drawn at random") for node in results]
        if (one := self._copied_value(operator, results)) is not None:
            return [one]
        if len(operator.inputs) == 1:
            moved = self.moves.operator_results(self.flow, operator, self.value_of(operator.inputs[0]))
            if moved is not None and [value.shape for value in moved] == [node.shape for node in results]:
                return moved
        call = NormalizedCall(self.flow, self.moves, operator, self.value_of)
        made = FORMS[call.name](call) if call.name in FORMS else None
        return [made] if made is not None else self._operator_values(call, results)

    def _copied_value(self, operator: OperatorNode, results: list[DataNode]) -> FlowValue | None:
        """Returns the input if the result is a copy of it."""
        traits = traits_of(operator.overload)
        if not (traits.copies or traits.is_bookkeeping) or len(operator.inputs) != 1 or len(results) != 1:
            return None
        value, (result,) = self.value_of(operator.inputs[0]), results
        return value if (value.shape, value.dtype) == (result.shape, result.dtype) else None

    def _operator_values(self, call: NormalizedCall, results: list[DataNode]) -> list[FlowValue]:
        """Returns the operator with all of its settings; in-place variants are equal to others."""
        overload = call.operator.overload
        nodes: list[DataNode] = []
        settings = {"overload": overload_name_of(overload)}
        for name, argument in call.arguments.items():
            text = setting_text(argument, nodes)
            if text is None:
                return [self.flow.unknown(node, f"a setting {name} is not a plain value") for node in results]
            if name not in _PLACEMENT_ARGUMENTS:
                settings[name] = text
        values = [self.value_of(node) for node in nodes]
        name = base_name(call.operator.name)
        commutes = traits_of(overload).commutes and len(values) == 2 and settings.get("alpha", "1") == "1"
        return [
            self.flow.value(
                name, settings if len(results) == 1 else {**settings, "result": str(at)}, values, node.shape,
                node.dtype, commutes=commutes,
            ) for at, node in enumerate(results)
        ]  # fmt: skip


def setting_text(argument: object, nodes: list[DataNode]) -> str | None:
    """Returns a setting as text, with its tensors appended to `nodes`; None for other objects. None for other "
    "objects."""
    if isinstance(argument, DataNode):
        nodes.append(argument)
        return "value"
    if isinstance(argument, list | tuple):
        parts = [setting_text(part, nodes) for part in argument]
        return None if None in parts else f"[{', '.join(map(str, parts))}]"
    if isinstance(argument, torch.device | torch.memory_format):
        return ""
    if not isinstance(argument, _PLAIN):
        return None
    return repr(int(argument)) if isinstance(argument, float) and argument.is_integer() else repr(argument)


def model_flow(graph: Dataflow, moves: DataMovement) -> tuple[FlowReader, FlowFunction]:
    """Returns the reader and the function of a whole trace."""
    reader = FlowReader(graph, graph.inputs, moves)
    reader.read(len(graph.operators))
    return reader, reader.function(graph.outputs)


def call_flow(graph: Dataflow, call: ModuleCall, moves: DataMovement) -> FlowFunction:
    """Returns the function of one call of a module."""
    reader = FlowReader(graph, call.inputs, moves, call.start)
    reader.read(len(graph.operators) if call.end is None else call.end)
    return reader.function(call.outputs)
