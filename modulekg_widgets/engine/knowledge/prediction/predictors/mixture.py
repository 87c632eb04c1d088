"""Mixtures of Student t distributions on several scales: medians, intervals, and conformal correction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.knowledge.prediction.data.scales import Scale
from modulekg_widgets.engine.knowledge.prediction.predictors.gaussian_process import Families

Array = NDArray[np.float64]
INTERVAL_LEVEL = 0.9  # of the intervals
NORMAL_QUANTILE = 1.6449  # deviations of a normal value that it reaches
BISECTION_STEPS = 26
MAX_DEVIATIONS = 40.0  # deviations
MIN_PROBABILITY = 1e-7  # probability


@dataclass(frozen=True, slots=True)
class PredictionIntervals:
    """Predicted values with the ends of their 90 % intervals."""

    values: Array
    low: Array
    high: Array

    @property
    def std(self) -> Array:
        return (self.high - self.low) / (2 * NORMAL_QUANTILE)

    def assign(self, indices: np.ndarray, other: PredictionIntervals) -> None:
        """Assigns other predictions at some indices."""
        for own, new in ((self.values, other.values), (self.low, other.low), (self.high, other.high)):
            own[indices] = new

    def error_ratios(self, truth: Array, scale: Scale) -> Array:
        """Returns the error of the truth relative to the interval on that side, on a scale."""
        wanted, values, low, high = (scale.transform(each) for each in (truth, self.values, self.low, self.high))
        sides = np.where(wanted > values, high - values, values - low)
        return np.abs(wanted - values) / np.maximum(sides, 1e-12)

    def widen(self, factor: float, scale: Scale, component: PredictionIntervals | None = None) -> PredictionIntervals:
        """Returns intervals widened by a factor on a scale; with `component`, only that part of them."""
        values, low, high = (scale.transform(each) for each in (self.values, self.low, self.high))
        if component is None:
            sides = [factor * (end - values) for end in (low, high)]
        else:
            middle = scale.transform(component.values)
            parts = [(scale.transform(end) - middle) ** 2 for end in (component.low, component.high)]
            whole = [np.maximum((end - values) ** 2, part) for end, part in zip((low, high), parts, strict=True)]
            widths = [np.sqrt(all_ + (factor**2 - 1) * part) for all_, part in zip(whole, parts, strict=True)]
            sides = [-widths[0], widths[1]]
        return PredictionIntervals(self.values, *(scale.inverse(values + side) for side in sides))


def mixture_intervals(
    scales: Sequence[Scale], centres: Array, spreads: Array, shares: Array, freedom: float
) -> PredictionIntervals:
    """Returns median and interval of a mixture of Student t distributions, each on its scale."""
    from scipy.special import stdtr, stdtrit  # scipy.stats takes long to import

    axis = scales[0]
    ends = [scale.inverse(centre + sign * MAX_DEVIATIONS * spread)
            for scale, centre, spread in zip(scales, centres, spreads, strict=True) for sign in (-1, 0, 1)]  # fmt: skip
    least, most = axis.transform(np.min(ends, 0)), axis.transform(np.max(ends, 0))

    def place(level: float) -> Array:
        low, high = least.copy(), most.copy()
        reached = float(stdtrit(freedom, level))
        for _ in range(BISECTION_STEPS):
            middle = (low + high) / 2
            values = axis.inverse(middle)
            scaled = {scale: scale.transform(values) for scale in dict.fromkeys(scales)}
            standing = np.array([scaled[scale] for scale in scales])
            apart = (standing - centres) / spreads
            below = apart[0] < reached if len(apart) == 1 else shares @ stdtr(freedom, apart) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return axis.inverse((low + high) / 2)

    return PredictionIntervals(place(0.5), place((1 - INTERVAL_LEVEL) / 2), place((1 + INTERVAL_LEVEL) / 2))


def normal_scores(
    values: Array, scales: Sequence[Scale], centres: Array, spreads: Array, shares: Array, freedom: float
) -> Array:
    """Returns normal scores of values in such a mixture."""
    from scipy.special import ndtri, stdtr

    standing = np.array([scale.transform(values) for scale in scales])
    return ndtri(np.clip(shares @ stdtr(freedom, (standing - centres) / spreads), MIN_PROBABILITY, 1 - MIN_PROBABILITY))


def width_ratio(freedom: float, reference: float) -> float:
    """Returns the ratio of interval widths of two Student t distributions by their degrees of freedom."""
    from scipy.special import stdtrit

    own, other = (float(stdtrit(each, (1 + INTERVAL_LEVEL) / 2)) for each in (freedom, reference))
    return max(1.0, own / other)


def conformal_ratio(ratios: Array, families: Families, power: float = 2 / 3) -> float:
    """Returns the ratio below which 90 % of another family's ratios lie (split conformal prediction).

    What is exchangeable are families, and what is asked for are their members: a family of n values counts as
    n^power of them.
    """
    _, inverse, counts = np.unique(families, return_inverse=True, return_counts=True)
    order = np.argsort(ratios)
    shares = counts[inverse[order]] ** (power - 1)
    shares /= (counts**power).sum() + counts.mean() ** power  # the family that is asked for has a share as well
    reached = np.flatnonzero(np.cumsum(shares) >= INTERVAL_LEVEL)
    return float(ratios[order][reached[0] if len(reached) else -1])
