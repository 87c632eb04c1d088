"""The data flow of one forward pass: values, operators and module calls as plain data.

`Dataflow` lists the tensors (`DataNode`), the calls of ATen operators (`OperatorNode`) and the modules (`ModuleNode`)
in the order of execution. A node knows its producer and consumers; an in-place write makes a new node with `previous`.
Parameters and buffers have one node for all their names. `state` maps names to nodes, `result` is the output with nodes
in place of tensors. Notes, unknown calls and calls that depend on data are listed beside. `mk.trace` returns the
subclass `DataflowGraph`, which adds axes; the graph holds the model, so it cannot be pickled.

>>> import torch, modulekg_widgets as mk
>>> graph = mk.trace(torch.nn.Linear(3, 4), torch.zeros(1, 3))
>>> graph.operators[-1].name, [node.name for node in graph.operators[-1].params]
('aten::addmm', ['bias'])
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

import torch
from torch import nn

from modulekg_widgets.engine.errors import TraceError, UnknownNameError, UnknownPathError, closest_match_hint, printable
from modulekg_widgets.engine.operators.arguments import schema_arguments
from modulekg_widgets.engine.operators.cost import operator_flops
from modulekg_widgets.engine.operators.recorded_call import CallRecord, Value, recorded_shape, sparse_element_count
from modulekg_widgets.engine.torch_runtime.modules import is_script
from modulekg_widgets.engine.torch_runtime.private import Overload, buffers_of, modules_of, parameters_of, schema_of
from modulekg_widgets.engine.torch_runtime.pytree import Args, Kwargs, entries, leaves
from modulekg_widgets.engine.tracing.flops import Flops, count_flops, matmul_flops
from modulekg_widgets.engine.tracing.source import Source
from modulekg_widgets.engine.tracing.unregistered_tensors import ATTRIBUTE, BUFFER, PARAMETER

# -------------------- The selection of the outputs that must keep their shape; a cut may change the others


OutputSelection = Sequence[str | int]
NEXT_CALL = {"past_key_values", "past_buckets_states", "cache_params", "mems"}  # what serves the next call
LOGITS = "logits"  # beside it, what a model gives of its inside is for looking at
_INSIDE = re.compile(r"encoder_.*|(.*_)?(hidden_states?|attentions)")


def parse_output_selection(outputs: Any) -> OutputSelection | None:
    """Parses the `outputs` argument into names and indices; raises `UnknownNameError`.

    An empty list is of no output: all of them may be cut.
    """
    if outputs is None:
        return None
    every = [outputs] if isinstance(outputs, str | int) else outputs
    if not isinstance(every, Sequence) or not all(type(one) in (str, int) for one in every):
        wrong = f"outputs={printable(repr(outputs))}"
        raise UnknownNameError(f"{wrong}: give names or indices of outputs, as ['logits'] or [0], or [] for none")
    return every


def find_cuttable_outputs(result: object, wanted: OutputSelection | None) -> dict[str, Any]:
    """The outputs that do not count, by name: what is not wanted, by default what serves the next call or the inside.

    Raises `UnknownNameError` for a name or an index that the outputs do not have.
    """
    named = [(_strip_dot(name), node) for name, node in leaves(result, Value)]
    counts = set(output_names(result))
    if wanted is not None:
        counts = set().union(*(_selected_names(one, result, list(counts)) for one in wanted))
    elif (inside := _internal_outputs(result)) != set(counts):
        counts -= inside
    kept = {node for name, node in named if name in counts}
    return {name: node for name, node in named if node not in kept}


def output_names(result: object) -> list[str]:
    """The names of all tensors in what forward returned."""
    return [_strip_dot(name) for name, _ in leaves(result, Value)]


def _strip_dot(name: str) -> str:
    return name.removeprefix(".")


def _internal_outputs(result: object) -> set[str]:
    """Returns the names of caches for the next call, and of hidden states and attentions beside `logits`."""
    if not isinstance(result, Mapping):
        return set()
    keys = [key for key in result if isinstance(key, str)]
    gone = [key for key in keys if key in NEXT_CALL or (LOGITS in keys and _INSIDE.fullmatch(key))]
    return {name for key in gone for name in _names_below(key, result[key])}


def _names_below(name: str, value: object) -> list[str]:
    return [_strip_dot(place) for place, _ in leaves(value, Value, name)]


def _selected_names(one: str | int, result: object, names: list[str]) -> list[str]:
    """The names of the tensors that a name or an index means."""
    top = [(_strip_dot(step), value) for step, value in entries(result)] or [("", result)]
    if isinstance(one, int):
        if not -len(top) <= one < len(top):
            raise UnknownNameError(f"outputs: there is no output {one}; forward gives {len(top)}: {_listed(top)}")
        return _names_below(*top[one])
    found = [name for name in names if name == one or name.startswith((f"{one}.", f"{one}["))]
    if not found:
        known = [*dict.fromkeys([*(step for step, _ in top if step), *names])]
        near = closest_match_hint(one, known) if any(known) else "forward gives one tensor, outputs=[0]"
        raise UnknownNameError(f"outputs: there is no output {printable(repr(one))}: {near}")
    return found


def _listed(top: list[tuple[str, Any]]) -> str:
    return ", ".join(printable(step) or "a tensor" for step, _ in top[:8])


# ----------------------------------------


INPUT, CONSTANT, RESULT = "input", "constant", "result"  # beside PARAMETER, BUFFER and ATTRIBUTE


class Storage:
    """The memory that views share, with the last operator that wrote to it."""

    __slots__ = ("writer", "written")

    def __init__(self) -> None:
        self.writer: OperatorNode | None = None
        self.written = -1


class DataNode(Value):
    """A tensor in the forward pass; an in-place write makes a new node whose `previous` is the old one."""

    __slots__ = (
        "consumers", "dtype", "escapes", "graph", "index", "is_output", "is_ragged", "kind", "label", "names",
        "previous", "producer", "shape", "stamp", "storage", "stored", "stride", "tensor", "value",
    )  # fmt: skip

    def __init__(self, graph: Dataflow, tensor: torch.Tensor, kind: str, storage: Storage, label: str = "") -> None:
        self.graph = graph
        self.index = len(graph.values)
        self.kind = kind
        self.label = label
        self.names: tuple[str, ...] = ()  # of what the model holds: all its names, several when it is tied
        self.shape: tuple[int, ...] = recorded_shape(tensor)
        self.stored = sparse_element_count(tensor)
        self.is_ragged = tensor.is_nested and tensor.layout is torch.strided
        self.stride: tuple[int, ...] = (
            tensor.stride() if tensor.layout is torch.strided and not tensor.is_nested else ()
        )
        self.graph.has_ragged |= self.is_ragged
        self.dtype: torch.dtype = tensor.dtype
        self.producer: OperatorNode | None = None
        self.consumers: list[OperatorNode] = []
        self.previous: DataNode | None = None
        self.is_output = False
        self.escapes = False  # Python took its data out of torch
        self.storage = storage
        self.stamp = len(graph.operators) - 1  # of the last operator that it has seen
        self.tensor: torch.Tensor | None = None  # of what the model holds: the real tensor
        self.value: torch.Tensor | None = None  # filled by DataflowGraph.forward
        graph.values.append(self)

    @property
    def name(self) -> str:
        """The dotted name of a parameter or buffer, the argument's name of an input, else module:operator_index."""
        if self.producer is None:
            return self.label
        operator = self.producer
        short = operator.name.rpartition("::")[2]
        suffix = f".{operator.outputs.index(self)}" if len(operator.outputs) > 1 else ""
        return f"{operator.module}:{short}_{operator.index}{suffix}"

    @property
    def is_read(self) -> bool:
        """True if an operator, Python or the caller of the model reads the value."""
        return bool(self.consumers) or self.is_output or self.escapes

    @property
    def is_input(self) -> bool:
        return self.kind == INPUT

    @property
    def is_parameter(self) -> bool:
        return self.kind == PARAMETER

    @property
    def is_buffer(self) -> bool:
        return self.kind == BUFFER

    @property
    def is_buffer_like(self) -> bool:
        """True if the model holds the tensor without training it: a buffer, or a tensor in a plain attribute."""
        return self.kind in (BUFFER, ATTRIBUTE)

    @property
    def nbytes(self) -> int:
        """The size of the tensor in bytes."""
        return self.numel() * self.dtype.itemsize

    def cut_analysis(self, index: Sequence[int], dim: int = 0) -> Any:
        """Computes all changes that removing positions of this tensor requires; changes nothing."""
        return self.graph.cut_analysis(self, index=index, dim=dim)

    def __repr__(self) -> str:
        return f"<{printable(self.name)}: {self.kind} {list(self.shape)} {str(self.dtype).removeprefix('torch.')}>"


