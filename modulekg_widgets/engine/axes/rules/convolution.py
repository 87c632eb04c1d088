"""Convolutions, plain, grouped and transposed."""

from __future__ import annotations

from modulekg_widgets.engine.axes.algebra import ONE
from modulekg_widgets.engine.axes.call import Call, Dims, rule
from modulekg_widgets.engine.axes.rules.spatial import moving
from modulekg_widgets.engine.operators.traits import CONVOLUTIONS


@rule(*CONVOLUTIONS)
def convolution(call: Call) -> Dims:
    """x.C = G·(I/G) and y.C = G·(O/G) with one G; a kernel of more than one position walks the other dimensions."""
    x, weight = call.axes(call.inputs[0]), call.axes(call.inputs[1])
    groups = call["groups"]
    transposed = call.has("transposed") and call["transposed"]
    call.freeze_all(weight[2:], "positions of the kernel")
    spatial = len(weight) - 2
    after = _after(call, x[-spatial:])
    channels = len(x) - spatial - 1
    group = ONE
    # (in, out/G) when transposed, else (out, in/G)
    if groups == 1:
        inside, out = (weight[0], weight[1]) if transposed else (weight[1], weight[0])
        call.unify(x[channels], inside)
    elif transposed:
        call.unify(x[channels], weight[0])
        group, _ = call.factors(weight[0], groups, weight[0].size // groups)
        out = call.product(group, weight[1])
    else:
        group, inside = call.factors(x[channels], groups, weight[1].size)
        out_group, _ = call.factors(weight[0], groups, weight[0].size // groups)
        call.unify(inside, weight[1])
        call.unify(group, out_group)
        out = weight[0]
    # in a depthwise convolution each group is a channel, and that is what users call it
    if 1 < groups < x[channels].size:
        call.role(group, "groups")
    bias = call.inputs[2] if len(call.inputs) > 2 else None
    if bias is not None:
        call.unify(call.axes(bias)[0], out)
    return [*x[:channels], out, *after]


def _after(call: Call, positions: Dims) -> Dims:
    """Positions after a kernel that walks over these; one of a single position takes each of them alone."""
    count = len(positions)
    shape = call.output.shape[-count:]
    walked = moving(count, call.inputs[1].shape[2:], call["stride"], call["padding"])
    kept = [not moves and term.size == size for term, size, moves in zip(positions, shape, walked, strict=True)]
    call.freeze_all([term for term, still in zip(positions, kept, strict=True) if not still], "a kernel walks over it")
    return [
        term if still else call.frozen(size, "positions after a convolution")
        for term, size, still in zip(positions, shape, kept, strict=True)
    ]


@rule("aten::conv_tbc")
def conv_tbc(call: Call) -> Dims:
    """(time, batch, in) by a weight (kernel, in, out)."""
    time, batch, channels = call.axes(call["self"])
    kernel, inside, out = call.axes(call["weight"])
    call.freeze(time, "a kernel walks over it")
    call.freeze(kernel, "positions of the kernel")
    call.unify(channels, inside)
    call.unify(call.axes(call["bias"])[0], out)
    return [call.frozen(call.output.shape[0], "positions after a convolution"), batch, out]
