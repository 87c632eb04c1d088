"""The monitor: watches a training through hooks on scheduled steps, and gives what it read to whoever looks."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from modulekg_widgets.engine.errors import ModuleKGError, UnknownNameError, nearest, shown
from modulekg_widgets.engine.identity.walk import class_name
from modulekg_widgets.engine.keywords import called_as
from modulekg_widgets.engine.monitoring.alerts import ORIGIN, Bound, first_origin
from modulekg_widgets.engine.monitoring.config import Config, measurements, opaque_paths, root_of
from modulekg_widgets.engine.monitoring.hessian import hessian
from modulekg_widgets.engine.monitoring.hooks.active_metrics import Rota
from modulekg_widgets.engine.monitoring.hooks.entry import Entry, Journal
from modulekg_widgets.engine.monitoring.hooks.gather import TRACK, WEIGHTS, Observation
from modulekg_widgets.engine.monitoring.hooks.module_hooks import Watcher
from modulekg_widgets.engine.monitoring.hooks.quick import Unscaled
from modulekg_widgets.engine.monitoring.hooks.ring import PackedRow, Ring
from modulekg_widgets.engine.monitoring.hooks.without_data import WithoutData
from modulekg_widgets.engine.monitoring.merge.distributed import Ranks, is_distributed
from modulekg_widgets.engine.monitoring.readings import SCALAR, TRAIN, Row, Slot
from modulekg_widgets.engine.monitoring.run import Alert, Run
from modulekg_widgets.engine.monitoring.schedule import events_of
from modulekg_widgets.engine.monitoring.sinks.sink_set import Outlets
from modulekg_widgets.engine.torch_runtime.private import PARAMETERS
from modulekg_widgets.engine.torch_runtime.state import module_state

if TYPE_CHECKING:
    from torch import nn


MOST_ALERTS = 10_000  # that are kept: a value that flickers across its bound shall not fill the memory


class MonitorError(ModuleKGError, ValueError):
    """A call of a monitor that does not fit: a step that is no count, a number that is none."""


class Monitor(Run):
    """Measures metrics of modules while a model trains: `with mk.Monitor(model, config) as m: … m.track(step)`.

    `config` is `{module: [metrics]}`: a module is a dotted name, a class, a class name or a pattern such as
    `"layer*.conv*"`; a metric is `"WeightNorm"`, `["WeightNorm", "linear(5,2)"]` or a metric object. Without it, norms
    and update ratio of every module with a weight. `sinks` are paths (.jsonl, .csv, .parquet), TensorBoard writers,
    wandb runs or any object with `log`. `scaler` is the `torch.amp.GradScaler` in use: gradients at modules are divided
    by its scale; weight gradients are read as they stand at `track`. `resume` is a recorded file to go on with from
    the step `start`. The first forward belongs to step `start`, 0 by default. At most 64 calls of a module are measured
    within a step. Under torch.distributed values are those of all ranks together, see `distributed.py`; with
    `distributed=False` each rank has its own.

    The model is never written to: hooks are there on scheduled steps only and hold no tensor of the graph; a metric
    that fails gives NaN, one warning and a reason in `reasons`. TorchScript modules, listed in `opaque_paths`, are seen
    from outside. Raises `UnknownPathError`, `UnknownNameError`, `ScheduleError` and `ConfigError` for a configuration
    that does not fit.
    """

    @called_as("mk.Monitor")
    def __init__(
        self,
        model: nn.Module,
        config: Config | None = None,
        *,
        sinks: Iterable[Any] = (),
        name: str | None = None,
        scaler: Any = None,
        resume: str | Path | None = None,
        start: int | None = None,
        distributed: bool = True,
    ) -> None:
        root = root_of(model)
        planned = measurements(root, config)
        super().__init__(name or class_name(root))
        self._ring = Ring()
        self._journal = Journal(self._ring.put, self._slot_maker())
        self._entries = [Entry(measurement, self._journal, rank) for rank, measurement in enumerate(planned)]
        self._events = events_of([entry.schedule for entry in self._entries])
        self._check_events()
        self._ranks = (
            Ranks(planned, self._events, self.history, self._ring.put) if distributed and is_distributed() else None
        )
        measured = self._entries + (self._ranks.entries if self._ranks is not None else [])
        at_track = [entry for entry in measured if entry.stage == TRACK and entry.needs != ("Loss",)]
        self._at_track = Rota(at_track)
        self._readers = {entry: entry.reader() for entry in at_track if entry.is_quick}
        self._of_losses = Rota([entry for entry in self._entries if entry.needs == ("Loss",)])
        self._ahead = [entry for entry in self._entries if entry.kind.before]
        self._seeks_origin = any(entry.name == ORIGIN for entry in self._entries)
        self.opaque_paths = opaque_paths(root)
        self._without_data = WithoutData(root, self._entries)
        self._watcher = Watcher(root, measured, None if scaler is None else Unscaled(scaler))
        self._collecting = threading.RLock()  # a panel may read while the training tracks
        self._bounds: list[Bound] = []
        self._outlets = Outlets(self.history, self.name, self._ranks is None or self._ranks.rank == 0)
        self._next = 0 if start is None else _step(start)
        self._last: int | None = None
        self._logged: dict[str, int] = {}  # the step at which each name was logged last
        self._logs_follow_track: bool | None = None
        self._loss: float | None = None
        self.is_running = False
        if resume is not None:
            self._next = self._outlets.resume(Path(resume), start)
        for sink in sinks:
            self.add_sink(sink)

    def __repr__(self) -> str:
        modules = len({entry.path for entry in self._entries})
        state = f"next step {self._next}" if self.is_running else "stopped"
        opaque = f", {len(self.opaque_paths)} opaque" if self.opaque_paths else ""
        return f"<Monitor of {shown(self.name)}: {len(self._entries)} metrics of {modules} modules{opaque}, {state}>"

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
        """Attach the hooks that the next step needs; a running monitor stays as it is."""
        if not self.is_running:
            self.is_running = True
            self._outlets.open()
            if self._ranks is not None:
                self._ranks.announce()
            self._prepare()

    def stop(self) -> None:
        """Detach all hooks, let go of all copies and deliver what is left to the sinks; what was read stays."""
        if not self.is_running:
            return
        self.is_running = False
        self._watcher.release()
        self._ring.clear()
        for entry in self._entries:
            entry.forget()
        self._collect(wait=True)
        if self._ranks is not None:
            self._ranks.leave()
        self._outlets.close()

    def track(self, step: int) -> None:
        """End a step: its values are read, and the hooks that the next one needs are attached.

        Call it once a step, after the backward pass and before or after the optimizer's step. Raises `MonitorError`
        for what is no count.
        """
        step = _step(step)
        if not self.is_running:
            raise MonitorError("the monitor is not running: call start(), or use it as `with Monitor(…) as m:`")
        if step != self._watcher.step:
            self._drop_unscheduled(step)
        with torch.no_grad():
            for entry in self._at_track.watching(step):
                self._measure_at_track(entry, step)
            self._without_data.note(step)
        self._ring.close(step)
        self._next = step + (step - self._last if self._last is not None and step > self._last else 1)
        self._last = step
        self._loss = None
        self._collect(wait=False, ended=step)
        self._prepare()

    def _slot_maker(self) -> Callable[[Slot, int], int]:
        """Numbers slots; made so that it does not hold the monitor."""
        history, ranks = self.history, self._ring.ranks

        def number(slot: Slot, rank: int) -> int:
            found = history.slot_number(slot)
            ranks[found] = rank
            return found

        return number

    def _prepare(self) -> None:
        for entry in self._ahead:
            if entry.schedule.due(self._next):
                with torch.no_grad():
                    entry.observe(self._at_step(entry))
        self._watcher.arm(self._next)

    def _measure_at_track(self, entry: Entry, step: int) -> None:
        read = self._readers.get(entry)
        if read is not None:
            entry.read_made(WEIGHTS[entry.needs[0]], read)
            return
        calls = self._watcher.kept(entry)
        for observation in calls or [self._at_step(entry)]:
            observation.found["Loss"] = self._loss
            entry.measure(observation, step)

    def _at_step(self, entry: Entry) -> Observation:
        """The observation of a metric that looks at weights, not at calls."""
        return Observation(entry.module, 0, TRAIN, self._watcher.epoch)

    def _drop_unscheduled(self, step: int) -> None:
        """The hooks were there for another step than this: what this one does not ask for is not kept."""
        wanted = {(entry.path, entry.name) for entry in self._entries if entry.schedule.due(step)}
        kept = {at for at, slot in enumerate(self.history.slots) if (slot.module, slot.metric) in wanted}
        self._ring.keep(kept if self._ranks is None else kept | self._ranks.numbers)

    def _collect(self, wait: bool, ended: int | None = None) -> None:
        """Take in what has arrived on the host, merged with what other ranks have read at the step that has `ended`."""
        with self._collecting:
            rows = self._ring.take(wait or self._ranks is not None)
            if self._ranks is not None:
                rows = self._ranks.merged(rows, ended, self._next)
            for packed in rows:
                self._take_in(packed)
        self._outlets.nudge()

    def _take_in(self, packed: PackedRow, is_merged: bool = True) -> None:
        if self._seeks_origin:
            _keep_first_origin(packed, [self.history.slots[number] for number in packed.slots])
        self.history.append(packed.step, packed.slots, packed.numbers)
        if self._bounds or self._events:
            slots = [self.history.slots[number] for number in packed.slots]
            self._heed(packed.step, slots, packed.numbers, is_merged)

    def _heed(self, step: int, slots: list[Slot], numbers: np.ndarray, is_merged: bool) -> None:
        """Look for bounds that were crossed; ranks act together on what one of them alone has seen."""
        readings = Row(step, slots, numbers).readings()
        for bound in self._bounds:
            found = [alert for reading in readings if (alert := bound.alert(reading)) is not None]
            self.alerts += found[: MOST_ALERTS - len(self.alerts)]
        for event in self._events:
            is_crossed = any(
                r.metric == event.metric and isinstance(r.value, float) and event.crossed(r.value) for r in readings
            )
            if is_crossed and (is_merged or self._ranks is None or not self._ranks.tell(event)):
                event.due_at = max(self._next, step + 1)

    # -------------------------------------------------------------- what the user adds

    def log(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Record numbers of your own beside the metrics, such as `{"loss": 0.3}`; a tensor of one element is read.

        Without `step` they belong to the step that `track` names next, or, where `track` comes first in your loop, to
        the one that it named last; a name that comes again without a `track` between counts on by itself.
        """
        at = self._log_step(values) if step is None else _step(step)
        slots: list[int] = []
        numbers: list[float] = []
        for name, value in values.items():
            form, own = _number(str(name), value)
            slots.append(self.history.slot_number(Slot("", str(name), 0, TRAIN, form)))
            numbers += own
            self._logged[str(name)] = at
        row = np.array(numbers)
        self.history.append(at, slots, row)
        if self._bounds or self._events:
            self._heed(at, [self.history.slots[slot] for slot in slots], row, is_merged=False)
        if "loss" in values:
            self._loss = numbers[list(values).index("loss")]
            self._measure_loss(at)
        self._outlets.nudge()

    def _measure_loss(self, step: int) -> None:
        """Metrics of the loss alone belong to the step that it was logged for, whenever `track` comes."""
        ring = Ring()
        for entry in self._of_losses.watching(step):
            observation = self._at_step(entry)
            observation.found["Loss"] = self._loss
            with torch.no_grad():
                entry.measure(observation, step, ring.put)
        ring.close(step)
        for packed in ring.take():
            self._take_in(packed, is_merged=False)

    def _log_step(self, values: Mapping[str, Any]) -> int:
        if self._logs_follow_track is None:
            self._logs_follow_track = self._last is not None
        at = self._last if self._logs_follow_track and self._last is not None else self._next
        again = [self._logged[name] + 1 for name in values if self._logged.get(name, -1) >= at]
        return max([at, *again])

    def hessian(self, loss: torch.Tensor, **settings: int) -> dict[str, dict[str, float]]:
        """Trace and largest eigenvalue of the Hessian of each measured module's own parameters, recorded as well.

        Call it before `loss.backward()`; see `mk.monitoring.hessian` for the settings, the cost and the errors.
        """
        own = {e.path: [p for p in module_state(e.module)[PARAMETERS].values() if p is not None] for e in self._entries}
        with self._watcher.paused():
            found = hessian(loss, {path: parameters for path, parameters in own.items() if parameters}, **settings)
        for path, values in found.items():
            slots = [self.history.slot_number(Slot(path, name, 0, TRAIN, SCALAR)) for name in values]
            self.history.append(self._next, slots, np.array(list(values.values())))
        self._outlets.nudge()
        return found

    def alert(self, metric: str, *, above: float | None = None, below: float | None = None, module: str = "*") -> None:
        """Note in `alerts` each time that a value crosses a bound; `module` is a dotted name or a pattern.

        Raises `UnknownNameError` for a metric that is not configured, `MonitorError` without a bound.
        """
        if above is None and below is None:
            raise MonitorError(f"an alert on {shown(metric)} needs a bound: pass above= or below=")
        known = {entry.name for entry in self._entries} | set(self._logged)
        if metric not in known and module == "*":
            raise UnknownNameError(f"no module is measured by {shown(metric)!r}: {nearest(metric, known)}")
        self._bounds.append(Bound(metric, module, above, below))

    def add_sink(self, sink: Any) -> None:
        """Send every value to `sink` too, those read before included; see `sinks` of the constructor.

        Of several ranks the first one sends.
        """
        self._outlets.add(sink)

    # -------------------------------------------------------------- what was read

    def get_output(self, phase: str = TRAIN) -> dict[str, dict[str, dict[int, Any]]]:
        self._collect(wait=True)
        return super().get_output(phase)

    def frame(self) -> Any:
        self._collect(wait=True)
        return super().frame()

    @property
    def reasons(self) -> dict[tuple[str, str], str]:
        """Why a value is NaN, by (module, metric): the latest reason."""
        return dict(self._journal.reasons)

    @property
    def step(self) -> int:
        """The step that is being measured."""
        return self._next

    def unmeasured(self) -> list[tuple[str, str]]:
        """What is configured and has had no value yet, as (module, metric): modules that were not called, or that
        have no weight, or get no gradient."""
        self._collect(wait=True)
        known = {(slot.module, slot.metric) for slot in self.history.slots}
        return [(e.path, e.name) for e in self._entries if (e.path, e.name) not in known]

    @property
    def non_finite_origin(self) -> Alert | None:
        """The first module that turned finite inputs into NaN or infinity, where `NonFiniteOrigin` is measured."""
        self._collect(wait=True)
        return first_origin(list(self.readings()))

    # -------------------------------------------------------------- checks

    def _check_events(self) -> None:
        measured = {entry.name for entry in self._entries}
        for event in self._events:
            if event.metric not in measured:
                hint = nearest(event.metric, measured)
                raise UnknownNameError(f"on({event.metric}, …) waits for a metric that is not measured: {hint}")


def _keep_first_origin(packed: PackedRow, slots: list[Slot]) -> None:
    """Whatever contains the guilty module, or comes after it, is not guilty."""
    places = np.cumsum([0, *packed.sizes[:-1]])
    made = sorted(zip(packed.arrival, slots, places, strict=True))
    guilty = [at for _, slot, at in made if slot.metric == ORIGIN and packed.numbers[at] == 1.0]
    if guilty:
        packed.numbers = packed.numbers.copy()
        packed.numbers[guilty[1:]] = 0.0


def _step(step: Any) -> int:
    try:
        count = operator.index(step)
    except TypeError:
        raise MonitorError(f"a step is a count: a {type(step).__name__} was passed") from None
    if isinstance(step, bool) or not 0 <= count < 1 << 63:
        raise MonitorError(f"a step is a count from 0 on, below 2**63: {shown(str(step))} was passed")
    return count


def _number(name: str, value: Any) -> tuple[Any, list[float]]:
    try:
        return SCALAR, [float(value.detach() if isinstance(value, torch.Tensor) else value)]
    except (TypeError, ValueError, RuntimeError):
        kind = type(value).__name__
        raise MonitorError(f"{shown(name)!r} is logged as a number: a {kind} was passed") from None
