"""How near a value has to be to its reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from monitoring.metrics.metric_samples import Sample

# what float32 arithmetic loses, whatever the precision of the tensors: the reference reads the same rounded values
CLOSE = 2e-5


def compare(name: str, found: Any, expected: Any, steps: list[Sample]) -> None:
    """Assert that a value is its reference, of these steps."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, part in expected.items():
            if key == "counts":
                compare_counts(found[key], part)
            else:
                compare(f"{name}.{key}", found[key], part, steps)
    else:
        assert np.shape(found) == np.shape(expected)
        np.testing.assert_allclose(found, expected, rtol=CLOSE, atol=absolute(name, steps), err_msg=name)


def absolute(name: str, steps: list[Sample]) -> float:
    """A mean is as exact as what is added up for it, however near to 0 it is."""
    averaged = {"InputMean": steps[-1].x, "WeightStatistic.mean": steps[-1].w}.get(name)
    return 0.0 if averaged is None else 1e-6 * float(averaged.double().abs().mean())


def compare_counts(found: np.ndarray, expected: np.ndarray) -> None:
    """The same, but for elements on the border of two bins."""
    assert found.sum() == expected.sum()
    assert np.abs(np.cumsum(found) - np.cumsum(expected)).sum() <= 2 + expected.sum() * 0.01
