"""Metrics of activations: dead channels, kurtosis, outliers, sparsity."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from modulekg_widgets.engine.monitoring.measures import moments
from modulekg_widgets.engine.monitoring.metric import NoValueError, metric

if TYPE_CHECKING:
    from modulekg_widgets.engine.monitoring.measures.attention_logits import AttentionLogits


ROUNDING_UNITS = 8  # a row whose deviation is within so many units in the last place of its mean is constant


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
    for part in y.parts(y.square_dtype):
        mean = part.mean(1, keepdim=True)
        squares = (part - mean).square_()
        m2 = squares.mean(1, keepdim=True)
        varies = m2 > (ROUNDING_UNITS * torch.finfo(part.dtype).eps * mean).square_()
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
    mean = y.mean.to(y.square_dtype)
    bound = (sigmas * y.std).to(y.square_dtype)
    far = [torch.count_nonzero((piece - mean).abs_() > bound) for piece in y.pieces(y.square_dtype)]
    return torch.stack(far).sum() / y.count + 0.0 * bound  # NaN stays NaN


@metric("Sparsity", needs="ForwardOutputMoments")
def sparsity(y: moments.Moments) -> torch.Tensor:
    """The share of outputs that are exactly zero, between 0 and 1."""
    return y.zeros


# -------------------- Metrics of attention: how spread it is, and how large its logits grow


@metric("AttentionEntropy", needs="Attention")
def attention_entropy(attention: AttentionLogits) -> torch.Tensor:
    """The mean over batch, heads and queries of -sum p ln p, in nats: 0 for one key, ln S for S alike.

    The probabilities are those before dropout. Where it falls to 0 the training is at risk (arXiv 2303.06296).
    """
    return attention.entropy()


@metric("AttentionMaxLogit", needs="Attention", ranks="max")
def attention_max_logit(attention: AttentionLogits) -> torch.Tensor:
    """The largest of q.k * scale + mask over the pairs that are not masked: its growth precedes divergence.

    Source: arXiv 2302.05442.
    """
    return attention.largest_logit()


# --------------------
# Spectral metrics: eigenvalues and condition of the input covariance, effective rank of the output.


EPSILON = 1e-7  # what Taiyi adds to the condition numbers' divisor, and what keeps the entropy defined
# below these shares of the largest eigenvalue there is rounding alone, also that of a layer that made the input
RESOLUTION = {torch.float64: 1e-12, torch.float32: 1e-6}


@metric("InputCovMaxEig", needs="ForwardInputEigOfCov")
def largest_eigenvalue(eigenvalues: torch.Tensor) -> torch.Tensor:
    """The largest eigenvalue of the input's covariance over channels."""
    return eigenvalues[0]


@metric("InputCovStableRank", needs="ForwardInputEigOfCov")
def stable_rank(eigenvalues: torch.Tensor) -> torch.Tensor:
    """The sum of the covariance's eigenvalues in units of the largest: 1 for one direction, C for all alike.

    Raises `NoValueError` for an input that is constant in every channel.
    """
    if eigenvalues.device.type == "cpu" and float(eigenvalues[0]) == 0.0:
        raise NoValueError("the input is constant in every channel: its covariance has no direction")
    return eigenvalues.sum() / eigenvalues[0]


def _condition(name: str, percent: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def condition(eigenvalues: torch.Tensor) -> torch.Tensor:
        at = min(len(eigenvalues) * percent // 100, len(eigenvalues) - 1)
        least = RESOLUTION.get(eigenvalues.dtype, 1e-6) * eigenvalues[0]
        if bool(eigenvalues[at] <= least):  # whoever decomposes has waited for a device anyway
            rank = int(torch.count_nonzero(eigenvalues > least))
            raise NoValueError(
                f"the input's covariance has the rank {rank}, and {len(eigenvalues)} channels: there is no eigenvalue "
                f"to divide by at {percent} % of its spectrum"
            )
        return eigenvalues[0] / (eigenvalues[at] + EPSILON)

    where = "the last one" if percent == 100 else f"that at {percent} % of the descending spectrum"
    condition.__doc__ = (
        f"The covariance's largest eigenvalue over {where} + 1e-7.\n\n"
        "    Raises `NoValueError` where the rank of the input ends before it, but for rounding."
    )
    return metric(name, needs="ForwardInputEigOfCov")(condition)


condition = _condition("InputCovCondition", 100)
condition_20 = _condition("InputCovCondition20", 20)
condition_50 = _condition("InputCovCondition50", 50)
condition_80 = _condition("InputCovCondition80", 80)


@metric("RankMe", needs="ForwardOutputMoments")
def rank_me(y: moments.Moments) -> torch.Tensor:
    """exp(-sum p ln p) with p = s / sum(s) + 1e-7, of the singular values s of the output's rows, not centred.

    Source: arXiv 2210.02885. Raises `NoValueError` for an output of zeros.
    """
    values = y.singular_values
    total = values.sum()
    if values.device.type == "cpu" and float(total) == 0.0:
        raise NoValueError("the output is zero everywhere: it has no rank to measure")
    shares = values / total + EPSILON
    return torch.exp(-(shares * shares.log()).sum())
