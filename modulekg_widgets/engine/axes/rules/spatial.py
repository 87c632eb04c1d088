"""Axis rules of pooling and interpolation: channels unify, spatial dimensions are frozen."""

from __future__ import annotations

from collections.abc import Sequence

from modulekg_widgets.engine.axes.terms.algebra import ONE, Term
from modulekg_widgets.engine.axes.terms.call import Call, Dims, rule
from modulekg_widgets.engine.operators.traits import (
    CHANNEL_SHUFFLE,
    COL2IM,
    CONVOLUTIONS,
    DEFORMABLE,
    IM2COL,
    PIXEL_SHUFFLE,
    PIXEL_UNSHUFFLE,
)

_WALKED = {
    1: ["max_pool1d", "max_pool1d_with_indices", "avg_pool1d", "adaptive_max_pool1d", "adaptive_avg_pool1d",
        "reflection_pad1d", "replication_pad1d", "upsample_nearest1d", "_upsample_nearest_exact1d",
        "upsample_linear1d"],
    2: ["max_pool2d", "max_pool2d_with_indices", "mkldnn_max_pool2d", "avg_pool2d", "adaptive_max_pool2d",
        "adaptive_avg_pool2d", "_adaptive_avg_pool2d", "fractional_max_pool2d", "max_unpool2d", "reflection_pad2d",
        "replication_pad2d", "upsample_nearest2d", "_upsample_nearest_exact2d", "upsample_bilinear2d",
        "_upsample_bilinear2d_aa", "upsample_bicubic2d", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa"],
    3: ["max_pool3d", "max_pool3d_with_indices", "mkldnn_max_pool3d", "avg_pool3d", "adaptive_max_pool3d",
        "adaptive_avg_pool3d", "_adaptive_avg_pool3d", "fractional_max_pool3d", "max_unpool3d", "reflection_pad3d",
        "replication_pad3d", "upsample_nearest3d", "_upsample_nearest_exact3d", "upsample_trilinear3d"],
}  # fmt: skip
_COUNT = {name: count for count, names in _WALKED.items() for name in names}


@rule(*(f"aten::{name}" for name in _COUNT))
def window(call: Call) -> list[Dims]:
    """Pooling, interpolation and padding by what lies inside; where there are indices, they lie like the values."""
    dims = call.axes(call.inputs[0])
    at = len(dims) - _COUNT[call.name]
    walked = _walked_dims(call, _COUNT[call.name])
    sizes = call.output.shape[at:]
    after = [_window_positions(call, *each) for each in zip(dims[at:], sizes, walked, strict=True)]
    for node in call.inputs[1:]:
        other = call.axes(node)
        # beside indices, which lie like the values: random places of windows, (samples, channels, coordinates)
        lead = other[:-1] if call.name.startswith("fractional") else other[:at]
        call.freeze_all(other[len(lead) :], "a window slides over it")
        for a, b in zip(reversed(dims[:at]), reversed(lead), strict=False):
            call.unify(a, b)
    return [[*dims[:at], *after] for _ in call.results]


def _window_positions(call: Call, term: Term, size: int, moves: bool) -> Term:
    """Positions after a window that walks over these, or that takes each of them alone."""
    if not moves and term.size == size:
        return term
    call.freeze(term, "a window slides over it")
    return call.frozen(size, "positions after a window")


def _walked_dims(call: Call, count: int) -> list[bool]:
    """Returns for each dimension whether the window covers more than one position."""
    if len(call.results) > 1 and call.is_read(call.results[1]):
        return [True] * count  # indices count the positions of all dimensions
    if call.has("kernel_size") and call.has("padding"):
        kernel = call["kernel_size"]
        return sliding_dims(count, kernel, call["stride"] or kernel, call["padding"])
    if "_pad" in call.name:
        pads = call["padding"]
        return [any(pads[2 * pair : 2 * pair + 2]) for pair in reversed(range(count))]
    return [True] * count


def sliding_dims(count: int, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> list[bool]:
    """True per dimension if a kernel covers several positions, strides, or pads."""
    every = (list(sizes) if len(sizes) == count else [*sizes] * count for sizes in (kernel, stride, padding))
    return [sizes != (1, 1, 0) for sizes in zip(*every, strict=True)]


@rule("aten::grid_sampler_2d", "aten::grid_sampler_3d", "aten::grid_sampler", "aten::cudnn_grid_sampler")
def grid_sample(call: Call) -> Dims:
    """Channels are sampled at the positions of a grid; spatial dimensions are frozen."""
    image, grid = (call.axes(node) for node in call.inputs[:2])
    call.freeze_all(image[2:], "read at given positions")
    call.freeze(grid[-1], "coordinates")
    call.unify(image[0], grid[0])
    return [image[0], image[1], *grid[1:-1]]


@rule("aten::affine_grid_generator")
def affine_grid(call: Call) -> Dims:
    """A grid of positions per sample."""
    theta = call.axes(call.inputs[0])
    call.freeze_all(theta[1:], "coordinates")
    return [theta[0], *call.frozen_all(call.output.shape[1:], "coordinates")]


@rule(*IM2COL)
def im2col(call: Call) -> Dims:
    """(N, C, H, W) → (N, C·kernel, positions)."""
    dims = call.axes(call["self"])
    call.freeze_all(dims[-2:], "a window slides over it")
    channels = dims[-3]
    window_size = call.output.shape[-2] // channels.size
    merged = call.product(channels, call.frozen(window_size, "positions of the window"))
    return [*dims[:-3], merged, call.frozen(call.output.shape[-1], "positions after a window")]


@rule(*COL2IM)
def col2im(call: Call) -> Dims:
    """(N, C·kernel, positions) → (N, C, H, W)."""
    *batch, merged, positions = call.axes(call["self"])
    call.freeze(positions, "a window slides over it")
    channels = call.output.shape[-3]
    kept, kernel = call.factors(merged, channels, merged.size // channels)
    call.freeze(kernel, "positions of the window")
    return [*batch, kept, *call.frozen_all(call.output.shape[-2:], "positions after a window")]


@rule("aten::unfold", "aten::unfold_copy")
def unfold(call: Call) -> Dims:
    """Overlapping pieces of one dimension as a new last one."""
    dims = call.axes(call["self"])
    shape = call.output.shape
    if not dims:
        return call.frozen_all(shape, "positions of the window")
    at: int = call["dimension"] % len(dims)
    call.freeze(dims[at], "a window slides over it")
    return [
        *dims[:at], call.frozen(shape[at], "positions after a window"), *dims[at + 1 :],
        call.frozen(shape[-1], "positions of the window"),
    ]  # fmt: skip


@rule(*PIXEL_SHUFFLE)
def pixel_shuffle(call: Call) -> Dims:
    """C·r² channels become C, r times as wide and high."""
    *batch, channels, height, width = call.axes(call["self"])
    step = call["upscale_factor"]
    kept, down, across = call.factors(channels, call.output.shape[-3], step, step)
    call.freeze_all([down, across], "spread over positions")
    return [*batch, kept, call.product(height, down), call.product(width, across)]


@rule(*PIXEL_UNSHUFFLE)
def pixel_unshuffle(call: Call) -> Dims:
    """C channels become C·r², r times less wide and high."""
    *batch, channels, height, width = call.axes(call["self"])
    step = call["downscale_factor"]
    sides = [call.factors(term, term.size // step, step) for term in (height, width)]
    call.freeze_all([inner for _, inner in sides], "gathered from positions")
    return [*batch, call.product(channels, *(inner for _, inner in sides)), *(outer for outer, _ in sides)]


@rule(*CHANNEL_SHUFFLE)
def channel_shuffle(call: Call) -> Dims:
    """(G·C) channels become (C·G)."""
    dims = call.axes(call.inputs[0])
    groups = call["groups"]
    group, inner = call.factors(dims[1], groups, dims[1].size // groups)
    return [dims[0], call.product(inner, group), *dims[2:]]


# -------------------- Axis rules of convolutions: plain, grouped and transposed


@rule(*CONVOLUTIONS)
def convolution(call: Call) -> Dims:
    """x.C = G·(I/G) and y.C = G·(O/G) with one G; a kernel of more than one position walks the other dimensions."""
    x, weight = call.axes(call.inputs[0]), call.axes(call.inputs[1])
    groups = call["groups"]
    transposed = call.has("transposed") and call["transposed"]
    call.freeze_all(weight[2:], "positions of the kernel")
    spatial = len(weight) - 2
    after = _positions_after(call, x[-spatial:])
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


def _positions_after(call: Call, positions: Dims) -> Dims:
    """Positions after a kernel that walks over these; one of a single position takes each of them alone."""
    count = len(positions)
    shape = call.output.shape[-count:]
    walked = sliding_dims(count, call.inputs[1].shape[2:], call["stride"], call["padding"])
    kept = [not moves and term.size == size for term, size, moves in zip(positions, shape, walked, strict=True)]
    call.freeze_all([term for term, still in zip(positions, kept, strict=True) if not still], "a kernel slides over it")
    return [
        term if still else call.frozen(size, "positions after a convolution")
        for term, size, still in zip(positions, shape, kept, strict=True)
    ]


@rule("aten::conv_tbc")
def conv_tbc(call: Call) -> Dims:
    """(time, batch, in) by a weight (kernel, in, out)."""
    time, batch, channels = call.axes(call["self"])
    kernel, inside, out = call.axes(call["weight"])
    call.freeze(time, "a kernel slides over it")
    call.freeze(kernel, "positions of the kernel")
    call.unify(channels, inside)
    call.unify(call.axes(call["bias"])[0], out)
    return [call.frozen(call.output.shape[0], "positions after a convolution"), batch, out]


# -------------------- Axis rules of torchvision's operators: regions of interest and deformable convolutions


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
    """The number of selected boxes depends on the data."""
    for node in call.inputs:
        call.freeze_all(call.axes(node), "chosen by the data")
    return call.frozen_all(call.output.shape, "chosen by the data")
