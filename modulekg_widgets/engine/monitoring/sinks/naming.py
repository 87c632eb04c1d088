"""Readings as dashboards take them: numbers, vectors and histograms under a path of names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np

from modulekg_widgets.engine.monitoring.readings import EVAL, Reading, Value

HISTOGRAM = {"low", "high", "total", "sampled", "counts"}


class Histogram(NamedTuple):
    """Counts in bins of equal width from the lowest to the highest value."""

    low: float
    high: float
    counts: np.ndarray

    @property
    def edges(self) -> np.ndarray:
        """One more than there are bins; they grow even where all values are one."""
        high = self.high if self.high > self.low else np.nextafter(self.low, np.inf)
        return np.linspace(self.low, high, len(self.counts) + 1)


DashboardValue: TypeAlias = "float | np.ndarray | Histogram"


def label(reading: Reading) -> str:
    """`module/metric`: `eval/` before values of evaluations, `[1]` after a module in its second call.

    The user's own scalars have no module. What no UTF-8 can hold is escaped.
    """
    where = f"{reading.module}[{reading.call}]" if reading.call else reading.module
    parts = (["eval"] if reading.phase == EVAL else []) + ([where] if where else []) + [reading.metric]
    return _unicode("/".join(parts))


def entries(reading: Reading) -> Iterator[tuple[str, DashboardValue]]:
    """A number, a vector or a histogram under its label; another dict gives one entry for each key, `label/key`.

    A histogram of no finite values gives none.
    """
    name, value = label(reading), reading.value
    if not isinstance(value, dict):
        yield name, _entry(value)
    elif value.keys() == HISTOGRAM:
        numbers = np.concatenate([np.atleast_1d(value[key]) for key in ("low", "high", "counts")])
        if len(numbers) > 2 and np.isfinite(numbers).all():
            yield name, Histogram(float(numbers[0]), float(numbers[1]), numbers[2:])
    else:
        for key, part in value.items():
            yield _unicode(f"{name}/{key}"), _entry(part)


def finite(vector: np.ndarray) -> np.ndarray:
    """What of a vector can be counted in bins."""
    return vector[np.isfinite(vector)]


def _unicode(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _entry(value: Value) -> DashboardValue:
    return np.asarray(value, np.float64) if isinstance(value, np.ndarray | list | tuple) else float(value)  # type: ignore[arg-type]
