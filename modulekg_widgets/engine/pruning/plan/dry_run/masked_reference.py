"""The masked original, which a cut model must reproduce: recorded operators on full sizes with zeros."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.axes.cut_analysis import KeepMasks
from modulekg_widgets.engine.axes.proof.control_flow import Decisions, OperatorLimit, ReplayDecision, traced_path
from modulekg_widgets.engine.axes.proof.double_precision import ForceDtype, State, cast, is_constant, rescaled
from modulekg_widgets.engine.axes.proof.list_proof import RouterOffsets, router_weights
from modulekg_widgets.engine.axes.proof.verify import MIN_EFFECT, as_floats, max_difference, max_magnitude
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms
from modulekg_widgets.engine.axes.terms.index_semantics import ENDS, ChosenIndices
from modulekg_widgets.engine.axes.terms.term_positions import keep_mask
from modulekg_widgets.engine.errors import ModuleKGError, TraceError
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.operators.arguments import OperatorCall
from modulekg_widgets.engine.operators.recorded_call import recorded_shape
from modulekg_widgets.engine.operators.signature import signature_of
from modulekg_widgets.engine.operators.traits import CHANNELS, LAST, LENGTH, traits_of
from modulekg_widgets.engine.pruning.cut.edits import Edits, slicer
from modulekg_widgets.engine.pruning.cut.transaction import apply_edits
from modulekg_widgets.engine.pruning.plan.dry_run.dry_run import ScaleChange, has_default_scale
from modulekg_widgets.engine.pruning.plan.dry_run.recorded_calls import arguments_without_sizes, scalar_value
from modulekg_widgets.engine.residuals.module_removal import NOTHING_REMOVED
from modulekg_widgets.engine.torch_runtime.decompose import AttentionSlowPath, DecomposedLayers, WholeRecurrentLayers
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Sandbox, run_isolated
from modulekg_widgets.engine.torch_runtime.isolation.shadow import UNREGISTERED
from modulekg_widgets.engine.torch_runtime.modules import set_mode
from modulekg_widgets.engine.torch_runtime.private import BUFFERS, PARAMETERS
from modulekg_widgets.engine.torch_runtime.pytree import leaves, tensors, with_leaves, with_tensors
from modulekg_widgets.engine.torch_runtime.rng import ReproducibleDraws, seeded_generator
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, OperatorNode
from modulekg_widgets.engine.tracing.execution import run_operator
from modulekg_widgets.engine.tracing.trace import REAL, call_model
from modulekg_widgets.engine.tracing.unregistered_tensors import UnregisteredTensors, named_registered_tensors

Tensor = torch.Tensor
ContextFactory = Callable[[Walk], AbstractContextManager[object]]
RemainingPositions = dict[int, Tensor]  # dimension → the positions that stay
log = logging.getLogger("modulekg_widgets")
SEED = 0
# relative, in float32 with the model's own weights: more may be rounding, and float64 tells
SINGLE_PRECISION_TOLERANCE = 1e-5
DOUBLE_PRECISION_TOLERANCE = 1e-9  # relative, in float64 with weights that hide nothing


def matches_masked_model(axes: Axes, keeps: KeepMasks, edits: Edits, scales: Sequence[ScaleChange] = ()) -> bool | None:
    """True if the cut model computes the same as the masked original; None if it cannot be compared.

    That is so where the model has no data, where forward goes another way each time, where the recorded operators do
    not run on the model's device, and where they give other values than the uncut model, as by a clock. Where data
    decide the way, both go that of the traced input, and what they would have decided is compared as well.
    """
    graph = axes.graph
    if any(node.tensor is not None and node.tensor.is_meta for node in graph.state.values()):
        return None
    if graph.traced_on == REAL and traced_path(axes).decisions is None:
        return None
    try:
        quickly = _output_error(axes, keeps, edits, scales, _own_weights(graph), torch.float32)
        if (
            quickly < SINGLE_PRECISION_TOLERANCE
            or output_error(axes, keeps, edits, scales) < DOUBLE_PRECISION_TOLERANCE
        ):
            return True
        # where the recorded operators do not give the values of the uncut model either, they tell nothing
        return False if output_error(axes, {}, Edits(())) < DOUBLE_PRECISION_TOLERANCE else None
    except (RuntimeError, TraceError):
        # what was recorded without data may be a way that only other devices go
        log.debug("the masked original cannot be run", exc_info=True)
        return None
    except Exception:
        log.debug("the cut model stopped", exc_info=True)
        return False if edits.tensors and matches_masked_model(axes, {}, Edits(())) else None


def output_error(axes: Axes, keeps: KeepMasks, edits: Edits, scales: Sequence[ScaleChange] = ()) -> float:
    """The relative output error of the cut model against the masked original, in float64.

    The weights are random where the model's own would hide an error. `scales` are numbers that the code computes from
    sizes, as attention's 1/sqrt(head_dim): the masked original goes by the new ones.
    """
    state = rescaled(list(axes.graph.state.values()), SEED)
    return _output_error(axes, keeps, edits, scales, state, torch.float64)


def _output_error(
    axes: Axes, keeps: KeepMasks, edits: Edits, scales: Sequence[ScaleChange], state: State, dtype: torch.dtype
) -> float:
    masked = _run_masked(axes, keeps, state, dtype, scales)
    decisions = Decisions(traced_path(axes).decisions)
    cut = cut_outputs(axes, edits, state, dtype, lambda _: decisions if decisions.known else nullcontext())
    apart = decisions.diverged or len(decisions.recomputed) != len(decisions.known or ())
    if apart:
        return float("inf")
    return max(
        _relative(cut, masked.outputs),
        *(_relative(*pair) for pair in _decision_pairs(decisions.recomputed, masked)),
        0.0,
    )


def _relative(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    return max_difference(found, expected) / max(max_magnitude(expected), 1e-300)


def _decision_pairs(
    own: Sequence[Sequence[Tensor]], masked: _MaskedResult
) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """The data-dependent decisions of the cut model and of the masked original, in pairs."""
    for cut, expected in zip(own, masked.decided, strict=True):
        if expected is not None:
            yield as_floats(cut), as_floats(expected)


class AxisEffects:
    """Tests if masking an axis changes the outputs on the traced input.

    The whole model runs once for all axes.
    """

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self._uncut_results: dict[torch.dtype, tuple[State, _MaskedResult]] = {}

    def has_effect(self, term: Term, keep: NDArray[np.bool_]) -> bool:
        """True if masking one axis has an effect."""
        # with others than its own weights a model may choose otherwise than on the way that it is led
        for dtype, least in ((torch.float32, SINGLE_PRECISION_TOLERANCE), (torch.float64, MIN_EFFECT)):
            state, whole = self._uncut_result(dtype)
            masked = _run_masked(self.axes, {term: keep}, state, dtype)
            decided = zip(masked.decided, whole.decided, strict=True)
            pairs = [(as_floats(one or ()), as_floats(other or ())) for one, other in decided]
            if any(_relative(*pair) > least for pair in [(masked.outputs, whole.outputs), *pairs]):
                return True
        return False

    def _uncut_result(self, dtype: torch.dtype) -> tuple[State, _MaskedResult]:
        """The weights and outputs of the uncut model, in float32 or in float64."""
        if dtype not in self._uncut_results:
            every = list(self.axes.graph.state.values())
            own = ((node.label, node.tensor) for node in every if node.tensor is not None)
            exact = dtype is torch.float64
            state = rescaled(every, SEED) if exact else {name: cast(t.detach().clone(), dtype) for name, t in own}
            self._uncut_results[dtype] = state, _run_masked(self.axes, {}, state, dtype)
        return self._uncut_results[dtype]


def _own_weights(graph: Dataflow) -> State:
    """Copies of the model's tensors in float32; constant ones are replaced by random values."""
    generator = seeded_generator(SEED)
    state = {}
    for node in graph.state.values():
        assert node.tensor is not None
        value = node.tensor.detach()
        value = value.to(torch.float32 if value.is_floating_point() else value.dtype, copy=True)
        if value.is_floating_point() and is_constant(value):
            value = (torch.rand(value.shape, generator=generator, device="cpu") + 0.5).to(value.device)
            value = value / max(value[0].numel(), 1) ** 0.5 if value.dim() > 1 else value
        state[node.label] = value
    return state


