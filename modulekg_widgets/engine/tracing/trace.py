"""Tracing a model: on meta tensors where that goes, then on fake, then on real ones; the model stays as it is."""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from modulekg_widgets.engine.errors import ModuleKGError, TraceError, UninitializedModuleError, shown
from modulekg_widgets.engine.identity.hierarchy import Walk, unwrapped, walk
from modulekg_widgets.engine.tracing.dataflow import (
    INPUT,
    Dataflow,
    ModuleNode,
    Modules,
    OperatorNode,
)
from modulekg_widgets.engine.tracing.inputs import call_arguments, input_tensors, list_hint
from modulekg_widgets.engine.tracing.recorder import Recorder, recording
from modulekg_widgets.engine.tracing.restore import Kept, bytes_kept, untouched
from modulekg_widgets.engine.tracing.source import CallingLines, Source
from modulekg_widgets.engine.tracing.state import held_tensors, module_places, own_tensors
from modulekg_widgets.engine.tracing.structure import tensors, with_tensors

log = logging.getLogger("modulekg_widgets")
META, FAKE, REAL = "meta", "fake", "real"
Graph = TypeVar("Graph", bound=Dataflow)


def trace_dataflow(
    model: nn.Module,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    training: bool | None = None,
    make: Callable[[nn.Module], Graph] = Dataflow,
    ways: Sequence[str] = (META, FAKE, REAL),
    prepare: Callable[[Walk], None] | None = None,
    watch: Callable[[OperatorNode], None] | None = None,
    seed: int | None = None,
) -> Graph:
    """Record `model(*args, **kwargs)`; `training` sets the mode for the trace alone, `ways` the tensors to try.

    What `prepare` changes in the modules holds for the trace alone; `watch` is told of each operator once it has run;
    `seed` is for what forward does by chance, and the process's random states stay as they are.
    Raises `TraceError` when the inputs do not fit or the forward pass raises; its `graph` ends where it stopped.
    """
    places = walk(model)
    model = unwrapped(model)
    check_initialised(places)
    positional, named = call_arguments(args, kwargs)
    labels = input_tensors(model, positional, named)
    on_meta = any(t.is_meta for state in places.states for t in own_tensors(state).values())
    error: TraceError | None = None
    ways = (META,) if on_meta else ways
    for mode in ways:
        graph = make(model)
        graph.traced_on, graph.call, graph.training, graph.seed = mode, (positional, named), training, seed
        try:
            with untouched(places.modules, (positional, named)) as kept:
                graph.set_mode(places.modules)
                if seed is not None:
                    draw_from(seed)
                if prepare is not None:
                    prepare(places)
                _attempt(graph, places, kept, labels, mode, mode == ways[-1], watch)
        except ModuleKGError:
            raise
        except Exception as caught:  # noqa: BLE001 - the user's forward may raise anything
            error = _explained(caught, graph, places, labels)
            error.__cause__ = caught
            log.debug("tracing on %s tensors stopped: %s", mode, caught)
            continue
        return graph
    assert error is not None
    raise error


def _attempt(
    graph: Dataflow,
    walk: Walk,
    kept: Kept,
    labels: list[tuple[str, torch.Tensor]],
    mode: str,
    last_way: bool,
    watch: Callable[[OperatorNode], None] | None,
) -> None:
    places = module_places(walk)
    graph.modules = _modules(graph, walk, places)
    paths = {id(node.module): node.path for node in graph.modules.values()}
    world, stand_in = _world(mode)
    recorder = Recorder(graph, paths, stand_in)
    recorder.on_meta, recorder.last_way, recorder.watch = mode == META, last_way, watch
    for held in list(held_tensors(walk, places)):
        node = recorder.adopt(held.tensor, held.kind, held.name)
        node.names += (held.name,)
        graph.state[held.name] = node
    for label, tensor in labels:
        node = recorder.adopt(tensor, INPUT, label)
        if node.kind == INPUT and node not in graph.inputs:
            graph.inputs.append(node)
    with world, bytes_kept(kept.every_tensor if mode == REAL else ()), recording(recorder):
        output = call_model(graph.model, *with_tensors(graph.call, recorder.seen))
    found = dict.fromkeys(recorder.node(tensor) for _, tensor in tensors(output))
    graph.outputs = list(found)
    graph.result = with_tensors(output, recorder.node)
    for node in found:
        node.is_output = True


