"""Plans with block removal: blocks are removed first, and the rest is planned on the remaining model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.errors import CutError, printable
from modulekg_widgets.engine.pruning.blocks.block_choice import chosen_blocks
from modulekg_widgets.engine.pruning.cut.edits import Edits
from modulekg_widgets.engine.pruning.latency import Stopwatch
from modulekg_widgets.engine.pruning.plan.saved.pruning_plan import AxisCut, PruningPlan
from modulekg_widgets.engine.pruning.plan.selection.axis_choice import protected_names
from modulekg_widgets.engine.pruning.plan.selection.fullest_trace import fullest_trace
from modulekg_widgets.engine.pruning.plan.selection.request import (
    LATENCY,
    UNIFORM,
    Request,
    check_model_unchanged,
)
from modulekg_widgets.engine.pruning.recover.sandbox_runs import TracedCall
from modulekg_widgets.engine.residuals.blocks import ResidualBlock
from modulekg_widgets.engine.residuals.layer_counters import first_indexed_layers
from modulekg_widgets.engine.residuals.module_removal import NOTHING_REMOVED
from modulekg_widgets.engine.residuals.removal_trial import trace_if_removable
from modulekg_widgets.engine.tracing.dataflow import DataNode

# -------------------- Matching of axes between a model and the same model without some blocks, by their tensors


def matching_axis_names(axis: Axis, axes: Axes, remaining: Axes) -> list[str]:
    """The names of an axis among the remaining axes; several if it is split, none if it is removed."""
    found: dict[str, None] = {}
    for node, dim in axis.tensor_dims:
        whole, rest = _axes_of_dim(axes, node.label, dim), _axes_of_dim(remaining, node.label, dim)
        same = [other for own, other in zip(whole, rest, strict=False) if own is axis and other.size == axis.size]
        if len(whole) == len(rest):
            found.update(dict.fromkeys(other.name for other in same))
    return list(found)


def axis_of_cut(cut: AxisCut, axes: Axes) -> Axis | None:
    """The axis along the first member of a cut; None if there is none or several of its size."""
    for member in cut.members:
        name, _, dim = member.removesuffix("]").rpartition("[")
        found = (
            [axis for axis in _axes_of_dim(axes, name, int(dim)) if axis.size == cut.size] if dim.isdecimal() else []
        )
        if len(found) == 1:
            return found[0]
    return None


def _axes_of_dim(axes: Axes, name: str, dim: int) -> tuple[Axis, ...]:
    """The axes of a dimension; none for a tensor that is removed with a block."""
    node = axes.graph.state.get(name)
    return axes[name, dim].axes if node is not None and dim < len(node.shape) else ()


# ----------------------------------------


Sizes = dict[str, int]
PlanAxes = Callable[[DataflowGraph, Request], PruningPlan]


def plan_with_blocks(graph: DataflowGraph, request: Request, plan_axes: PlanAxes) -> PruningPlan:
    """The plan of a checked request; `plan_axes` plans what is requested besides blocks.

    Raises `CutError` where the model does not run without the blocks.
    """
    if request.blocks is None:
        return plan_axes(graph, request)
    check_model_unchanged(graph)
    kept = protected_names(graph, request.keep)
    blocks = chosen_blocks(graph, request.blocks, request.importance, request.layers == UNIFORM, kept)
    left = _trace_without(graph, blocks)
    before, after = _sizes_of(graph), _sizes_of(left)
    taken = (
        None
        if LATENCY not in (request.target or {})
        else Stopwatch(graph).compare_cut(_removal_edits(left), thorough=True).pair
    )
    whole, rest = ({**sizes, **_latency_entry(taken, at)} for at, sizes in enumerate((before, after)))
    others = _remaining_request(request, whole, rest)
    plan = (
        _blocks_only_plan(graph, left)
        if others is None
        else plan_axes(left, _with_remaining_names(others, graph, left))
    )
    paths = tuple(block.path for block in blocks)
    pairs: dict[str, tuple[int, int]] = {unit: (size, getattr(plan, unit)[1]) for unit, size in before.items()}
    latency = plan.latency
    if taken is not None:
        share = 1.0 if latency is None else latency[1] / latency[0]
        latency = (taken[0], taken[1] * share)
    call = request.call({cut.name: list(cut.dropped) for cut in plan.axes}, paths)
    notes = tuple(dict.fromkeys((*plan.notes, *_placeholder_notes(graph, left))))
    return replace(plan, blocks=paths, call=call, notes=notes, latency=latency, **pairs)


def _trace_without(graph: DataflowGraph, blocks: Sequence[ResidualBlock]) -> DataflowGraph:
    """The trace without the blocks."""
    found = trace_if_removable(graph, blocks)
    if found is not None:
        return found
    names = ", ".join(printable(block.path) for block in blocks[:8])
    raise CutError(f"forward does not run without {names} together: take fewer of them, or others of graph.blocks()")


def _placeholder_notes(graph: DataflowGraph, remaining: DataflowGraph) -> Iterator[str]:
    """Notes on placeholders, such as layers that a cache counts by."""
    stood_in = [each.path for each in (remaining.removal or NOTHING_REMOVED).modules if each.placeholder is not None]
    for path, name in first_indexed_layers(graph.model, stood_in):
        yield (
            f"{printable(path)} is of the first layer that has a {printable(name)}, and something stands in its "
            "place: a cache "
            "that asks this layer how long the text is, as that of transformers, receives 0; generate with "
            "use_cache=False, or remove layers that leave their list"
        )


def _blocks_only_plan(graph: DataflowGraph, remaining: DataflowGraph) -> PruningPlan:
    """A plan that removes nothing but the blocks."""
    sizes = {unit: (size, size) for unit, size in _sizes_of(remaining).items()}
    traced = TracedCall.of(graph.call, graph.training)
    return PruningPlan((), _removal_edits(remaining), (), call="", notes=(), blocks=(), traced=traced, **sizes)


def _removal_edits(remaining: DataflowGraph) -> Edits:
    return Edits((), {}, remaining.removal)


def _latency_entry(taken: tuple[float, float] | None, at: int) -> dict[str, float]:
    """The measured milliseconds before or after, as a size."""
    return {} if taken is None else {LATENCY: taken[at]}


def _remaining_request(request: Request, before: Mapping[str, float], after: Mapping[str, float]) -> Request | None:
    """The rest of the request for the remaining model; None if nothing is left.

    A share of a target is of the whole model.
    """
    target = None
    if request.target is not None:
        goals = {unit: wanted * before[unit] if wanted < 1 and unit in before else wanted
                 for unit, wanted in request.target.items()}  # fmt: skip
        target = {unit: goal for unit, goal in goals.items() if unit not in after or goal < after[unit]} or None
        if target is not None and LATENCY in target:  # of what is left: milliseconds may well be below 1
            target[LATENCY] /= after[LATENCY]
    others = replace(request, blocks=None, target=target)
    asked = (others.ratio, others.target, others.per_axis, others.cuts)
    return None if all(each is None for each in asked) else others


def _with_remaining_names(request: Request, graph: DataflowGraph, remaining: DataflowGraph) -> Request:
    """The request with axis names of the remaining model."""
    if not request.per_axis:
        return request
    whole, rest = fullest_trace(graph).axes, fullest_trace(remaining).axes
    per_axis: dict[object, float | Iterable[int]] = {}
    for key, value in request.per_axis.items():
        axis = whole.find_by_name(key) if isinstance(key, str) else None
        names = matching_axis_names(axis, whole, rest) if axis is not None else []
        per_axis.update(dict.fromkeys(names or [key], value))
    return replace(request, per_axis=per_axis)


def _sizes_of(graph: DataflowGraph) -> Sizes:
    """Parameters, bytes, FLOPs, matmul FLOPs and multiply-adds of a trace."""
    held: list[DataNode] = list(dict.fromkeys(graph.state.values()))
    flops = graph.flops()
    return {
        "params": sum(node.numel() for node in held if node.is_parameter),
        "bytes": sum(node.nbytes for node in held if node.is_parameter or node.is_buffer),
        "flops": int(flops),
        "matmul_flops": flops.matmul,
        "macs": flops.macs,
    }
