"""Means and deviations, of the input by channel and of the weight."""

from __future__ import annotations

import torch

from modulekg_widgets.engine.monitoring.measures import moments
from modulekg_widgets.engine.monitoring.metric import metric


@metric("InputMean", needs="ForwardInputMoments")
def input_mean(x: moments.Moments) -> torch.Tensor:
    """The mean of the input by channel, of shape (C,)."""
    return x.channel_means


@metric("InputStd", needs="ForwardInputMoments")
def input_std(x: moments.Moments) -> torch.Tensor:
    """The standard deviation of the input by channel (divisor R), of shape (C,)."""
    return x.channel_stds


@metric("WeightStatistic", needs="Weight")
def weight_statistic(w: torch.Tensor) -> dict[str, torch.Tensor]:
    """Mean, standard deviation (divisor n), least and greatest element of the weight, and its share of exact zeros."""
    own = moments.Moments(w, -1)
    return {"mean": own.mean, "std": own.std, "min": own.least, "max": own.greatest, "zeros": own.zeros}
