"""Alerts: bounds on metrics, crossed once per excursion, and the module where NaN or infinity begins."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from modulekg_widgets.engine.errors import UnknownNameError, closest_match_hint
from modulekg_widgets.engine.monitoring.readings import TRAIN, Reading, Slot
from modulekg_widgets.engine.monitoring.run import Alert
from modulekg_widgets.engine.monitoring.schedule import OnEvent
from modulekg_widgets.engine.monitoring.transfer_ring import PackedRow

ORIGIN_METRIC = "NonFiniteOrigin"
MAX_ALERTS = 10_000  # that are kept: a value that flickers across its bound shall not fill the memory


@dataclass
class Bound:
    """Upper and lower bound on a metric of the modules that match a pattern; NaN is outside of both."""

    metric: str
    module: str = "*"
    above: float | None = None
    below: float | None = None
    _outside: set[tuple[str, int]] = field(default_factory=set)

    def alert(self, reading: Reading) -> Alert | None:
        """Returns the alert for a reading that is outside of the bound while its predecessor was inside."""
        if reading.metric != self.metric or reading.phase != TRAIN or not isinstance(reading.value, float):
            return None
        if reading.module != self.module and not fnmatch.fnmatchcase(reading.module, self.module):
            return None
        said = self._crossed(reading.value)
        key = (reading.module, reading.call)
        if said is None:
            self._outside.discard(key)
            return None
        if key in self._outside:
            return None
        self._outside.add(key)
        return Alert(self.metric, reading.module, reading.step, reading.value, _alert_text(reading, said))

    def _crossed(self, value: float) -> str | None:
        if math.isnan(value):
            return "is NaN"
        if self.above is not None and value > self.above:
            return f"is {value:.4g}, above {self.above:g}"
        if self.below is not None and value < self.below:
            return f"is {value:.4g}, below {self.below:g}"
        return None


class BoundCrossings:
    """Checks of a step's values: bounds of alerts, and events that schedules wait for."""

    def __init__(self, events: Sequence[OnEvent], measured: Set[str]) -> None:
        self.bounds: list[Bound] = []
        self._events = events
        for event in events:
            if event.metric not in measured:
                hint = closest_match_hint(event.metric, measured)
                raise UnknownNameError(f"on({event.metric}, …) waits for a metric that is not measured: {hint}")

    @property
    def is_active(self) -> bool:
        return bool(self.bounds or self._events)

    def check(self, readings: list[Reading]) -> tuple[list[Alert], list[OnEvent]]:
        """Returns the alerts for these readings, and the events that they trigger."""
        alerts = [alert for bound in self.bounds for r in readings if (alert := bound.alert(r)) is not None]
        return alerts, [event for event in self._events if any(_is_triggered(event, r) for r in readings)]


def _is_triggered(event: OnEvent, reading: Reading) -> bool:
    return reading.metric == event.metric and isinstance(reading.value, float) and event.crossed(reading.value)


def _alert_text(reading: Reading, said: str) -> str:
    where = f" of {reading.module}" if reading.module else ""
    return f"{reading.metric}{where} {said} at step {reading.step}"


def first_origin(readings: list[Reading]) -> Alert | None:
    """Returns an alert for the first module that turned finite inputs into NaN or infinity; None if there is none."""
    for reading in readings:
        if reading.metric == ORIGIN_METRIC and reading.value == 1.0:
            where = reading.module or "the model"
            text = f"{where} turned finite inputs into NaN or infinity at step {reading.step}"
            return Alert(ORIGIN_METRIC, reading.module, reading.step, 1.0, text)
    return None


def clear_later_origins(packed: PackedRow, slots: list[Slot]) -> None:
    """Clear the flag of all modules but the first one: containers and later modules are only affected."""
    places = np.cumsum([0, *packed.sizes[:-1]])
    made = sorted(zip(packed.arrival, slots, places, strict=True))
    guilty = [at for _, slot, at in made if slot.metric == ORIGIN_METRIC and packed.numbers[at] == 1.0]
    if guilty:
        packed.numbers = packed.numbers.copy()
        packed.numbers[guilty[1:]] = 0.0
