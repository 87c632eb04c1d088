"""How many directions activations use: eigenvalues of the input's covariance, and the effective rank of the output."""

from __future__ import annotations

from collections.abc import Callable

import torch

from modulekg_widgets.engine.monitoring.measures import moments
from modulekg_widgets.engine.monitoring.metric import NoValueError, metric

REGULAR = 1e-7  # what Taiyi adds to the condition numbers' divisor, and what keeps the entropy defined
# below these shares of the largest eigenvalue there is rounding alone, also that of a layer that made the input
RESOLVED = {torch.float64: 1e-12, torch.float32: 1e-6}


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
        least = RESOLVED.get(eigenvalues.dtype, 1e-6) * eigenvalues[0]
        if bool(eigenvalues[at] <= least):  # whoever decomposes has waited for a device anyway
            rank = int(torch.count_nonzero(eigenvalues > least))
            raise NoValueError(
                f"the input's covariance has the rank {rank}, and {len(eigenvalues)} channels: there is no eigenvalue "
                f"to divide by at {percent} % of its spectrum"
            )
        return eigenvalues[0] / (eigenvalues[at] + REGULAR)

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
    shares = values / total + REGULAR
    return torch.exp(-(shares * shares.log()).sum())