def cut_outputs(
    axes: Axes, edits: Edits, state: State, dtype: torch.dtype, around: ContextFactory | None = None
) -> list[Tensor]:
    """The outputs of the model with its tensors from `state`, cut; the model is unchanged.

    `around` the call, with the modules that run.
    """
    graph = axes.graph
    args, kwargs = with_tensors(graph.call, lambda t: cast(t.detach().clone(), dtype))
    walked = walk(graph.model)
    values = {name: state[node.label] for name, node in graph.state.items()}
    slice_of = slicer(edits, values.__getitem__)

    def forward(sandbox: Sandbox) -> list[Tensor]:
        copied = walked.with_modules(sandbox.modules)
        set_mode(copied.states, graph.training)
        _forget_results(copied)
        sandbox.replaces = True
        apply_edits(copied, sandbox, edits, lambda edit, _: slice_of(edit), values)
        by_step = DecomposedLayers() if graph.traced_on == REAL else AttentionSlowPath()  # as it was traced
        ends = OperatorLimit(graph) if graph.traced_on == REAL else nullcontext()
        around_it = nullcontext() if around is None else around(copied)
        cast_as = ForceDtype(dtype)
        # recurrent layers come whole to the innermost mode, as at the trace
        with torch.set_grad_enabled(graph.gradients), by_step, ends, around_it, cast_as, WholeRecurrentLayers(cast_as):
            return [tensor for _, tensor in tensors(call_model(sandbox.model, args, kwargs))]

    return run_isolated(walked.modules, (), forward, UNREGISTERED, SEED if graph.seed is None else graph.seed)


