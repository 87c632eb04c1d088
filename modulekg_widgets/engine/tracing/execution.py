"""Execution of recorded operators on real tensors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

from modulekg_widgets.engine.errors import ModuleKGError, TraceError, printable
from modulekg_widgets.engine.operators.recorded_call import recorded_shape
from modulekg_widgets.engine.operators.traits import traits_of
from modulekg_widgets.engine.operators.user_operators import user_operators
from modulekg_widgets.engine.torch_runtime.modules import module_state, registered_tensors
from modulekg_widgets.engine.torch_runtime.private import has_storage, schema_of
from modulekg_widgets.engine.torch_runtime.pytree import Args, Kwargs, input_tensors, leaves, tensors, with_leaves
from modulekg_widgets.engine.tracing.argument_recorder import unwrap_tensor
from modulekg_widgets.engine.tracing.dataflow import CONSTANT, INPUT, Dataflow, DataNode, OperatorNode, split_name
from modulekg_widgets.engine.tracing.unregistered_tensors import ATTRIBUTE, unregistered_tensor

Tensor = torch.Tensor
MAX_CONSTANT_SIZE = 1 << 22  # elements
Devices = Callable[[torch.device], torch.device]


def run_operator(operator: OperatorNode, value_of: Callable[[DataNode], Any], device_for: Devices | None = None) -> Any:
    """Runs a recorded operator on the tensors that `value_of` returns for its nodes."""
    args = _filled(operator.args, value_of)
    kwargs = {name: _filled(argument, value_of) for name, argument in operator.kwargs.items()}
    if device_for is not None and kwargs.get("device") is not None:
        kwargs["device"] = device_for(torch.device(kwargs["device"]))
    user = user_operators.get(operator.name)
    if user is not None:
        return user(operator.overload, args, kwargs, on_meta=False)
    return operator.overload(*args, **kwargs)


def _filled(argument: object, value_of: Callable[[DataNode], Any]) -> Any:
    if isinstance(argument, DataNode):
        return value_of(argument)
    return [_filled(part, value_of) for part in argument] if isinstance(argument, list | tuple) else argument


# ---------------------------------------------------------------- constants


def constant_value(node: DataNode) -> Tensor | None:
    """Returns the contents of a value that depends on constants and integer buffers alone, else None."""
    known: dict[DataNode, Tensor | None] = {}
    waiting = [node]
    while waiting:
        top = waiting[-1]
        if top not in known:
            unknown = [source for source in _sources(top) if source not in known]
            if unknown:
                waiting.extend(unknown)
                continue
            known[top] = _constant(top, known)
        waiting.pop()
    return known[node]


def _sources(node: DataNode) -> list[DataNode]:
    operator = node.producer
    return operator.inputs if operator is not None and _is_deterministic(operator, node) else []


def _is_deterministic(operator: OperatorNode, node: DataNode) -> bool:
    overload = operator.overload
    seeded = torch.Tag.nondeterministic_seeded in overload.tags
    return not schema_of(overload).is_mutable and not seeded and node.numel() <= MAX_CONSTANT_SIZE


def _constant(node: DataNode, known: dict[DataNode, Tensor | None]) -> Tensor | None:
    operator = node.producer
    if operator is None:
        held = (
            node.tensor if (node.is_buffer_like or node.kind == CONSTANT) and not node.dtype.is_floating_point else None
        )
        return None if held is None or held.is_meta or held.numel() > MAX_CONSTANT_SIZE else held.cpu()
    if not _is_deterministic(operator, node) or any(known.get(source) is None for source in operator.inputs):
        return None
    with torch.no_grad():
        results = run_operator(operator, known.__getitem__, lambda _: torch.device("cpu"))
    return dict(zip(operator.outputs, (tensor for _, tensor in tensors(results)), strict=False)).get(node)


# ------------------------------------------------------------------ forward


def fill_values(graph: Dataflow, args: Args, kwargs: Kwargs) -> Any:
    """Run the recorded operators on `args` and keep every value on its node; inputs and model stay as they are.

    Gives what the model would return. Raises `TraceError` when inputs or model have other shapes than at the trace,
    when the data lead another way through the code, and for a model on the meta device.
    """
    if graph.error is not None:
        raise TraceError(
            "the graph ends where its forward pass stopped: trace with inputs that the model accepts", graph
        )
    values = ForwardReplay(graph, args, kwargs).run_all()
    for node in graph.values:
        node.value = values[node]
    return with_leaves(graph.result, DataNode, values.__getitem__)


class ForwardReplay:
    """A replay of the recorded operators on real tensors, with memory shared as in the model."""

    def __init__(self, graph: Dataflow, args: Args, kwargs: Kwargs) -> None:
        self.graph = graph
        self.devices: dict[torch.device, torch.device] = {}  # those of today for those at the trace
        self.values: dict[DataNode, Tensor] = {}
        self.before: dict[DataNode, Tensor] = {}  # what a value was until its memory was written
        self.sharing: dict[int, list[DataNode]] = defaultdict(list)  # the values by the address of their memory
        given = {**_current_state(graph), **self._input_values(args, kwargs)}
        written = {node.storage for node in graph.values if node.previous is not None}
        for node in graph.values:
            if node.producer is None:
                tensor = self._checked(node, given.get(node, node.tensor))
                self._take(node, tensor.clone() if node.storage in written else tensor)

    def _input_values(self, args: Args, kwargs: Kwargs) -> dict[DataNode, Tensor]:
        """The tensors of the inputs by their nodes."""
        given = input_tensors(self.graph.model, args, kwargs)
        traced = input_tensors(self.graph.model, *self.graph.call)
        got, expected = (
            ", ".join(f"{name} {list(recorded_shape(t))}" for name, t in found) for found in (given, traced)
        )
        if got != expected:
            raise self._error(f"forward got {got or 'no tensors'}, and the graph was traced with {expected}")
        if given:
            today = given[0][1].device
            self.devices = {traced[0][1].device: today, torch.device("meta"): today}
        nodes = {id(node.tensor): node for node in self.graph.values if node.tensor is not None}
        found: dict[DataNode, Tensor] = {}
        for (name, given_now), (_, given_then) in zip(given, traced, strict=True):
            tensor, before = unwrap_tensor(given_now), unwrap_tensor(given_then)
            node = nodes[id(before)]
            if found.setdefault(node, tensor if node.kind == INPUT else before) is not tensor:
                raise self._error(f"the traced {name} and {printable(node.name)} were one tensor, and now they are two")
        # what Python read there went on as constants
        read = next((entry for entry in self.graph.data_dependent if entry.operator.startswith("Tensor.")), None)
        if read is not None and any(
            not torch.equal(now, was) for (_, now), (_, was) in zip(given, traced, strict=True)
        ):
            raise self._error(f"the code took data out of a tensor by {read.operator} at {read.source}")
        return found

    def _checked(self, node: DataNode, tensor: Tensor | None) -> Tensor:
        assert tensor is not None
        if tensor.is_meta and node.kind == CONSTANT and not tensor.numel():
            return torch.empty_like(tensor, device=self._device(tensor.device))
        if tensor.is_meta:
            raise TraceError(
                f"{printable(node.name)} is on the meta device: give the model weights first, as by to_empty"
            )
        if recorded_shape(tensor) != node.shape:
            raise self._error(
                f"{printable(node.name)} has shape {list(recorded_shape(tensor))}, at the trace {list(node.shape)}"
            )
        return tensor.to(self._device(tensor.device)) if node.kind == CONSTANT else tensor

    def _error(self, what: str) -> TraceError:
        return TraceError(f"{what}: trace the model again as it is called now", self.graph)

    def run_all(self) -> dict[DataNode, Tensor]:
        """The values of all nodes after all operators have run."""
        with torch.inference_mode(False), torch.no_grad():
            for operator in self.graph.operators:
                try:
                    self._perform(operator)
                except ModuleKGError:
                    raise
                except Exception as error:
                    reason = f"{type(error).__name__}: {printable(str(error), 300)}"
                    raise self._error(f"{operator.where} stopped on these inputs: {reason}") from error
        return {**self.values, **self.before}

    def _perform(self, operator: OperatorNode) -> None:
        versions = {node: node.previous for node in operator.outputs if node.previous is not None}
        for previous in versions.values():
            for node in self.sharing.pop(_address(self.values[previous]), ()):
                self.before[node] = self.values[node].clone()
        value_of = self._copy if traits_of(operator.overload).writes_buffers else self._value
        results = run_operator(operator, value_of, self._device)
        for node, previous in versions.items():
            self._take(node, self.values[previous])
        traced = [node for _, node in leaves(operator.result, DataNode)]
        produced = [tensor for _, tensor in tensors(results)]
        if not (traced or versions or results == operator.result or results != results):  # NaN is not itself
            raise self._error(f"{operator.where} gave {results}, at the trace {operator.result}")
        for node, tensor in zip(traced, produced, strict=True):
            # what nobody reads, such as statistics saved for a backward pass, may differ between devices
            if recorded_shape(tensor) != node.shape and node.is_read:
                raise self._error(
                    f"{operator.where} gave {list(recorded_shape(tensor))}, at the trace {list(node.shape)}"
                )
            if node not in versions:
                self._take(node, tensor)

    def _take(self, node: DataNode, value: Tensor) -> None:
        self.values[node] = value
        self.sharing[_address(value)].append(node)

    def _device(self, traced: torch.device) -> torch.device:
        return self.devices.get(traced, torch.device("cpu") if traced.type == "meta" else traced)

    def _value(self, node: DataNode) -> Tensor:
        return self.values[node]

    def _copy(self, node: DataNode) -> Tensor:
        return self.values[node].clone() if node.is_buffer_like else self.values[node]


def _address(value: Tensor) -> int:
    """Returns the address of the storage that views share; 0 for tensors without one."""
    plain = value.layout is torch.strided and has_storage(value)
    return value.untyped_storage().data_ptr() if plain else 0


def _current_state(graph: Dataflow) -> dict[DataNode, Tensor]:
    """Returns the current tensors of the model, which `to` or `load_state_dict` may have replaced."""
    found = {}
    for name, node in graph.state.items():
        path, attribute = split_name(graph, name)
        state = module_state(graph.modules[path].module)
        tensor = (
            unregistered_tensor(state, attribute)
            if node.kind == ATTRIBUTE
            else registered_tensors(state).get(attribute)
        )
        if isinstance(tensor, Tensor):
            found[node] = tensor
    return found
