"""Euclidean norms of inputs, outputs, gradients and weights, also beyond the range of float32 squares."""

from __future__ import annotations

import torch

from modulekg_widgets.engine.monitoring.measures import moments
from modulekg_widgets.engine.monitoring.metric import metric


def norm(tensor: torch.Tensor) -> torch.Tensor | float:
    """The Euclidean norm of any floating or complex tensor: 0-dim, float32 or better, or a number where it is known."""
    usual = moments.fast_norm(tensor)
    return moments.Moments(tensor, -1).norm if usual is None else usual


def values(tensor: torch.Tensor) -> torch.Tensor:
    """The elements that a sparse tensor stores, repeated positions added up; of a dense tensor itself."""
    if tensor.layout is torch.strided:
        return tensor
    return tensor.coalesce().values() if tensor.layout is torch.sparse_coo else tensor.values()


@metric("InputSndNorm", needs="ForwardInputMoments", ranks="norm", quick=norm)
def input_norm(x: moments.Moments) -> torch.Tensor:
    """The Euclidean norm of the input."""
    return x.norm


@metric("OutputSndNorm", needs="ForwardOutputMoments", ranks="norm", quick=norm)
def output_norm(y: moments.Moments) -> torch.Tensor:
    """The Euclidean norm of the output."""
    return y.norm


@metric("OutputGradSndNorm", needs="BackwardOutputMoments", ranks="norm", quick=norm)
def output_gradient_norm(g: moments.Moments) -> torch.Tensor:
    """The Euclidean norm of the gradient at the output."""
    return g.norm


@metric("InputGradSndNorm", needs="BackwardInput", ranks="norm")
def input_gradient_norm(g: torch.Tensor) -> torch.Tensor | float:
    """The Euclidean norm of the gradient at the input, as far as it comes through this module."""
    return norm(g)


@metric("WeightNorm", needs="Weight", ranks="norm")
def weight_norm(w: torch.Tensor) -> torch.Tensor | float:
    """The Euclidean norm of the weight."""
    return norm(w)


@metric("WeightGradNorm", needs="WeightGrad", ranks="norm")
def weight_gradient_norm(g: torch.Tensor) -> torch.Tensor | float:
    """The Euclidean norm of the gradient of the weight; a sparse one counts its coalesced values."""
    return norm(values(g))


# -------------------- Means and standard deviations of inputs by channel, and of weights


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
    """Mean, standard deviation (divisor n), lowest and highest element of the weight, and its share of exact zeros."""
    own = moments.Moments(w, -1)
    return {"mean": own.mean, "std": own.std, "min": own.least, "max": own.greatest, "zeros": own.zeros}
