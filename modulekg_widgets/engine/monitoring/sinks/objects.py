"""Any object that has `log`: Weights & Biases, what works like it, or the user's own."""

from __future__ import annotations

import inspect
import sys
import warnings
from types import ModuleType
from typing import Any

import numpy as np

from modulekg_widgets.engine.monitoring.readings import Reading
from modulekg_widgets.engine.monitoring.sinks.naming import DashboardValue, Histogram, entries, finite

MOST_BINS = 512  # that wandb takes
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
        self._is_wandb = _home(target) == "wandb"
        self._takes_step = self._is_wandb or _takes_step(target.log)
        self._checks_order = self._is_wandb
        self._step: int | None = None
        self._held: dict[str, Any] = {}

    def write(self, readings: list[Reading]) -> None:
        for reading in readings:
            if reading.step != self._step:
                self.flush()
                self._step = reading.step
            for name, value in entries(reading):
                self._held.update(self._passed(name, value))

    def flush(self) -> None:
        """Log the last step now; what still comes of it is logged apart."""
        held, self._held = self._held, {}
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

    def _passed(self, name: str, value: DashboardValue) -> dict[str, Any]:
        """What `log` gets of an entry."""
        if self._is_wandb and isinstance(value, np.ndarray | Histogram):
            return _wandb_histogram(name, value)
        if isinstance(value, Histogram):
            return {f"{name}/{key}": part for key, part in value._asdict().items()}
        return {name: value}

    def _check_order(self) -> None:
        """Say once that wandb drops what comes for a step that it has left behind."""
        run = sys.modules["wandb"].run if isinstance(self._target, ModuleType) else self._target
        current = getattr(run, "_local_step", None)  # `step` asks another process, half a minute of a run that is over
        if isinstance(current, int) and self._step is not None and current > self._step:
            self._checks_order = False
            text = (
                f"wandb is at step {current} already and drops the values that the monitor has of step {self._step}: "
                "log your own values with monitor.log({...}), or give the monitor a run of its own"
            )
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def _home(target: Any) -> str:
    """The top-level package that a module or an object comes from."""
    name = target.__name__ if isinstance(target, ModuleType) else type(target).__module__
    return str(name).partition(".")[0]


def _takes_step(log: Any) -> bool:
    try:
        parameters = inspect.signature(log).parameters
    except (TypeError, ValueError):  # of some built-in functions nobody knows
        return True
    return "step" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def _wandb_histogram(name: str, value: np.ndarray | Histogram) -> dict[str, Any]:
    if isinstance(value, Histogram):
        stride = -(-len(value.counts) // MOST_BINS)  # of how many bins one is made
        counts = np.add.reduceat(value.counts, np.arange(0, len(value.counts), stride))
        edges = np.append(value.edges[:-1:stride], value.edges[-1])
    else:
        shown = finite(value)
        if not len(shown):
            return {}
        counts, edges = np.histogram(shown, bins=VECTOR_BINS)
    return {name: sys.modules["wandb"].Histogram(np_histogram=(counts, edges))}
