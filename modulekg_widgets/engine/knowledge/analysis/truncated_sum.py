"""The sum that makes a truncated power law a probability, in a bounded time for any parameters."""

from __future__ import annotations

import math

import numpy as np

DIRECT = 100  # terms summed one by one; from there on the law is smooth
# B(2k)/(2k)! of the Euler-Maclaurin formula for the derivatives of order 1, 3 and 5
_CORRECTIONS = {1: 1 / 12, 3: -1 / 720, 5: 1 / 30240}


def truncated_sum(alpha: float, rate: float, xmin: float) -> float:
    """The sum of x^-alpha e^(-rate (x - xmin)) over x = xmin, xmin + 1, …, for a positive rate and xmin.

    It is e^(rate xmin) times Lerch's transcendent, whose own quadrature takes tens of milliseconds. The rest after
    the first terms is the Euler-Maclaurin formula.
    """
    from mpmath import exp, gammainc, mpf

    x = np.arange(xmin, xmin + DIRECT)
    first = float(np.sum(x**-alpha * np.exp(-rate * (x - xmin))))
    start = xmin + DIRECT
    integral = exp(rate * xmin) * mpf(rate) ** (alpha - 1) * gammainc(1 - alpha, rate * start)
    height = start**-alpha * math.exp(-rate * DIRECT)
    slopes = sum(weight * _slope(alpha, rate, start, order) for order, weight in _CORRECTIONS.items())
    return first + float(integral) + height * (0.5 + slopes)


def _slope(alpha: float, rate: float, x: float, order: int) -> float:
    """Minus the derivative of odd `order` of x^-alpha e^(-rate x), as a multiple of its value."""
    rising = [math.prod(alpha + i for i in range(j)) for j in range(order + 1)]
    return sum(math.comb(order, j) * rate ** (order - j) * rising[j] / x**j for j in range(order + 1))
