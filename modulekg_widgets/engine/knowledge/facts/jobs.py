"""Training runs as users describe them, checked and made into records."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import date, datetime, timezone
from numbers import Real
from pathlib import PurePath

import numpy as np
import pandas as pd
import torch

from modulekg_widgets.engine.errors import PropertyError, UnknownNameError, a_type, printable
from modulekg_widgets.engine.knowledge.facts.contents import JobNode
from modulekg_widgets.engine.knowledge.facts.property_values import Properties, PropertyValue, encode
from modulekg_widgets.engine.knowledge.facts.results import check_results

CONVERGED_SHARE = 0.95  # of the way to the final value: where a run counts as converged
ACCURACY = "accuracy"  # the metric that a history without names is of
# metrics that are an accuracy, whoever names them; the first that a history has is the job's
ACCURACIES = (ACCURACY, "acc", "val_accuracy", "val_acc", "test_accuracy", "test_acc", "acc@1", "top1", "eval_accuracy")
ROUNDING_TOLERANCE = 1e-3  # above 1, of a fraction that was computed in half precision
MAX_ARRAY_VALUES = 1000  # of an array among the properties
MAX_POINTS = 10_000  # of one metric that others have written; of more, some are left out between first and last
TimeLike = datetime | date | str | float | int | None
Point = tuple[float, float]
Points = Sequence[object]


def job_node(
    name: str | None = None,
    *,
    user: str | None = None,
    dataset: str | None = None,
    model: str | None = None,
    accuracy: float | None = None,
    history: Mapping[str, Points] | Points | None = None,
    started: TimeLike = None,
    ended: TimeLike = None,
    properties: Mapping[str, object] | None = None,
) -> JobNode:
    """Returns a checked job; raises `PropertyError` or `UnknownNameError` for invalid values.

    `accuracy` as a fraction or in percent (above 1), kept as a fraction; left out, it is the last of the first metric
    in `history` that is called one of `ACCURACIES`. `history` is a list of accuracies, or a dictionary of lists by
    metric: of values, of (step, value), or {step: value}. `started` and `ended` are datetimes, ISO texts or seconds
    since 1970; a job without either starts now.
    """
    metrics = parse_history(history)
    began, end = timestamp(started, "started"), timestamp(ended, "ended")
    if began is None:
        began = time.time() if end is None else end
    if end is not None and end < began:
        raise PropertyError(f"the job ends before it starts: {end} < {began} (seconds since 1970)")
    for kind, end_name in (("user", user), ("data set", dataset), ("model", model)):
        if end_name is not None:
            checked_name(end_name, kind)
    name = uuid.uuid4().hex if name is None else checked_name(name, "job")
    kept = checked_properties(properties or {})
    check_results(kept)
    return JobNode(
        name, user, dataset, model, accuracy_of(metrics) if accuracy is None else accuracy_fraction(accuracy),
        convergence_of(metrics), metrics, began, end, kept,
    )  # fmt: skip


def checked_name(name: object, what: str) -> str:
    """`name`, if it is a text; raises `UnknownNameError`."""
    if not isinstance(name, str):
        raise UnknownNameError(f"a {what} is named by a text, got {a_type(name)}")
    return name


def checked_properties(properties: Mapping[str, object]) -> Properties:
    """The properties as plain values that the store can keep; raises `PropertyError` naming the one that it cannot."""
    found = {name: plain_value(value) for name, value in properties.items()}
    for name, value in found.items():
        encode(value, name)
    return found


def plain_value(value: PropertyValue, depth: int = 8) -> PropertyValue:
    """Returns usual containers, paths, dates and small arrays as Python's own values, and other values unchanged."""
    if depth and isinstance(value, Mapping):
        return {key: plain_value(item, depth - 1) for key, item in value.items()}
    if depth and isinstance(value, (tuple, list)):
        items = [plain_value(item, depth - 1) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    if (
        isinstance(value, (np.ndarray, torch.Tensor))
        and math.prod(value.shape) <= MAX_ARRAY_VALUES
        and not _is_meta(value)
    ):
        return value.tolist()
    return value


def _is_meta(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_meta


def accuracy_fraction(accuracy: object, percent: bool | None = None) -> float:
    """Returns an accuracy as a fraction, given as one or, above 1, in percent; raises `PropertyError` outside 0 … 100.

    `percent` says which, where that is known.
    """
    value = _number(accuracy, "accuracy")
    if not 0 <= value <= 100:
        raise PropertyError(f"accuracy is {value:g}: give a fraction from 0 to 1, or percent up to 100")
    is_percent = value > 1 + ROUNDING_TOLERANCE if percent is None else percent
    return value / 100 if is_percent else min(value, 1.0)


def parse_history(history: Mapping[str, Points] | Points | None) -> dict[str, list[Point]]:
    """The metrics of a history by name, each as (step, value) in the order of the steps."""
    if history is None:
        return {}
    if isinstance(history, Mapping):
        return {checked_name(metric, "metric"): _points(points, str(metric)) for metric, points in history.items()}
    return {ACCURACY: _points(history, ACCURACY)}


def _points(points: object, metric: str) -> list[Point]:
    if isinstance(points, Mapping):
        points = list(points.items())
    if isinstance(points, (np.ndarray, torch.Tensor)):
        points = points.tolist()
    if isinstance(points, (str, bytes, Set)) or not isinstance(points, Iterable):
        raise PropertyError(f"the history of {printable(metric)!r} is {a_type(points)}: give a list of values")
    found = [_point(step, point, metric) for step, point in enumerate(points)]
    return sorted(found, key=lambda point: point[0])


def sampled_indices(count: int) -> list[int]:
    """Returns the indices of at most about `MAX_POINTS` of `count` points, with the first and the last."""
    stride = -(-count // MAX_POINTS) or 1
    return [*range(0, count - 1, stride), count - 1] if count else []


def _point(step: int, point: object, metric: str) -> Point:
    if isinstance(point, (tuple, list)):
        if len(point) != 2:
            raise PropertyError(
                f"the history of {printable(metric)!r} holds {len(point)} values at one place: give (step, value)"
            )
        return _number(point[0], f"a step of {metric}"), _number(point[1], metric, finite=False)
    return float(step), _number(point, metric, finite=False)


def _number(value: PropertyValue, what: str, finite: bool = True) -> float:
    if isinstance(value, bool) or not (isinstance(value, Real) or hasattr(value, "item")):
        raise PropertyError(f"{printable(what)} is {a_type(value)}: give a number")
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise PropertyError(f"{printable(what)} is not a number: {printable(str(error))}") from None
    if finite and not math.isfinite(number):
        raise PropertyError(f"{printable(what)} is {number}: give a finite number")
    return number


def timestamp(value: TimeLike, what: str) -> float | None:
    """Seconds since 1970 of a datetime (without a zone: local time), a date, an ISO text, or such seconds."""
    if value is None:
        return None
    if isinstance(value, (str, date, np.datetime64)):
        try:
            # pandas' own has nanoseconds, and no method for the local zone
            given = value if type(value) is datetime else pd.Timestamp(value).floor("us").to_pydatetime()
            value = given.astimezone(timezone.utc).timestamp()
        except (ValueError, TypeError, OverflowError, OSError, AttributeError) as error:
            raise PropertyError(f"{what} is not a time: {printable(str(error))}") from None
    return checked_seconds(value, what)


def checked_seconds(value: object, what: str) -> float:
    """`value`, if a calendar has a moment so many seconds after 1970; raises `PropertyError`."""
    seconds = _number(value, what)
    try:
        datetime.fromtimestamp(seconds, timezone.utc)
    except (ValueError, OverflowError, OSError):
        raise PropertyError(
            f"{what} is {seconds:g} seconds after 1970, in no calendar: are these milliseconds?"
        ) from None
    return seconds


def accuracy_of(metrics: Mapping[str, list[Point]], accuracies: Sequence[str] = ACCURACIES) -> float | None:
    """The last accuracy of a history, as a fraction; given in percent if any of its values is above 1.

    None where the history tells none, or ends in NaN.
    """
    metric = _main_metric(metrics, accuracies)
    values = [value for _, value in metrics.get(metric, [])] if metric in accuracies else []
    if not values or not math.isfinite(values[-1]):
        return None
    return accuracy_fraction(values[-1], percent=any(value > 1 + ROUNDING_TOLERANCE for value in values))


def convergence_of(metrics: Mapping[str, list[Point]], accuracies: Sequence[str] = ACCURACIES) -> float | None:
    """The steps in which the accuracy, or else the first metric of a history, converged."""
    metric = _main_metric(metrics, accuracies)
    return steps_to_converge(metrics.get(metric, []), rises=metric in accuracies)


def _main_metric(metrics: Mapping[str, list[Point]], accuracies: Sequence[str]) -> str:
    """Returns the metric by which a run is judged: an accuracy, else the first."""
    return next((name for name in accuracies if metrics.get(name)), next(iter(metrics), ""))


def steps_to_converge(points: Sequence[Point], rises: bool = False) -> float | None:
    """The first step at which 95 % of the final value is reached; of a falling metric, 95 % of the whole fall.

    An accuracy `rises`, even where it ends below its first value. None for less than two finite values.
    """
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    if len(finite) < 2:
        return None
    first, last = finite[0][1], finite[-1][1]
    if rises or last >= first:
        goal = CONVERGED_SHARE * last if last >= 0 else last / CONVERGED_SHARE
        return next(step for step, value in finite if value >= goal)
    goal = first + CONVERGED_SHARE * (last - first)
    return next(step for step, value in finite if value <= goal)
