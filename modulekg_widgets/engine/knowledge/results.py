"""What jobs reached: values of any target, each in its unit, as a property of the job that every format carries."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from modulekg_widgets.engine.knowledge.contents import JobNode

RESULTS = "results"  # the property of a job: target -> [value, unit]
PERCENT = "%"
TOP_1 = "acc@1"
CONVERGENCE = "convergence"
STEPS = "steps"
COSTS = frozenset(
    {CONVERGENCE, "cer", "error", "fid", "latency", "loss", "mae", "memory", "mse", "perplexity", "rmse", "wer"}
)


class Result(NamedTuple):
    """A value as it was given, and its unit, None where nobody said."""

    value: float
    unit: str | None


def as_property(results: Mapping[str, Result]) -> dict[str, list[Any]]:
    return {target: [result.value, result.unit] for target, result in results.items()}


def results_of(job: JobNode) -> dict[str, Result]:
    """What a job reached, by target; its accuracy counts as acc@1 in percent, unless it says another one."""
    found: dict[str, Result] = {}
    if job.accuracy is not None and math.isfinite(job.accuracy):
        found[TOP_1] = Result(100 * job.accuracy, PERCENT)
    if job.convergence is not None and math.isfinite(job.convergence):
        found[CONVERGENCE] = Result(job.convergence, STEPS)
    given = job.properties.get(RESULTS)
    for target, pair in given.items() if isinstance(given, dict) else ():
        result = _result(pair)
        if isinstance(target, str) and result is not None:
            found[target] = result
    return found


def is_cost(target: str) -> bool:
    """Whether less of a target is better, as far as its name tells: one of its words is that of a cost."""
    words = target.lower().replace("-", "_").replace(" ", "_").replace("/", "_").split("_")
    return not COSTS.isdisjoint(words)


def _result(pair: Any) -> Result | None:
    """A stored result; None for what is none, as a property of the user's that has this name."""
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        return None
    value, unit = pair
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return Result(float(value), unit if isinstance(unit, str) else None)
