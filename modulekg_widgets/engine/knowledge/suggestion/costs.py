"""Costs of models: estimates before they are built, predicted latency, and the Pareto front of value and cost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeVar

from modulekg_widgets.engine.errors import PredictionError, UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.knowledge.facts.contents import count_uses
from modulekg_widgets.engine.knowledge.facts.records import ModelRecord
from modulekg_widgets.engine.knowledge.prediction.data.features import IMAGE_DIMS, child_keys, family_of
from modulekg_widgets.engine.knowledge.prediction.predictor import Predictor
from modulekg_widgets.engine.knowledge.suggestion.build_check import CheckedBuild
from modulekg_widgets.engine.knowledge.suggestion.candidates import Requirements

COST_SLACK = 2.0  # costs grow with the area of images but for rounding, and those of attention with its square
MIN_FAMILY_RUNS = 2  # models of a family that were run at another size tell how the others do there
MIN_OTHER_RUNS = 10  # models of any family tell it of one of which fewer were run


class CostEstimator:
    """Cost estimates from stored costs and from models run earlier in a search."""

    def __init__(self, predictor: Predictor, required: Requirements) -> None:
        self.predictor, self.required = predictor, required
        self._fixed: Counter[str] = Counter()  # by family those that do not run at the size of the data set's images
        self._growth: dict[str, list[float]] = defaultdict(list)  # by family costs there, as parts of those estimated

    def estimate(self, record: ModelRecord) -> float | None:
        """Estimates the FLOPs on an image of the data set, proportional to the area."""
        features, size = self.predictor.features(record), self.required.size
        if features.flops is None or size is None or not features.image_side:
            return features.flops
        return features.flops * size[0] * size[1] / features.image_side**2

    def may_fit(self, record: ModelRecord) -> bool:
        """True if the budget may allow the cost of the model on images of the data set."""
        limit, flops = self.required.max_flops, self.predictor.features(record).flops
        if limit is None:
            return True
        if flops is None:
            return _weight_flops(record) <= limit
        if flops <= limit or self.required.size is None:
            return flops <= limit
        family, estimate = family_of(record), self.estimate(record)
        return self._fixed[family] < MIN_FAMILY_RUNS and (estimate is None or estimate <= self._slack(family) * limit)

    def _slack(self, family: str) -> float:
        """Returns the factor by which an estimate may exceed the budget."""
        own, every = self._growth[family], list(chain.from_iterable(self._growth.values()))
        seen = own if len(own) >= MIN_FAMILY_RUNS else every if len(every) >= MIN_OTHER_RUNS else []
        return max(1.0, 1 / min(seen)) if seen else COST_SLACK

    def record_run(self, record: ModelRecord, found: CheckedBuild | str) -> None:
        """Records the cost of a model that was run."""
        shape = found.run.inputs[0] if isinstance(found, CheckedBuild) and found.run.inputs else ()
        if isinstance(found, str) or self.required.size is None or len(shape) != IMAGE_DIMS:
            return
        family, estimate = family_of(record), self.estimate(record)
        if shape[2:] != self.required.size:
            self._fixed[family] += 1
        elif estimate and found.run.flops:
            self._growth[family].append(found.run.flops / estimate)


def _weight_flops(record: ModelRecord) -> int:
    """Returns the FLOPs of a model that uses each weight once; embedding tables do not count."""
    uses = count_uses([record.model])
    layers = [record.nodes[key] for key in uses if not child_keys(record.nodes[key])]
    return sum(2 * uses[each.fingerprint] * each.parameters for each in layers if "Embedding" not in each.class_name)


# -------------------- Predicted latencies of known models on one device


TO_MILLISECONDS = {"ms": 1.0, "s": 1e3, "us": 1e-3, "µs": 1e-3, "ns": 1e-6, None: 1.0}


class Latency(NamedTuple):
    """A predicted time with its deviation, in ms."""

    value: float
    std: float


@dataclass
class LatencyPredictor:
    """Predicts latencies in ms on one device, at the image size and batch of the known measurements.

    Raises `UnknownNameError` for a device of which none is known, `PredictionError` where there are several and none is
    named, or where they are in no unit of time.
    """

    predictor: Predictor
    device: str | None
    _known: dict[str, Latency | None] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.device = self.predictor.condition(None, self.device).device
        unit = self.predictor.observations.unit
        if unit not in TO_MILLISECONDS:
            raise PredictionError(
                f"the latencies of the graph are in {printable(str(unit))}, which is not a unit of time"
            )
        self._factor = TO_MILLISECONDS[unit]

    def predict(self, records: Sequence[ModelRecord]) -> list[Latency | None]:
        """Returns a latency for each record; None for models outside of the applicability domain."""
        unknown = [record for record in records if record.model.name not in self._known]
        for record, found in zip(unknown, self.predictor.predict(unknown, None, self.device), strict=True):
            told = None if found.value is None else Latency(*(each * self._factor for each in found.numbers))
            self._known[record.model.name] = told
        return [self._known[record.model.name] for record in records]


# -------------------- Pareto front of value and cost


SIZE_COSTS = ("params", "flops")
Item = TypeVar("Item")
CostFunction = Callable[[Sequence[ModelRecord]], list[float]]


def cost_function(against: str, predictor: Predictor | None, device: str | None) -> CostFunction:
    """Returns a function for the cost of models: parameters, FLOPs, or a predicted target such as latency.

    Raises `UnknownNameError` for another name without a predictor.
    """
    if against == "params":
        return lambda records: [float(record.model.parameters) for record in records]
    if against == "flops":
        return lambda records: [float(record.model.flops or 0) for record in records]
    if predictor is None:
        raise UnknownNameError(
            f"no cost is called {printable(str(against))!r}: {closest_match_hint(str(against), SIZE_COSTS)}"
        )
    return lambda records: [float(each) for each in predictor.predict(records, None, device, extrapolate=True)]


def domination_counts(points: Sequence[tuple[float, float]]) -> list[int]:
    """Returns for each (value, cost) the number of points that dominate it."""
    return [sum(other != own and other[0] >= own[0] and other[1] <= own[1] for other in points) for own in points]


def pareto_front(items: Sequence[Item], points: Sequence[tuple[float, float]], count: int) -> list[Item]:
    """Returns the items on the Pareto front, cheapest first; of more than `count` those at even steps."""
    best = [at for at, others in enumerate(domination_counts(points)) if others == 0]
    best.sort(key=lambda at: points[at][1])
    if count < len(best):
        steps = [round(step * (len(best) - 1) / max(count - 1, 1)) for step in range(count)]
        best = [best[step] for step in steps]
    return [items[at] for at in best]
