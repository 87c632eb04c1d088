"""The recording of the functions that the forwards of a model call, by running an isolated copy."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import FrameType
from typing import TypeVar

import torch
from torch import nn

from modulekg_widgets.engine.errors import TraceError, printable
from modulekg_widgets.engine.identity.walk import Walk, nominal_class, walk
from modulekg_widgets.engine.rewriting.function_modules.compatibility import owned_tensor_test
from modulekg_widgets.engine.rewriting.function_modules.function_module import (
    ArgumentLayout,
    CallSite,
    FunctionModule,
    function_name,
)
from modulekg_widgets.engine.rewriting.function_modules.interception import ForwardInterceptor, ForwardRun
from modulekg_widgets.engine.torch_runtime.bytecode import has_unused_result
from modulekg_widgets.engine.torch_runtime.decompose import AttentionSlowPath
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Sandbox, run_isolated
from modulekg_widgets.engine.torch_runtime.isolation.shadow import ALL
from modulekg_widgets.engine.torch_runtime.isolation.state_guard import StateSnapshot
from modulekg_widgets.engine.torch_runtime.modules import is_script, module_state, registry, set_mode
from modulekg_widgets.engine.torch_runtime.private import BUFFERS, MODULES, PARAMETERS, SCHEMA, OpOverloadPacket
from modulekg_widgets.engine.torch_runtime.pytree import (
    Args,
    Call,
    Function,
    Kwargs,
    call_arguments,
    input_tensors,
    tensors,
    with_list_hint,
    with_tensors,
)
from modulekg_widgets.engine.tracing.dataflow import Dataflow
from modulekg_widgets.engine.tracing.source import Source
from modulekg_widgets.engine.tracing.trace import check_initialised, trace_dataflow

# in eval and without gradients torch runs these as one operator, unless a mode such as ours is on
FUSED = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
T = TypeVar("T")
log = logging.getLogger("modulekg_widgets")
Runs = dict[
    int, list[list["FunctionCall"]]
]  # by the index of the module in the walk: what each run of its forward called


@dataclass(eq=False)
class FunctionCall:
    """One call of a function, and the operators of the trace that ran in it."""

    function: Function
    source: Source
    args: Args
    kwargs: Mapping[str, object]
    start: int
    end: int = 0
    result: object = None
    is_side_effect: bool = False  # what it returns is not used, what it writes is


@dataclass(eq=False)
class FunctionRecording:
    """The recorded function calls, with the graph of the trace if there is one."""

    graph: Dataflow | None = None
    runs: Runs = field(default_factory=dict)

    @property
    def operators(self) -> int:
        return len(self.graph.operators) if self.graph is not None else 0


def record_functions(model: nn.Module, args: object, kwargs: Mapping[str, object] | None) -> Runs:
    """Records the functions that each forward calls: in eval and train mode, with and without gradients.

    A way of calling the model that raises is left out, unless it is the present one. Where a pass keeps something for
    later ones, as a table that is made once, a second pass follows. Raises `TraceError`.
    """
    places = walk(model)
    root = places.modules[0]
    check_initialised(places)
    given = _on_device(places, call_arguments(args, kwargs))
    input_tensors(root, *given)  # for its errors
    present = root.training, torch.is_grad_enabled(), torch.backends.mha.get_fastpath_enabled()
    both = present[2] and any(isinstance(module, FUSED) for module in places.modules)
    fused = (True, False) if both else present[2:]
    found: Runs = {}
    for state in itertools.product((False, True), (False, True), fused):
        try:
            runs = _passes(places, given, *state)
        except TraceError as error:
            if state == present:
                raise
            log.debug("function modules know no run with training, gradients, fused = %s: %s", state, error)
            continue
        for index, lists in runs.items():
            found.setdefault(index, []).extend(lists)
    return found


def record_functions_of_graph(graph: Dataflow) -> FunctionRecording:
    """The model of a graph traced again, as it was called there, with the functions and their operators."""
    recorded = FunctionRecording()

    def make(root: nn.Module) -> Dataflow:
        recorded.graph, recorded.runs = Dataflow(root), {}
        return recorded.graph

    def listen(places: Walk, sandbox: Sandbox) -> None:
        for index in intercepted_modules(places):
            _Recorder(places, index, recorded).install()

    trace_dataflow(graph.model, *graph.call, training=graph.training, graph_type=make, prepare=listen)
    return recorded


def intercepted_modules(places: Walk) -> list[int]:
    """Returns the indices of modules to intercept: the root, and all but torch's single-function modules."""
    return [at for at, module in enumerate(places.modules) if not at or not _is_single_function(places, at, module)]


def _is_single_function(places: Walk, index: int, module: nn.Module) -> bool:
    if is_script(module) or isinstance(module, FunctionModule):
        return True
    forward = getattr(nominal_class(module), "forward", None)
    inside = {name for name, _ in places.slots(index)} - {"parametrizations"}
    return getattr(forward, "__module__", "").startswith("torch.nn.modules.") and not inside


def _on_device(places: Walk, given: Call) -> Call:
    """Returns the inputs, on the meta device if the model is there."""
    states = (registry(state, PARAMETERS) for state in places.states)
    on_meta = any(p is not None and p.is_meta for state in states for p in state.values())
    return with_tensors(given, lambda tensor: tensor.to("meta")) if on_meta else given


