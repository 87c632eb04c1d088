"""Scales on which values are compared: identity, percent points, log-odds and logarithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.knowledge.facts.results import PERCENT

Array = NDArray[np.float64]
MAX_EXPONENT = 300.0  # on scales of logarithms: what numbers can hold
MAX_EDGE_SHARE = 0.1  # of the values: log-odds do not tell those apart
EDGE_PERCENT = 0.5  # percent: nearer to 0 and 100 log-odds tell of chance alone


@dataclass(frozen=True, slots=True)
class Scale:
    """A monotone scale with its inverse; `lower` and `upper` bound the values of the inverse."""

    name: str
    function: Callable[[Array], Array]
    inverse: Callable[[Array], Array]
    derivative: Callable[[Array], Array]  # of `to`, so that scales can be compared
    lower: float = -np.inf
    upper: float = np.inf
    prior_std: float = 1.0  # of values before any is known, on this scale

    def transform(self, values: Array) -> Array:
        return np.asarray(self.function(np.asarray(values, float)))


def _share(percent: Array) -> Array:
    return np.clip(percent, EDGE_PERCENT, 100 - EDGE_PERCENT) / 100


IDENTITY = Scale("as it is", lambda v: v, lambda v: v, np.ones_like)
PERCENT_POINTS = Scale("percent", lambda v: v, lambda v: np.clip(v, 0.0, 100.0), np.ones_like, 0.0, 100.0)
LOG_ODDS = Scale(
    "log-odds",
    lambda v: np.log(_share(v) / (1 - _share(v))),
    lambda v: 100 / (1 + np.exp(-np.clip(v, -MAX_EXPONENT, MAX_EXPONENT))),
    lambda v: 0.01 / (_share(v) * (1 - _share(v))),
    0.0,
    100.0,
    0.05,
)
LOG = Scale(
    "logarithm", np.log, lambda v: np.exp(np.clip(v, -MAX_EXPONENT, MAX_EXPONENT)), lambda v: 1 / v, 0.0, prior_std=0.05
)


def scales_for(values: Array, unit: str | None) -> tuple[Scale, ...]:
    """Returns the scales that suit values of a unit, the usual one first."""
    if unit == PERCENT and values.min() >= 0 and values.max() <= 100:
        beyond = np.mean((values < EDGE_PERCENT) | (values > 100 - EDGE_PERCENT))
        return (PERCENT_POINTS, LOG_ODDS) if beyond <= MAX_EDGE_SHARE else (PERCENT_POINTS,)
    return (LOG,) if values.min() > 0 else (IDENTITY,)
