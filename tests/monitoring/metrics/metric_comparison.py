"""How near a value has to be to its reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from monitoring.metrics.metric_references import REFERENCES
from monitoring.metrics.metric_samples import Sample

# what float32 arithmetic loses, whatever the precision of the tensors: the reference reads the same rounded values
CLOSE = 2e-5


def compare(name: str, found: Any, expected: Any, rtol: float) -> None:
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, part in expected.items():
            if key == "counts":
                compare_counts(found[key], part)
            else:
                compare(f"{name}.{key}", found[key], part, rtol)
    else:
        assert np.shape(found) == np.shape(expected)
        scale = np.max(np.abs(expected)) if np.ndim(expected) else 0.0  # of a vector the largest element counts
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * scale, err_msg=name)


def compare_counts(found: np.ndarray, expected: np.ndarray) -> None:
    """The same, but for elements on the border of two bins."""
    assert found.sum() == expected.sum()
    assert np.abs(np.cumsum(found) - np.cumsum(expected)).sum() <= 2 + expected.sum() * 0.01


def tolerance(name: str, steps: list[Sample]) -> float:
    """Float32 tells the least eigenvalue from rounding as long as it is not 0; then it is so exactly."""
    if "Condition" not in name:
        return CLOSE
    condition = float(REFERENCES[name](steps))
    return CLOSE + (1e-7 * condition if condition < 1e5 else 0.0)