@dataclass(eq=False, slots=True)
class OperatorNode:
    """One call of an ATen operator; where a tensor stood, `args`, `kwargs` and `result` hold its `DataNode`."""

    graph: Dataflow = field(repr=False)
    index: int
    overload: Overload
    args: Args = field(repr=False)
    kwargs: Kwargs = field(repr=False)
    inputs: list[DataNode] = field(repr=False)
    module: str
    source: Source | None
    outputs: list[DataNode] = field(default_factory=list, repr=False)
    result: object = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The operator's name without its overload, as `aten::convolution`."""
        return schema_of(self.overload).name

    @property
    def params(self) -> list[DataNode]:
        """The parameters and buffers among the inputs."""
        return [node for node in self.inputs if node.kind in (PARAMETER, BUFFER)]

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments of the call by their names in the operator's schema, as `stride` and `groups`."""
        return schema_arguments(self.overload, self.args, self.kwargs)

    @property
    def where(self) -> str:
        """Operator, module path and source line in one line of text."""
        module = printable(self.module) or "(root)"
        return f"{self.name} in {module}" + (f", {self.source}" if self.source else "")

    def record(self, remedy: str = "") -> CallRecord:
        """This call as an entry of a list of what is unknown or depends on data."""
        return CallRecord(self.name, self.module, str(self.source or ""), remedy)

    def analysis(self, value: DataNode, mask: object) -> Any:
        """Returns the positions that a mask on one of its tensors removes from the others, {value: {dim: indices}}."""
        return self.graph.operator_analysis(self, value, mask)

    def flops(self) -> int | None:
        """Floating-point operations of this call, a multiply-add counted as 2; None when no formula is known."""
        return operator_flops(self)


