"""Monitor of a training: measures metrics of modules through hooks, and gives their values.

For training loops of any kind. A configuration maps modules to metrics with schedules; on scheduled steps alone, hooks
read tensors of the forward, gradients and weights, never the model itself. `track(step)` ends a step: it measures
weights, packs all values into one row that is copied to the host asynchronously, and prepares the hooks of the next
step. Rows go to the history, which sinks and panels read in threads of their own. Under torch.distributed the values
of all ranks are merged.

Limits: call `track` once per step, after backward; at most 64 calls of a module per step; TorchScript modules are seen
from outside; measured steps run without `torch.compile`. A failing metric gives NaN and one warning.

    with mk.Monitor(model, {"conv*": ["WeightNorm", "linear(10)"]}) as monitor:
        for step, batch in enumerate(loader):
            train(batch)
            monitor.track(step)
    monitor.frame()
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import torch

from modulekg_widgets.engine.errors import ModuleKGError, UnknownNameError, a_type, closest_match_hint, printable
from modulekg_widgets.engine.identity.hierarchy import class_name
from modulekg_widgets.engine.keywords import explain_keywords
from modulekg_widgets.engine.monitoring.alerts import (
    MAX_ALERTS,
    ORIGIN_METRIC,
    Bound,
    BoundCrossings,
    clear_later_origins,
    first_origin,
)
from modulekg_widgets.engine.monitoring.config import Config, measurements, opaque_paths, root_of
from modulekg_widgets.engine.monitoring.hessian import hessian
from modulekg_widgets.engine.monitoring.hooks.gradients import GradientUnscaler
from modulekg_widgets.engine.monitoring.hooks.missing_values import MetaModules, WeightGradients
from modulekg_widgets.engine.monitoring.hooks.module_hooks import ModuleHooks
from modulekg_widgets.engine.monitoring.hooks.module_metric import ActiveMetrics, ModuleMetric
from modulekg_widgets.engine.monitoring.hooks.observation import TRACK, Observation
from modulekg_widgets.engine.monitoring.hooks.value_writer import ValueWriter, numbering
from modulekg_widgets.engine.monitoring.merge.distributed import Ranks, is_distributed
from modulekg_widgets.engine.monitoring.readings import SCALAR, TRAIN, Row, Slot
from modulekg_widgets.engine.monitoring.run import Alert, Output, Run
from modulekg_widgets.engine.monitoring.schedule import events_of
from modulekg_widgets.engine.monitoring.sinks.sink_set import SinkSet
from modulekg_widgets.engine.monitoring.transfer_ring import PackedRow, TransferRing
from modulekg_widgets.engine.torch_runtime.modules import module_state
from modulekg_widgets.engine.torch_runtime.private import PARAMETERS

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn


# -------------------- Values logged by the user, and the step that they belong to


class MonitorError(ModuleKGError, ValueError):
    """An invalid call of a monitor: a step or a value that is no number."""


class LoggedSteps:
    """Step of logged values, for loops that log before `track` and for those that log after it."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}  # the step at which each name was logged last
        self._follow_track: bool | None = None

    @property
    def names(self) -> set[str]:
        """The names logged so far."""
        return set(self._last)

    def step_of(self, values: Mapping[str, object], upcoming: int, tracked: int | None, has_begun: bool | None) -> int:
        """The step of `values`: `upcoming` to a loop that logs first, else the one that was `tracked` last.

        Where a `track` came before the first values, the loop logs first if the forward pass of the upcoming step
        `has_begun`; None where nobody looked, which leaves the question to later values. A name that comes again
        without a `track` between counts on by itself.
        """
        if self._follow_track is None and (tracked is None or has_begun is not None):
            self._follow_track = tracked is not None and not has_begun
        follows = tracked is not None if self._follow_track is None else self._follow_track
        at = tracked if follows and tracked is not None else upcoming
        again = [self._last[name] + 1 for name in values if self._last.get(name, -1) >= at]
        return max([at, *again])

    def note(self, name: str, step: int) -> None:
        self._last[name] = step


