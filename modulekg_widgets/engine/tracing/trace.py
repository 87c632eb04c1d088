"""Tracing: records a call of a model, on meta tensors if possible, else on fake or real tensors.

`trace_dataflow(model, args)` runs an isolated copy of the model (`torch_runtime/isolation/sandbox.py`) under the
recorder. Meta tensors are tried first; fake tensors where code needs devices or numbers; real tensors where shapes
depend on data. `graph.traced_on` says which succeeded. If forward computes gradients, or swaps the memory of
parameters, the attempt is repeated with these recorded. The model, its caches and the random generators are left as
they were. An error in forward becomes a `TraceError` that names the module, the line and the shapes of the inputs; its
`.graph` ends there.

>>> import torch
>>> trace_dataflow(torch.nn.Linear(3, 4), torch.zeros(1, 3)).traced_on
'meta'
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from modulekg_widgets.engine.errors import ModuleKGError, TraceError, UninitializedModuleError, a_type, printable
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.operators.recorded_call import recorded_shape
from modulekg_widgets.engine.torch_runtime.decompose import DecomposedLayers
from modulekg_widgets.engine.torch_runtime.hooks import SkippedCall
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Sandbox, run_isolated
from modulekg_widgets.engine.torch_runtime.isolation.shadow import ALL, SHARED, UNREGISTERED
from modulekg_widgets.engine.torch_runtime.modules import registered_tensors, set_mode, unwrapped
from modulekg_widgets.engine.torch_runtime.parallel import is_replicated, sharding_of, unwrap_model
from modulekg_widgets.engine.torch_runtime.private import FAKE_TENSOR_LOGGER, FakeTensorMode, disable_current_modes
from modulekg_widgets.engine.torch_runtime.pytree import (
    Args,
    FromList,
    Function,
    Kwargs,
    call_arguments,
    input_tensors,
    tensors,
    with_list_hint,
    with_tensors,
)
from modulekg_widgets.engine.tracing.dataflow import INPUT, Dataflow, ModuleNode, Modules, OperatorNode
from modulekg_widgets.engine.tracing.leaked_tensors import LeakedTensors
from modulekg_widgets.engine.tracing.recorder import Recorder, UntrackedMemoryError, recording
from modulekg_widgets.engine.tracing.source import CallerLocator, Source
from modulekg_widgets.engine.tracing.unregistered_tensors import UnregisteredTensors, named_registered_tensors

log = logging.getLogger("modulekg_widgets")
META, FAKE, REAL = "meta", "fake", "real"
_AUTOGRAD = os.path.dirname(torch.autograd.__file__) + os.sep
Graph = TypeVar("Graph", bound=Dataflow)


def trace_dataflow(
    model: nn.Module,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    training: bool | None = None,
    graph_type: Callable[[nn.Module], Graph] = Dataflow,
    modes: Sequence[str] = (META, FAKE, REAL),
    prepare: Callable[[Walk, Sandbox], None] | None = None,
    watch: Callable[[OperatorNode], None] | None = None,
    skip_call: Callable[[str], SkippedCall | None] | None = None,
    around: AbstractContextManager[object] | None = None,
    seed: int | None = None,
    gradients: bool = False,
    watch_memory: bool = False,
) -> Graph:
    """Records a call `model(*args, **kwargs)` on meta, fake or real tensors.

    What `prepare` changes in the modules holds for the trace alone; `watch` is told of each operator once it has run;
    `skip_call` says, by the path of a module that a shadow calls, what it gives if that call need not be made; `around`
    is entered for the call of the model alone;
    `seed` is for the random numbers of forward, and the process's random states stay as they are; `gradients` are on
    from the beginning, and not only once forward turns out to ask for some; `watch_memory`: what Python does with
    memory is heard from the beginning, likewise.
    Raises `TraceError` when the inputs do not fit or the forward pass raises; its `graph` ends where it stopped.
    """
    places = walk(model)
    model = unwrapped(model)
    check_initialised(places)
    check_not_distributed(places)
    alone = unwrap_model(model)  # a wrapper for several devices would talk to them
    call = call_arguments(args, kwargs)
    labels = input_tensors(alone, *call)
    on_meta = any(t.is_meta for state in places.states for t in registered_tensors(state).values())
    error: TraceError | None = None
    waiting = [_TraceAttempt(mode, watch_memory or mode != META, gradients) for mode in ((META,) if on_meta else modes)]
    while waiting:
        way = waiting.pop(0)
        left = LeakedTensors()

        def attempt(
            sandbox: Sandbox, way: _TraceAttempt = way, last: bool = not waiting, left: LeakedTensors = left
        ) -> Graph:
            graph = graph_type(model)
            graph.traced_on, graph.call, graph.training, graph.seed = way.mode, call, training, seed
            graph.gradients, graph.watched = way.gradients, way.watches
            graph.notes += sandbox.notes
            copied = places.with_modules(sandbox.modules)
            set_mode(copied.states, training)
            if prepare is not None:
                sandbox.replaces = True
                prepare(copied, sandbox)
            try:
                _run(graph, places, copied, sandbox, labels, way, last, watch, skip_call, around, left, alone)
            except ModuleKGError:
                raise
            except Exception as caught:
                raise _trace_error(caught, graph, copied, labels) from caught
            return graph

        try:
            graph = run_isolated(places.modules, call, attempt, ALL if way.mode == REAL else SHARED, seed)
            left.materialize(graph.result)
            graph.notes += left.notes()
            return graph
        except TraceError as caught:
            if caught.__cause__ is None:
                raise
            error = caught
            log.debug("tracing by %s stopped: %s", way, caught.__cause__)
            if (again := way.retry(caught.__cause__)) is not None:
                waiting = [again, *(each._replace(gradients=again.gradients) for each in waiting)]
        finally:
            left.materialize()
    assert error is not None
    if prepare is None and skip_call is None:
        error.args = (_with_advice(str(error), model, places, call, training, seed),)
    raise error


class _TraceAttempt(NamedTuple):
    """The settings of one attempt to record a forward pass: kind of tensors, memory watching, gradients."""

    mode: str
    watches: bool  # what Python does with memory is heard, which takes time
    gradients: bool

    def retry(self, error: BaseException) -> _TraceAttempt | None:
        """Returns changed settings for a second attempt on the same kind of tensors; None if that cannot help."""
        if isinstance(error, UntrackedMemoryError) and not self.watches:
            return self._replace(watches=True)
        if not self.gradients and _asks_for_gradients(error):
            return self._replace(gradients=True)
        return None


def _asks_for_gradients(error: BaseException) -> bool:
    """True if an error came from a gradient that forward computed."""
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename.startswith(_AUTOGRAD):
            return True
        traceback = traceback.tb_next
    return False


def _run(
    graph: Dataflow,
    places: Walk,
    copied: Walk,
    sandbox: Sandbox,
    labels: list[tuple[str, torch.Tensor]],
    way: _TraceAttempt,
    last_way: bool,
    watch: Callable[[OperatorNode], None] | None,
    skip_call: Callable[[str], SkippedCall | None] | None,
    around: AbstractContextManager[object] | None,
    left: LeakedTensors,
    alone: nn.Module,
) -> None:
    """Fill the graph by the call of the copy in the sandbox."""
    graph.modules = _modules(graph, places)
    paths = {id(sandbox.of(node.module)): node.path for node in graph.modules.values()}
    world, stand_in = _execution_context(way.mode)
    recorder = Recorder(graph, paths, stand_in, sandbox, left, UnregisteredTensors(copied, places))
    recorder.on_meta, recorder.last_way = way.mode == META, last_way
    recorder.watch, recorder.skip_call, recorder.watch_memory = watch, skip_call, way.watches
    places_of_state = list(named_registered_tensors(copied, copied.all_paths()))
    for held in places_of_state:
        recorder.register(held)
    for label, tensor in labels:
        node = recorder.adopt(sandbox.of(tensor), INPUT, label)
        if node.kind == INPUT and node not in graph.inputs:
            graph.inputs.append(node)
    args, kwargs = with_tensors(sandbox.held, recorder.input_stand_in)
    try:
        with world, around or nullcontext(), recording(recorder):
            output = call_model(sandbox.of(alone), args, kwargs)
        recorder.drop_caches()
        recorder.record_assignments(places_of_state)
        found = dict.fromkeys(recorder.node(tensor) for _, tensor in tensors(output))
        graph.outputs = list(found)
        graph.result = with_tensors(output, recorder.node)
        for node in found:
            node.is_output = True
    finally:
        recorder.forget_results()


def call_model(model: Function, args: Args, kwargs: Kwargs) -> Any:
    """The call that is recorded; its frame is where the search for a source line ends."""
    return model(*args, **kwargs)


def _execution_context(
    mode: str,
) -> tuple[AbstractContextManager[object], Callable[[torch.Tensor], torch.Tensor] | None]:
    """Returns the context of the forward pass, and the function that makes stand-ins."""
    if mode == META:
        return nullcontext(), _meta_copy
    if mode == FAKE:
        fakes = FakeTensorMode(allow_non_fake_inputs=True)
        return without_fake_tensor_log(_decomposed(fakes)), fakes.from_tensor
    return DecomposedLayers(), None


@contextmanager
def _decomposed(inside: AbstractContextManager[object]) -> Iterator[None]:
    with inside, DecomposedLayers():
        yield


def _meta_copy(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout is torch.strided:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return torch.empty_like(tensor, device="meta")


@contextmanager
def without_fake_tensor_log(inside: AbstractContextManager[object]) -> Iterator[None]:
    """Fake tensors log an error with a traceback before they raise; that they may raise is expected here."""
    logger = logging.getLogger(FAKE_TENSOR_LOGGER)
    before = logger.disabled
    logger.disabled = True
    try:
        with inside:
            yield
    finally:
        logger.disabled = before


# ------------------------------------------------------------------ modules


def _modules(graph: Dataflow, walk: Walk) -> Modules:
    """A node for each module, found under each of its paths."""
    nodes: dict[int, ModuleNode] = {}
    places = walk.all_paths()
    for place, index in places:
        nodes.setdefault(index, ModuleNode(graph, place, walk.modules[index]))
    return Modules({place: nodes[index] for place, index in places})


def check_initialised(walk: Walk) -> None:
    """Raise `UninitializedModuleError` for a lazy module that has no shapes yet."""
    for index, state in enumerate(walk.states):
        for name, tensor in registered_tensors(state).items():
            if nn.parameter.is_lazy(tensor):
                where = ".".join(filter(None, (walk.path(index), name)))
                raise UninitializedModuleError(
                    f"{printable(where)!r} has no shape yet: run one forward pass of the lazy module, then trace"
                )


def check_not_distributed(walk: Walk) -> None:
    """Raise `TraceError` for a model that several processes have to run together."""
    for index, module in enumerate(walk.modules):
        where = repr(printable(walk.path(index))) if walk.path(index) else "the model"
        if (kind := sharding_of(module)) is not None:
            raise TraceError(
                f"{where} is sharded ({kind}), and runs in all of its processes together: trace the model before it is "
                "sharded, or another instance, which may be on the meta device"
            )
        if is_replicated(module) and not is_outer_wrapper(walk, index):
            raise TraceError(
                f"{where} is {a_type(module)} inside of a model, and runs in all of its processes "
                "together: trace the model before that part is wrapped"
            )


def is_outer_wrapper(walk: Walk, index: int) -> bool:
    """True if the module wraps the whole model."""
    module, model = walk.modules[index], walk.modules[0]
    within = unwrap_model(model)
    return module is not within and all(unwrap_model(each) is within for each in (module, model))


# ------------------------------------------------------------------- errors


def _trace_error(error: Exception, graph: Dataflow, walk: Walk, labels: list[tuple[str, torch.Tensor]]) -> TraceError:
    """The error as one that names the module and the line where forward stopped."""
    graph.error = error
    path, source = _failure_location(error.__traceback__, {id(module): i for i, module in enumerate(walk.modules)})
    where = (f" in {printable(walk.path(path)) or '(root)'!r}" if path is not None else "") + (
        f" at {source}" if source else ""
    )
    given = ", ".join(f"{name} {list(recorded_shape(tensor))}" for name, tensor in labels) or "no tensors"
    last = f" after {graph.operators[-1].where}" if graph.operators else ""
    return TraceError(
        f"the forward pass of {printable(type(graph.model).__name__)} stopped{where}{last}: "
        f"{type(error).__name__}: {printable(str(error).strip(), 300)}. Its inputs were {given}",
        graph,
    )


def _with_advice(
    message: str, model: nn.Module, places: Walk, call: tuple[Any, Any], training: bool | None, seed: int | None
) -> str:
    """Returns the message of a failed trace with advice, after running a copy of the model without recording."""

    def runs(call: tuple[Any, Any]) -> bool | None:
        """True if the copy runs, False if its code fails, None if it was not run."""
        try:
            run_isolated(places.modules, call, plainly, ALL, seed)
        except ModuleKGError:
            return None
        except Exception:  # noqa: BLE001 - of the model's code
            return False
        return True

    def plainly(sandbox: Sandbox) -> None:
        set_mode(sandbox.states, training)
        args, kwargs = sandbox.held
        devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
        with disable_current_modes(), torch.random.fork_rng(devices), torch.inference_mode(False), torch.enable_grad():
            call_model(sandbox.of(unwrap_model(model)), args, kwargs)

    is_running = runs(call)
    if is_running is None:
        return message
    if not is_running:
        message += "; run model(...) with them to see the same error, then trace what it accepts"
        is_list_meant = isinstance(call[0], FromList) and runs(((list(call[0]),), call[1]))
        return with_list_hint(message, unwrap_model(model), call[0]) if is_list_meant else message
    return message + (
        "; the model itself runs with them, but not while its operators are recorded: trace a model without that call, "
        "or with torch's own operators in its place"
    )


def _failure_location(traceback: TracebackType | None, index_of: Mapping[int, int]) -> tuple[int | None, Source | None]:
    """The innermost module of the model in a traceback, and its innermost line outside torch."""
    path, source = None, None
    lines = CallerLocator()
    while traceback is not None:
        frame = traceback.tb_frame
        owner = frame.f_locals.get("self")
        path = index_of.get(id(owner), path)
        if lines.is_users(frame.f_code):
            source = Source(frame.f_code.co_filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    return path, source


# -------------------- The traced call on an isolated copy that was modified


def run_modified(graph: Dataflow, change: Callable[[Walk, Sandbox], None]) -> Any:
    """Returns the output of the traced call after `change` was applied to an isolated copy of the model."""
    walked = walk(graph.model)
    args, kwargs = with_tensors(graph.call, lambda tensor: tensor.detach().clone())

    def forward(sandbox: Sandbox) -> Any:
        copied = walked.with_modules(sandbox.modules)
        set_mode(copied.states, graph.training)
        change(copied, sandbox)
        with torch.set_grad_enabled(graph.gradients):
            return call_model(sandbox.model, args, kwargs)

    return run_isolated(walked.modules, (), forward, UNREGISTERED, 0 if graph.seed is None else graph.seed)
