"""The recorder of a forward pass: a dispatch mode that notes every ATen call with module and source line."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from types import CodeType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from modulekg_widgets.engine.operators.recorded_call import CallRecord
from modulekg_widgets.engine.operators.signature import Signature, signature_of, with_meta_device
from modulekg_widgets.engine.operators.user_operators import user_operators
from modulekg_widgets.engine.torch_runtime.caches import uncaptured_result
from modulekg_widgets.engine.torch_runtime.decompose import (
    RECURRENT_OVERLOADS,
    OperatorMode,
    WholeRecurrentLayers,
    recurrent_layer_on_meta,
)
from modulekg_widgets.engine.torch_runtime.hooks import SkippedCall, module_call_hooks
from modulekg_widgets.engine.torch_runtime.isolation.progress import report_progress
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Sandbox
from modulekg_widgets.engine.torch_runtime.private import (
    BUFFERS,
    PARAMETERS,
    DisableTorchFunction,
    FakeTensor,
    NestedTensor,
    Overload,
    address_of,
    disable_current_modes,
    has_storage,
    schema_of,
)
from modulekg_widgets.engine.torch_runtime.pytree import (
    Args,
    Function,
    Kwargs,
    indexed_tensors,
    is_plain_structure,
    tensors,
    with_tensors,
)
from modulekg_widgets.engine.tracing.argument_recorder import (
    ArgumentRecorder,
    cached_layouts,
    flat_tensors,
    map_flat_tensors,
    unwrap_tensor,
)
from modulekg_widgets.engine.tracing.dataflow import (
    CONSTANT,
    RESULT,
    Dataflow,
    DataNode,
    ModuleCall,
    OperatorNode,
    Storage,
)
from modulekg_widgets.engine.tracing.execution import constant_value
from modulekg_widgets.engine.tracing.leaked_tensors import LeakedTensors
from modulekg_widgets.engine.tracing.source import (
    CallerLocator,
    Source,
    bypasses_operators,
    exports_memory,
    is_nondeterministic,
)
from modulekg_widgets.engine.tracing.unregistered_tensors import (
    ATTRIBUTE,
    BUFFER,
    PARAMETER,
    ModelTensor,
    UnregisteredTensors,
)

Tensor = torch.Tensor
# what takes data out of tensors, or lets Python change them, without an operator
_DATA_EXPORTS = {
    Tensor.numpy, Tensor.tolist, Tensor.__array__, Tensor.__dlpack__, Tensor.__reduce_ex__, Tensor.__deepcopy__,
    Tensor.data_ptr, Tensor.storage, Tensor.untyped_storage, Tensor.apply_, Tensor.map_, Tensor.map2_,
}  # fmt: skip
_MODEL_KINDS = (PARAMETER, BUFFER, ATTRIBUTE)
_PLAIN = (Tensor, nn.Parameter)
_ASSIGNS = Tensor.data.__set__  # type: ignore[attr-defined]


class UntrackedMemoryError(NotImplementedError):
    """Forward replaces the memory of tensors, or reads their addresses, while this is not recorded."""


class Recorder(OperatorMode):
    """Records into `graph`; `placeholder_for` makes, of a tensor from outside, the one that the operators shall see.

    `with_meta_device`: operators run on meta tensors, and a call with layouts that were seen before does not run at
    all.
    """

    runs_both_branches = True

    def __init__(
        self,
        graph: Dataflow,
        paths: Mapping[int, str],
        stand_in: Callable[[Tensor], Tensor] | None,
        sandbox: Sandbox,
        left: LeakedTensors,
        tables: UnregisteredTensors,
    ) -> None:
        super().__init__()
        self.tables = tables
        self.graph = graph
        self.sandbox = sandbox
        self.stand_in = stand_in
        self.on_meta = False
        self.last_way = False  # no other kind of tensors can be tried after these
        self.watch: Callable[[OperatorNode], None] | None = None  # called with each operator once it is recorded
        self.skip_call: Callable[[str], SkippedCall | None] | None = None  # what a module gives that need not be called
        self._paths = paths
        self._nodes: dict[int, DataNode] = {}
        self._stand_ins: dict[int, Tensor] = {}
        self.leaked = left
        self._references: list[Tensor] = []  # so that their addresses stay their own
        self._results: dict[int, weakref.KeyedRef[int, Tensor]] = {}  # of operators, by their addresses
        self._forget = partial(_forget, self._nodes, self._results)  # holds no recorder, so that no circle stays
        self._lines = CallerLocator(self._inspect_code)
        self.watch_memory = False  # functions of Python that are no operators are heard, which takes time
        self.missed = False  # one that is heard then only may have been called
        self._assigned: set[int] = set()  # the tensors that were given the memory of others
        self._addresses: dict[int, int] = {}  # of the memory of parameters and buffers
        self._scope = [""]
        self._calls: list[ModuleCall] = []
        self._thread = threading.get_ident()
        self._whole_layers = WholeRecurrentLayers(self)

    # ------------------------------------------------------------ tensors

    def adopt(self, tensor: Tensor, kind: str, label: str) -> DataNode:
        """The node of a tensor from outside, made when it is new."""
        of_user = unwrap_tensor(self.sandbox.original(tensor))
        tensor = unwrap_tensor(tensor)
        node = self._nodes.get(id(tensor))
        if node is None:
            self.sandbox.check(tensor)
            node = DataNode(self.graph, tensor, kind, Storage(), label)
            node.tensor = of_user
            self._nodes[id(tensor)] = node
            self._references.append(tensor)
            if self.stand_in is not None and not self._delays_stand_in(tensor):
                self._stand_ins[id(tensor)] = self.stand_in(tensor)
        return node

    def _delays_stand_in(self, tensor: Tensor) -> bool:
        """True if a stand-in is made only when an operator needs it, as most are never needed."""
        few_run = self.skip_call is not None
        return few_run or (self.on_meta and (tensor.is_meta or tensor.layout is torch.strided))

    def register(self, held: ModelTensor) -> None:
        """Take a parameter or buffer into the state of the graph."""
        node = self.adopt(held.tensor, held.kind, held.name)
        node.names += (held.name,)
        self.graph.state[held.name] = node
        self._addresses[id(held.tensor)] = self._address_of(held.tensor)

    def _address_of(self, tensor: Tensor) -> int:
        """Returns the address of a plain tensor's memory; 0 for others."""
        if tensor.layout is not torch.strided or type(tensor) not in _PLAIN:
            return 0
        return tensor.data_ptr() or address_of(tensor.untyped_storage())

    def _inspect_code(self, code: CodeType) -> None:
        """Code of the user's calls an operator for the first time."""
        self.missed = self.missed or bypasses_operators(code)
        if self.graph.draws is None and is_nondeterministic(code):
            self.graph.draws = Source(code.co_filename, code.co_firstlineno)
        if self.stand_in is not None and exports_memory(code):
            self._try_other_tensors("the memory of a tensor without data is passed on")

    def node(self, tensor: Tensor) -> DataNode:
        """The node that holds the present contents of `tensor`."""
        node = self._nodes.get(id(tensor))
        if node is None:
            inside = unwrap_tensor(tensor)
            return self._constant(tensor) if inside is tensor else self.node(inside)
        storage = node.storage
        if storage.written > node.stamp:
            # another view of the same memory was written since
            assert storage.writer is not None
            node = self._version(tensor, node, storage.writer)
        return node

    def _constant(self, tensor: Tensor) -> DataNode:
        with disable_current_modes(), DisableTorchFunction():  # making a stand-in is no operator of the model
            held = self.tables.of(tensor)
            if held:
                return self._table(tensor, held)
        if tensor.numel() and (isinstance(tensor, FakeTensor) or (self.on_meta and tensor.is_meta)):
            self._try_other_tensors("a constant was made on the device of a tensor without data, and has none itself")
        with disable_current_modes(), DisableTorchFunction():
            shared = self._sharing(tensor)
            if shared is not None:
                return shared
            return self.adopt(tensor, CONSTANT, f"constant_{len(self.graph.values)}")

    def _sharing(self, tensor: Tensor) -> DataNode | None:
        """Returns the node of a living result that shares all its memory with a tensor, as after DLPack."""
        if self.stand_in is not None or tensor.layout is not torch.strided or not has_storage(tensor):
            return None
        address = tensor.data_ptr()
        living = (met() for met in list(self._results.values()) if address)
        other = next((each for each in living if each is not None and _is_alias(tensor, each, address)), None)
        if other is None:
            return None
        self._references.append(tensor)
        node = self._nodes[id(tensor)] = self.node(other)
        return node

    def _table(self, tensor: Tensor, held: Sequence[ModelTensor]) -> DataNode:
        """The node of a plain tensor of the model: state of the graph, but where it is a cache of the code's."""
        node = self.adopt(tensor, CONSTANT if self.tables.may_be_reassigned(held) else ATTRIBUTE, held[0].name)
        node.names = tuple(each.name for each in held)
        if node.kind == ATTRIBUTE:
            self.graph.state.update(dict.fromkeys(node.names, node))
        return node

    def drop_caches(self) -> None:
        """Drop tensors that forward has replaced from the state."""
        tables = {node for node in self.graph.state.values() if node.kind == ATTRIBUTE}
        moved = self.tables.moved() if tables else set()
        for node in tables:
            if not moved.isdisjoint(node.names):
                node.kind = CONSTANT
                for name in node.names:
                    del self.graph.state[name]

    def input_stand_in(self, tensor: Tensor) -> Tensor:
        """Returns the stand-in for an input, which forward gets in its place."""
        stand_in = self._stand_in(tensor)
        self._nodes[id(stand_in)] = self.node(tensor)
        return stand_in

    def _stand_in(self, tensor: Tensor) -> Tensor:
        """Returns the stand-in that an operator gets in place of a tensor."""
        found = self._stand_ins.get(id(tensor))
        if found is not None:
            return found
        stands_in = tensor.is_meta if self.on_meta else isinstance(tensor, FakeTensor)
        if self.stand_in is None or stands_in:
            return tensor
        self._references.append(tensor)
        with disable_current_modes(), torch.inference_mode(False):  # whatever forward has turned on here
            found = self._stand_ins[id(tensor)] = self.stand_in(tensor)
        return found

    def _with_stand_ins(self, argument: object) -> Any:
        """Returns an argument with stand-ins in place of its tensors."""
        if isinstance(argument, Tensor):
            return self._stand_in(argument)
        if isinstance(argument, list | tuple):
            return [self._with_stand_ins(part) for part in argument]
        return argument

    def forget_results(self) -> None:
        """Drops the references to results after the pass."""
        self._results.clear()

    def _try_other_tensors(self, reason: str) -> None:
        if not self.last_way:
            raise NotImplementedError(reason)

    def _version(self, tensor: Tensor, node: DataNode, writer: OperatorNode) -> DataNode:
        new = DataNode(self.graph, tensor, RESULT, node.storage)
        new.previous = node
        new.producer = writer
        writer.outputs.append(new)
        self._nodes[id(tensor)] = new
        return new

    def _add_result(self, tensor: Tensor, storage: Storage, producer: OperatorNode) -> DataNode:
        node = DataNode(self.graph, tensor, RESULT, storage)
        node.producer = producer
        producer.outputs.append(node)
        key = id(tensor)
        self._nodes[key] = node
        # tensors die as in every forward pass, so that memory does not grow; the address is free again then
        met = self._results[key] = weakref.KeyedRef(tensor, self._forget, key)
        if self.stand_in is not None:
            self.leaked.add(met, node)
        return node

    # ---------------------------------------------------------- operators

    def __torch_dispatch__(
        self, func: Overload, types: Sequence[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        if NestedTensor in types:
            return NotImplemented  # its operators on the tensor of all rows come next
        kwargs = kwargs or {}
        signature = signature_of(func)
        if signature.reads_sparse_count and self.stand_in is not None:
            self._try_other_tensors("how many elements a sparse tensor stores is in its data")
        if signature.is_composite and self._comes_apart(func, args):
            # in inference mode, and inside of operators that take functions, composites come whole
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        if self.stand_in is not None and self._is_from_outside(signature, args):
            kept = uncaptured_result(func, args, kwargs)
            if kept is not None:
                return kept
        read = ArgumentRecorder(self._nodes, self.node)
        for argument in args:
            read.enter(argument)
        key: list[Any] = [func, *read.key]
        recorded_kwargs = {}
        recorded_args = tuple(read.recorded)
        for name, argument in kwargs.items():
            read.recorded = []
            read.enter(argument)
            recorded_kwargs[name] = read.recorded[0]
        if kwargs:
            key += [*kwargs, *read.key[len(key) - 1 :]]
        if signature.is_metadata_query:
            return self._execute(signature, args, kwargs)
        operator = OperatorNode(
            self.graph, len(self.graph.operators), func, recorded_args, recorded_kwargs, read.nodes, self._scope[-1],
            self._lines.find(sys._getframe(1)),
        )  # fmt: skip
        if signature.reads_data and signature.depends_on_data(node.dtype for node in read.nodes[1:]):
            known = constant_value(read.nodes[0]) if self.on_meta and len(read.nodes) == 1 else None
            if known is not None:
                return func(known, *args[1:], **kwargs)
            self.graph.data_dependent.append(operator.record())
        self.graph.attempt = operator
        report_progress("operators traced", operator.index + 1)
        results = self._run(signature, args, kwargs, key)
        return self._record(operator, signature, results, read, args, kwargs)

    def _comes_apart(self, func: Overload, args: Args) -> bool:
        """True if a composite operator is decomposed: not for recurrent layers and nested tensors."""
        return func not in RECURRENT_OVERLOADS and not any(tensor.is_nested for tensor in flat_tensors(args))

    def on_enter_operator(self, name: str) -> None:
        """An operator that takes functions is about to run."""
        if name == "cond":
            source = self._lines.find(sys._getframe(1))
            self.graph.notes.append(f"both branches of torch.cond at {source} are recorded, and FLOPs count them both")

    def _is_from_outside(self, signature: Signature, args: Args) -> bool:
        """True if a factory is called without a tensor, or with one that the recorder does not know."""
        first = args[0] if args else None
        if isinstance(first, list | tuple) and first:
            first = first[0]
        return id(first) not in self._nodes if isinstance(first, Tensor) else signature.takes_device

    def _run(self, signature: Signature, args: Args, kwargs: Kwargs, key: list[Any]) -> Any:
        # what a user says of an operator may change, so it is asked each time
        if not self.on_meta or not signature.is_pure or schema_of(signature.overload).name in user_operators:
            return self._execute(signature, args, kwargs)
        return cached_layouts(tuple(key), lambda: self._execute(signature, args, kwargs))

    def _execute(self, signature: Signature, args: Args, kwargs: Kwargs) -> Any:
        func = signature.overload
        if self.stand_in is not None:
            args = self._with_stand_ins(args)
            kwargs = {name: self._with_stand_ins(argument) for name, argument in kwargs.items()}
        if self.on_meta and signature.takes_device:
            kwargs = with_meta_device(kwargs)
        user = user_operators.get(schema_of(func).name)
        if user is not None:
            return user(func, args, kwargs, on_meta=self.stand_in is not None)
        if self.stand_in is not None and func in RECURRENT_OVERLOADS and not kwargs:
            return recurrent_layer_on_meta(func, args)
        return func(*args, **kwargs)

    def _record(
        self,
        operator: OperatorNode,
        signature: Signature,
        results: Any,
        read: ArgumentRecorder,
        args: Args,
        kwargs: Kwargs,
    ) -> Any:
        """Take the results into the graph, and give them back with the user's own tensors where these were written."""
        flat = [results] if isinstance(results, Tensor) else flat_tensors(results)
        if not flat and not read.nodes:
            return results
        graph = self.graph
        graph.operators.append(operator)
        for node in read.nodes:
            node.consumers.append(operator)
        written: dict[int, Tensor] = {}
        for tensor in self._written_tensors(signature, args, kwargs):
            old = self._nodes[id(tensor)]
            new = self._version(tensor, old, operator)
            written[id(self._with_stand_ins(tensor))] = tensor
            new.storage.writer, new.storage.written = operator, operator.index
            new.stamp = operator.index
        storage = None
        if signature.views is not None and isinstance(args[signature.views], Tensor):
            storage = self._nodes[id(args[signature.views])].storage
        for tensor in flat:
            if id(tensor) not in written and not (id(tensor) in self._nodes and signature.writes):
                self._add_result(tensor, storage or Storage(), operator)
        if isinstance(results, Tensor):
            own = written.get(id(results), results)
            operator.result = self._nodes[id(own)]
        else:
            own = map_flat_tensors(results, lambda t: written.get(id(t), t)) if written else results
            operator.result = map_flat_tensors(results, lambda t: self._nodes[id(written.get(id(t), t))])
        if self.watch is not None:
            self.watch(operator)
        return own

    def _written_tensors(self, signature: Signature, args: Args, kwargs: Kwargs) -> Iterator[Tensor]:
        for position in signature.writes:
            if position < len(args):
                yield from flat_tensors(args[position])
        for name in signature.writes_by_keyword:
            if kwargs and name in kwargs:
                yield from flat_tensors(kwargs[name])

    def read(self, tensor: Tensor, way: str) -> None:
        """Python takes the data out of a tensor, which is no operator."""
        if self.stand_in is not None and (tensor.is_meta or isinstance(tensor, FakeTensor)):
            self._try_other_tensors(f"Tensor.{way} takes data out of a tensor that has none")
        node = self.node(tensor)
        node.escapes = True
        by_data, learnt = _dependence(node)
        if by_data or learnt:
            record = CallRecord(f"Tensor.{way}", self._scope[-1], str(self._lines.find(sys._getframe(2)) or ""))
            self.graph.escaped.append((node, record))
            if by_data:
                self.graph.data_dependent.append(record)

    # -------------------------------------------------------- assignments

    def record_assignment(self, tensor: Tensor, value: Tensor) -> None:
        """Records that a tensor was given the memory of another, as by `p.data = value`."""
        node = self.node(value)
        self._stand_ins.pop(id(tensor), None)
        if id(value) in self._stand_ins:
            self._stand_ins[id(tensor)] = self._stand_ins[id(value)]
        self._nodes[id(tensor)] = node
        self._assigned.add(id(tensor))
        self._references += [tensor, value]  # the address of neither may become another's

    def record_assignments(self, held: Iterable[ModelTensor]) -> None:
        """Records the values that forward has assigned to parameters and buffers."""
        for each in held:
            registered = each.state[PARAMETERS if each.kind == PARAMETER else BUFFERS]
            if not isinstance(registered, dict):
                continue  # of TorchScript, whose code is not recorded
            now = registered.get(each.attribute)
            if now is each.tensor and id(each.tensor) not in self._assigned:
                if self._address_of(each.tensor) != self._addresses.get(id(each.tensor), 0):
                    self._note_untracked(each)
                continue
            now = each.state.get(each.attribute) if now is None else now
            if isinstance(now, Tensor):
                self._note_assigned(self.graph.state[each.name], self.node(now))
        if self.missed and not self.watch_memory:
            raise UntrackedMemoryError

    def _note_untracked(self, held: ModelTensor) -> None:
        """Records that the memory of a parameter or buffer was swapped unseen."""
        self.missed = True
        record = CallRecord("a swap of its memory", held.name.rpartition(".")[0], "")
        self.graph.escaped.append((self.graph.state[held.name], record))

    def _note_assigned(self, before: DataNode, after: DataNode) -> None:
        first = after
        while first.previous is not None:
            first = first.previous
        if first is not before and (before, after) not in self.graph.assigned:
            self.graph.assigned.append((before, after))

    # ------------------------------------------------------------ modules

    def on_enter(self, module: nn.Module, args: Args) -> SkippedCall | None:
        """A module is called."""
        if threading.get_ident() != self._thread:
            return None
        if self.on_meta and (torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")):
            self._try_other_tensors("autocast ignores tensors without data")
        path = self._paths.get(id(module), self._scope[-1])
        if self.skip_call is not None and self.sandbox.shadow is not None and id(module) in self._paths:
            given = self.skip_call(path)
            if given is not None:
                alike = self.stand_in if self.stand_in is not None and not self.on_meta else None
                return given if alike is None else SkippedCall(with_tensors(given.output, alike))
        given = [(at, *leaf) for at, value in enumerate(args) for leaf in indexed_tensors(value)]
        call = ModuleCall(path, len(self.graph.operators), [self.node(tensor) for _, _, tensor in given])
        call.places, call.steps = [at for at, _, _ in given], [step for _, step, _ in given]
        self._scope.append(path)
        self._calls.append(call)
        if isinstance(module, nn.RNNBase):
            self._whole_layers.__enter__()
        if id(module) in self._paths:  # others are no part of the model, their operators are their caller's
            self.graph.modules[path].calls.append(call)
        return None

    def on_exit(self, module: nn.Module, args: Args, kwargs: Kwargs, output: object = None) -> None:
        """A module's call ended; when it raised, torch passes neither keywords nor an output."""
        if threading.get_ident() != self._thread or not self._calls:
            return
        self._scope.pop()
        call = self._calls.pop()
        if isinstance(module, nn.RNNBase):
            self._whole_layers.__exit__(None, None, None)
        call.end = len(self.graph.operators)
        if kwargs:
            named = [(name, *leaf) for name, value in kwargs.items() for leaf in indexed_tensors(value)]
            call.inputs.extend(_before(self.node(tensor), call.start) for _, _, tensor in named)
            call.places.extend(name for name, _, _ in named)
            call.steps.extend(step for _, step, _ in named)
        call.outputs = [self.node(tensor) for _, tensor in tensors(output)]
        call.result = with_tensors(output, self.node) if is_plain_structure(output, Tensor) else None


def _before(node: DataNode, start: int) -> DataNode:
    """The version of a value that the operator of this index found."""
    while node.previous is not None and node.producer is not None and node.producer.index >= start:
        node = node.previous
    return node


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """The recorder at work."""
    with (
        module_call_hooks(recorder.sandbox.copies, recorder.on_enter, recorder.on_exit),
        torch.inference_mode(False),
        torch.set_grad_enabled(recorder.graph.gradients),
        _MemoryAccessMode(recorder) if recorder.watch_memory else nullcontext(),
        recorder,
    ):
        yield


class _MemoryAccessMode(TorchFunctionMode):
    """Reports to the recorder what Python does with the data of tensors without an operator."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(
        self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        if func in _DATA_EXPORTS:
            self.recorder.read(args[0], func.__name__)
        found = func(*args, **kwargs) if kwargs else func(*args)
        if func == _ASSIGNS:
            self.recorder.record_assignment(*args)
        return found


def _dependence(node: DataNode) -> tuple[bool, bool]:
    """Returns whether a value depends on inputs or random numbers, and whether on weights."""
    by_data = learnt = False
    seen, waiting = {node}, [node]
    while waiting and not by_data:
        now = waiting.pop()
        by_data = now.is_input
        learnt = learnt or (now.kind in _MODEL_KINDS and (now.dtype.is_floating_point or now.dtype.is_complex))
        operator = now.producer
        if operator is not None:
            by_data = by_data or torch.Tag.nondeterministic_seeded in operator.overload.tags
            new = [each for each in operator.inputs if each not in seen]
            seen.update(new)
            waiting.extend(new)
    return by_data, learnt


def _is_alias(tensor: Tensor, other: Tensor, address: int) -> bool:
    """True if two tensors are the same elements of the same memory."""
    if other.shape != tensor.shape or other.dtype is not tensor.dtype or other.layout is not torch.strided:
        return False
    return other.stride() == tensor.stride() and has_storage(other) and other.data_ptr() == address


def _forget(nodes: dict[int, DataNode], results: dict[int, Any], gone: weakref.KeyedRef[int, Tensor]) -> None:
    nodes.pop(gone.key, None)
    results.pop(gone.key, None)
