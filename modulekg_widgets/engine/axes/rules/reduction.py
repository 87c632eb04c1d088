"""Axis rules of reductions: reduced dimensions disappear."""

from __future__ import annotations

import math
from collections.abc import Sequence

from modulekg_widgets.engine.axes.rules.elementwise import broadcast, elementwise
from modulekg_widgets.engine.axes.terms.algebra import ONE
from modulekg_widgets.engine.axes.terms.call import Call, Dims, rule
from modulekg_widgets.engine.operators.signature import base_name
from modulekg_widgets.engine.operators.traits import LOG_SOFTMAX, REDUCE, SOFTMAX, traits_of
from modulekg_widgets.engine.tracing.dataflow import DataNode

MAX_MOVES = 3  # between a mean and what it is subtracted from
_EXTREMES = ("max", "min", "argmax", "argmin")
_LOGARITHMS = ("_log_softmax", "log_softmax")
_SPREADS = ("var", "std", "var_mean", "std_mean")
_WITH_INDEX = ("max", "min", "median", "nanmedian", "mode", "kthvalue")


@rule(*REDUCE)
def reduce(call: Call) -> list[Dims]:
    """Reduced dimensions vanish or keep one index, which may be returned: a choice along one of them."""
    if call.has("other"):
        return elementwise(call)  # the larger of two
    dims = call.axes(call.inputs[0])
    gone = reduced_dims(call, len(dims))
    axis = call.chosen_axis(call.inputs[0]) if call.name == "aminmax" else None
    if axis is not None:
        for node in call.results:
            call.chosen.note(node, axis)
    _require_elements(call, [dims[at] for at in sorted(gone)])
    if call.name in _WITH_INDEX and len(call.results) > 1:
        _choose(call, call.results[1], [dims[at] for at in gone])
    return [_remaining_dims(dims, gone, node.dim()) for node in call.results]


@rule("aten::argmax", "aten::argmin")
def arg_reduce(call: Call) -> Dims:
    """The index itself is returned, or of several dimensions one that counts through them all."""
    dims = call.axes(call.inputs[0])
    gone = reduced_dims(call, len(dims))
    _choose(call, call.output, [dims[at] for at in gone])
    return _remaining_dims(dims, gone, call.output.dim())


def _require_elements(call: Call, reduced: Dims) -> None:
    """The spread of one element is zero or not a number, and so is its distance from the mean."""
    if call.name in _SPREADS:
        correction = call.get("correction", call.get("unbiased", 1))
        fewer = 1 if correction is None else float(correction)
        text = (
            "the standard deviation of fewer elements is NaN"
            if fewer
            else "the standard deviation of one element is zero"
        )
        call.require_elements(reduced, text, max(math.floor(fewer) + 1, 2))
    elif call.name == "mean" and is_subtracted(call.inputs[0], call.output):
        call.require_elements(reduced, "one element minus its mean is zero")


def is_subtracted(whole: DataNode, mean: DataNode, steps: int = MAX_MOVES) -> bool:
    """True if a mean is subtracted from its own input, also after operators that only move elements."""
    for operator in mean.consumers:
        name = base_name(operator.name).partition("::")[2]
        if name in ("sub", "rsub", "subtract") and whole in operator.inputs:
            return True
        moved = operator.outputs if traits_of(operator.overload).moves and len(operator.inputs) == 1 else []
        if steps and any(is_subtracted(whole, node, steps - 1) for node in moved):
            return True
    return False


def _choose(call: Call, result: DataNode, reduced: Dims) -> None:
    if len(reduced) == 1 and call.name in _EXTREMES:
        call.choose(result, reduced[0])
    elif call.is_read(result):
        call.freeze_all(reduced, "its index is returned")


def reduced_dims(call: Call, count: int) -> set[int]:
    """Returns the dimensions that a call reduces: `dim`, or all."""
    asked: int | Sequence[int] | None = call["dim"] if call.has("dim") else None
    if asked is None or (not isinstance(asked, int) and len(asked) == 0):
        kept = asked is not None and call.name in ("any", "all")  # these alone reduce nothing when asked for nothing
        return set() if kept else set(range(count))
    return {at % count for at in ([asked] if isinstance(asked, int) else asked)} if count else set()


def _remaining_dims(dims: Dims, gone: set[int], count: int) -> Dims:
    if count == len(dims):
        return [ONE if at in gone else term for at, term in enumerate(dims)]
    return [term for at, term in enumerate(dims) if at not in gone]


@rule(*SOFTMAX, *LOG_SOFTMAX)
def softmax(call: Call) -> Dims:
    """Every index along the dimension is treated alike."""
    dims = call.axes(call.inputs[0])
    if call.name in _LOGARITHMS and dims:
        call.require_elements([dims[call.dim(call["dim"], len(dims))]], "the logarithm of the only share is zero")
    return dims