@dataclass(eq=False, slots=True)
class ModuleCall:
    """One call of a module: its tensors in and out, and the range of operators that ran inside."""

    path: str
    start: int
    inputs: list[DataNode]
    outputs: list[DataNode] = field(default_factory=list)
    end: int | None = None  # None while it runs
    result: object = None  # what it gave, with nodes in the tensors' places; None where it is no plain structure
    places: list[int | str] = field(default_factory=list)  # of each input: its argument's position or keyword
    steps: list[str] = field(default_factory=list)  # of each input: its place in that argument, as `["image"][0]`


class ModuleNode:
    """A module of the model in the forward pass, with its calls."""

    def __init__(self, graph: Dataflow, path: str, module: nn.Module) -> None:
        self.graph = graph
        self.path = path
        self.module = module
        self.calls: list[ModuleCall] = []

    @property
    def inputs(self) -> list[DataNode]:
        """The tensors that the module was called with, over all its calls."""
        return [node for call in self.calls for node in call.inputs]

    @property
    def outputs(self) -> list[DataNode]:
        """The output tensors of the module over all its calls."""
        return [node for call in self.calls for node in call.outputs]

    @property
    def operators(self) -> list[OperatorNode]:
        """The operators that ran in the module and below, in order."""
        found: list[OperatorNode] = []
        end = 0
        for call in self.calls:
            stop = len(self.graph.operators) if call.end is None else call.end
            found += self.graph.operators[max(call.start, end) : stop]
            end = max(end, stop)  # a module that calls itself has calls inside calls
        return found

    @property
    def params(self) -> dict[str, DataNode]:
        """The module's own parameters and buffers by attribute; TorchScript is opaque, and has none."""
        if is_script(self.module):
            return {}
        prefix = f"{self.path}." if self.path else ""
        own = [*parameters_of(self.module), *buffers_of(self.module)]
        return {name: self.graph.state[prefix + name] for name in own if prefix + name in self.graph.state}

    @property
    def sub_modules(self) -> dict[str, ModuleNode]:
        """The child modules by attribute."""
        if is_script(self.module):
            return {}
        prefix = f"{self.path}." if self.path else ""
        every = self.graph.modules
        return {name: every[prefix + name] for name in modules_of(self.module) if prefix + name in every}

    def flops(self) -> Flops:
        """The cost of what ran in this module and below."""
        return count_flops(self.operators)

    def __repr__(self) -> str:
        kind = printable(type(self.module).__name__)
        return f"<{printable(self.path) or '(root)'}: {kind}, {len(self.calls)} calls, {len(self.operators)} operators>"


