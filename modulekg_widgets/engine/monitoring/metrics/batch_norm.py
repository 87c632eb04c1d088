"""How far batches stand from the running statistics that batch norm will use at inference (arXiv 2210.05153)."""

from __future__ import annotations

import math

import torch
from torch import nn

from modulekg_widgets.engine.monitoring.measures import moments
from modulekg_widgets.engine.monitoring.metric import NoValueError, metric
from modulekg_widgets.engine.monitoring.metrics.norms import norm

SMALL = 1e-8
# the output is asked for so that the batch stands in the running statistics, as in those that inference would use now
NEEDS = ("ForwardInputMoments", "ForwardOutput")


class _Discrepancy:
    """The mean over the steps of a window; keeps one number."""

    def __init__(self) -> None:
        self._total: torch.Tensor | float | None = None
        self._steps = 0

    def add(self, distance: torch.Tensor, running_std: torch.Tensor) -> None:
        share = norm(distance) / (norm(running_std) + SMALL)
        self._total = share if self._total is None else self._total + share
        self._steps += 1

    def compute(self) -> torch.Tensor | float | None:
        return None if self._total is None else self._total / self._steps


@metric("MeanTID", needs=NEEDS)
class MeanTID(_Discrepancy):
    """The mean over steps of |mean of the batch - running mean| / (|running deviation| + 1e-8), norms over channels.

    Raises `NoValueError` for a module without running statistics.
    """

    def update(self, x: moments.Moments, y: torch.Tensor, module: nn.Module) -> None:
        mean, std = _running(module)
        self.add(x.channel_means - mean, std)


@metric("VarTID", needs=NEEDS)
class VarTID(_Discrepancy):
    """The mean over steps of |deviation of the batch - running deviation| / (|running deviation| + 1e-8).

    The deviation of a batch of n values has the divisor n - 1, as the running one has. Raises `NoValueError` for a
    module without running statistics, and for a single value.
    """

    def update(self, x: moments.Moments, y: torch.Tensor, module: nn.Module) -> None:
        _, std = _running(module)
        size = x.tensor.numel() // max(len(std), 1)
        if size < 2:
            raise NoValueError("one value for each channel has no deviation: pass larger batches")
        self.add(x.channel_stds * math.sqrt(size / (size - 1)) - std, std)


def _running(module: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """The running mean and standard deviation, in float32 or better."""
    mean, var = getattr(module, "running_mean", None), getattr(module, "running_var", None)
    if not isinstance(mean, torch.Tensor) or not isinstance(var, torch.Tensor):
        raise NoValueError(f"{type(module).__name__} keeps no running mean and variance: choose a batch norm")
    wide = torch.float64 if mean.dtype is torch.float64 else torch.float32
    return mean.detach().to(wide), var.detach().to(wide).sqrt()
