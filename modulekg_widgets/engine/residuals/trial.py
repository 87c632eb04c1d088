"""A pass without some blocks: whether the model runs, and does all that it did but for what went."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from modulekg_widgets.engine.adapters import past_parts
from modulekg_widgets.engine.errors import CutError, TraceError
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.residuals.blocks import ResidualBlock, alike, candidates, layers
from modulekg_widgets.engine.residuals.layer_counters import Attributes, followers
from modulekg_widgets.engine.residuals.removal import (
    NOTHING_REMOVED,
    ModuleRemoval,
    RemovedModule,
    is_container,
    remove,
    without_inner,
)
from modulekg_widgets.engine.residuals.shared_modules import taken_over
from modulekg_widgets.engine.residuals.stand_ins import ARGUMENT, LIST, OUTPUT, TUPLE, Argument, Result, StandIn
from modulekg_widgets.engine.residuals.trace_equivalence import is_the_rest
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Stage, look
from modulekg_widgets.engine.torch_runtime.isolation.shadow import ALL, SHARED
from modulekg_widgets.engine.torch_runtime.parallel import inside
from modulekg_widgets.engine.torch_runtime.private import FakeTensorMode
from modulekg_widgets.engine.torch_runtime.state import module_state, set_mode
from modulekg_widgets.engine.torch_runtime.structure import tensors, with_tensors
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, ModuleCall
from modulekg_widgets.engine.tracing.flops import count_flops
from modulekg_widgets.engine.tracing.trace import FAKE, META, REAL, call_model, changed_call, quietly, trace_dataflow

log = logging.getLogger("modulekg_widgets")
Graph = TypeVar("Graph", bound=Dataflow)


class Mode(NamedTuple):
    """A way in which a model is called."""

    training: bool
    gradients: bool


MOST_FLOPS = 2e10  # of a call that is tried with its data, about a second; beyond that its sizes have to do
MODES = [Mode(training, gradients) for training in (True, False) for gradients in (True, False)]


def stand_in(block: ResidualBlock) -> StandIn | None:
    """What could stand for a block's own module; None where its result is more than code here can make."""
    if block.is_branch:
        return _standing_in(block.call, block.given, block.output, gives_zeros=True)
    at = next(at for at, node in enumerate(block.call.inputs) if node is block.source)
    return _standing_in(block.call, at, block.output, gives_zeros=False)


def _standing_in(call: ModuleCall, at: int, output: DataNode, gives_zeros: bool) -> StandIn | None:
    result = _result(call.result, output, call)
    return None if result is False else StandIn(gives_zeros, _argument(call, at), result)


def _argument(call: ModuleCall, at: int) -> Argument:
    place = call.places[at]
    return Argument(place, None) if isinstance(place, int) else Argument(None, place)


def _result(value: Any, output: DataNode, call: ModuleCall) -> Result | Any:
    """The structure of a result with the output in it; False where it holds more than tensors and None."""
    if value is output:
        return OUTPUT
    if isinstance(value, DataNode):
        at = next((at for at, node in enumerate(call.inputs) if node is value), None)
        if at is None:
            return None
        argument = _argument(call, at)
        return (ARGUMENT, argument.position, argument.keyword)
    if type(value) in (tuple, list):
        parts = [_result(part, output, call) for part in value]
        return False if any(part is False for part in parts) else (TUPLE if type(value) is tuple else LIST, *parts)
    return None if value is None else False


def leaves_its_container(graph: Dataflow, block: ResidualBlock) -> bool:
    """Whether a block goes as a whole from a list or a sequence, so that nothing stands in its place."""
    parent = block.path.rpartition(".")[0]
    return not block.is_branch and parent in graph.modules and is_container(graph.modules[parent].module)


def removals(graph: Dataflow, blocks: Sequence[ResidualBlock]) -> Iterable[ModuleRemoval]:
    """The ways in which blocks can go, the best first: out of their containers, else with something in their place."""
    if any(leaves_its_container(graph, block) for block in blocks):
        first = _removal(graph, blocks, leaving=True)
        if first is not None:
            yield first
    last = _removal(graph, blocks, leaving=False)
    if last is not None:
        yield last


