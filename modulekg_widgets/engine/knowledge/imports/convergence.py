"""Steps until a metric reaches a value, computed from the histories of jobs and added as results."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import NamedTuple

from modulekg_widgets.engine.errors import PropertyError, UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.knowledge.facts.contents import Contents, JobNode
from modulekg_widgets.engine.knowledge.facts.jobs import ACCURACIES, ACCURACY, ROUNDING_TOLERANCE, Point, checked_name
from modulekg_widgets.engine.knowledge.facts.results import RESULTS, STEPS, Result, as_property
from modulekg_widgets.engine.knowledge.facts.units import finite_float, is_share, safe_repr
from modulekg_widgets.engine.knowledge.imports.result_tables import AddedResults

# metrics that get better by falling, whatever else their names say
_FALLING = re.compile(r"(?i)loss|error|perplexity|(?:^|[\W_])(?:ppl|mse|mae|rmse|nll|wer|cer|fid|bpc)(?:$|[\W_])")


class ConvergenceGoal(NamedTuple):
    """A value that a metric is to reach; a fraction if the metric is a share."""

    metric: str
    value: float
    falls: bool
    is_share: bool

    @property
    def target(self) -> str:
        return f"steps to {self.metric} {self.value:.12g}"

    def metric_in(self, job: JobNode) -> str | None:
        """Returns the name of the metric in the history of a job, None if it has none."""
        names = ACCURACIES if self.metric == ACCURACY else (self.metric,)
        return next((name for name in names if job.history.get(name)), None)

    def steps(self, points: Sequence[Point]) -> float | str:
        """Returns the first step at which the value is reached, or the reason why there is none."""
        finite = [(step, value) for step, value in points if math.isfinite(value)]
        if not finite:
            return f"its {printable(self.metric)!r} has no finite value"
        if self.is_share and any(value > 1 + ROUNDING_TOLERANCE for _, value in finite):
            finite = [(step, value / 100) for step, value in finite]
        for step, value in finite:
            if value <= self.value if self.falls else value >= self.value:
                return step
        best = (min if self.falls else max)(value for _, value in finite)
        return f"it does not reach {self.value:.12g}: its best is {best:g}"


def convergence_goal(metric: object, reach: object, falls: bool | None) -> ConvergenceGoal:
    """Returns the checked goal; raises `PropertyError` for invalid values or an unknown direction."""
    name = checked_name(metric, "metric")
    value = finite_float(reach) if isinstance(reach, Real) else None
    if value is None:
        raise PropertyError(f"reach is {printable(safe_repr(reach))}: give a finite number")
    is_falling = _FALLING.search(name) is not None
    of_share = not is_falling and (name in ACCURACIES or is_share(name))
    if falls is None and not (is_falling or of_share):
        raise PropertyError(f"whether {printable(name)!r} falls or rises is not known: pass falls=True or falls=False")
    if of_share and value > 1 + ROUNDING_TOLERANCE:
        value /= 100
    return ConvergenceGoal(name, value, is_falling if falls is None else bool(falls), of_share)


def steps_to_goal(goal: ConvergenceGoal, known: Contents) -> tuple[Contents, AddedResults]:
    """Returns the jobs that reach a goal, each with its steps as a result, and a report of the others.

    Raises `UnknownNameError` where no history has the metric.
    """
    told = [job for job in known.jobs.values() if any(job.history.values())]
    if not any(goal.metric_in(job) for job in told):
        every = sorted({name for job in told for name in job.history})
        raise UnknownNameError(
            f"no history has the metric {printable(goal.metric)!r}: {closest_match_hint(goal.metric, every)}"
        )
    jobs: dict[str, JobNode] = {}
    left_out: dict[str, str] = {}
    for job in told:
        found = _with_steps(job, goal)
        if isinstance(found, str):
            left_out[job.name] = found
        else:
            jobs[job.name] = found
    silent = len(known.jobs) - len(told)
    notes = (f"{silent} jobs have no history",) if silent else ()
    return Contents(known.scheme, jobs=jobs), AddedResults(len(jobs), len(jobs), left_out, notes, "job")


def _with_steps(job: JobNode, goal: ConvergenceGoal) -> JobNode | str:
    """Returns the job with the result, or the reason why it has none."""
    metric = goal.metric_in(job)
    if metric is None:
        return f"its history has no {printable(goal.metric)!r}: {closest_match_hint(goal.metric, sorted(job.history))}"
    steps = goal.steps(job.history[metric])
    if isinstance(steps, str):
        return steps
    given = job.properties.get(RESULTS, {})
    if not isinstance(given, dict):
        return f"its property {RESULTS!r} is something else"
    results = {**given, **as_property({goal.target: Result(steps, STEPS)})}
    return replace(job, properties={**job.properties, RESULTS: results})
