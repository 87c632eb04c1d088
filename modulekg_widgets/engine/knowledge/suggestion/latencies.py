"""How long known models are told to take on a device, for a search that must keep to a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from modulekg_widgets.engine.errors import PredictionError, shown
from modulekg_widgets.engine.knowledge.prediction.predictor import Predictor
from modulekg_widgets.engine.knowledge.records import ModelRecord

MILLISECONDS = {"ms": 1.0, "s": 1e3, "us": 1e-3, "µs": 1e-3, "ns": 1e-6, None: 1.0}


class Latency(NamedTuple):
    """A predicted time with its deviation, in ms."""

    value: float
    std: float


@dataclass
class Latencies:
    """The predicted latencies in ms on one device, at the image size and batch at which known ones were measured.

    Raises `UnknownNameError` for a device of which none is known, `PredictionError` where there are several and none is
    named, or where they are in no unit of time.
    """

    predictor: Predictor
    device: str | None
    _told: dict[str, Latency | None] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.device = self.predictor.place(None, self.device).device
        unit = self.predictor.observed.unit
        if unit not in MILLISECONDS:
            raise PredictionError(f"the latencies of the graph are in {shown(str(unit))}, which is no unit of time")
        self._factor = MILLISECONDS[unit]

    def of(self, records: Sequence[ModelRecord]) -> list[Latency | None]:
        """None for models that are unlike those of which latencies are known."""
        unknown = [record for record in records if record.model.name not in self._told]
        for record, found in zip(unknown, self.predictor.predict(unknown, None, self.device), strict=True):
            told = None if found.value is None else Latency(*(each * self._factor for each in found.numbers))
            self._told[record.model.name] = told
        return [self._told[record.model.name] for record in records]
