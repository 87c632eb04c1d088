"""Operators that treat every element alike: dimensions meet right-aligned, as torch broadcasts them."""

from __future__ import annotations

from modulekg_widgets.engine.axes.algebra import ONE
from modulekg_widgets.engine.axes.call import Call, Dims, rule
from modulekg_widgets.engine.operators.traits import ELEMENTWISE


@rule(*ELEMENTWISE)
def elementwise(call: Call) -> list[Dims]:
    """Equal dimensions are one; a dimension of one index that is broadcast constrains nothing."""
    dims = broadcast(call, *(call.axes(node) for node in call.inputs))
    return [dims[len(dims) - node.dim() :] for node in call.results]


def broadcast(call: Call, *several: Dims) -> Dims:
    """Dimensions right-aligned, as torch broadcasts them: those of equal size are one."""
    dims: Dims = [ONE] * max(map(len, several), default=0)
    for own in several:
        offset = len(dims) - len(own)
        for at, term in enumerate(own, offset):
            if term.size == 1:
                continue
            if dims[at].size == 1:
                dims[at] = term
            else:
                call.unify(dims[at], term)
    return dims


@rule("aten::prelu", "aten::_prelu_kernel")
def prelu(call: Call) -> Dims:
    """A slope per channel, the second dimension, or one for all."""
    x, slope = call.inputs
    dims, own = call.axes(x), call.axes(slope)
    if slope.dim() == x.dim():
        call.unify_broadcast(slope, dims)
    elif own and own[0].size > 1:
        call.unify(own[0], dims[1])
    return dims


@rule("aten::glu")
def glu(call: Call) -> Dims:
    """Two equal halves; one gates the other."""
    dims = call.axes(call["self"])
    at = call.dim(call["dim"], len(dims))
    half = dims[at].size // 2
    first, gate = call.parts(dims[at], half, half)
    call.unify(first, gate)
    return [*dims[:at], first, *dims[at + 1 :]]


@rule("aten::fake_quantize_per_channel_affine_cachemask", "aten::_fake_quantize_learnable_per_channel_affine")
def fake_quantize_per_channel(call: Call) -> list[Dims]:
    """A scale and a zero point per index of one dimension."""
    dims = call.axes(call["self"])
    for name in ("scale", "zero_point"):
        call.unify(call.axes(call[name])[0], dims[call["axis"]])
    return [dims for _ in call.results]


@rule("aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def fake_quantize_per_tensor(call: Call) -> list[Dims]:
    """One scale and one zero point for all; beside the result which elements were not clipped."""
    dims = call.axes(call["self"])
    return [dims for _ in call.results]


@rule("aten::log_sigmoid_forward")
def log_sigmoid(call: Call) -> list[Dims]:
    """The result, and a buffer for the backward pass that is as large, or empty on a GPU."""
    dims = call.axes(call["self"])
    return [dims if node.dim() == len(dims) else call.frozen_all(node.shape, "empty") for node in call.results]


@rule("aten::_fused_moving_avg_obs_fq_helper")
def observe_and_quantize(call: Call) -> list[Dims]:
    """Ranges, scales and zero points for all, or per index of one dimension."""
    dims = call.axes(call["self"])
    for node in call.inputs[3:]:
        if node.numel() > 1:
            call.unify(call.axes(node)[0], dims[call["ch_axis"]])
    return [dims, dims]


@rule("aten::view_as_real", "aten::view_as_real_copy")
def view_as_real(call: Call) -> Dims:
    """Real and imaginary part as a last dimension of two."""
    return [*call.axes(call["self"]), call.frozen(2, "real and imaginary part")]


@rule("aten::view_as_complex", "aten::view_as_complex_copy")
def view_as_complex(call: Call) -> Dims:
    """The last dimension of two becomes real and imaginary part."""
    *dims, pair = call.axes(call["self"])
    call.freeze(pair, "real and imaginary part")
    return dims
