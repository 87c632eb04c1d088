"""Losses: predictions meet targets; a dimension of classes is looked up by index."""

from __future__ import annotations

from modulekg_widgets.engine.axes.algebra import ONE
from modulekg_widgets.engine.axes.call import Call, Dims, rule
from modulekg_widgets.engine.axes.rules.elementwise import broadcast

CLASSES = "classes"


def _reduced(call: Call, dims: Dims) -> Dims:
    """What is left of a loss per element."""
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
