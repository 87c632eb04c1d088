"""Payload of a mask editor: axes, blocks, and the model size as a formula in the axis counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from modulekg_widgets.engine.axes.inference.names import short_name
from modulekg_widgets.engine.residuals.blocks import block_flops, block_parameters
from modulekg_widgets.engine.views.payload import number, text
from modulekg_widgets.engine.views.schema import MASKS, Payload

if TYPE_CHECKING:
    from modulekg_widgets.engine.axes.axis import Axis
    from modulekg_widgets.engine.pruning.draft import Draft, DraftReport
    from modulekg_widgets.engine.pruning.plan.sizes.size_model import TensorSize
    from modulekg_widgets.engine.pruning.session import PruningSession


def mask_payload(pruning: PruningSession) -> Payload:
    """Returns the payload that js/src/core/masks/draft/payload.ts reads."""
    draft = pruning.draft
    modules = {path: place for place, path in enumerate(draft.graph.modules)}
    sizes = draft.size_model
    return MASKS.payload(
        {
            "title": text(pruning.title),
            "axes": _axes(draft),
            "blocks": _blocks(pruning),
            "modules": [text(path) for path in modules],
            "terms": sizes.expressions,
            "tensors": [_tensor(tensor, modules) for tensor in sizes.tensors],
            "flops": [[number(term.factor), list(term.dims)] for term in sizes.costs["flops"]],
            "approximate": not sizes.is_exact,
            "importances": [text(name) for name in pruning.importances],
            "generation": pruning.generation,
        }
    )


def _axes(draft: Draft) -> Payload:
    axes, by_ratio = draft.axes, draft.ratio_axes
    weights = draft.weights
    reasons: dict[str, int] = {}
    return {
        "name": [text(axis.name) for axis in axes],
        "label": [text(short_name(axis.name)) for axis in axes],
        "size": [axis.size for axis in axes],
        "role": [axis.role for axis in axes],
        "frozen": [-1 if axis.frozen is None else reasons.setdefault(axis.frozen, len(reasons)) for axis in axes],
        "reasons": [text(reason) for reason in reasons],
        "members": [[[text(node.label), dim] for node, dim in axis.tensor_dims] for axis in axes],
        "by_ratio": [axis.number in by_ratio for axis in axes],
        "weights": [max(weights[axis.term], 1) for axis in axes],
        "least": [1 if axis.least is None else axis.least.count for axis in axes],
    }


def _blocks(pruning: PruningSession) -> Payload:
    """The removable blocks, and the innermost block of each axis and each term of the formulas."""
    draft, scores = pruning.draft, pruning.block_scores()
    graph, blocks, sizes = draft.graph, draft.blocks.blocks, draft.size_model
    return {
        "path": [text(block.path) for block in blocks],
        "params": [number(sum(node.numel() for node in block_parameters(graph, block))) for block in blocks],
        "flops": [number(block_flops(graph, block)) for block in blocks],
        "score": [number(scores.scores.get(block.path)) for block in blocks],
        "within": list(draft.blocks.parents),
        # code between modules that go runs on other sizes then, which the dry run counts
        "approximate": [bool(block.upstream) for block in blocks],
        "importance": scores.importance,
        "of_axes": list(draft.blocks_of_axes),
        "of_tensors": [tensor.block for tensor in sizes.tensors],
        "of_flops": [term.block for term in sizes.costs["flops"]],
    }


def _tensor(tensor: TensorSize, modules: Mapping[str, int]) -> list[object]:
    module = modules.get(tensor.name.rpartition(".")[0], 0)
    size = tensor.mean
    return [module, int(tensor.is_parameter), tensor.itemsize, number(size.factor), list(size.dims)]


def draft_payload(draft: Draft) -> Payload:
    """Returns the draft: `bits` is the concatenation of the bytes of `axes`; blocks are the last axis."""
    revision, drawn = draft.snapshot()
    return {"revision": revision, "axes": list(drawn), "bits": b"".join(drawn.values())}


def offers_payload(pruning: PruningSession) -> Payload:
    """Returns the features that the user's data enable."""
    data = pruning.data
    return {
        "sensitivity": data.has_sensitivity,
        "recalibrate": data.batches is not None,
        "evaluate": data.evaluate is not None,
        "batches": data.batch_count,
    }


def trial_payload(pruning: PruningSession) -> Payload:
    """Returns the results of the user's evaluation function, and the recalibration state of the last cut."""
    return {
        "recalibrated": pruning.is_recalibrated,
        "evaluations": [
            {
                "state": entry.state,
                "values": [[text(name), number(value)] for name, value in entry.values.items()],
                "error": text(entry.error),
            }
            for entry in pruning.evaluations
        ],
    }


def report_payload(revision: int, report: DraftReport, axes: Iterable[Axis]) -> Payload:
    """Returns the result of a dry run."""
    before, after = report.sizes
    number_of = {axis.name: axis.number for axis in axes}
    return {
        "revision": revision,
        "error": None,
        "params": [number(size) for size in report.plan.params],
        "flops": [number(size) for size in report.plan.flops],
        "bytes": [number(before.bytes), number(after.bytes)],
        "changes": [
            {
                "kind": change.kind,
                "text": text(str(change)),
                "axes": [number_of[name] for name in change.axes if name in number_of],
            }
            for change in report.plan.changes
        ],
        "kept": [[axis, indices] for axis, indices in report.kept.items()],
        "taken": [[axis, indices] for axis, indices in report.added.items()],
    }


def failed_report(revision: int, error: Exception) -> Payload:
    """Returns the report for a draft without a valid plan."""
    return {"revision": revision, "error": text(str(error))}