def _removal(graph: Dataflow, blocks: Sequence[ResidualBlock], leaving: bool) -> ModuleRemoval | None:
    gone: list[RemovedModule] = []
    left = [block.path for block in blocks if leaving and leaves_its_container(graph, block)]
    moves = taken_over(graph.model, blocks, left)
    if moves is None or any(block.shared and block.path not in left for block in blocks):
        return None  # what stands for a block computes nothing for those behind it
    for block in blocks:
        if block.path in left:
            gone.append(RemovedModule(block.path))
            continue
        made = [(block.path, stand_in(block))]
        for call, at in block.before:
            made.append((call.path, _standing_in(call, at, call.outputs[0], gives_zeros=False)))
        if any(each is None for _, each in made):
            return None
        gone += [RemovedModule(path, each) for path, each in made]
        for path in block.beside:
            call = graph.modules[path].calls[0]
            gone.append(RemovedModule(path, StandIn(False, _argument(call, alike(call, call.outputs[0])[0]))))
    moved, attributes = moves
    follow = {**followers(graph.model, left), **attributes, **_called_by_parts(graph, gone)}
    return ModuleRemoval(tuple(gone), follow, tuple(moved))


def _called_by_parts(graph: Dataflow, gone: Iterable[RemovedModule]) -> Attributes:
    """What makes the modules around a stand-in call their parts, where they may take the weights of these instead."""
    found: Attributes = {}
    for each in gone:
        path = each.path if each.stand_in is not None else ""
        while path:
            path = path.rpartition(".")[0]
            module = graph.modules[path].module
            own = module_state(module)
            known = past_parts.of_class(type(module))
            for name, value in {} if known is None else known().items():
                if name in own and own[name] != value:
                    found[f"{path}.{name}" if path else name] = own[name], value
    return found


def without(graph: Graph, removal: ModuleRemoval) -> Graph:
    """The traced call without some modules; paths and names are those that the model has now.

    Raises `CutError` or `TraceError` where it does not run.
    """

    found = traced_again(graph, removal, graph.training, graph.seed, (graph.traced_on,))
    found.wanted = graph.wanted
    return found


def traced_again(
    graph: Graph,
    removal: ModuleRemoval,
    training: bool | None,
    seed: int | None,
    ways: Sequence[str] = (META, FAKE, REAL),
) -> Graph:
    """The call of a graph, in another mode or on another way, without some modules."""

    def prepare(walked: Walk, stage: Stage) -> None:
        apply(walked, removal)

    found = trace_dataflow(
        graph.model, *graph.call, training=training, make=type(graph), ways=ways, prepare=prepare if removal else None,
        seed=seed,
    )  # fmt: skip
    found.removal = removal or None
    for name in [name for name, node in found.state.items() if removal.takes_all(node.names)]:
        del found.state[name]
    return found


def apply(walked: Walk, removal: ModuleRemoval) -> None:
    """Remove modules from those of a look and set the attributes that follow."""
    states = {path: walked.states[index] for path, index in walked.places()}
    for path, (_, after) in removal.attributes.items():
        owner, _, name = path.rpartition(".")
        state = states.get(owner)
        if state is None:
            owner, _, holder = owner.rpartition(".")
            state = vars(states[owner][holder])
        state[name] = after
    remove(walked, removal)


def tried(graph: Graph, blocks: Sequence[ResidualBlock], removal: ModuleRemoval) -> Graph | None:
    """The pass without the blocks; None where it is not what it was but for the operators of the blocks."""
    try:
        found = without(graph, removal)
    except (CutError, TraceError, KeyError, AttributeError) as error:
        log.debug("the model does not run without %s: %s", [block.path for block in blocks], error)
        return None
    before, after = ([node.shape for node in each.counted] for each in (graph, found))
    if graph.traced_on == REAL:
        # what experts are asked, as far as code asks it, depends on data: what stays in its place is believed
        in_place = _removal(graph, blocks, leaving=False)
        if removal == in_place or gives_the_same(graph, removal, in_place):
            return found
    if before != after:
        return None
    is_rest = is_the_rest(graph, found, blocks, removal) or _is_the_rest_now(graph, found, blocks, removal)
    return found if is_rest else None