def _forget_results(walked: Walk) -> None:
    """Clear the tensor caches that modules fill."""
    tables = UnregisteredTensors(walked)
    for state in walked.states:
        for name, value in state.items():
            kept = name not in (PARAMETERS, BUFFERS) and type(value) is dict and bool(value)
            kept = kept and all(isinstance(part, Tensor) for part in value.values())
            if kept and tables.attribute_writes.may_write((name,), inside=True):
                value.clear()


class _MaskedResult(NamedTuple):
    """The outputs and decisions of the masked original."""

    outputs: list[Tensor]
    decided: list[list[Tensor] | None]


def _run_masked(
    axes: Axes, keeps: KeepMasks, state: State, dtype: torch.dtype, scales: Sequence[ScaleChange] = ()
) -> _MaskedResult:
    replay = MaskedReplay(axes, keeps, state, dtype)
    rescaled_calls = _calls_with_new_scales(scales)
    with ReproducibleDraws(SEED if axes.graph.seed is None else axes.graph.seed), torch.no_grad(), ForceDtype(dtype):
        for operator in axes.graph.operators:
            replay.run_operator(operator, rescaled_calls.get(operator.index, operator))
    outputs = [replay.output(node) for _, node in leaves(axes.graph.result, DataNode)]
    return _MaskedResult(
        outputs, [None if place is None else replay.decisions.get(place) for place in replay.way.order]
    )


