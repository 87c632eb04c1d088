"""Trial of a block removal: the model must run in every mode and compute the same apart from the block.

The trace after removing blocks must equal the original trace minus those blocks. What a module that went would have
given is, for those behind it, what it lets through, or zeros.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import nn

from modulekg_widgets.engine.adapters import fast_path_blockers
from modulekg_widgets.engine.errors import CutError, TraceError
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.operators.arguments import OperatorCall
from modulekg_widgets.engine.residuals.blocks import ResidualBlock, candidate_blocks, candidate_layers, matching_inputs
from modulekg_widgets.engine.residuals.layer_counters import AttributeChanges, counter_changes
from modulekg_widgets.engine.residuals.module_removal import (
    NOTHING_REMOVED,
    ModuleRemoval,
    RemovedModule,
    is_container,
    outermost_paths,
    remove_modules,
)
from modulekg_widgets.engine.residuals.shared_modules import moved_shared_modules
from modulekg_widgets.engine.residuals.stand_ins import ARGUMENT, LIST, OUTPUT, TUPLE, Argument, Placeholder, Result
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Sandbox, run_isolated
from modulekg_widgets.engine.torch_runtime.isolation.shadow import ALL, SHARED
from modulekg_widgets.engine.torch_runtime.modules import module_state, set_mode
from modulekg_widgets.engine.torch_runtime.parallel import unwrap_model
from modulekg_widgets.engine.torch_runtime.private import FakeTensorMode
from modulekg_widgets.engine.torch_runtime.pytree import tensors, with_tensors
from modulekg_widgets.engine.tracing.dataflow import CONSTANT, Dataflow, DataNode, ModuleCall, OperatorNode
from modulekg_widgets.engine.tracing.flops import count_flops
from modulekg_widgets.engine.tracing.trace import (
    FAKE,
    META,
    REAL,
    call_model,
    run_modified,
    trace_dataflow,
    without_fake_tensor_log,
)

# -------------------- Equivalence of two traces


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


# -------------------- Trial


log = logging.getLogger("modulekg_widgets")
Graph = TypeVar("Graph", bound=Dataflow)


class Mode(NamedTuple):
    """Train or eval mode, with or without gradients."""

    training: bool
    gradients: bool


MAX_FLOPS = 2e10  # of a call that is tried with its data, about a second; beyond that its sizes have to do
MODES = [Mode(training, gradients) for training in (True, False) for gradients in (True, False)]


def placeholder_for(block: ResidualBlock) -> Placeholder | None:
    """The placeholder for a block's module; None if its result has an unsupported structure."""
    if block.is_branch:
        return _placeholder(block.call, block.input_index, block.output, gives_zeros=True)
    at = next(at for at, node in enumerate(block.call.inputs) if node is block.source)
    return _placeholder(block.call, at, block.output, gives_zeros=False)


def _placeholder(call: ModuleCall, at: int, output: DataNode, gives_zeros: bool) -> Placeholder | None:
    result = _result(call.result, output, call)
    return None if result is False else Placeholder(gives_zeros, _argument(call, at), result)


def _argument(call: ModuleCall, at: int) -> Argument:
    place = call.places[at]
    return Argument(place, None) if isinstance(place, int) else Argument(None, place)


def _result(value: object, output: DataNode, call: ModuleCall) -> Result | Literal[False]:
    """The structure of a result with the output in it; False if it holds more than tensors and None."""
    if value is output:
        return OUTPUT
    if isinstance(value, DataNode):
        at = next((at for at, node in enumerate(call.inputs) if node is value), None)
        if at is None:
            return None
        argument = _argument(call, at)
        return (ARGUMENT, argument.position, argument.keyword)
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        parts = [_result(part, output, call) for part in value]
        return False if any(part is False for part in parts) else (TUPLE if type(value) is tuple else LIST, *parts)
    return None if value is None else False


def is_removed_from_container(graph: Dataflow, block: ResidualBlock) -> bool:
    """True if a block is removed from a list or sequence as a whole."""
    parent = block.path.rpartition(".")[0]
    return not block.is_branch and parent in graph.modules and is_container(graph.modules[parent].module)