def those_that_run(graph: Dataflow, ways: Sequence[tuple[ResidualBlock, ModuleRemoval]]) -> list[ResidualBlock]:
    """The blocks without which the model runs in each mode, each block with the way in which it goes.

    Without all of them at once first, which takes no more runs than without one.
    """
    blocks = [block for block, _ in ways]
    paths = [block.path for block in blocks]
    together = next(iter(removals(graph, blocks)), None) if without_inner(paths) == paths else None
    if len(ways) > 1 and together is not None and runs_in_each_mode(graph, together):
        return blocks
    return [block for block in blocks if can_go(graph, [block]) is not None]


def can_go(graph: Graph, blocks: Sequence[ResidualBlock]) -> Graph | None:
    """The pass without the blocks, in the first way in which the model runs in each mode; None where there is none."""
    for removal in removals(graph, blocks):
        found = tried(graph, blocks, removal)
        if found is not None and runs_in_each_mode(graph, removal):
            return found
    return None


def runs_in_each_mode(graph: Dataflow, removal: ModuleRemoval) -> bool:
    """Whether the model runs without some modules in all modes in which it runs with them.

    The traced call, in train and in eval mode, with and without gradients, fused paths included.
    """
    failed = _modes_that_stop(graph, removal, MODES)
    return not failed or failed == _modes_that_stop(graph, NOTHING_REMOVED, failed)


def _modes_that_stop(graph: Dataflow, removal: ModuleRemoval, modes: Sequence[Mode]) -> list[Mode]:
    walked = walk(graph.model)
    heavy = int(count_flops(graph.operators)) > MOST_FLOPS

    def run(stage: Stage) -> list[Mode]:
        copied = walked.with_modules(stage.modules)
        stage.replaces = True
        apply(copied, removal)
        with quietly(FakeTensorMode(allow_non_fake_inputs=True)) if heavy else nullcontext():
            return [mode for mode in modes if not _runs(stage.model, graph.call, mode)]

    return look(walked.modules, (), run, SHARED if heavy else ALL, 0 if graph.seed is None else graph.seed)


def _runs(model: nn.Module, call: tuple[Any, Any], mode: Mode) -> bool:
    set_mode(walk(model).states, mode.training)
    try:
        with torch.inference_mode(False), torch.set_grad_enabled(mode.gradients), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            args, kwargs = with_tensors(call, lambda tensor: tensor.detach().clone())
            call_model(inside(model), args, kwargs)
    except Exception as error:  # noqa: BLE001 - of the model's code
        log.debug("the model does not run in %s: %s", mode, error)
        return False
    return True


def _is_the_rest_now(graph: Dataflow, found: Dataflow, blocks: Sequence[ResidualBlock], removal: ModuleRemoval) -> bool:
    """Whether a pass is the rest of one that is made now: modules may keep what they compute when they are called."""
    now = traced_again(graph, NOTHING_REMOVED, graph.training, graph.seed, (graph.traced_on,))
    if [operator.overload for operator in now.operators] == [operator.overload for operator in graph.operators]:
        return False
    known = {(block.path, block.is_branch): block for block in (*layers(now), *candidates(now))}
    same = [known.get((block.path, block.is_branch)) for block in blocks]
    return None not in same and is_the_rest(now, found, [block for block in same if block is not None], removal)


def gives_the_same(graph: Dataflow, one: ModuleRemoval, other: ModuleRemoval | None) -> bool:
    """Whether the traced call gives the same numbers without some modules, in whichever of two ways they went."""
    if other is None:
        return False
    try:
        given, expected = (
            [tensor for _, tensor in tensors(changed_call(graph, lambda copied, _, gone=gone: apply(copied, gone)))]
            for gone in (one, other)
        )
    except Exception as error:  # noqa: BLE001 - code of the user's may look for what a stand-in has not
        log.debug("the model does not run with something in the place of modules: %s", error)
        return False
    return len(given) == len(expected) and all(
        a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(given, expected, strict=True)
    )
