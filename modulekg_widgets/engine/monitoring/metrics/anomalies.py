"""Spikes of the loss, in robust standard deviations."""

from __future__ import annotations

import math
import statistics
from collections import deque

import torch

from modulekg_widgets.engine.monitoring.measures import moments
from modulekg_widgets.engine.monitoring.metric import NoValueError, metric

MIN_LOSSES = 5  # losses from which a spread can be estimated
MAD_TO_SIGMA = 1.4826  # median absolute deviations of a normal distribution in a standard deviation


@metric("LossSpike", needs="Loss", keeps="the latest losses, `window` numbers")
class LossSpike:
    """The distance of the loss above the median of the `window` losses before it, in robust standard deviations.

    (L - median) / (1.4826 MAD). No value before five losses and where they do not vary; losses that are not finite do
    not enter the window. Raises `NoValueError` for a loss that is NaN.
    """

    def __init__(self, window: int = 50) -> None:
        self._losses: deque[float] = deque(maxlen=window)

    def compute(self, loss: float) -> float | None:
        loss = float(loss)
        before = list(self._losses)
        if math.isfinite(loss):
            self._losses.append(loss)
        if math.isnan(loss):
            raise NoValueError("the loss is NaN")
        if len(before) < MIN_LOSSES:
            return None
        median = statistics.median(before)
        deviation = statistics.median(abs(value - median) for value in before)
        return (loss - median) / (MAD_TO_SIGMA * deviation) if deviation else None


# -------------------- Origin of NaN and infinity


@metric("NonFiniteOrigin", needs=("ForwardInputMoments", "ForwardOutputMoments"), ranks="max")
def non_finite_origin(x: moments.Moments, y: moments.Moments) -> torch.Tensor:
    """1 where a finite input gave NaN or infinity in the output, else 0; the first such module is the origin."""
    return (x.finite & ~y.finite).float()
