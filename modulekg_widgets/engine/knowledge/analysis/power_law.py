"""Discrete power law fitted by the package `powerlaw`, compared with alternative distributions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Protocol

import numpy as np
import pandas as pd

from modulekg_widgets.engine.errors import MissingPackageError

# -------------------- Normalization of a truncated power law, computed in bounded time for any parameters


DIRECT_TERMS = 100  # terms summed one by one; from there on the law is smooth
# B(2k)/(2k)! of the Euler-Maclaurin formula for the derivatives of order 1, 3 and 5
_CORRECTIONS = {1: 1 / 12, 3: -1 / 720, 5: 1 / 30240}


def truncated_sum(alpha: float, rate: float, xmin: float) -> float:
    """The sum of x^-alpha e^(-rate (x - xmin)) over x = xmin, xmin + 1, …, for a positive rate and xmin.

    It is e^(rate xmin) times Lerch's transcendent, whose own quadrature takes tens of milliseconds. The rest after
    the first terms is the Euler-Maclaurin formula.
    """
    from mpmath import exp, gammainc, mpf

    x = np.arange(xmin, xmin + DIRECT_TERMS)
    first = float(np.sum(x**-alpha * np.exp(-rate * (x - xmin))))
    start = xmin + DIRECT_TERMS
    integral = exp(rate * xmin) * mpf(rate) ** (alpha - 1) * gammainc(1 - alpha, rate * start)
    height = start**-alpha * math.exp(-rate * DIRECT_TERMS)
    slopes = sum(weight * _slope(alpha, rate, start, order) for order, weight in _CORRECTIONS.items())
    return first + float(integral) + height * (0.5 + slopes)


def _slope(alpha: float, rate: float, x: float, order: int) -> float:
    """Minus the derivative of odd `order` of x^-alpha e^(-rate x), as a multiple of its value."""
    rising = [math.prod(alpha + i for i in range(j)) for j in range(order + 1)]
    return sum(math.comb(order, j) * rate ** (order - j) * rising[j] / x**j for j in range(order + 1))


# ----------------------------------------


POWER_LAW = "power law"
COLUMNS = ["alternative", "R", "p", "reliable"]
TOLERANCE = 0.1  # how far the package's log-likelihood may be off: p moves by less than a few hundredths
MAX_SUMMED = 1_000_000  # counts over which a law without a closed form is summed

LogSurvivalFunction = Callable[[dict[str, float], np.ndarray, float], np.ndarray]


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """p(count) ∝ count^-alpha for the `tail` counts from `xmin` on; NaN and 0 where there is too little to fit."""

    alpha: float
    xmin: float
    sigma: float
    tail: int
    comparisons: pd.DataFrame
    # law -> how many counts it expects at or above each of `counts`
    counts: np.ndarray = field(repr=False)
    expected: dict[str, np.ndarray] = field(repr=False)


class DistributionFit(Protocol):
    """Protocol of the package's `Fit`, which has each fitted law as an attribute by its name."""

    @property
    def data(self) -> np.ndarray: ...
    @property
    def xmin(self) -> float: ...
    def distribution_compare(self, dist1: str, dist2: str) -> tuple[float, float]: ...


def fit_power_law(counts: list[int]) -> PowerLaw:
    """Fits positive counts; raises `MissingPackageError` without the package."""
    powerlaw = _import_powerlaw()
    if len(set(counts)) < 4:  # the package tries all but the two largest counts as xmin and wants two to choose from
        return _no_fit()
    with _ignore_warnings():
        fit = powerlaw.Fit(counts, discrete=True, verbose=0)
        fit.supported_distributions = {**fit.supported_distributions, **_fast_truncated_power_law(powerlaw)}
        alpha, xmin, sigma = float(fit.power_law.alpha), float(fit.xmin), float(fit.power_law.standard_err)
        if not np.isfinite([alpha, xmin, sigma]).all():
            return _no_fit()
        comparisons = pd.DataFrame([_comparison(fit, law) for law in LAWS if law != POWER_LAW], columns=COLUMNS)
        tail = int(fit.n)
        at = np.unique(np.geomspace(xmin, max(counts), 200).round())
        expected = {law: tail * np.exp(_log_survival(fit, law, at)) for law in LAWS}
    return PowerLaw(alpha, xmin, sigma, tail, comparisons, at, expected)


