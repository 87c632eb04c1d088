"""Training runs as users tell them, made into checked records."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from numbers import Real
from typing import Any

from modulekg_widgets.engine.errors import PropertyError, UnknownNameError, shown
from modulekg_widgets.engine.knowledge.contents import JobNode
from modulekg_widgets.engine.knowledge.property_values import encode

PORTION = 0.95  # of the way to the final value: where a run counts as converged
ACCURACY = "accuracy"  # the metric that a history without names is of
Moment = datetime | str | float | int | None
Point = tuple[float, float]
Points = Sequence[Any]


def job_node(
    name: str | None = None,
    *,
    user: str | None = None,
    dataset: str | None = None,
    model: str | None = None,
    accuracy: float | None = None,
    history: Mapping[str, Points] | Points | None = None,
    started: Moment = None,
    ended: Moment = None,
    properties: Mapping[str, Any] | None = None,
) -> JobNode:
    """A job of these; raises `PropertyError` or `UnknownNameError` for what cannot be one.

    `accuracy` as a fraction or in percent (above 1), kept as a fraction; left out, it is the last of `history` where
    that tells one. `history` is a list of values or of (step, value), or a dictionary of such lists by metric.
    `started` and `ended` are datetimes, ISO texts or seconds since 1970; a job without either starts now.
    """
    metrics = histories(history)
    began, end = moment(started, "started"), moment(ended, "ended")
    if began is None:
        began = time.time() if end is None else end
    if end is not None and end < began:
        raise PropertyError(f"the job ends before it starts: {end} < {began} (seconds since 1970)")
    for kind, end_name in (("user", user), ("data set", dataset), ("model", model)):
        if end_name is not None:
            checked_name(end_name, kind)
    name = uuid.uuid4().hex if name is None else checked_name(name, "job")
    return JobNode(
        name, user, dataset, model, _accuracy(accuracy, metrics), _convergence(metrics), metrics, began, end,
        checked_properties(properties or {}),
    )  # fmt: skip


def checked_name(name: object, what: str) -> str:
    """`name`, if it is a text; raises `UnknownNameError`."""
    if not isinstance(name, str):
        raise UnknownNameError(f"a {what} is named by a text, got a {shown(type(name).__name__)}")
    return name


def checked_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties as a dictionary that the store can keep; raises `PropertyError` naming the one that it cannot."""
    for name, value in properties.items():
        encode(value, name)
    return dict(properties)


def fraction(accuracy: object) -> float:
    """An accuracy as a fraction, given as one or, above 1, in percent; raises `PropertyError` outside 0 … 100."""
    value = _number(accuracy, "accuracy")
    if not 0 <= value <= 100:
        raise PropertyError(f"accuracy is {value:g}: give a fraction from 0 to 1, or percent up to 100")
    return value / 100 if value > 1 else value


def histories(history: Mapping[str, Points] | Points | None) -> dict[str, list[Point]]:
    """The metrics of a history by name, each as (step, value) in the order of the steps."""
    if history is None:
        return {}
    if isinstance(history, Mapping):
        return {checked_name(metric, "metric"): _points(points, str(metric)) for metric, points in history.items()}
    return {ACCURACY: _points(history, ACCURACY)}


def _points(points: object, metric: str) -> list[Point]:
    if isinstance(points, (str, bytes)) or not isinstance(points, Iterable):
        raise PropertyError(f"the history of {shown(metric)!r} is a {type(points).__name__}: give a list of values")
    found = [_point(step, point, metric) for step, point in enumerate(points)]
    return sorted(found, key=lambda point: point[0])


def _point(step: int, point: Any, metric: str) -> Point:
    if isinstance(point, (tuple, list)):
        if len(point) != 2:
            raise PropertyError(
                f"the history of {shown(metric)!r} holds {len(point)} values at one place: give (step, value)"
            )
        return _number(point[0], f"a step of {metric}"), _number(point[1], metric, finite=False)
    return float(step), _number(point, metric, finite=False)


def _number(value: Any, what: str, finite: bool = True) -> float:
    if isinstance(value, bool) or not (isinstance(value, Real) or hasattr(value, "item")):
        raise PropertyError(f"{shown(what)} is a {shown(type(value).__name__)}: give a number")
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise PropertyError(f"{shown(what)} is no number: {shown(str(error))}") from None
    if finite and not math.isfinite(number):
        raise PropertyError(f"{shown(what)} is {number}: give a finite number")
    return number


def moment(value: Moment, what: str) -> float | None:
    """Seconds since 1970 of a datetime (without a zone: local time), an ISO text, or such seconds."""
    if value is None:
        return None
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return value.astimezone(timezone.utc).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise PropertyError(f"{what} is no time: {shown(str(error))}") from None
    return _number(value, what)


def _accuracy(accuracy: float | None, metrics: Mapping[str, list[Point]]) -> float | None:
    if accuracy is not None:
        return fraction(accuracy)
    last = metrics.get(ACCURACY, [])[-1:]
    return fraction(last[0][1]) if last and math.isfinite(last[0][1]) else None


def _convergence(metrics: Mapping[str, list[Point]]) -> float | None:
    points = metrics.get(ACCURACY) or next(iter(metrics.values()), [])
    return steps_to_converge(points)


def steps_to_converge(points: Sequence[Point]) -> float | None:
    """The first step at which 95 % of the final value is reached; of a falling metric, 95 % of the whole fall.

    None for a history of less than two finite values.
    """
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    if len(finite) < 2:
        return None
    first, last = finite[0][1], finite[-1][1]
    if last >= first:
        goal = PORTION * last if last >= 0 else last / PORTION
        return next(step for step, value in finite if value >= goal)
    goal = first + PORTION * (last - first)
    return next(step for step, value in finite if value <= goal)