class MaskedReplay:
    def __init__(self, axes: Axes, keeps: KeepMasks, state: State, dtype: torch.dtype) -> None:
        self.axes = axes
        self.keeps = keeps
        self.way = traced_path(axes)
        self.decisions: dict[DataNode | OperatorNode, list[Tensor]] = {}  # by where it is decided
        self._decision_points = {place for place in self.way.order if isinstance(place, DataNode)}
        self.known_positions: dict[DataNode, RemainingPositions] = {}
        self.values: dict[DataNode, Tensor] = {}
        self.device = next((value.device for value in state.values()), torch.device("cpu"))
        self.pending_reads = {node: len(node.consumers) for node in axes.graph.values}
        graph = axes.graph
        self.retained = {node.previous for node in graph.values} | set(graph.outputs)
        written = {node.storage for node in graph.values if node.previous is not None}
        for node in graph.state.values():
            value = state[node.label]
            self.values[node] = value.clone() if node.storage in written or self.positions(node) else value
            if not any(traits_of(operator.overload).normalizes == LENGTH for operator in node.consumers):
                # a cut leaves what stays of such a weight as it is, so the norm runs over all of it here
                self._zero_removed(node, self.values[node])  # two weights may meet before any activation does
        for node in graph.values:
            if node.producer is None and node not in self.values:
                assert node.tensor is not None
                value = torch.zeros(node.shape, device="cpu") if node.tensor.is_meta else node.tensor.detach().clone()
                self.values[node] = cast(value, dtype)
        for node in self._decision_points & self.values.keys():
            self.decisions[node] = [self.output(node).clone()]

    @property
    def chosen_indices(self) -> ChosenIndices:
        return self.axes.inference.chosen

    def run_operator(self, operator: OperatorNode, call: OperatorNode) -> None:
        """Run an operator, and zero the removed indices of its results."""
        # ends of runs are where they were: none of what goes was chosen
        counts_on = any(self.chosen_indices.axis_of(node, ENDS) is not None for node in operator.outputs)
        compact = (
            not counts_on and _reads_whole_dims(operator) and any(self.positions(node) for node in operator.inputs)
        )
        results = self._run_compact(operator) if compact else self._run(operator, call)
        nodes = [node for _, node in leaves(operator.result, DataNode)]
        is_view = signature_of(operator.overload).views is not None
        for node, tensor in zip(nodes, (tensor for _, tensor in tensors(results)), strict=True):
            # what nobody reads, such as statistics saved for a backward pass, may have another shape on other tensors
            zeroed = not is_view and recorded_shape(tensor) == node.shape
            if zeroed and node not in self.chosen_indices.semantics:
                self._zero_removed(node, tensor)
            self.values[node] = self._as_full_indices(node, tensor) if compact else tensor
        for node in operator.outputs:
            if node not in self.values and node.previous is not None:
                self.values[node] = self.values[node.previous]
            if node in self._decision_points:
                self.decisions[node] = [self.output(node).clone()]
        self._free_inputs(operator)

    def _run(self, operator: OperatorNode, call: OperatorNode) -> object:
        """The results of an operator; decisions are those of the traced input."""
        known = self.way.at_operators.get(operator.index)
        if known is None:
            return run_operator(call, self._value, self._device)
        decisions = Decisions()
        with ReplayDecision(decisions, known):
            results = run_operator(call, self._value, self._device)
        self.decisions[operator] = [tensor for own in decisions.recomputed for tensor in own]
        return results

    def _as_full_indices(self, node: DataNode, tensor: Tensor) -> Tensor:
        """Indices chosen among the remaining ones, as indices of all."""
        axis = self.chosen_indices.axis_of(node)
        if axis is None or not any(atom in self.keeps for atom in atoms(axis)):
            return tensor
        stay = torch.from_numpy(np.flatnonzero(keep_mask(axis, self.keeps))).to(tensor.device)
        return stay[tensor.long()].to(tensor.dtype)

    def _zero_removed(self, node: DataNode, tensor: Tensor) -> None:
        """Set the removed positions to zero."""
        for at, positions in self.positions(node).items():
            shape = [1] * tensor.dim()
            shape[at] = -1
            gone = torch.ones(tensor.shape[at], dtype=torch.bool, device=tensor.device)
            tensor.masked_fill_(gone.index_fill_(0, positions.to(tensor.device), False).view(shape), 0)

    def _free_inputs(self, operator: OperatorNode) -> None:
        """Free values that nothing reads any more."""
        for node in operator.inputs:
            self.pending_reads[node] -= 1
            if self.pending_reads[node] == 0 and node not in self.retained and node.producer is not None:
                self.values.pop(node, None)

    def _device(self, traced: torch.device) -> torch.device:
        return self.device if traced.type == "meta" else traced

    def _value(self, node: DataNode) -> Tensor:
        # running statistics are written without a word in the schema
        return self.values[node].clone() if node.is_buffer_like else self.values[node]

    def positions(self, node: DataNode) -> RemainingPositions:
        """The remaining positions of each dimension that loses some."""
        if node not in self.known_positions:
            found: RemainingPositions = {}
            for at, term in enumerate(self.axes.inference.dims(node)):
                if any(atom in self.keeps for atom in atoms(term)):
                    found[at] = torch.from_numpy(np.flatnonzero(keep_mask(term, self.keeps)))
            self.known_positions[node] = found
        return self.known_positions[node]

    # ----------------------------------------------------------- statistics

    def _run_compact(self, operator: OperatorNode) -> object:
        """The full-size results of an operator that ran on the remaining positions."""
        args = _with_compact_sizes(operator, self)
        found = run_operator(args, lambda node: self._compact(node, self._value(node)), self._device)
        nodes = iter([node for _, node in leaves(operator.result, DataNode)])
        return with_leaves(found, Tensor, lambda tensor: self._expand(next(nodes), tensor))

    def _compact(self, node: DataNode, value: Tensor) -> Tensor:
        for at, positions in self.positions(node).items():
            value = value.index_select(at, positions.to(value.device))
        return value

    def _expand(self, node: DataNode, value: Tensor) -> Tensor:
        for at, positions in self.positions(node).items():
            shape = list(value.shape)
            shape[at] = node.shape[at]
            value = value.new_zeros(shape).index_copy_(at, positions.to(value.device), value)
        return value

    def output(self, node: DataNode) -> Tensor:
        return self._compact(node, self.values[node])


