"""Health of activations: dead channels, outliers, heavy tails, zeros."""

from __future__ import annotations

import torch

from modulekg_widgets.engine.monitoring.measures import moments
from modulekg_widgets.engine.monitoring.metric import NoValueError, metric

ROUNDING = 8  # a row whose deviation is within so many units in the last place of its mean is constant


@metric("DeadNeuronFraction", "LinearDeadNeuronNum", needs="ForwardOutputMoments", ranks="min")
class DeadNeuronFraction:
    """The share of channels whose outputs stay at or below `threshold` in all steps of the window, between 0 and 1."""

    def __init__(self, threshold: float = 0.0) -> None:
        self._threshold = threshold
        self._greatest: torch.Tensor | None = None  # by channel, over the window

    def update(self, y: moments.Moments) -> None:
        greatest = y.channel_greatest
        self._greatest = greatest if self._greatest is None else torch.maximum(self._greatest, greatest)

    def compute(self) -> torch.Tensor | None:
        return None if self._greatest is None else (self._greatest <= self._threshold).float().mean()


@metric("ActivationKurtosis", needs="ForwardOutputMoments")
def kurtosis(y: moments.Moments) -> torch.Tensor:
    """The mean over rows of m4 / m2², the central moments of each row over its channels: 3 for a normal distribution.

    Rows that are constant have none and do not count. Raises `NoValueError` when all are.
    """
    total = torch.zeros((), device=y.tensor.device)
    counted = torch.zeros((), device=y.tensor.device)
    for part in y.parts(y.safe):
        mean = part.mean(1, keepdim=True)
        squares = (part - mean).square_()
        m2 = squares.mean(1, keepdim=True)
        varies = m2 > (ROUNDING * torch.finfo(part.dtype).eps * mean).square_()
        tails = squares.div_(m2).square_().mean(1, keepdim=True)
        total = total + torch.where(varies | m2.isnan(), tails, 0.0).sum()
        counted = counted + varies.sum()
    if counted.device.type == "cpu" and not float(counted) and not bool(total.isnan()):
        raise NoValueError("every row of the output is the same in all channels: there is no deviation to compare with")
    return total / counted


@metric("ActivationMax", needs="ForwardOutputMoments", ranks="max")
def largest_activation(y: moments.Moments) -> torch.Tensor:
    """The largest magnitude in the output."""
    return torch.maximum(-y.least, y.greatest)


@metric("OutlierRatio", needs="ForwardOutputMoments")
def outlier_ratio(y: moments.Moments, sigmas: float = 6.0) -> torch.Tensor:
    """The share of outputs that lie farther than `sigmas` standard deviations from their mean, between 0 and 1."""
    mean = y.mean.to(y.safe)
    bound = (sigmas * y.std).to(y.safe)
    far = [torch.count_nonzero((piece - mean).abs_() > bound) for piece in y.pieces(y.safe)]
    return torch.stack(far).sum() / y.count + 0.0 * bound  # NaN stays NaN


@metric("Sparsity", needs="ForwardOutputMoments")
def sparsity(y: moments.Moments) -> torch.Tensor:
    """The share of outputs that are exactly zero, between 0 and 1."""
    return y.zeros