def checked_step(step: SupportsIndex) -> int:
    """Returns `step` as an int; raises `MonitorError` for a negative or other value."""
    try:
        count = operator.index(step)
    except TypeError:
        raise MonitorError(f"a step is a count: {a_type(step)} was passed") from None
    if isinstance(step, bool) or not 0 <= count < 1 << 63:
        raise MonitorError(f"a step is a count from 0 on, below 2**63: {printable(str(step))} was passed")
    return count


def logged_number(name: str, value: Any) -> float:
    """Returns a logged value as a float, also of a one-element tensor; raises `MonitorError` otherwise."""
    try:
        return float(value.detach() if isinstance(value, torch.Tensor) else value)
    except (TypeError, ValueError, RuntimeError):
        raise MonitorError(f"{printable(name)!r} is logged as a number: {a_type(value)} was passed") from None


# ----------------------------------------


class Monitor(Run):
    """Measures metrics of modules while a model trains.

    Hooks are there on scheduled steps only and hold no tensor of the graph; the model is never written to. A metric
    that fails gives NaN, one warning and a reason in `reasons`. At most 64 calls of a module are measured in a step.
    TorchScript modules, listed in `opaque_paths`, are seen from outside.

    Parameters
    ----------
    model : nn.Module
        The model, also behind `torch.compile`, DistributedDataParallel or `fully_shard`.
    config : dict, optional
        `{module: [metrics]}`: a module is a dotted name, a class, a class name or a pattern such as `"layer*.conv*"`; a
        metric is `"WeightNorm"`, `["WeightNorm", "linear(5,2)"]` with a schedule, or a metric object. By default norms
        and update ratio of every module with a weight.
    sinks : iterable, optional
        Paths (.jsonl, .csv, .parquet), TensorBoard writers, wandb runs or any object with `log`.
    name : str, optional
        The name of the run, that of the model's class by default.
    scaler : torch.amp.GradScaler, optional
        The one in use: gradients at modules are divided by its scale. Weight gradients are read as they stand at
        `track`.
    resume : path, optional
        A recorded file to go on with, from the step `start`.
    start : int, optional
        The step of the first forward pass; 0, or the one after the last in `resume`.
    distributed : bool
        Whether values under torch.distributed are those of all ranks together, see `merge.distributed`.

    Raises
    ------
    UnknownPathError, UnknownNameError, ScheduleError, ConfigError
        For a configuration that does not fit.
    MonitorError
        For a name that is no text, and for sinks that are no list.

    Examples
    --------
    >>> import torch
    >>> import modulekg_widgets as mk
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    >>> with mk.Monitor(model, {"Linear": ["OutputSndNorm", ["WeightNorm", "linear(2)"]]}) as monitor:
    ...     for step in range(3):
    ...         model(torch.ones(2, 4)).sum().backward()
    ...         monitor.track(step)
    >>> {name: list(steps) for name, steps in monitor.get_output()["0"].items()}
    {'OutputSndNorm': [0, 1, 2], 'WeightNorm': [0, 2]}
    """

    @explain_keywords("mk.Monitor")
    def __init__(
        self,
        model: nn.Module,
        config: Config | None = None,
        *,
        sinks: Iterable[object] = (),
        name: str | None = None,
        scaler: torch.amp.GradScaler | None = None,
        resume: str | Path | None = None,
        start: int | None = None,
        distributed: bool = True,
    ) -> None:
        if name is not None and not isinstance(name, str):
            raise MonitorError(f"name= is a text: {a_type(name)} was passed")
        if isinstance(sinks, str | bytes | Path) or not isinstance(sinks, Iterable):
            raise MonitorError(f"sinks= is a list: {a_type(sinks)} was passed, write sinks=[path]")
        root = root_of(model)
        planned = measurements(root, config)
        super().__init__(name or class_name(root))
        self._ring = TransferRing()
        self._writer = ValueWriter(self._ring.put, numbering(self.history, self._ring.ranks), self._ring.has_value)
        self._metrics = [ModuleMetric(measurement, self._writer, rank) for rank, measurement in enumerate(planned)]
        self._events = events_of([metric.schedule for metric in self._metrics])
        self._crossings = BoundCrossings(self._events, {metric.name for metric in self._metrics})
        self._ranks = (
            Ranks(planned, self._events, self.history, self._ring) if distributed and is_distributed() else None
        )
        measured = self._metrics + (self._ranks.metrics if self._ranks is not None else [])
        for metric in self._metrics:
            metric.shards_are_merged = self._ranks is not None
        at_track = [metric for metric in measured if metric.stage == TRACK and metric.needs != ("Loss",)]
        self._at_track = ActiveMetrics(at_track)
        self._of_losses = ActiveMetrics([metric for metric in self._metrics if metric.needs == ("Loss",)])
        self._ahead = [metric for metric in self._metrics if metric.kind.before]
        self._seeks_origin = any(metric.name == ORIGIN_METRIC for metric in self._metrics)
        self.opaque_paths = opaque_paths(root)
        self._weight_gradients = WeightGradients(self._metrics)
        self._without_data = MetaModules(root, self._metrics)
        self._hooks = ModuleHooks(root, measured, None if scaler is None else GradientUnscaler(scaler))
        self._collecting = threading.RLock()  # a panel may read while the training tracks
        self._sinks = SinkSet(self.history, self.name, self._ranks is None or self._ranks.rank == 0)
        self._next = 0 if start is None else checked_step(start)
        self._last: int | None = None
        self._logged = LoggedSteps()
        self._loss: float | None = None
        self.is_running = self.has_ended = False
        if resume is not None:
            self._next = self._sinks.resume(Path(resume), start)
        for sink in sinks:
            self.add_sink(sink)

    def __repr__(self) -> str:
        modules = len({metric.path for metric in self._metrics})
        state = f"next step {self._next}" if self.is_running else "stopped"
        opaque = f", {len(self.opaque_paths)} opaque" if self.opaque_paths else ""
        return (
            f"<Monitor of {printable(self.name)}: {len(self._metrics)} metrics of {modules} modules{opaque}, {state}>"
        )

    # -------------------------------------------------------------- running

    def __enter__(self) -> Monitor:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __del__(self) -> None:
        if getattr(self, "is_running", False):
            self.stop()

    def start(self) -> None:
        """Attach the hooks of the next step; does nothing if the monitor runs."""
        if not self.is_running:
            self.is_running, self.has_ended = True, False
            self._sinks.open()
            if self._ranks is not None:
                self._ranks.announce()
            self._prepare()

    def stop(self) -> None:
        """Detach all hooks, release all copies and flush the sinks; the values stay."""
        if not self.is_running:
            return
        self.is_running, self.has_ended = False, True
        self._hooks.release()
        self._weight_gradients.release()
        self._ring.clear()
        for metric in self._metrics:
            metric.release()
        self._collect(wait=True)
        if self._ranks is not None:
            self._ranks.leave()
        self._sinks.close()

    def track(self, step: int) -> None:
        """End a step: read its values, and attach the hooks of the next step.

        Call it once a step, after the backward pass and before or after the optimizer's step.

        Parameters
        ----------
        step : int
            The number of the step that ends, from 0 on.

        Raises
        ------
        MonitorError
            For what is no count, and where the monitor does not run.
        """
        step = checked_step(step)
        if not self.is_running:
            raise MonitorError("the monitor is not running: call start(), or use it as `with Monitor(…) as m:`")
        self._hooks.follow()
        self._hooks.finish()
        if step != self._hooks.step:
            self._drop_unscheduled(step)
        with torch.no_grad():
            for metric in self._at_track.at(step):
                self._measure_at_track(metric, step)
            self._without_data.note(step)
            self._weight_gradients.note_cleared(step)
            self._hooks.note_replaced(step)
        self._ring.close(step)
        self._next = step + (step - self._last if self._last is not None and step > self._last else 1)
        self._last = step
        self._loss = None
        self._collect(wait=False, ended=step)
        self._prepare()

    def _prepare(self) -> None:
        for metric in self._ahead:
            if metric.schedule.due(self._next):
                with torch.no_grad():
                    metric.observe(self._at_step(metric))
        self._weight_gradients.prepare(self._next)
        self._hooks.prepare(self._next)

    def _measure_at_track(self, metric: ModuleMetric, step: int) -> None:
        calls = self._hooks.observations(metric)
        for observation in calls or [self._at_step(metric)]:
            observation.by_need["Loss"] = self._loss
            metric.measure(observation, step)

    def _at_step(self, metric: ModuleMetric) -> Observation:
        """Returns the observation for a metric of weights."""
        return Observation(metric.module, 0, TRAIN, self._hooks.epoch)

    def _drop_unscheduled(self, step: int) -> None:
        """Drop values that step `step` does not ask for, as the hooks were prepared for another one."""
        wanted = {(metric.path, metric.name) for metric in self._metrics if metric.schedule.due(step)}
        kept = {at for at, slot in enumerate(self.history.slots) if (slot.module, slot.metric) in wanted}
        self._ring.retain(kept if self._ranks is None else kept | self._ranks.numbers)

    def _collect(self, wait: bool, ended: int | None = None) -> None:
        """Append the rows that have arrived on the host, merged over ranks for the step `ended`."""
        with self._collecting:
            rows = self._ring.take(wait or self._ranks is not None)
            if self._ranks is not None:
                rows = self._ranks.merged(rows, ended, self._next)
            for packed in rows:
                self._take_in(packed)
        self._sinks.notify()

    def _take_in(self, packed: PackedRow, is_merged: bool = True) -> None:
        if self._seeks_origin:
            clear_later_origins(packed, [self.history.slots[number] for number in packed.slots])
        self.history.append(packed.step, packed.slots, packed.numbers)
        if self._crossings.is_active:
            slots = [self.history.slots[number] for number in packed.slots]
            self._heed(packed.step, slots, packed.numbers, is_merged)

    def _heed(self, step: int, slots: list[Slot], numbers: np.ndarray, is_merged: bool) -> None:
        """Check bounds and events; ranks act together on an event that only one of them has seen."""
        alerts, crossed = self._crossings.check(Row(step, slots, numbers).readings())
        self.alerts += alerts[: MAX_ALERTS - len(self.alerts)]
        for event in crossed:
            if is_merged or self._ranks is None or not self._ranks.share_event(event):
                event.due_at = max(self._next, step + 1)

    # -------------------------------------------------------------- what the user adds

    def log(self, values: Mapping[str, object], step: int | None = None) -> None:
        """Record numbers of your own beside the metrics.

        Parameters
        ----------
        values : dict
            Numbers by name, such as `{"loss": 0.3}`; a tensor of one element is read.
        step : int, optional
            By default the step that `track` names next, or, where `track` comes first in your loop, the one that it
            named last; a name that comes again without a `track` between counts on by itself.

        Raises
        ------
        MonitorError
            For a value that is no number, and a step that is no count.
        """
        if not isinstance(values, Mapping):
            raise MonitorError(f"numbers are logged by name: {a_type(values)} was passed, write log({{'loss': loss}})")
        numbers = [logged_number(str(name), value) for name, value in values.items()]
        at = self._step_of(values) if step is None else checked_step(step)
        slots = [self.history.slot_number(Slot("", str(name), 0, TRAIN, SCALAR)) for name in values]
        for name in values:
            self._logged.note(str(name), at)
        row = np.array(numbers)
        self.history.append(at, slots, row)
        if self._crossings.is_active:
            self._heed(at, [self.history.slots[slot] for slot in slots], row, is_merged=False)
        if "loss" in values:
            self._loss = numbers[list(values).index("loss")]
            self._measure_loss(at)
        self._sinks.notify()

    def _step_of(self, values: Mapping[str, object]) -> int:
        has_begun = self._hooks.has_begun if self._hooks.is_attached else None
        return self._logged.step_of(values, self._next, self._last, has_begun)

    def _measure_loss(self, step: int) -> None:
        """Measure metrics of the loss for the step that it was logged for."""
        ring = TransferRing()
        for metric in self._of_losses.at(step):
            observation = self._at_step(metric)
            observation.by_need["Loss"] = self._loss
            with torch.no_grad():
                metric.measure(observation, step, ring.put)
        ring.close(step)
        for packed in ring.take():
            self._take_in(packed, is_merged=False)

    def hessian(self, loss: torch.Tensor, **settings: int) -> dict[str, dict[str, float]]:
        """Trace and largest eigenvalue of the Hessian of each measured module's own parameters, recorded as well.

        Parameters
        ----------
        loss : Tensor
            The loss, before `loss.backward()`.
        **settings : int
            `samples`, `iterations` and `seed` of `mk.monitoring.hessian`, which says the cost and the errors, too.

        Returns
        -------
        dict
            `{module: {"HessianTrace": …, "HessianMaxEig": …}}`.
        """
        own = {m.path: [p for p in module_state(m.module)[PARAMETERS].values() if p is not None] for m in self._metrics}
        with self._hooks.paused():
            found = hessian(loss, {path: parameters for path, parameters in own.items() if parameters}, **settings)
        for path, values in found.items():
            slots = [self.history.slot_number(Slot(path, name, 0, TRAIN, SCALAR)) for name in values]
            self.history.append(self._next, slots, np.array(list(values.values())))
        self._sinks.notify()
        return found

    def alert(self, metric: str, *, above: float | None = None, below: float | None = None, module: str = "*") -> None:
        """Add an alert: `alerts` lists each time that a value crosses the bound; NaN crosses each.

        Parameters
        ----------
        metric : str
            The name of a measured metric or of a logged number.
        above, below : float, optional
            The bounds, one at least.
        module : str
            A dotted name or a pattern.

        Raises
        ------
        UnknownNameError
            For a metric that is not configured.
        MonitorError
            Without a bound.
        """
        if above is None and below is None:
            raise MonitorError(f"an alert on {printable(metric)} needs a bound: pass above= or below=")
        known = {each.name for each in self._metrics} | self._logged.names
        if metric not in known and module == "*":
            raise UnknownNameError(
                f"no module is measured by {printable(metric)!r}: {closest_match_hint(metric, known)}"
            )
        self._crossings.bounds.append(Bound(metric, module, above, below))

    def add_sink(self, sink: object) -> None:
        """Add a sink, which gets all values, also earlier ones; of several ranks only the first one sends.

        Parameters
        ----------
        sink : object
            What `sinks` of the constructor may hold.
        """
        self._sinks.add(sink)

    # -------------------------------------------------------------- what was read

    def get_output(self, phase: str | None = None) -> Output:
        self._collect(wait=True)
        return super().get_output(phase)

    def frame(self) -> pd.DataFrame:
        self._collect(wait=True)
        return super().frame()

    @property
    def reasons(self) -> dict[tuple[str, str], str]:
        """Reasons for NaN by (module, metric), the latest of each."""
        return dict(self._writer.reasons)

    @property
    def step(self) -> int:
        """The step that is measured now."""
        return self._next

    def unmeasured(self) -> list[tuple[str, str]]:
        """Returns the configured (module, metric) without any value so far: not called, no weight, no gradient."""
        self._collect(wait=True)
        known = {(slot.module, slot.metric) for slot in self.history.slots}
        return [(m.path, m.name) for m in self._metrics if (m.path, m.name) not in known]

    @property
    def non_finite_origin(self) -> Alert | None:
        """The first module that turned finite inputs into NaN or infinity, if `NonFiniteOrigin` is measured."""
        self._collect(wait=True)
        return first_origin(list(self.readings()))