class Modules(Mapping[str, ModuleNode]):
    """The modules by dotted path; one that is in several places is found under each of them."""

    def __init__(self, nodes: Mapping[str, ModuleNode]) -> None:
        self._nodes = nodes

    def __getitem__(self, path: str) -> ModuleNode:
        try:
            return self._nodes[path]
        except (KeyError, TypeError):
            raise UnknownPathError(
                f"no module {printable(str(path))!r}: {closest_match_hint(str(path), self._nodes)}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


class Values(list[DataNode]):
    """The values in order of creation, by index or by name."""

    @overload
    def __getitem__(self, key: int | str) -> DataNode: ...  # type: ignore[overload-overlap]
    @overload
    def __getitem__(self, key: slice) -> list[DataNode]: ...
    def __getitem__(self, key: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        if not isinstance(key, str):
            return super().__getitem__(key)
        for node in self:
            if key in node.names or node.name == key:
                return node
        raise UnknownPathError(f"no value {printable(key)!r}: {closest_match_hint(key, (node.name for node in self))}")


class Dataflow:
    """The record of one forward pass: values, operators and module calls in the order of execution."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.values = Values()
        self.operators: list[OperatorNode] = []
        # by each of their names: parameters, buffers, and the tensors in plain attributes that this pass reads
        self.state: dict[str, DataNode] = {}
        self.inputs: list[DataNode] = []
        self.outputs: list[DataNode] = []
        self.wanted: Sequence[str | int] | None = None  # the outputs that count, as the user names them
        self.notes: list[str] = []  # what was done otherwise than usual, in sentences
        self.result: object = None  # what forward returned, with nodes in the tensors' places
        self.modules: Modules = Modules({})
        self.traced_on = ""
        self.call: tuple[Args, Kwargs] = ((), {})  # what forward was called with
        self.training: bool | None = None  # the mode that was set for the trace, None for the model's own
        self.seed: int | None = None  # of the random numbers that forward drew, None for the process's own
        self.gradients = False  # whether they were on, as forward asks for some itself
        self.watched = False  # whether what Python does with memory was heard, as forward assigns some
        self.removal: Any = None  # the modules without which the model was called, None for a call as it is
        self.residuals: dict[str, list[Any]] = {}  # the blocks that were found in it: they lead back to it
        self.error: Exception | None = None  # why the forward pass stopped; the graph ends there
        self.attempt: OperatorNode | None = None  # the last call that was made, recorded if it went through
        self.draws: Any = None  # the code that may go another way each time, by chance or by a clock
        self.data_dependent: list[CallRecord] = []  # calls that turned tensor data into Python values
        self.has_ragged = False  # whether there is a nested tensor among the values
        self.escaped: list[tuple[DataNode, CallRecord]] = []  # values that left torch, as `x.numpy()` does
        # parameters and buffers, each with the value that forward puts in its place for the next call
        self.assigned: list[tuple[DataNode, DataNode]] = []

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TraceError(
            "a traced graph cannot be pickled, because it holds operators and the model: trace the model again "
            "where it is "
            "needed, and save plans with plan.save(path)"
        )

    def __copy__(self) -> Dataflow:
        return self._shallow_copy(self.__dict__)

    def __deepcopy__(self, memo: dict[int, Any]) -> Dataflow:
        memo[id(self)] = again = self._shallow_copy({})
        again.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return again

    def _shallow_copy(self, state: Mapping[str, Any]) -> Dataflow:
        again = object.__new__(type(self))
        again.__dict__.update(state)
        return again

    @cached_property
    def unread(self) -> list[DataNode]:
        """The parameters and buffers that this forward pass did not read."""
        return [node for node in dict.fromkeys(self.state.values()) if not node.consumers and not node.escapes]

    @cached_property
    def cuttable_outputs(self) -> dict[str, DataNode]:
        """The outputs that do not count, by name: they follow a cut, the others keep their shape."""
        return find_cuttable_outputs(self.result, self.wanted)

    @property
    def fixed_outputs(self) -> list[DataNode]:
        """The outputs that keep their shape."""
        following = set(self.cuttable_outputs.values())
        return [node for node in self.outputs if node not in following]

    def flops(self) -> Flops:
        """Returns the FLOPs of the forward pass; `.unknown` lists operators without a formula.

        `.matmul` is the part in matrix products and convolutions, which other tools and papers report.
        """
        return count_flops(self.operators)

    def matmul_flops(self) -> Flops:
        """The cost of matrix products and convolutions alone, as torch's FlopCounterMode counts it."""
        return matmul_flops(self.operators)

    def cut_analysis(self, what: Any, index: Sequence[int], dim: int = 0) -> Any:
        raise NotImplementedError  # engine/axes knows

    def operator_analysis(self, operator: OperatorNode, value: DataNode, mask: object) -> Any:
        raise NotImplementedError  # engine/axes knows

    def __repr__(self) -> str:
        counts = f"{len(self.operators)} operators, {len(self.values)} values, {len(self.modules)} modules"
        broken = f", stopped by {type(self.error).__name__}" if self.error is not None else ""
        return (
            f"<{type(self).__name__} of {printable(type(self.model).__name__)}: {counts}, on {self.traced_on}{broken}>"
        )


def split_name(graph: Dataflow, name: str) -> tuple[str, str]:
    """The path of the module that holds a tensor of this name, and what it is called there."""
    path = name
    while path:
        path = path.rpartition(".")[0]
        if path in graph.modules:
            break
    return path, name[len(path) + 1 :] if path else name