def _reads_whole_dims(operator: OperatorNode) -> bool:
    """True if an operator reduces over a whole dimension, so that zeros would count."""
    traits = traits_of(operator.overload)
    by_itself = traits.is_attention and not OperatorCall(operator).may_change("scale")
    return torch.Tag.reduction in operator.overload.tags or traits.reads_whole or by_itself


def _with_compact_sizes(operator: OperatorNode, replay: MaskedReplay) -> OperatorNode:
    """The call with its size arguments reduced to the remaining positions."""
    call = OperatorCall(operator)
    x = call.inputs[0]
    stays = replay.positions(x)
    size = [len(stays[at]) if at in stays else length for at, length in enumerate(x.shape)]
    changed = {
        name: _compact_size(call[name], counts, size, x.shape, stays)
        for name, counts in traits_of(operator.overload).sizes if call.may_change(name)
    }  # fmt: skip
    return _with_arguments(operator, *call.with_values(changed))


def _compact_size(value: Any, counts: str, size: list[int], shape: tuple[int, ...], stays: RemainingPositions) -> Any:
    """A size argument for the remaining positions."""
    if counts == LAST:
        return size[len(size) - len(value) :]
    if counts == CHANNELS or 1 not in stays:
        return size[1] if counts == CHANNELS else value
    inside: NDArray[np.bool_] = np.zeros(shape[1], dtype=bool)
    inside[stays[1].numpy()] = True
    return int(inside.reshape(value, -1).any(axis=1).sum())


def _calls_with_new_scales(scales: Sequence[ScaleChange]) -> dict[int, OperatorNode]:
    """The calls with changed scales, by operator index."""
    found: dict[int, OperatorNode] = {}
    for operator, before, after in scales:
        call = found.get(operator.index, operator)
        numbers, named = arguments_without_sizes(call)
        args = [_replaced_scalar(*pair, before, after) for pair in zip(call.args, numbers, strict=True)]
        kwargs = {name: _replaced_scalar(value, number, before, after)
                  for (name, value), number in zip(call.kwargs.items(), named, strict=True)}  # fmt: skip
        named_call = OperatorCall(_with_arguments(call, args, kwargs))
        if has_default_scale(operator) and named_call.may_change("scale"):
            args, kwargs = named_call.with_values({"scale": after})
        found[operator.index] = _with_arguments(call, args, kwargs)
    return found


