"""Gaussian process regression with closed-form leave-family-out predictions.

With one inverse A of the kernel matrix the residuals of a left-out family F are (A_FF)^-1 (A y)_F (Rasmussen and
Williams, Gaussian Processes for Machine Learning, 2006, section 5.4.2, for blocks of one point). The scale of their
scatter is integrated out, which makes the answer a Student t (section 9.9 there).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Families = np.ndarray
CONSTANT_SCALE = (
    1e4  # how much larger the constant is than the rest: the mean of all values tells nothing of a left-out family
)
PRIOR_COUNT = 0.5  # how many values what is expected of the scatter is worth


class BlockPrediction(NamedTuple):
    """Prediction of a block from the other values: values, variances, log evidence and degrees of freedom."""

    values: Array
    variances: Array
    evidence: float
    degrees_of_freedom: float


@dataclass(frozen=True)
class GaussianProcess:
    """Gaussian process on known values; `noise` is that of one value, in units of the kernel.

    `expected`: the square of the scatter of values before any is known.
    """

    kernel: Array
    values: Array
    noise: float
    prior_variance: float = 1e-6

    @cached_property
    def mean(self) -> float:
        return float(self.values.mean())

    @property
    def degrees_of_freedom(self) -> float:
        """Degrees of freedom of the Student t; one is used by the constant."""
        return len(self.values) - 1 + PRIOR_COUNT

    @cached_property
    def _level(self) -> float:
        """The constant in the kernel."""
        return CONSTANT_SCALE * max(1.0, self.noise, float(np.mean(np.diag(self.kernel))))

    @cached_property
    def _factor(self) -> Array:
        """The lower factor of Cholesky."""
        inside = self.kernel + self._level
        inside[np.diag_indices_from(inside)] += self.noise
        found, failed = lapack().dpotrf(inside.T, lower=1, overwrite_a=1)
        if failed:
            raise np.linalg.LinAlgError("the kernel is not positive definite")
        return found

    @cached_property
    def _halves(self) -> Array:
        """The inverse of the lower factor."""
        return lapack().dtrtri(self._factor, lower=1)[0]

    def inverse_block(self, block: np.ndarray) -> Array:
        """The part of the inverse between some places, which ascend."""
        halves = self._halves[block[0] :, block]
        return halves.T @ halves

    def solve(self, values: Array) -> Array:
        """The inverse times values."""
        return lapack().dpotrs(self._factor, values, lower=1)[0]

    @cached_property
    def weights(self) -> Array:
        return self.solve(self.values - self.mean)

    @cached_property
    def _squares(self) -> float:
        """Weighted sum of squared residuals, with the prior."""
        return max(float((self.values - self.mean) @ self.weights), 0.0) + PRIOR_COUNT * self.prior_variance

    @property
    def scale(self) -> float:
        """The variance that belongs to one unit of the kernel."""
        return self._squares / self.degrees_of_freedom

    def predict(self, across: Array, own: Array) -> tuple[Array, Array]:
        """Predicts new values and variances from kernel rows to the known ones and the diagonal."""
        rows = across + self._level
        # by the factor: with the inverse the constant, which is large, would leave few digits of the difference
        halves = lapack().dtrtrs(self._factor, rows.T, lower=1)[0]
        left = own + self._level + self.noise - np.einsum("ij,ij->j", halves, halves)
        return self.mean + rows @ self.weights, self.scale * np.maximum(left, self.noise)

    def leave_family_out(self, families: Families) -> tuple[Array, Array]:
        """Predicts each value without its family, with its variance."""
        values, variances = np.zeros(len(self.values)), np.zeros(len(self.values))
        for block in family_blocks(families):
            spread = np.linalg.inv(self.inverse_block(block))
            values[block] = self.values[block] - spread @ self.weights[block]
            variances[block] = np.diag(spread)
        return values, self.scale * np.maximum(variances, 1e-9)

    @cached_property
    def _determinant(self) -> float:
        """The logarithm of that of the kernel."""
        return 2 * float(np.log(np.diag(self._factor)).sum())

    def evidence(self) -> float:
        """Returns the log evidence of the values up to a constant."""
        return self._evidence(self._determinant, self.degrees_of_freedom, self._squares)

    def _evidence(self, determinant: float, freedom: float, squares: float) -> float:
        return float(0.5 * (PRIOR_COUNT * np.log(self.prior_variance) - determinant - freedom * np.log(squares)))

    def leave_block_out(self, block: np.ndarray) -> BlockPrediction:
        """Predicts a block from the other values."""
        inverse = self.inverse_block(block)
        spread = np.linalg.inv(inverse)
        off = spread @ self.weights[block]
        squares = max(self._squares - float(off @ self.weights[block]), PRIOR_COUNT * self.prior_variance)
        freedom = self.degrees_of_freedom - len(block)
        evidence = self._evidence(self._determinant + float(np.linalg.slogdet(inverse)[1]), freedom, squares)
        return BlockPrediction(
            self.values[block] - off, squares / freedom * np.maximum(np.diag(spread), 1e-9), evidence, freedom
        )


def lapack() -> ModuleType:
    """Returns the LAPACK routines of scipy."""
    from scipy.linalg import lapack

    return lapack


def family_blocks(families: Families) -> list[np.ndarray]:
    """Returns the indices of the members of each family."""
    order = np.argsort(families, kind="stable")
    _, starts = np.unique(families[order], return_index=True)
    return np.split(order, starts[1:])