@rule("aten::_masked_softmax")
def masked_softmax(call: Call) -> Dims:
    """Scores (batch, heads, queries, keys) and a mask like them, of (queries, keys) or of (batch, keys)."""
    dims, mask = call.axes(call["self"]), call["mask"]
    if call["mask_type"] == 1 and mask.dim() == 2:
        call.unify_all(call.axes(mask), [dims[0], dims[-1]])
    else:
        call.unify_broadcast(mask, dims)
    return dims


@rule("aten::dist")
def dist(call: Call) -> Dims:
    """The distance of two tensors, broadcast."""
    broadcast(call, *(call.axes(node) for node in call.inputs))
    return []


@rule("aten::trace")
def trace(call: Call) -> Dims:
    """Rows and columns unify on the diagonal."""
    rows, columns = call.axes(call["self"])
    if rows.size == columns.size:
        call.unify(rows, columns)
    else:
        call.freeze_all([rows, columns], "the diagonal of a matrix that is not square")
    return []


@rule("aten::segment_reduce")
def segment_reduce(call: Call) -> Dims:
    """Runs along one dimension are reduced."""
    data, segments = call.inputs[:2]
    dims, at = call.axes(data), call["axis"] % data.dim()
    call.freeze_all([*dims[: at + 1], *call.axes(segments)], "segments in order")
    return [*call.frozen_all(call.output.shape[: at + 1], "segments in order"), *dims[at + 1 :]]


# -------------------- Axis rules of losses: predictions and targets unify, class dimensions are frozen


CLASSES = "classes"


def _reduced(call: Call, dims: Dims) -> Dims:
    """Returns the dimensions of a reduced, or unreduced, loss."""
    return dims if call["reduction"] == 0 else []


@rule("aten::mse_loss", "aten::smooth_l1_loss", "aten::huber_loss", "aten::soft_margin_loss",
      "aten::binary_cross_entropy", "aten::binary_cross_entropy_with_logits")  # fmt: skip
def elementwise_loss(call: Call) -> Dims:
    """Prediction, target and weights are broadcast."""
    return _reduced(call, broadcast(call, *(call.axes(node) for node in call.inputs)))


@rule("aten::nll_loss_forward", "aten::nll_loss2d_forward", "aten::multi_margin_loss")
def class_loss(call: Call) -> list[Dims]:
    """One class per sample or position is right; classes are the second dimension, or the only one."""
    prediction, target, *weight = call.inputs
    dims = call.axes(prediction) or [ONE]
    at = min(1, len(dims) - 1)
    kept = [*dims[:at], *dims[at + 1 :]]
    call.freeze_all([dims[at], *(term for node in weight for term in call.axes(node))], CLASSES)
    call.unify_broadcast(target, kept)
    return [_reduced(call, kept), *([] for _ in call.results[1:])]


@rule("aten::multilabel_margin_loss_forward")
def multilabel_loss(call: Call) -> list[Dims]:
    """The correct classes of a sample come first in its row of targets."""
    prediction, target = (call.axes(node) for node in call.inputs)
    call.freeze_all([*prediction[-1:], *target[-1:]], CLASSES)
    call.unify_all(prediction[:-1], target[:-1])
    return [_reduced(call, prediction[:-1]), target]


@rule("torch_nn::_linear_cross_entropy_batch_chunked", "torch_nn::_linear_cross_entropy_batch_chunked_no_reduction")
def linear_class_loss(call: Call) -> list[Dims]:
    """A linear layer and its loss over classes, sample by sample; gradients lie as what they are for."""
    sample, features = call.axes(call["input"])
    classes, inside = call.axes(call["linear_weight"])
    call.unify(features, inside)
    call.freeze(classes, CLASSES)
    for name in ("linear_bias", "weight"):
        if call[name] is not None:
            call.unify(call.axes(call[name])[0], classes)
    target = call.axes(call["target"])  # a class, or a share of each class
    call.unify_all(target, [sample, classes][: len(target)])
    first, *gradients = call.results
    return [
        [sample] if first.dim() else [],
        *(dims if len(node.shape) == len(dims) and node.numel() else call.frozen_all(node.shape, "not asked for")
          for node, dims in zip(gradients, ([sample, features], [classes, features], [classes]), strict=False)),
    ]  # fmt: skip


@rule("aten::_ctc_loss")
def ctc_loss(call: Call) -> list[Dims]:
    """Predictions over time are aligned with targets in order."""
    text = "aligned in time"
    for node in call.inputs:
        call.freeze_all(call.axes(node), text)
    return [call.frozen_all(node.shape, text) for node in call.results]
