"""Which dimension of a module's tensors holds the channels, and a tensor as rows of channels."""

from __future__ import annotations

import math

import torch
from torch import nn

SHORT = 16  # a loop over fewer positions costs more than a copy that brings the channels together

# channels first, then this many dimensions of space or time; what stands before them may be absent
SPATIAL: dict[type, int] = {
    cls: dims
    for dims, classes in {
        1: (
            nn.Conv1d,
            nn.ConvTranspose1d,
            nn.InstanceNorm1d,
            nn.MaxPool1d,
            nn.MaxUnpool1d,
            nn.AvgPool1d,
            nn.LPPool1d,
            nn.AdaptiveAvgPool1d,
            nn.AdaptiveMaxPool1d,
            nn.Dropout1d,
            nn.ConstantPad1d,
            nn.CircularPad1d,
            nn.ReflectionPad1d,
            nn.ReplicationPad1d,
        ),
        2: (
            nn.Conv2d,
            nn.ConvTranspose2d,
            nn.InstanceNorm2d,
            nn.MaxPool2d,
            nn.MaxUnpool2d,
            nn.AvgPool2d,
            nn.LPPool2d,
            nn.FractionalMaxPool2d,
            nn.AdaptiveAvgPool2d,
            nn.AdaptiveMaxPool2d,
            nn.Dropout2d,
            nn.Softmax2d,
            nn.PixelShuffle,
            nn.PixelUnshuffle,
            nn.ConstantPad2d,
            nn.CircularPad2d,
            nn.ReflectionPad2d,
            nn.ReplicationPad2d,
        ),
        3: (
            nn.Conv3d,
            nn.ConvTranspose3d,
            nn.InstanceNorm3d,
            nn.MaxPool3d,
            nn.MaxUnpool3d,
            nn.AvgPool3d,
            nn.LPPool3d,
            nn.FractionalMaxPool3d,
            nn.AdaptiveAvgPool3d,
            nn.AdaptiveMaxPool3d,
            nn.Dropout3d,
            nn.ConstantPad3d,
            nn.CircularPad3d,
            nn.ReflectionPad3d,
            nn.ReplicationPad3d,
        ),
    }.items()
    for cls in classes
}
# always a batch, then the channels, then any number of dimensions
SECOND = frozenset(
    (
        nn.BatchNorm1d,
        nn.BatchNorm2d,
        nn.BatchNorm3d,
        nn.SyncBatchNorm,
        nn.GroupNorm,
        nn.LocalResponseNorm,
        nn.CrossMapLRN2d,
        nn.ChannelShuffle,
        nn.Upsample,
    )
)
# whatever the count of dimensions
LAST = frozenset(
    (
        nn.Linear,
        nn.Bilinear,
        nn.LayerNorm,
        nn.RMSNorm,
        nn.Embedding,
        nn.EmbeddingBag,
        nn.RNNBase,
        nn.RNNCellBase,
        nn.MultiheadAttention,
        nn.Transformer,
        nn.TransformerEncoder,
        nn.TransformerEncoderLayer,
        nn.TransformerDecoder,
        nn.TransformerDecoderLayer,
    )
)


def channel_dim(module: nn.Module | type[nn.Module], ndim: int) -> int:
    """The dimension of the channels in a tensor of `ndim` dimensions that goes into a module, or comes out of it.

    Decided by the module's class: the last dimension for linear layers, layer norm, recurrence and attention; before
    the dimensions of space for convolutions and pooling, with a batch or without; for other modules dimension 1 of four
    or five dimensions, else the last. Of a tensor without dimensions it is 0.
    """
    cls = module if isinstance(module, type) else type(module)
    for base in cls.__mro__:
        if base in LAST:
            break
        if base in SECOND:
            return 1 if ndim > 1 else 0
        spatial = SPATIAL.get(base)
        if spatial is not None:
            return max(ndim - spatial - 1, 0)
    else:
        if ndim in (4, 5):
            return 1
    return max(ndim - 1, 0)


def rows(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """`tensor` as a matrix of shape (R, C): the channels at `dim` are its columns, all other positions its rows.

    A view where the layout allows it; a tensor without dimensions is one row of one channel.
    """
    if tensor.dim() == 0:
        return tensor.reshape(1, 1)
    last = tensor.movedim(dim, -1)
    if last.is_contiguous() or dim in (-1, tensor.dim() - 1):
        return last.reshape(-1, last.shape[-1]) if last.numel() else last.new_empty(0, last.shape[-1])
    first = tensor.movedim(dim, 0)  # copies runs of positions: far faster than a transposed copy
    if first.numel() == 0:
        return first.new_empty(0, first.shape[0])
    return first.reshape(first.shape[0], -1).t()


def planes(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """`tensor` with shape (N, C, S): the channels at `dim` in the middle; S is 1 or worth a loop of its own.

    What reduces it over N and S reads memory in the order in which it lies; a view, or a copy of what is small.
    """
    if tensor.dim() == 0 or tensor.numel() == 0:
        return rows(tensor, dim).unsqueeze(2)
    at = dim % tensor.dim()
    after = math.prod(tensor.shape[at + 1 :])
    if tensor.is_contiguous() and after >= SHORT:
        return tensor.view(-1, tensor.shape[at], after)
    last = tensor.movedim(at, -1)
    if last.is_contiguous() or after < SHORT:
        return last.reshape(-1, tensor.shape[at], 1)
    return tensor.reshape(-1, tensor.shape[at], after)


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """All elements as a vector, in the order in which they lie in memory; a copy only where they lie scattered."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.permute(order).reshape(-1)
