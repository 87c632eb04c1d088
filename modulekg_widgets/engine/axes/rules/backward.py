"""Axis rules of gradients that forward itself computes: each has the dimensions of its tensor."""

from __future__ import annotations

from modulekg_widgets.engine.axes.rules.elementwise import broadcast
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.axes.terms.call import Call, Dims, rule


@rule(
    "aten::_softmax_backward_data", "aten::_log_softmax_backward_data", "aten::softplus_backward",
    "aten::elu_backward", "aten::leaky_relu_backward", "aten::hardtanh_backward", "aten::hardswish_backward",
    "aten::hardsigmoid_backward", "aten::hardshrink_backward", "aten::softshrink_backward", "aten::mish_backward",
)  # fmt: skip
def elementwise_backward(call: Call) -> Dims:
    """Gradient, inputs and result have one shape and unify by broadcasting."""
    return broadcast(call, *(call.axes(node) for node in call.inputs))


@rule(
    "aten::max_pool2d_with_indices_backward", "aten::max_pool3d_with_indices_backward", "aten::avg_pool2d_backward",
    "aten::avg_pool3d_backward", "aten::_adaptive_avg_pool2d_backward", "aten::_adaptive_avg_pool3d_backward",
    "aten::adaptive_max_pool2d_backward", "aten::adaptive_max_pool3d_backward",
)  # fmt: skip
def window_backward(call: Call) -> Dims:
    """Samples and channels unify; positions are frozen, as the window walked over them."""
    dims = call.axes(call["self"])
    at = len(dims) - (2 if "2d" in call.name else 3)
    for node in call.inputs:
        own = call.axes(node)
        call.unify_all(own[:at], dims[:at])
        call.freeze_all(own[at:], "a window slides over it")
    return dims


@rule("aten::select_backward")
def select_backward(call: Call) -> Dims:
    """Zeros but at the index that was selected."""
    dims = call.axes(call["grad_output"])
    at = call.dim(call["dim"], len(dims) + 1)
    return [*dims[:at], call.frozen(call.output.shape[at], "the code selects one index"), *dims[at:]]


@rule("aten::slice_backward")
def slice_backward(call: Call) -> Dims:
    """Zeros around what was sliced."""
    dims = call.axes(call["grad_output"])
    at = call.dim(call["dim"], len(dims))
    size, taken = call.output.shape[at], dims[at]
    start = min(call["start"] + size if call["start"] < 0 else call["start"], size)
    rest = size - start - taken.size
    if call["step"] != 1 or rest < 0:
        call.freeze(taken, "the code takes every n-th index")
        whole = call.frozen(size, "the code takes every n-th index")
    else:
        around = [call.filler(count, "zeros around a slice") for count in (start, rest) if count]
        parts = [*around[: bool(start)], taken, *around[bool(start) :]]
        whole = call.sum(*parts) if around else taken
    return [*dims[:at], whole, *dims[at + 1 :]]


@rule("aten::embedding_dense_backward")
def embedding_dense_backward(call: Call) -> Dims:
    """A row for each entry of the table, in its order."""
    call.unify_all(call.axes(call["indices"]), call.axes(call["grad_output"])[:-1])
    rows = call.frozen(call.output.shape[0], "the gradient of a table, by its rows")
    return [rows, call.axes(call["grad_output"])[-1]]


@rule("aten::convolution_backward")
def convolution_backward(call: Call) -> list[Dims]:
    """The requested gradients of input, weight and bias; the dimensions unify as in the convolution."""
    gradient, given, weight = (call.axes(call[name]) for name in ("grad_output", "input", "weight"))
    out = weight[1] if call["transposed"] else weight[0]
    if call["transposed"] and call["groups"] > 1:
        call.freeze_all([gradient[1], *weight[:2]], "the gradient of a transposed convolution in groups")
        out = gradient[1]
    call.unify(gradient[0], given[0])
    call.unify(gradient[1], out)
    if call["groups"] == 1:
        call.unify(given[1], weight[0] if call["transposed"] else weight[1])
    call.freeze_all([*gradient[2:], *given[2:], *weight[2:]], "a kernel slides over it")
    return _asked(call, [given, weight, [out]])


@rule("aten::native_layer_norm_backward")
def layer_norm_backward(call: Call) -> list[Dims]:
    """The requested gradients of input, gain and bias."""
    dims = call.axes(call["input"])
    call.unify_all(call.axes(call["grad_out"]), dims)
    count = len(call["normalized_shape"])
    learnt = dims[-count:]
    for name in ("mean", "rstd"):
        call.unify_all(call.axes(call[name])[:-count], dims[:-count])
    for node in (call["weight"], call["bias"]):
        if node is not None:
            call.unify_all(call.axes(node), learnt)
    return _asked(call, [dims, learnt, learnt])


@rule("aten::native_group_norm_backward")
def group_norm_backward(call: Call) -> list[Dims]:
    """The requested gradients of input, gain and bias; channels are groups of equal size."""
    dims = call.axes(call["input"])
    call.unify_all(call.axes(call["grad_out"]), dims)
    if call["weight"] is not None:
        call.unify(call.axes(call["weight"])[0], dims[1])
    group = call.factors(dims[1], call["group"], dims[1].size // call["group"])[0]
    for name in ("mean", "rstd"):
        call.unify_all(call.axes(call[name]), [dims[0], group])
    return _asked(call, [dims, dims[1:2], dims[1:2]])


@rule("aten::native_batch_norm_backward")
def batch_norm_backward(call: Call) -> list[Dims]:
    """The requested gradients of input, gain and bias."""
    dims = call.axes(call["input"])
    call.unify_all(call.axes(call["grad_out"]), dims)
    for node in call.inputs:
        if node.dim() == 1 and node.shape[0] == dims[1].size:
            call.unify(call.axes(node)[0], dims[1])
    return _asked(call, [dims, dims[1:2], dims[1:2]])


def _asked(call: Call, several: list[list[Term]]) -> list[Dims]:
    """Returns the dimensions of the requested gradients, None for the others."""
    return [dims for dims, asked in zip(several, call["output_mask"], strict=True) if asked]