def possible_removals(graph: Dataflow, blocks: Sequence[ResidualBlock]) -> Iterable[ModuleRemoval]:
    """The possible removals of blocks, the best first: out of containers, else with placeholders."""
    if any(is_removed_from_container(graph, block) for block in blocks):
        first = _removal(graph, blocks, leaving=True)
        if first is not None:
            yield first
    last = _removal(graph, blocks, leaving=False)
    if last is not None:
        yield last


def _removal(graph: Dataflow, blocks: Sequence[ResidualBlock], leaving: bool) -> ModuleRemoval | None:
    gone: list[RemovedModule] = []
    left = [block.path for block in blocks if leaving and is_removed_from_container(graph, block)]
    moves = moved_shared_modules(graph.model, blocks, left)
    if moves is None or any(block.shared_operators and block.path not in left for block in blocks):
        return None  # what stands for a block computes nothing for those behind it
    for block in blocks:
        if block.path in left:
            gone.append(RemovedModule(block.path))
            continue
        made = [(block.path, placeholder_for(block))]
        for call, at in block.upstream:
            made.append((call.path, _placeholder(call, at, call.outputs[0], gives_zeros=False)))
        if any(each is None for _, each in made):
            return None
        gone += [RemovedModule(path, each) for path, each in made]
        for path in block.bypassed:
            call = graph.modules[path].calls[0]
            gone.append(
                RemovedModule(path, Placeholder(False, _argument(call, matching_inputs(call, call.outputs[0])[0])))
            )
    moved, attributes = moves
    follow = {**counter_changes(graph.model, left), **attributes, **_fused_path_changes(graph, gone)}
    return ModuleRemoval(tuple(gone), follow, tuple(moved))


def _fused_path_changes(graph: Dataflow, gone: Iterable[RemovedModule]) -> AttributeChanges:
    """The attribute changes that turn off fused paths which read the weights of replaced parts."""
    found: AttributeChanges = {}
    for each in gone:
        path = each.path if each.placeholder is not None else ""
        while path:
            path = path.rpartition(".")[0]
            module = graph.modules[path].module
            own = module_state(module)
            known = fast_path_blockers.of_class(type(module))
            for name, value in {} if known is None else known().items():
                if name in own and own[name] != value:
                    found[f"{path}.{name}" if path else name] = own[name], value
    return found


def trace_without(graph: Graph, removal: ModuleRemoval) -> Graph:
    """The traced call without some modules.

    Raises `CutError` or `TraceError` where it does not run.
    """

    found = retrace(graph, removal, graph.training, graph.seed, (graph.traced_on,))
    found.wanted = graph.wanted
    return found


def retrace(
    graph: Graph,
    removal: ModuleRemoval,
    training: bool | None,
    seed: int | None,
    ways: Sequence[str] = (META, FAKE, REAL),
) -> Graph:
    """The traced call, in another mode or on another kind of tensors, without some modules."""

    def prepare(walked: Walk, sandbox: Sandbox) -> None:
        apply_removal(walked, removal)

    found = trace_dataflow(
        graph.model,
        *graph.call,
        training=training,
        graph_type=type(graph),
        modes=ways,
        prepare=prepare if removal else None,
        seed=seed,
    )
    found.removal = removal or None
    for name in [name for name, node in found.state.items() if removal.removes_all(node.names)]:
        del found.state[name]
    return found


def apply_removal(walked: Walk, removal: ModuleRemoval) -> None:
    """Remove modules in a sandbox, and set the attributes that change."""
    states = {path: walked.states[index] for path, index in walked.all_paths()}
    for path, (_, after) in removal.attributes.items():
        owner, _, name = path.rpartition(".")
        state = states.get(owner)
        if state is None:
            owner, _, holder = owner.rpartition(".")
            state = vars(states[owner][holder])
        state[name] = after
    remove_modules(walked, removal)


def try_removal(graph: Graph, blocks: Sequence[ResidualBlock], removal: ModuleRemoval) -> Graph | None:
    """The trace without the blocks; None if other operators differ as well."""
    try:
        found = trace_without(graph, removal)
    except (CutError, TraceError, KeyError, AttributeError) as error:
        log.debug("the model does not run without %s: %s", [block.path for block in blocks], error)
        return None
    before, after = ([node.shape for node in each.fixed_outputs] for each in (graph, found))
    if graph.traced_on == REAL:
        # what experts are asked, as far as code asks it, depends on data: what stays in its place is believed
        in_place = _removal(graph, blocks, leaving=False)
        if removal == in_place or has_equal_outputs(graph, removal, in_place):
            return found
    if before != after:
        return None
    is_rest = is_equivalent_trace(graph, found, blocks, removal) or _is_equivalent_to_new_trace(
        graph, found, blocks, removal
    )
    return found if is_rest else None