def _replaced_scalar(argument: object, number: object, before: float, after: float) -> object:
    if scalar_value(number) != before:
        return argument
    if type(argument) is int and after.is_integer():
        return int(after)
    tensor = argument.tensor if isinstance(argument, DataNode) else None
    return after if tensor is None else tensor.new_tensor(after).reshape(tensor.shape)


def _with_arguments(operator: OperatorNode, args: Sequence[object], kwargs: dict[str, object]) -> OperatorNode:
    return OperatorNode(
        operator.graph, operator.index, operator.overload, tuple(args), kwargs, operator.inputs, operator.module,
        operator.source, operator.outputs, operator.result,
    )  # fmt: skip


# --------------------
# Check of removed experts: the cut model equals the whole one with these experts masked in the router.


ROUTER_TOLERANCE = 1e-4  # relative, in float32, where an operator of the model knows no float64
SEEDS = (0, 1)  # of weights: a router that has others leads to other elements


def matches_masked_router(axes: Axes, keeps: KeepMasks, edits: Edits) -> bool:
    """True if the cut model equals the whole model with the removed elements masked in its routers.

    `edits` are of these axes alone. Where the model cannot be run so, it is not known, and no.
    """
    for dtype, limit in ((torch.float64, DOUBLE_PRECISION_TOLERANCE), (torch.float32, ROUTER_TOLERANCE)):
        try:
            return all(_matches_masked_router(axes, keeps, edits, dtype, seed, limit) for seed in SEEDS)
        except ModuleKGError:
            raise
        except Exception:  # code of the user's, on numbers that it may not take
            log.debug("the cut model, or the whole one, stopped in %s", dtype, exc_info=True)
    return False


def _matches_masked_router(
    axes: Axes, keeps: KeepMasks, edits: Edits, dtype: torch.dtype, seed: int, limit: float
) -> bool:
    state = rescaled(list(dict.fromkeys(axes.graph.state.values())), seed)
    cut = _without_scalars(cut_outputs(axes, edits, state, dtype))
    gone = {axes.of(term): torch.from_numpy(np.flatnonzero(~flags)) for term, flags in keeps.items()}
    for hides_vectors in (False, True):  # where a correction is added to what a router gives, that has to be hidden
        whole = _without_scalars(_outputs_with_masked_router(axes, gone, state, dtype, hides_vectors))
        if max_difference(cut, whole) < limit * max(max_magnitude(whole), 1e-300):
            return True
    return False


def _without_scalars(outputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs without scalars, as a router loss depends on the number of experts."""
    return [each for each in outputs if each.dim()] or list(outputs)


def _outputs_with_masked_router(
    axes: Axes, gone: Mapping[Axis, Tensor], state: State, dtype: torch.dtype, hides_vectors: bool
) -> list[Tensor]:
    changed = dict(state)
    for axis, indices in gone.items() if hides_vectors else ():
        for node, _ in axis.tensor_dims:
            if node.dim() == 1:
                changed[node.label] = state[node.label].index_fill(0, indices, -torch.inf)

    @contextmanager
    def around(copied: Walk) -> Iterator[None]:
        every = {
            each.name: each.tensor for each in named_registered_tensors(copied, copied.all_paths())
        }  # by the names of before
        offsets = []
        for axis, indices in gone.items():
            offset = torch.zeros(axis.size, dtype=dtype).index_fill(0, indices, -torch.inf)
            offsets += [(every[node.label], offset) for node, _ in router_weights(axis)]
        with RouterOffsets(offsets):
            yield

    return cut_outputs(axes, Edits((), {}, axes.graph.removal or NOTHING_REMOVED), changed, dtype, around)
