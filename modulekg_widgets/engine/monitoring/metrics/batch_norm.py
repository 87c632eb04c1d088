"""Discrepancy between batch statistics and running statistics of batch norm (arXiv 2210.05153)."""

from __future__ import annotations

import math

import torch
from torch import nn

from modulekg_widgets.engine.monitoring.measures import moments
from modulekg_widgets.engine.monitoring.metric import NoValueError, metric
from modulekg_widgets.engine.monitoring.metrics.statistics import norm

EPSILON = 1e-8
# the output is asked for so that the batch stands in the running statistics, as in those that inference would use now
NEEDS = ("ForwardInputMoments", "ForwardOutput")


class _WindowDiscrepancy:
    """Mean over the batches of a window, each against the running statistics at its end; C numbers per batch."""

    def __init__(self) -> None:
        self._batches: list[torch.Tensor] = []
        self._running: tuple[torch.Tensor, torch.Tensor] | None = None  # copies of the latest

    def add(self, batch: torch.Tensor, running: tuple[torch.Tensor, torch.Tensor]) -> None:
        self._batches.append(batch)
        self._running = running

    def distances(self, of: int) -> torch.Tensor | float | None:
        """Returns the mean distance: of the means for `of` = 0, of the deviations for 1."""
        if self._running is None:
            return None
        shares = [_share(batch - self._running[of], self._running[1]) for batch in self._batches]
        return sum(shares[1:], shares[0]) / len(shares)


class _StepDiscrepancy:
    """Mean over the steps of a window, each against its own running statistics; one number."""

    def __init__(self) -> None:
        self._total: torch.Tensor | float | None = None
        self._steps = 0

    def add(self, distance: torch.Tensor, running_std: torch.Tensor) -> None:
        share = _share(distance, running_std)
        self._total = share if self._total is None else self._total + share
        self._steps += 1

    def compute(self) -> torch.Tensor | float | None:
        return None if self._total is None else self._total / self._steps


def _share(distance: torch.Tensor, running_std: torch.Tensor) -> torch.Tensor | float:
    return norm(distance) / (norm(running_std) + EPSILON)


@metric("MeanTID", needs=NEEDS)
class MeanTID(_WindowDiscrepancy):
    """The mean over batches of |mean of the batch - running mean| / (|running deviation| + 1e-8), norms over channels.

    The running statistics are those at the time of computing, for all batches of the window. Source: arXiv 2210.05153
    and Taiyi. Raises `NoValueError` for a module without running statistics.
    """

    def update(self, x: moments.Moments, y: torch.Tensor, module: nn.Module) -> None:
        self.add(x.channel_means, _running(module))

    def compute(self) -> torch.Tensor | float | None:
        return self.distances(0)


@metric("VarTID", needs=NEEDS)
class VarTID(_WindowDiscrepancy):
    """The mean over batches of |deviation of the batch - running deviation| / (|running deviation| + 1e-8).

    The running statistics are those at the time of computing, as of `MeanTID`. The deviation of a batch of n values has
    the divisor n - 1, as the running one has. Raises `NoValueError` for a module without running statistics, and for a
    single value.
    """

    def update(self, x: moments.Moments, y: torch.Tensor, module: nn.Module) -> None:
        running = _running(module)
        self.add(_deviations(x, len(running[1])), running)

    def compute(self) -> torch.Tensor | float | None:
        return self.distances(1)


@metric("MeanTIDByStep", needs=NEEDS)
class MeanTIDByStep(_StepDiscrepancy):
    """`MeanTID` with each batch compared to the running statistics of its own step."""

    def update(self, x: moments.Moments, y: torch.Tensor, module: nn.Module) -> None:
        mean, std = _running(module)
        self.add(x.channel_means - mean, std)


@metric("VarTIDByStep", needs=NEEDS)
class VarTIDByStep(_StepDiscrepancy):
    """`VarTID` with each batch compared to the running statistics of its own step."""

    def update(self, x: moments.Moments, y: torch.Tensor, module: nn.Module) -> None:
        _, std = _running(module)
        self.add(_deviations(x, len(std)) - std, std)


def _deviations(x: moments.Moments, channels: int) -> torch.Tensor:
    """Standard deviations of the batch by channel, with divisor n - 1."""
    size = x.tensor.numel() // max(channels, 1)
    if size < 2:
        raise NoValueError("one value for each channel has no deviation: pass larger batches")
    return x.channel_stds * math.sqrt(size / (size - 1))


def _running(module: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """The running mean and standard deviation, in float32 or better."""
    mean, var = getattr(module, "running_mean", None), getattr(module, "running_var", None)
    if not isinstance(mean, torch.Tensor) or not isinstance(var, torch.Tensor):
        raise NoValueError(f"{type(module).__name__} keeps no running mean and variance: choose a batch norm")
    wide = torch.float64 if mean.dtype is torch.float64 else torch.float32
    return mean.detach().to(wide, copy=True), var.detach().to(wide).sqrt()
