"""Pareto front of models in value and cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from modulekg_widgets.engine.errors import UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.knowledge.facts.records import ModelRecord
from modulekg_widgets.engine.knowledge.prediction.predictor import Predictor

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
            f"nothing is called {printable(str(against))!r} to set against it: "
            f"{closest_match_hint(str(against), SIZE_COSTS)}"
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