def call_model(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The call that is recorded; its frame is where the search for a source line ends."""
    return model(*args, **kwargs)


def draw_from(seed: int) -> None:
    """Seed what `untouched` puts back; the process's own generators, not those of the model."""
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)


def _world(mode: str) -> tuple[AbstractContextManager[Any], Callable[[torch.Tensor], torch.Tensor] | None]:
    """What surrounds the forward pass, and what stands in for a tensor from outside."""
    if mode == META:
        return nullcontext(), _meta_copy
    if mode == FAKE:
        fakes = FakeTensorMode(allow_non_fake_inputs=True)
        return _quietly(_no_fused_rnn(fakes)), fakes.from_tensor
    return _no_fused_rnn(nullcontext()), None


def _meta_copy(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout is torch.strided:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return torch.empty_like(tensor, device="meta")


@contextmanager
def _no_fused_rnn(inside: AbstractContextManager[Any]) -> Iterator[None]:
    """Without mkldnn and cudnn a recurrent layer runs as the operators that it is made of."""
    mkldnn = torch._C._get_mkldnn_enabled()  # its `flags` warn where there is no GPU of Intel's
    torch._C._set_mkldnn_enabled(False)
    try:
        with torch.backends.cudnn.flags(enabled=False), inside:
            yield
    finally:
        torch._C._set_mkldnn_enabled(mkldnn)


@contextmanager
def _quietly(inside: AbstractContextManager[Any]) -> Iterator[None]:
    """Fake tensors log an error with a traceback before they raise; that they may raise is expected here."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.disabled
    logger.disabled = True
    try:
        with inside:
            yield
    finally:
        logger.disabled = before


# ------------------------------------------------------------------ modules


def _modules(graph: Dataflow, walk: Walk, places: Sequence[tuple[str, int]]) -> Modules:
    """A node for each module, found under each of its paths."""
    nodes: dict[int, ModuleNode] = {}
    for place, index in places:
        nodes.setdefault(index, ModuleNode(graph, place, walk.modules[index]))
    return Modules({place: nodes[index] for place, index in places})


def check_initialised(walk: Walk) -> None:
    """Raise `UninitializedModuleError` for a lazy module that has no shapes yet."""
    for index, state in enumerate(walk.states):
        for name, tensor in own_tensors(state).items():
            if nn.parameter.is_lazy(tensor):
                where = ".".join(filter(None, (walk.path(index), name)))
                raise UninitializedModuleError(
                    f"{shown(where)!r} has no shape yet: run one forward pass of the lazy module, then trace"
                )


# ------------------------------------------------------------------- errors


def _explained(error: Exception, graph: Dataflow, walk: Walk, labels: list[tuple[str, torch.Tensor]]) -> TraceError:
    """The error as one that names the module and the line where forward stopped."""
    graph.error = error
    path, source = _place(error.__traceback__, {id(module): i for i, module in enumerate(walk.modules)})
    where = (f" in {shown(walk.path(path)) or '(root)'!r}" if path is not None else "") + (
        f" at {source}" if source else ""
    )
    given = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in labels) or "no tensors"
    last = f" after {graph.operators[-1].where}" if graph.operators else ""
    return TraceError(
        f"the forward pass of {shown(type(graph.model).__name__)} stopped{where}{last}: "
        f"{type(error).__name__}: {shown(str(error).strip(), 300)}. Its inputs were {given}; run model(...) with them "
        f"to see the same error, then trace what it accepts{list_hint(graph.call[0])}",
        graph,
    )


def _place(traceback: TracebackType | None, index_of: Mapping[int, int]) -> tuple[int | None, Source | None]:
    """The innermost module of the model in a traceback, and its innermost line outside torch."""
    path, source = None, None
    lines = CallingLines()
    while traceback is not None:
        frame = traceback.tb_frame
        owner = frame.f_locals.get("self")
        path = index_of.get(id(owner), path)
        if lines.is_users(frame.f_code):
            source = Source(frame.f_code.co_filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    return path, source
