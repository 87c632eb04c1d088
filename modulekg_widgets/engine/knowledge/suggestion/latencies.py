"""How long known models are told to take on a device, for a search that must keep to a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from modulekg_widgets.engine.errors import PredictionError, shown
from modulekg_widgets.engine.knowledge.prediction.predictor import Predictor
from modulekg_widgets.engine.knowledge.records import ModelRecord

MILLISECONDS = {"ms": 1.0, "s": 1e3, "us": 1e-3, "µs": 1e-3, "ns": 1e-6, None: 1.0}


@dataclass
class Latencies:
    """The predicted latencies in ms on one device, at the image size and batch at which known ones were measured.

    Raises `UnknownNameError` for a device of which none is known, `PredictionError` where there are several and none is
    named, or where they are in no unit of time.
    """

    predictor: Predictor
    device: str | None
    _told: dict[str, float | None] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.device = self.predictor.place(None, self.device).device
        unit = self.predictor.observed.unit
        if unit not in MILLISECONDS:
            raise PredictionError(f"the latencies of the graph are in {shown(str(unit))}, which is no unit of time")
        self._factor = MILLISECONDS[unit]

    def of(self, records: Sequence[ModelRecord]) -> list[float | None]:
        """None for models that are unlike those of which latencies are known."""
        unknown = [record for record in records if record.model.name not in self._told]
        for record, found in zip(unknown, self.predictor.predict(unknown, None, self.device), strict=True):
            self._told[record.model.name] = None if found.value is None else found.value * self._factor
        return [self._told[record.model.name] for record in records]