def running_blocks(graph: Dataflow, ways: Sequence[tuple[ResidualBlock, ModuleRemoval]]) -> list[ResidualBlock]:
    """The blocks without which the model runs in each mode.

    Without all of them at once first, which takes no more runs than without one.
    """
    blocks = [block for block, _ in ways]
    paths = [block.path for block in blocks]
    together = next(iter(possible_removals(graph, blocks)), None) if outermost_paths(paths) == paths else None
    if len(ways) > 1 and together is not None and runs_in_all_modes(graph, together):
        return blocks
    return [block for block in blocks if trace_if_removable(graph, [block]) is not None]


def trace_if_removable(graph: Graph, blocks: Sequence[ResidualBlock]) -> Graph | None:
    """The trace without the blocks, by the first removal that runs in each mode; else None."""
    for removal in possible_removals(graph, blocks):
        found = try_removal(graph, blocks, removal)
        if found is not None and runs_in_all_modes(graph, removal):
            return found
    return None


def runs_in_all_modes(graph: Dataflow, removal: ModuleRemoval) -> bool:
    """True if the model runs without some modules in all modes in which it ran with them.

    The traced call, in train and in eval mode, with and without gradients, fused paths included.
    """
    failed = _failing_modes(graph, removal, MODES)
    return not failed or failed == _failing_modes(graph, NOTHING_REMOVED, failed)


def _failing_modes(graph: Dataflow, removal: ModuleRemoval, modes: Sequence[Mode]) -> list[Mode]:
    walked = walk(graph.model)
    heavy = int(count_flops(graph.operators)) > MAX_FLOPS

    def run(sandbox: Sandbox) -> list[Mode]:
        copied = walked.with_modules(sandbox.modules)
        sandbox.replaces = True
        apply_removal(copied, removal)
        with without_fake_tensor_log(FakeTensorMode(allow_non_fake_inputs=True)) if heavy else nullcontext():
            return [mode for mode in modes if not _runs(sandbox.model, graph.call, mode)]

    return run_isolated(walked.modules, (), run, SHARED if heavy else ALL, 0 if graph.seed is None else graph.seed)


def _runs(model: nn.Module, call: tuple[Any, Any], mode: Mode) -> bool:
    set_mode(walk(model).states, mode.training)
    try:
        with torch.inference_mode(False), torch.set_grad_enabled(mode.gradients), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            args, kwargs = with_tensors(call, lambda tensor: tensor.detach().clone())
            call_model(unwrap_model(model), args, kwargs)
    except Exception as error:  # noqa: BLE001 - of the model's code
        log.debug("the model does not run in %s: %s", mode, error)
        return False
    return True


def _is_equivalent_to_new_trace(
    graph: Dataflow, found: Dataflow, blocks: Sequence[ResidualBlock], removal: ModuleRemoval
) -> bool:
    """True if a trace matches a new trace minus the blocks, as modules may cache results."""
    now = retrace(graph, NOTHING_REMOVED, graph.training, graph.seed, (graph.traced_on,))
    if [operator.overload for operator in now.operators] == [operator.overload for operator in graph.operators]:
        return False
    known = {(block.path, block.is_branch): block for block in (*candidate_layers(now), *candidate_blocks(now))}
    same = [known.get((block.path, block.is_branch)) for block in blocks]
    return None not in same and is_equivalent_trace(now, found, [block for block in same if block is not None], removal)


def has_equal_outputs(graph: Dataflow, one: ModuleRemoval, other: ModuleRemoval | None) -> bool:
    """True if two removals give equal outputs for the traced call."""
    if other is None:
        return False
    try:
        given, expected = (
            [
                tensor
                for _, tensor in tensors(run_modified(graph, lambda copied, _, gone=gone: apply_removal(copied, gone)))
            ]
            for gone in (one, other)
        )
    except Exception as error:  # noqa: BLE001 - code of the user's may look for what a stand-in has not
        log.debug("the model does not run with something in the place of modules: %s", error)
        return False
    return len(given) == len(expected) and all(
        a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(given, expected, strict=True)
    )