def _import_powerlaw() -> ModuleType:
    try:
        with _ignore_warnings():
            import powerlaw
    except ImportError as error:
        raise MissingPackageError(
            "fitting a power law needs the package powerlaw: pip install 'modulekg-widgets[analysis]'"
        ) from error
    return powerlaw


def _fast_truncated_power_law(powerlaw: ModuleType) -> dict[str, object]:
    """Returns the truncated power law under the package's name, with a normalization that is fast to compute."""

    class Truncated(powerlaw.Truncated_Power_Law):
        @property
        def _pdf_discrete_normalizer(self) -> float:
            alpha, rate, xmin = float(self.alpha), float(self.Lambda), float(self.xmin)
            return np.exp(rate * xmin) / truncated_sum(alpha, rate, xmin)

    return {Truncated.name: Truncated}


@contextmanager
def _ignore_warnings() -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def _no_fit() -> PowerLaw:
    nan = float("nan")
    return PowerLaw(nan, nan, nan, 0, pd.DataFrame(columns=COLUMNS), np.array([]), {})


def _comparison(fit: DistributionFit, law: str) -> tuple[str, float, float, bool]:
    name, _ = LAWS[law]
    ratio, p = fit.distribution_compare("power_law", name)
    theirs = float(np.sum(getattr(fit, name).loglikelihoods(fit.data)))
    ours = float(_log_likelihoods(fit, law).sum())
    # the package subtracts shares close to 1: far out in the tail that leaves rounding errors, which it sums up
    return law, float(ratio), float(p), abs(theirs - ours) <= TOLERANCE


def _log_likelihoods(fit: DistributionFit, law: str) -> np.ndarray:
    above, beyond = _log_survival(fit, law, fit.data), _log_survival(fit, law, fit.data + 1)
    return above + np.log1p(-np.exp(beyond - above))


def _log_survival(fit: DistributionFit, law: str, counts: np.ndarray) -> np.ndarray:
    """log P(X ≥ count) of a fitted law, given X ≥ xmin."""
    name, log_share = LAWS[law]
    parameters = {key: float(value) for key, value in getattr(fit, name).parameters.items()}
    return log_share(parameters, np.asarray(counts, float), float(fit.xmin))


def _power_law(parameters: dict[str, float], counts: np.ndarray, xmin: float) -> np.ndarray:
    from scipy.special import zeta

    return np.log(zeta(parameters["alpha"], counts)) - np.log(zeta(parameters["alpha"], xmin))


# of a continuous law a count takes what lies within half a count of it


def _log_normal(parameters: dict[str, float], counts: np.ndarray, xmin: float) -> np.ndarray:
    from scipy.special import log_ndtr

    def log_tail(x: np.ndarray | float) -> np.ndarray:
        return log_ndtr(-(np.log(x) - parameters["mu"]) / parameters["sigma"])

    return log_tail(counts - 0.5) - log_tail(xmin - 0.5)


def _stretched_exponential(parameters: dict[str, float], counts: np.ndarray, xmin: float) -> np.ndarray:
    return (parameters["Lambda"] * (xmin - 0.5)) ** parameters["beta"] - (
        parameters["Lambda"] * (counts - 0.5)
    ) ** parameters["beta"]


def _exponential(parameters: dict[str, float], counts: np.ndarray, xmin: float) -> np.ndarray:
    return -parameters["Lambda"] * (counts - xmin)


def _truncated_power_law(parameters: dict[str, float], counts: np.ndarray, xmin: float) -> np.ndarray:
    values = np.arange(xmin, xmin + MAX_SUMMED)
    masses = np.exp(-parameters["alpha"] * np.log(values / xmin) - parameters["Lambda"] * (values - xmin))
    above = np.cumsum(masses[::-1])[::-1]
    return np.log(above[np.minimum(counts - xmin, MAX_SUMMED - 1).astype(int)]) - np.log(above[0])


LAWS: dict[str, tuple[str, LogSurvivalFunction]] = {
    POWER_LAW: ("power_law", _power_law),
    "log-normal": ("lognormal", _log_normal),
    "exponential": ("exponential", _exponential),
    "stretched exponential": ("stretched_exponential", _stretched_exponential),
    "truncated power law": ("truncated_power_law", _truncated_power_law),
}
