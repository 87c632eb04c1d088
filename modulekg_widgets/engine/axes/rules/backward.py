"""Gradients that forward itself computes: each has the dimensions of the tensor that it belongs to."""

from __future__ import annotations

from modulekg_widgets.engine.axes.call import Call, Dims, rule
from modulekg_widgets.engine.axes.rules.elementwise import broadcast


@rule("aten::_softmax_backward_data", "aten::_log_softmax_backward_data")
def elementwise_backward(call: Call) -> Dims:
    """The gradient, what it meets and the result are of one shape; sums run along a dimension as a whole."""
    return broadcast(call, *(call.axes(node) for node in call.inputs))


@rule(
    "aten::max_pool2d_with_indices_backward", "aten::max_pool3d_with_indices_backward", "aten::avg_pool2d_backward",
    "aten::avg_pool3d_backward", "aten::_adaptive_avg_pool2d_backward", "aten::_adaptive_avg_pool3d_backward",
    "aten::adaptive_max_pool2d_backward", "aten::adaptive_max_pool3d_backward",
)  # fmt: skip
def window_backward(call: Call) -> Dims:
    """Samples and channels are kept; positions are those of the input, which a window walked over."""
    dims = call.axes(call["self"])
    at = len(dims) - (2 if "2d" in call.name else 3)
    for node in call.inputs:
        own = call.axes(node)
        call.unify_all(own[:at], dims[:at])
        call.freeze_all(own[at:], "a window walked over it")
    return dims