def _passes(places: Walk, given: Call, training: bool, gradients: bool, fused: bool) -> Runs:
    def run(sandbox: Sandbox) -> Runs:
        recorded = FunctionRecording()
        copied = places.with_modules(sandbox.modules)
        root, (args, kwargs) = sandbox.model, sandbox.held
        set_mode(copied.states, training)
        recorders = [_Recorder(copied, index, recorded) for index in intercepted_modules(copied)]
        for recorder in recorders:
            recorder.install()
        try:
            before = StateSnapshot(copied.modules, ())
            # that a mode is on keeps torch's attention layers from being fused
            with torch.set_grad_enabled(gradients), nullcontext() if fused else AttentionSlowPath():
                root(*args, **kwargs)
                if before.has_changed():
                    root(*args, **kwargs)
        except Exception as error:
            raise _recording_error(error, root, given) from error
        finally:
            for recorder in recorders:
                recorder.remove()
        return recorded.runs

    return run_isolated(places.modules, given, run, ALL)


def _recording_error(error: Exception, root: nn.Module, given: Call) -> TraceError:
    inputs = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in input_tensors(root, *given)) or "no tensors"
    message = (
        f"the forward pass of {printable(type(root).__name__)} stopped while its functions were recorded: "
        f"{type(error).__name__}: {printable(str(error).strip(), 300)}. Its inputs were {inputs}; pass inputs that "
        "model(...) takes"
    )
    return TraceError(with_list_hint(message, root, given[0]))


class _Recorder(ForwardInterceptor):
    def __init__(self, places: Walk, index: int, recorded: FunctionRecording) -> None:
        super().__init__(places.modules[index], places.path(index))
        self.recorded = recorded
        self.runs = recorded.runs.setdefault(index, [])

    def begin_run(self) -> ForwardRun:
        run = _Recording(self.recorded, owned_tensor_test(self.owner))
        self.runs.append(run.calls)
        return run


class _Recording(ForwardRun):
    def __init__(self, recorded: FunctionRecording, held: Callable[[object], bool]) -> None:
        self.recorded = recorded
        self.is_owned = held
        self.calls: list[FunctionCall] = []

    def call_function(self, function: Function, frame: FrameType, args: Args, kwargs: Kwargs) -> object:
        # the layouts of before, as the function may write into its arguments
        given, named = self._layouts(args), self._layouts(kwargs)
        call = FunctionCall(function, source_of(frame), given, named, self.recorded.operators)
        result = function(*args, **kwargs)
        if is_operation(function, result):
            call.end, call.result = self.recorded.operators, self._layouts(result)
            writes = result is None or any(result is value for value in (*args, *kwargs.values()))
            call.is_side_effect = writes and (result is None or has_unused_result(frame.f_code, frame.f_lasti))
            self.calls.append(call)
        return result

    def _layouts(self, value: T) -> T:
        """A value with layouts in the place of its tensors."""
        return with_tensors(value, lambda t: ArgumentLayout(tuple(t.shape), t.dtype, self.is_owned(t)))


def source_of(frame: FrameType) -> Source:
    """The line at which a frame is."""
    return Source(frame.f_code.co_filename, frame.f_lineno)


def is_operation(function: Function, result: object) -> bool:
    """True if a function created or wrote tensors, unlike queries such as `x.size()`."""
    return next(tensors(result), None) is not None or (result is None and _writes(function))


def _writes(function: Function) -> bool:
    if getattr(function, "__name__", "") == "__setitem__":
        return True
    overload = function.default if isinstance(function, OpOverloadPacket) else function
    schema = getattr(overload, SCHEMA, None)
    return schema is not None and schema.is_mutable


# -------------------- Call sites: the places in a forward that call functions, each with one name


CONTAINER_NAME = "function_modules"  # the child under which a module lists those of its functions
Key = tuple[Source, Function, int]  # line, function, and how often that line has called it before


class CallSites:
    """The call sites of one forward, and the sequences in which its runs visited them."""

    def __init__(self, runs: list[list[FunctionCall]]) -> None:
        self.by_key: dict[Key, CallSite] = {}
        counts: dict[str, int] = {}
        ways: dict[tuple[str, ...], list[CallSite]] = {}
        for calls in runs:
            way = []
            for key, call in zip(_keys(calls), calls, strict=True):
                if key not in self.by_key:
                    plain = "".join(c if c.isalnum() else "_" for c in function_name(call.function))
                    at = counts[plain] = counts.get(plain, -1) + 1
                    self.by_key[key] = _site(f"{plain}_{at}", key[2], call)
                way.append(self.by_key[key])
            ways.setdefault(tuple(site.name for site in way), way)
        self.ways = list(ways.values())

    def of(self, calls: list[FunctionCall]) -> list[CallSite | None]:
        """The sites of the calls of a further run; None for one that no run of before has made."""
        return [self.by_key.get(key) for key in _keys(calls)]


def container_name(owner: nn.Module) -> str:
    """The name under which a module lists its function modules: one that it does not have yet."""
    state = module_state(owner)
    taken = {*dir(type(owner)), *state, *state[MODULES], *state[PARAMETERS], *state[BUFFERS]}
    name = CONTAINER_NAME
    while name in taken:
        name += "_"
    return name


def inactive_hint(path: str) -> str:
    """Returns a hint for errors about names that exist only while function modules are active; else ""."""
    return (
        f"; a name in {CONTAINER_NAME} exists while function_modules is active"
        if CONTAINER_NAME in path.split(".")
        else ""
    )


def _keys(calls: list[FunctionCall]) -> Iterator[Key]:
    counts: dict[tuple[Source, Function], int] = {}
    for call in calls:
        place = call.source, call.function
        counts[place] = counts.get(place, -1) + 1
        yield *place, counts[place]


def _site(name: str, index: int, call: FunctionCall) -> CallSite:
    return CallSite(name, call.function, call.source, index, call.args, call.kwargs, call.result, call.is_side_effect)
