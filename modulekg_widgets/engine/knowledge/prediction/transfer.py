"""Carrying predictions over from ImageNet-1K to another data set, by the runs on data sets like it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from modulekg_widgets.engine.knowledge.contents import DataSetNode
from modulekg_widgets.engine.knowledge.prediction.datasets import likeness
from modulekg_widgets.engine.knowledge.prediction.features import Array, Features, log_counts

# in log-odds: how far a data set's level is from that of ImageNet-1K, a model's own part of this, and noise
LEVEL, OWN, NOISE = 1.5, 0.3, 0.1


@dataclass(frozen=True, slots=True)
class KnownResult:
    """What a model reached on a data set: its log-odds beyond those that the regression tells for ImageNet-1K."""

    dataset: DataSetNode
    features: Features
    gap: float


def log_odds(percent: Array) -> Array:
    share = np.clip(percent, 0.5, 99.5) / 100
    return np.log(share / (1 - share))


def percent(odds: Array) -> Array:
    """The value in percent of log-odds."""
    return 100 / (1 + np.exp(-odds))


def slope(percent: Array) -> Array:
    """Points for a unit of log-odds, at values in percent."""
    share = np.clip(percent, 0.5, 99.5) / 100
    return 100 * share * (1 - share)


def gaps_on(
    dataset: DataSetNode, origin: DataSetNode, wanted: Sequence[Features], runs: Sequence[KnownResult]
) -> tuple[Array, Array]:
    """How far values on `dataset` are from those on `origin` (ImageNet-1K), and the deviations of that, in log-odds.

    A Gaussian process whose kernel is the likeness of the data sets times that of the models. The regression itself
    is one more run, with no gap, on `origin`: a few runs on a data set of another kind do not decide alone.
    """
    count, places = len(wanted), [origin, *(run.dataset for run in runs)]
    models = np.zeros((len(places), len(places)))  # the regression is of no model
    alike = _alike([*wanted, *(run.features for run in runs)])
    models[1:, 1:] = alike[count:, count:]
    between = np.array([[likeness(one, other) for other in places] for one in places])
    here = np.array([likeness(dataset, place) for place in places])
    inside = between * (LEVEL**2 + OWN**2 * models) + NOISE**2 * np.eye(len(places))
    outside = here * (LEVEL**2 + OWN**2 * np.column_stack([np.zeros(count), alike[:count, count:]]))
    # likenesses need not make a kernel: lift the smallest eigenvalue to what noise alone gives
    inside += max(0.0, NOISE**2 - float(np.linalg.eigvalsh(inside)[0])) * np.eye(len(places))
    gaps = np.array([0.0, *(run.gap for run in runs)])
    solved = np.linalg.solve(inside, np.column_stack([gaps, outside.T]))
    variances = LEVEL**2 + OWN**2 + NOISE**2 - np.einsum("ij,ji->i", outside, solved[:, 1:])
    return outside @ solved[:, 0], np.sqrt(np.maximum(variances, NOISE**2))


def _alike(features: Sequence[Features]) -> Array:
    rows = log_counts([each.rounds[0] for each in features])
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return rows @ rows.T
