"""Ridge regression and kernels on the structure of models, with the choice of their settings by left-out families.

All are kernel ridge regressions, K + λI, with a large constant in K for the mean. The residuals of a left-out block F
follow from one inverse A of that matrix: r_F = (A_FF)^-1 (A y)_F; see Rasmussen and Williams, Gaussian Processes for
Machine Learning, 2006, section 5.4.2, for blocks of one point. Labels of structure after Shervashidze and others,
Weisfeiler-Lehman Graph Kernels, 2011.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from modulekg_widgets.engine.knowledge.prediction.features import Array, Features, log_counts, sizes

Families = np.ndarray
MEAN = 100.0  # the constant in every kernel, large beside its other terms
RBF_SCALES = (0.4, 0.6, 0.8, 1.0, 1.3, 2.0)  # decades of parameters and FLOPs
RBF_WEIGHTS = (1.0, 3.0, 10.0)


@dataclass(frozen=True, slots=True)
class Regression:
    """Kernels of which the one that predicts best is chosen, together with a ridge."""

    title: str
    kernels: Callable[[Sequence[Features]], list[Array]]
    ridges: tuple[float, ...]
    interval: bool = False  # whether its variance is meant as one


def _size(features: Sequence[Features]) -> list[Array]:
    columns = sizes(features, _costs_known(features))
    return [columns @ columns.T]


def _ops(features: Sequence[Features]) -> list[Array]:
    rows = log_counts([each.ops for each in features])
    return [rows @ rows.T]


def _ops_and_size(features: Sequence[Features]) -> list[Array]:
    (size,), (ops,) = _size(features), _ops(features)
    return [ops + weight * size for weight in (3.0, 10.0, 30.0, 100.0)]


def _wl(features: Sequence[Features]) -> list[Array]:
    return [_cosine(log_counts(counts)) for counts in zip(*(each.rounds for each in features), strict=True)]


def _wl_and_size(features: Sequence[Features]) -> list[Array]:
    columns = sizes(features, _costs_known(features))
    apart = ((columns[:, None] - columns[None]) ** 2).sum(-1)
    bumps = [weight * np.exp(-apart / (2 * scale**2)) for scale in RBF_SCALES for weight in RBF_WEIGHTS]
    return [structure + bump for structure in _wl(features) for bump in bumps]


def _cosine(rows: Array) -> Array:
    lengths = np.linalg.norm(rows, axis=1)
    rows = rows / np.where(lengths > 0, lengths, 1.0)[:, None]
    return rows @ rows.T


def _costs_known(features: Sequence[Features]) -> bool:
    return all(each.flops is not None for each in features)


def _powers(low: int, high: int) -> tuple[float, ...]:
    return tuple(10.0 ** (half / 2) for half in range(2 * low, 2 * high + 1))


KERNELS: dict[str, Regression] = {
    "ridge-size": Regression("ridge on log-params and log-FLOPs", _size, _powers(-2, 2)),
    "ridge-ops": Regression("ridge on op histogram", _ops, _powers(0, 3)),
    "ridge-ops-size": Regression("ridge on op histogram, log-params, log-FLOPs", _ops_and_size, _powers(0, 3)),
    "wl": Regression("WL kernel ridge", _wl, _powers(-3, 0)),
    "wl-rbf": Regression("WL kernel ridge + RBF of size", _wl_and_size, _powers(-3, 0), interval=True),
}


# ------------------------------------------------------------------- fitting


@dataclass(frozen=True, slots=True)
class FittedRegression:
    """A kernel ridge regression on known values, seen as a Gaussian process."""

    kernel: int  # its position among those of the predictor
    ridge: float
    mean: float
    weights: Array
    inverse: Array
    scale: float  # the variance that belongs to one unit of the kernel
    loss: float  # the mean square of the residuals of left-out families

    def values(self, across: Array) -> Array:
        """The predictions for kernel rows between new and known models, shape (new, known)."""
        return self.mean + (across + MEAN) @ self.weights

    def deviations(self, across: Array, own: Array) -> Array:
        """The standard deviations of new values, given also each new model's kernel with itself."""
        rows = across + MEAN
        left = own + MEAN + self.ridge - np.einsum("ij,jk,ik->i", rows, self.inverse, rows)
        return np.sqrt(self.scale * np.maximum(left, self.ridge))


def fitted(kernels: Sequence[Array], ridges: Sequence[float], values: Array, families: Families) -> FittedRegression:
    """The regression whose kernel and ridge predict left-out families best, in the mean square."""
    mean = float(values.mean())
    blocks = [np.flatnonzero(families == family) for family in np.unique(families)]
    fits = (
        _regression(index, kernel, ridge, values - mean, mean, blocks)
        for index, kernel in enumerate(kernels)
        for ridge in ridges
    )
    return min(fits, key=lambda fit: fit.loss)


def _regression(
    index: int, kernel: Array, ridge: float, values: Array, mean: float, blocks: list[np.ndarray]
) -> FittedRegression:
    inverse: Array = np.linalg.inv(kernel + MEAN + ridge * np.eye(len(values))).astype(np.float64)
    weights = inverse @ values
    squares = 0.0
    for block in blocks:
        residuals = np.linalg.solve(inverse[np.ix_(block, block)], weights[block])
        squares += float(residuals @ residuals)
    scale = max(float(values @ weights) / len(values), 1e-12)
    return FittedRegression(index, ridge, mean, weights, inverse, scale, squares / len(values))


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The predictions of all models without their families, and their deviations as the regressions see them."""

    values: Array
    deviations: Array

    def calibration(self, truth: Array, among: np.ndarray | None = None) -> tuple[float, float]:
        """The factors on a deviation that make it the error's own, and half of the 90 % interval's width.

        They are learnt from the models where `among` is true, by default from all.
        """
        ratios = (np.abs(truth - self.values) / self.deviations)[slice(None) if among is None else among]
        place = min(1.0, np.ceil(0.9 * (len(ratios) + 1)) / len(ratios))
        return float(np.sqrt(np.mean(ratios**2))), float(np.quantile(ratios, place, method="higher"))

    def coverage(self, truth: Array, families: Families) -> float:
        """The part of the models inside their 90 % intervals, each calibrated on the other families."""
        inside = 0
        for family in np.unique(families):
            test = families == family
            half = self.calibration(truth, ~test)[1] * self.deviations[test]
            inside += int((np.abs(truth[test] - self.values[test]) <= half).sum())
        return inside / len(truth)


def left_out(predictor: Regression, features: Sequence[Features], values: Array, families: Families) -> LeftOut:
    """Each family predicted from the others, among which alone the kernel and the ridge are chosen."""
    kernels = predictor.kernels(features)
    found = LeftOut(np.zeros(len(values)), np.zeros(len(values)))
    for family in np.unique(families):
        test, train = np.flatnonzero(families == family), np.flatnonzero(families != family)
        inside = [kernel[np.ix_(train, train)] for kernel in kernels]
        fit = fitted(inside, predictor.ridges, values[train], families[train])
        kernel = kernels[fit.kernel]
        across, own = kernel[np.ix_(test, train)], np.diag(kernel)[test]
        found.values[test], found.deviations[test] = fit.values(across), fit.deviations(across, own)
    return found
