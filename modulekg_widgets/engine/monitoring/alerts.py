"""Bounds on metrics: what to say when a value crosses one, once for each time that it does."""

from __future__ import annotations

import fnmatch
import math
from dataclasses import dataclass, field

import numpy as np

from modulekg_widgets.engine.monitoring.readings import TRAIN, Reading, Slot
from modulekg_widgets.engine.monitoring.ring import PackedRow
from modulekg_widgets.engine.monitoring.run import Alert

ORIGIN = "NonFiniteOrigin"


@dataclass
class Bound:
    """An upper and a lower bound on a metric of the modules that a pattern matches; NaN crosses both."""

    metric: str
    module: str = "*"
    above: float | None = None
    below: float | None = None
    _outside: set[tuple[str, int]] = field(default_factory=set)

    def alert(self, reading: Reading) -> Alert | None:
        """The alert of a reading that crosses the bound and whose predecessor did not."""
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
        return Alert(self.metric, reading.module, reading.step, reading.value, _sentence(reading, said))

    def _crossed(self, value: float) -> str | None:
        if math.isnan(value):
            return "is NaN"
        if self.above is not None and value > self.above:
            return f"is {value:.4g}, above {self.above:g}"
        if self.below is not None and value < self.below:
            return f"is {value:.4g}, below {self.below:g}"
        return None


def _sentence(reading: Reading, said: str) -> str:
    where = f" of {reading.module}" if reading.module else ""
    return f"{reading.metric}{where} {said} at step {reading.step}"


def first_origin(readings: list[Reading]) -> Alert | None:
    """The first module that turned finite inputs into something else; None when there is none."""
    for reading in readings:
        if reading.metric == ORIGIN and reading.value == 1.0:
            where = reading.module or "the model"
            text = f"{where} turned finite inputs into NaN or infinity at step {reading.step}"
            return Alert(ORIGIN, reading.module, reading.step, 1.0, text)
    return None


def keep_first_origin(packed: PackedRow, slots: list[Slot]) -> None:
    """Whatever contains the guilty module, or comes after it, is not guilty."""
    places = np.cumsum([0, *packed.sizes[:-1]])
    made = sorted(zip(packed.arrival, slots, places, strict=True))
    guilty = [at for _, slot, at in made if slot.metric == ORIGIN and packed.numbers[at] == 1.0]
    if guilty:
        packed.numbers = packed.numbers.copy()
        packed.numbers[guilty[1:]] = 0.0
