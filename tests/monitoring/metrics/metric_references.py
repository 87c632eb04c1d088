"""What docs/metrics.md defines, written once more: numpy, float64, whole arrays, none of the package's code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from monitoring.metrics.metric_samples import Sample, array, rows

Reference = Callable[[list[Sample]], Any]


def input_rows(sample: Sample) -> np.ndarray:
    return rows(sample.x, sample.axis)


def output_rows(sample: Sample) -> np.ndarray:
    return rows(sample.y, sample.axis)


def spectrum(sample: Sample) -> np.ndarray:
    return np.linalg.eigvalsh(np.atleast_2d(np.cov(input_rows(sample).T)))[::-1]


def condition(fraction: float) -> Reference:
    def reference(steps: list[Sample]) -> float:
        values = spectrum(steps[-1])
        at = min(math.floor(len(values) * fraction), len(values) - 1)
        return values[0] / (values[at] + 1e-7) if values[at] > 1e-12 * values[0] else math.nan

    return reference


def stable_rank(steps: list[Sample]) -> float:
    values = spectrum(steps[-1])
    return values.sum() / values[0]


def rank_me(steps: list[Sample]) -> float:
    values = np.linalg.svd(output_rows(steps[-1]), compute_uv=False)
    p = values / np.abs(values).sum() + 1e-7
    return np.exp(-(p * np.log(p)).sum())


def dead(steps: list[Sample]) -> float:
    return float(np.mean(np.stack([output_rows(s).max(0) for s in steps]).max(0) <= 0.0))


def running(step: Sample) -> tuple[np.ndarray, np.ndarray]:
    """The running mean and deviation as they were right after a step."""
    return array(step.module.running_mean), np.sqrt(array(step.module.running_var))


def share(distance: np.ndarray, std: np.ndarray) -> float:
    return float(np.linalg.norm(distance) / (np.linalg.norm(std) + 1e-8))


def mean_tid(steps: list[Sample]) -> float:
    mean, std = running(steps[-1])
    return float(np.mean([share(input_rows(s).mean(0) - mean, std) for s in steps]))


def var_tid(steps: list[Sample]) -> float:
    _, std = running(steps[-1])
    return float(np.mean([share(input_rows(s).std(0, ddof=1) - std, std) for s in steps]))


def mean_tid_by_step(steps: list[Sample]) -> float:
    return float(np.mean([share(input_rows(s).mean(0) - running(s)[0], running(s)[1]) for s in steps]))


def var_tid_by_step(steps: list[Sample]) -> float:
    return float(np.mean([share(input_rows(s).std(0, ddof=1) - running(s)[1], running(s)[1]) for s in steps]))


def kurtosis(steps: list[Sample]) -> float:
    values = output_rows(steps[-1])
    centred = values - values.mean(1, keepdims=True)
    m2, m4 = (centred**2).mean(1), (centred**4).mean(1)
    return float(np.mean(m4[m2 > 1e-12] / m2[m2 > 1e-12] ** 2))


def outliers(steps: list[Sample]) -> float:
    values = array(steps[-1].y)
    return float(np.mean(np.abs(values - values.mean()) > 6 * values.std()))


def statistic(values: np.ndarray) -> dict[str, Any]:
    return {
        "mean": values.mean(),
        "std": values.std(),
        "min": values.min(),
        "max": values.max(),
        "zeros": np.mean(values == 0),
    }


def jumps(steps: list[Sample]) -> float:
    before, after = array(steps[-2].w), array(steps[-1].w)
    return float(np.sum(np.sign(before) != np.sign(after)))


def update_ratio(steps: list[Sample]) -> float:
    before, after = array(steps[-2].w), array(steps[-1].w)
    return float(np.linalg.norm(after - before) / np.linalg.norm(after))


def weight_gradient(module: nn.Module, x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """By the definition of the layer: for linear layers, and convolutions in two dimensions padded with zeros."""
    if isinstance(module, nn.Linear):
        return g.reshape(-1, g.shape[-1]).T @ x.reshape(-1, x.shape[-1])
    (ph, pw), (sh, sw), (dh, dw) = module.padding, module.stride, module.dilation
    x = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    groups, (kh, kw), (height, width) = module.groups, module.kernel_size, g.shape[2:]
    out = np.zeros(module.weight.shape)
    for at, (xs, gs) in enumerate(zip(np.split(x, groups, 1), np.split(g, groups, 1), strict=True)):
        first = at * gs.shape[1]
        for i in range(kh):
            for j in range(kw):
                seen = xs[:, :, i * dh : i * dh + sh * height : sh, j * dw : j * dw + sw * width : sw]
                out[first : first + gs.shape[1], :, i, j] = np.einsum("nohw,nihw->oi", gs, seen)
    return out


def noise_scale(steps: list[Sample]) -> float:
    s = steps[-1]
    x, g = array(s.x), array(s.g)
    big, small = len(x), len(x) // 2
    whole = (weight_gradient(s.module, x, g) ** 2).sum()
    parts = [slice(0, small), slice(small, 2 * small)]
    part = np.mean([((weight_gradient(s.module, x[at], g[at]) * big / small) ** 2).sum() for at in parts])
    signal = (big * whole - small * part) / (big - small)
    return float((part - whole) / (1 / small - 1 / big) / signal)


def loss_spike(steps: list[Sample]) -> float:
    before = np.array([s.loss for s in steps[:-1]])
    median = np.median(before)
    return float((steps[-1].loss - median) / (1.4826 * np.median(np.abs(before - median))))


def histogram(tensor: torch.Tensor) -> dict[str, Any]:
    values = array(tensor).reshape(-1)
    low, high = values.min(), values.max()
    counts = np.histogram(values, 64, (low, high))[0] if high > low else np.eye(64)[0] * values.size
    return {"low": low, "high": high, "total": values.size, "sampled": values.size, "counts": counts}


def of_last(fn: Callable[[Sample], Any]) -> Reference:
    return lambda steps: fn(steps[-1])


REFERENCES: dict[str, Reference] = {
    "InputSndNorm": of_last(lambda s: np.sqrt((array(s.x) ** 2).sum())),
    "OutputSndNorm": of_last(lambda s: np.sqrt((array(s.y) ** 2).sum())),
    "OutputGradSndNorm": of_last(lambda s: np.sqrt((array(s.g) ** 2).sum())),
    "InputGradSndNorm": of_last(lambda s: np.sqrt((array(s.gx) ** 2).sum())),
    "WeightNorm": of_last(lambda s: np.sqrt((array(s.w) ** 2).sum())),
    "WeightGradNorm": of_last(lambda s: np.sqrt((array(s.wg) ** 2).sum())),
    "InputMean": of_last(lambda s: input_rows(s).mean(0)),
    "InputStd": of_last(lambda s: input_rows(s).std(0)),
    "WeightStatistic": of_last(lambda s: statistic(array(s.w))),
    "InputCovMaxEig": of_last(lambda s: spectrum(s)[0]),
    "InputCovStableRank": stable_rank,
    "InputCovCondition": condition(1.0),
    "InputCovCondition20": condition(0.2),
    "InputCovCondition50": condition(0.5),
    "InputCovCondition80": condition(0.8),
    "RankMe": rank_me,
    "DeadNeuronFraction": dead,
    "LinearDeadNeuronNum": dead,
    "MeanTID": mean_tid,
    "VarTID": var_tid,
    "MeanTIDByStep": mean_tid_by_step,
    "VarTIDByStep": var_tid_by_step,
    "WeightParamJump": jumps,
    "UpdateRatio": update_ratio,
    "ActivationKurtosis": kurtosis,
    "ActivationMax": of_last(lambda s: np.abs(array(s.y)).max()),
    "OutlierRatio": outliers,
    "Sparsity": of_last(lambda s: np.mean(array(s.y) == 0)),
    "GradientNoiseScale": noise_scale,
    "LossSpike": loss_spike,
    "NonFiniteOrigin": of_last(lambda s: float(np.isfinite(array(s.x)).all() and not np.isfinite(array(s.y)).all())),
    "WeightHistogram": of_last(lambda s: histogram(s.w)),
    "OutputHistogram": of_last(lambda s: histogram(s.y)),
    "InputHistogram": of_last(lambda s: histogram(s.x)),
    "OutputGradHistogram": of_last(lambda s: histogram(s.g)),
    "WeightGradHistogram": of_last(lambda s: histogram(s.wg)),
}
