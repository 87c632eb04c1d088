"""Operators of torchvision: regions of interest and deformable convolutions."""

from __future__ import annotations

from modulekg_widgets.engine.axes.call import Call, Dims, rule
from modulekg_widgets.engine.operators.traits import DEFORMABLE


@rule("torchvision::roi_align", "torchvision::roi_pool")
def roi_align(call: Call) -> list[Dims]:
    """Channels are read in boxes."""
    image, boxes = call.axes(call.inputs[0]), call.axes(call.inputs[1])
    call.freeze_all([image[0], *image[2:]], "read in boxes")
    call.freeze(boxes[1], "coordinates")
    return [[boxes[0], image[1], *call.frozen_all(node.shape[2:], "positions in a box")] for node in call.results]


@rule("torchvision::ps_roi_align", "torchvision::ps_roi_pool")
def ps_roi_align(call: Call) -> list[Dims]:
    """C·(height·width) channels, one set per position in the box."""
    image, boxes = call.axes(call.inputs[0]), call.axes(call.inputs[1])
    call.freeze_all([image[0], *image[2:]], "read in boxes")
    call.freeze(boxes[1], "coordinates")
    channels = call.output.shape[1]
    kept, positions = call.factors(image[1], channels, image[1].size // channels)
    call.freeze(positions, "positions in a box")
    return [[boxes[0], kept, *call.frozen_all(node.shape[2:], "positions in a box")] for node in call.results]


@rule(*DEFORMABLE)
def deform_conv(call: Call) -> Dims:
    """A convolution whose offsets have a frozen channel per kernel position."""
    x, weight, offset, mask = (call.axes(node) for node in call.inputs[:4])
    call.freeze_all([*weight[2:], *x[2:], *offset[1:], *mask[1:]], "positions of the kernel")
    groups = call["groups"]
    for other in (offset[0], mask[0]):
        if other.size == x[0].size:
            call.unify(x[0], other)
    group, inside = call.factors(x[1], groups, weight[1].size)
    call.unify(inside, weight[1])
    if groups > 1:
        call.unify(group, call.factors(weight[0], groups, weight[0].size // groups)[0])
    if call["offset_groups"] > 1:
        call.freeze(x[1], "offsets per group of channels")
    call.unify_broadcast(call.inputs[4], [weight[0]])
    return [x[0], weight[0], *call.frozen_all(call.output.shape[2:], "positions after a convolution")]


@rule("torchvision::nms")
def nms(call: Call) -> Dims:
    """Which boxes are kept depends on the data."""
    for node in call.inputs:
        call.freeze_all(call.axes(node), "chosen by the data")
    return call.frozen_all(call.output.shape, "chosen by the data")
