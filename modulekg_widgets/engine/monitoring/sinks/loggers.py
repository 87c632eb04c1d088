"""Sink for objects with a method `log`: Weights & Biases, compatible loggers, or user objects."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from modulekg_widgets.engine.monitoring.readings import EVAL, Reading, Value

# -------------------- Dashboard entries: readings as numbers, vectors and histograms under names with slashes


HISTOGRAM_KEYS = {"low", "high", "total", "sampled", "counts"}


class Histogram(NamedTuple):
    """Counts in bins of equal width between two values."""

    low: float
    high: float
    counts: np.ndarray

    @property
    def edges(self) -> np.ndarray:
        """The edges of the bins, increasing also if all values are equal."""
        high = self.high if self.high > self.low else np.nextafter(self.low, np.inf)
        return np.linspace(self.low, high, len(self.counts) + 1)


DashboardValue: TypeAlias = "float | np.ndarray | Histogram"


def dashboard_name(reading: Reading) -> str:
    """Returns `module/metric`, with `eval/` before it in eval mode and `[1]` after a module in its second call.

    The user's own scalars have no module. What no UTF-8 can hold is escaped.
    """
    where = f"{reading.module}[{reading.call}]" if reading.call else reading.module
    parts = (["eval"] if reading.phase == EVAL else []) + ([where] if where else []) + [reading.metric]
    return _unicode("/".join(parts))


def dashboard_entries(reading: Reading) -> Iterator[tuple[str, DashboardValue]]:
    """Yields a number, vector or histogram under its name; another dict yields one entry per key.

    A histogram of no finite values gives none.
    """
    name, value = dashboard_name(reading), reading.value
    if not isinstance(value, dict):
        yield name, _entry(value)
    elif value.keys() == HISTOGRAM_KEYS:
        numbers = np.concatenate([np.atleast_1d(value[key]) for key in ("low", "high", "counts")])
        if len(numbers) > 2 and np.isfinite(numbers).all():
            yield name, Histogram(float(numbers[0]), float(numbers[1]), numbers[2:])
    else:
        for key, part in value.items():
            yield _unicode(f"{name}/{key}"), _entry(part)


def finite_values(vector: np.ndarray) -> np.ndarray:
    """Returns the finite values of a vector."""
    return vector[np.isfinite(vector)]


def _unicode(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _entry(value: Value) -> DashboardValue:
    return np.asarray(value, np.float64) if isinstance(value, np.ndarray | list | tuple) else float(value)  # type: ignore[arg-type]


# ----------------------------------------


MAX_BINS = 512  # that wandb takes
VECTOR_BINS = 64


class ObjectSink:
    """Calls `log({"module/metric": value, …}, step=step)` once for each step, when the next one begins.

    `step` is left out for a `log` that does not take it. Numbers are floats and vectors arrays; a dict gives one entry
    for each key; of wandb, vectors and histograms become `wandb.Histogram`.
    `finish()` is called at the end, except on a module or a wandb run: these the user has begun with `init`, and goes
    on logging to after the training, so that the user finishes them.
    """

    def __init__(self, target: Any) -> None:
        self.name = str(getattr(target, "__name__", type(target).__name__))
        self._target = target
        self._is_wandb = _package_of(target) == "wandb"
        self._takes_step = self._is_wandb or _takes_step(target.log)
        self._checks_order = self._is_wandb
        self._step: int | None = None
        self._pending: dict[str, object] = {}

    def write(self, readings: list[Reading]) -> None:
        for reading in readings:
            if reading.step != self._step:
                self.flush()
                self._step = reading.step
            for name, value in dashboard_entries(reading):
                self._pending.update(self._log_entries(name, value))

    def flush(self) -> None:
        """Log the pending step now."""
        held, self._pending = self._pending, {}
        if not held:
            return
        if self._checks_order:
            self._check_order()
        if self._takes_step:
            self._target.log(held, step=self._step)
        else:
            self._target.log(held)

    def close(self) -> None:
        self.flush()
        finish = getattr(self._target, "finish", None)
        if callable(finish) and not self._is_wandb and not isinstance(self._target, ModuleType):
            finish()

    def _log_entries(self, name: str, value: DashboardValue) -> dict[str, object]:
        """Returns the entries that `log` gets for one value."""
        if self._is_wandb and isinstance(value, np.ndarray | Histogram):
            return _wandb_histogram(name, value)
        if isinstance(value, Histogram):
            return {f"{name}/{key}": part for key, part in value._asdict().items()}
        return {name: value}

    def _check_order(self) -> None:
        """Warn once if wandb is at a later step, as it drops values for earlier ones."""
        run = sys.modules["wandb"].run if isinstance(self._target, ModuleType) else self._target
        current = getattr(run, "_local_step", None)  # `step` asks another process, half a minute of a run that is over
        if isinstance(current, int) and self._step is not None and current > self._step:
            self._checks_order = False
            text = (
                f"wandb is at step {current} already and drops the values that the monitor has of step {self._step}: "
                "log your own values with monitor.log({...}), or give the monitor a separate run"
            )
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def _package_of(target: object) -> str:
    """Returns the top-level package of a module or object."""
    name = target.__name__ if isinstance(target, ModuleType) else type(target).__module__
    return str(name).partition(".")[0]


def _takes_step(log: Callable[..., object]) -> bool:
    try:
        parameters = inspect.signature(log).parameters
    except (TypeError, ValueError):  # of some built-in functions nobody knows
        return True
    return "step" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def _wandb_histogram(name: str, value: np.ndarray | Histogram) -> dict[str, object]:
    if isinstance(value, Histogram):
        stride = -(-len(value.counts) // MAX_BINS)  # of how many bins one is made
        counts = np.add.reduceat(value.counts, np.arange(0, len(value.counts), stride))
        edges = np.append(value.edges[:-1:stride], value.edges[-1])
    else:
        shown = finite_values(value)
        if not len(shown):
            return {}
        counts, edges = np.histogram(shown, bins=VECTOR_BINS)
    return {name: sys.modules["wandb"].Histogram(np_histogram=(counts, edges))}


# -------------------- TensorBoard sink: numbers as scalars, vectors and histograms as histograms


class TensorBoardSink:
    """Writes `module/metric` at its step to a `SummaryWriter`, which is left open.

    A histogram is of the finite values of a vector; one without any is left out.
    """

    def __init__(self, writer: Any) -> None:
        self.name = f"TensorBoard ({getattr(writer, 'log_dir', type(writer).__name__)})"
        self._writer = writer

    def write(self, readings: list[Reading]) -> None:
        for reading in readings:
            for tag, value in dashboard_entries(reading):
                if isinstance(value, Histogram):
                    self._add(tag, value, reading.step)
                elif not isinstance(value, np.ndarray):
                    self._writer.add_scalar(tag, value, reading.step)
                elif len(shown := finite_values(value)):
                    self._writer.add_histogram(tag, shown, reading.step)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.flush()

    def _add(self, tag: str, histogram: Histogram, step: int) -> None:
        """Add a histogram; sums are estimated from the bin centres."""
        edges, counts = histogram.edges, histogram.counts
        middles = (edges[:-1] + edges[1:]) / 2
        # TensorBoard has right edges only: an empty bin in front says where the first one begins
        self._writer.add_histogram_raw(
            tag,
            min=histogram.low,
            max=histogram.high,
            num=float(counts.sum()),
            sum=float(counts @ middles),
            sum_squares=float(counts @ middles**2),
            bucket_limits=edges.tolist(),
            bucket_counts=np.concatenate([[0.0], counts]).tolist(),
            global_step=step,
        )
