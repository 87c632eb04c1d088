"""A tensor as rows or planes of channels."""

from __future__ import annotations

import math

import torch

SHORT = 16  # a loop over fewer positions costs more than a copy that brings the channels together


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
