"""Eigenvalues of the covariance over channels, and singular values, accumulated over parts of a tensor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import torch
from torch.nn.functional import pad

from modulekg_widgets.engine.torch_runtime.private import is_any_autocast_enabled

MAX_SERIAL_SUM = (
    1 << 12
)  # products that may be added up one after the other: of equal ones the rounding errors add up too
BLOCK_ROWS = 64  # rows of a product of a matrix with itself that are made at once
ROUNDING_UNITS = 4  # a channel whose variance is within so many units in the last place of its mean is constant


def covariance_spectrum(parts: Iterable[torch.Tensor], means: torch.Tensor, count: int) -> torch.Tensor:
    """Returns the eigenvalues of the covariance over channels (divisor R - 1), descending, of shape (C,).

    `parts` are of shape (n, C, S), together `count` rows, in the precision in which to work; `means` is of shape (C,).
    With fewer rows than channels they come from the small matrix of the rows' products, and zeros fill up. What lies
    within the rounding of the largest is not resolved: about 1e-6 of it in float32, 1e-15 in float64. Raises torch's
    `LinAlgError` where the decomposition fails.
    """
    channels = len(means)
    centred = (channel_major(part) - means[:, None] for part in parts)
    if count < channels:
        found = _eigenvalues(_products_of_rows(centred))[:-1]  # the last one is 0: centred rows add up to nothing
        return pad(found.div_(count - 1), (0, channels - count + 1))
    return _eigenvalues_of_channels(product_with_self(centred), means, count) / (count - 1)


def singular_values(parts: Iterable[torch.Tensor], channels: int, count: int) -> torch.Tensor:
    """Returns the min(R, C) singular values of the matrix of all rows, not centred, descending.

    They are roots of eigenvalues: `parts` in float64 keep those above 1e-7 of the largest. Raises torch's
    `LinAlgError` where the decomposition fails.
    """
    matrices = (channel_major(part) for part in parts)
    products = _products_of_rows(matrices) if count < channels else product_with_self(matrices)
    return _eigenvalues(products).sqrt()


def _products_of_rows(matrices: Iterable[torch.Tensor]) -> torch.Tensor:
    """Gram matrix of the rows, if there are fewer rows than channels."""
    found = list(matrices)
    return product_with_self([(found[0] if len(found) == 1 else torch.cat(found, 1)).t()])


def channel_major(part: torch.Tensor) -> torch.Tensor:
    """Returns a part of shape (n, C, S) as a matrix (C, n * S); a view if channels are last."""
    return part[:, :, 0].t() if part.shape[2] == 1 else part.transpose(0, 1).reshape(part.shape[1], -1)


def product_with_self(matrices: Iterable[torch.Tensor]) -> torch.Tensor:
    """Returns the sum of M Mᵀ over `matrices` of shape (n, k); only the lower triangle is valid."""
    out = torch.empty(0, device="cpu")
    for matrix in matrices:
        for piece in matrix.split(MAX_SERIAL_SUM, 1):
            with without_autocast(matrix.device):
                if out.numel() == 0:
                    out = _product(piece)
                else:
                    out += _product(piece)
    return out


def _product(matrix: torch.Tensor) -> torch.Tensor:
    size = len(matrix)
    if size <= 2 * BLOCK_ROWS or matrix.device.type != "cpu":
        return matrix @ matrix.t()
    out = matrix.new_zeros(size, size)
    for start in range(0, size, BLOCK_ROWS):  # the upper triangle is not read, so most of it is not made
        stop = start + BLOCK_ROWS
        out[start:stop, :stop] = matrix[start:stop] @ matrix[:stop].t()
    return out


def _eigenvalues_of_channels(products: torch.Tensor, means: torch.Tensor, count: int) -> torch.Tensor:
    """Eigenvalues with constant channels set to 0, so that they do not add rounding errors."""
    if products.device.type != "cpu":
        return _eigenvalues(products)
    rounding = ROUNDING_UNITS * torch.finfo(products.dtype).eps * means.abs()
    varying = products.diagonal() > count * rounding.square()
    kept = varying.nonzero()[:, 0]
    if len(kept) == len(means):
        return _eigenvalues(products)
    found = _eigenvalues(products[kept][:, kept]) if len(kept) else products.new_empty(0)
    return torch.cat((found, found.new_zeros(len(means) - len(kept))))


def _eigenvalues(products: torch.Tensor) -> torch.Tensor:
    return torch.linalg.eigvalsh(products).flip(0).clamp_min_(0.0)


def without_autocast(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Context in which matrix products keep their dtype, also within the autocast of the training."""
    if is_any_autocast_enabled():
        return torch.autocast(device.type, enabled=False)
    return contextlib.nullcontext()
