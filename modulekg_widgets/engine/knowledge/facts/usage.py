"""Usage tables: occurrences of structures over models, jobs, data sets and users."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from copy import deepcopy
from datetime import datetime, timezone
from statistics import fmean, pstdev

import pandas as pd

from modulekg_widgets.engine.errors import UnknownNameError, UnknownPathError, closest_match_hint, printable
from modulekg_widgets.engine.identity.levels import LEVELS
from modulekg_widgets.engine.knowledge.facts.contents import Contents, JobNode
from modulekg_widgets.engine.knowledge.facts.jobs import TimeLike, timestamp
from modulekg_widgets.engine.knowledge.facts.property_values import Properties
from modulekg_widgets.engine.knowledge.facts.records import ModelNode
from modulekg_widgets.engine.knowledge.facts.tables import data_frame

COUNTED_OVER = ("models", "jobs")
UTC_DTYPE = "datetime64[us, UTC]"
JOB_COLUMNS = ["job", "user", "dataset", "model", "accuracy", "convergence", "started", "ended", "properties"]


def most_used(
    contents: Contents,
    n: int = 10,
    level: str | None = None,
    *,
    over: str = "models",
    since: TimeLike = None,
    until: TimeLike = None,
    user: str | None = None,
    dataset: str | None = None,
) -> pd.DataFrame:
    """The `n` structures with most occurrences, as `name`, `count`, `models`, `class`, `hyperparameters`.

    `level` counts only occurrences as `model`, `stage`, `block` or `op`. `over="jobs"` counts each model once for every
    job that trained it. `since` and `until` keep the models of jobs that ran in that time, `user` and `dataset` those
    of their jobs.
    """
    checked_level(level)
    n = checked_number(n)
    if over not in COUNTED_OVER:
        raise UnknownNameError(
            f"nothing is counted over {printable(str(over))!r}: {closest_match_hint(str(over), COUNTED_OVER)}"
        )
    times: Counter[str] = Counter()
    if over == "jobs" or not all(value is None for value in (since, until, user, dataset)):
        trained = Counter(job.model for job in filter_jobs(contents, user, dataset, None, since, until))
        times.update({name: count if over == "jobs" else 1 for name, count in trained.items() if name is not None})
    else:
        times.update(dict.fromkeys(contents.models, 1))
    uses: Counter[str] = Counter()
    holders: Counter[str] = Counter()
    for name, weight in times.items():
        here = occurrences_at_level(contents.models[name], level)
        uses.update({key: count * weight for key, count in here.items()})
        holders.update(dict.fromkeys(here, 1))
    names = contents.names
    ranked = sorted(uses, key=lambda key: (-uses[key], -holders[key], names[key]))[:n]
    rows = [(names[key], uses[key], holders[key], *_described(contents, key)) for key in ranked]
    return data_frame(rows, ["name", "count", "models", "class", "hyperparameters"])


def jobs_table(
    contents: Contents,
    user: str | None = None,
    dataset: str | None = None,
    model: str | None = None,
    since: TimeLike = None,
    until: TimeLike = None,
) -> pd.DataFrame:
    """Returns a row per job, oldest first, with user, data set, model, accuracy (fraction) and steps to converge.

    Columns: `job`, `user`, `dataset`, `model`, `accuracy`, `convergence`, `started`, `ended` and `properties`.

    `user`, `dataset`, `model` and the times keep the jobs of these alone. `started` and `ended` are in UTC.
    """
    jobs = sorted(filter_jobs(contents, user, dataset, model, since, until), key=lambda job: (job.started, job.name))
    rows = [
        (
            job.name, job.user, job.dataset, job.model, job.accuracy, job.convergence, job.started, job.ended,
            deepcopy(job.properties),
        )
        for job in jobs
    ]  # fmt: skip
    found = data_frame(rows, JOB_COLUMNS).astype({"accuracy": float, "convergence": float})
    times = {column: [_utc(seconds) for seconds in found[column]] for column in ("started", "ended")}
    return found.assign(**{column: pd.Series(moments, dtype=UTC_DTYPE) for column, moments in times.items()})


def module_statistics(contents: Contents, dataset: str | None = None, level: str | None = None) -> pd.DataFrame:
    """Accuracy and convergence of each module over the jobs whose models contain it, most jobs first.

    Columns: `name`, `class`, `jobs`, `accuracy` (mean fraction), `accuracy_std`, `best`, `convergence` (mean steps).
    """
    checked_level(level)
    of: dict[str, list[JobNode]] = {}
    for job in filter_jobs(contents, None, dataset):
        if job.model is not None:
            for key in occurrences_at_level(contents.models[job.model], level):
                of.setdefault(key, []).append(job)
    names = contents.names
    rows = [
        (
            names[key],
            contents.modules[key].class_name,
            len(jobs),
            *_accuracies(jobs),
            _mean(j.convergence for j in jobs),
        )
        for key, jobs in of.items()
    ]
    columns = ["name", "class", "jobs", "accuracy", "accuracy_std", "best", "convergence"]
    return data_frame(rows, columns).sort_values(
        ["jobs", "best", "name"], ascending=[False, False, True], ignore_index=True
    )


def best_modules(
    contents: Contents, n: int = 10, level: str | None = "block", *, dataset: str | None = None, top: int = 5
) -> pd.DataFrame:
    """The modules that most of the `top` models with the best accuracy contain: blocks, unless `level` says otherwise.

    Columns: `name`, `models` (of the best that contain it), `count`, `accuracy` (the best of them), `in_others` (how
    many of the other trained models contain it), `class`, `hyperparameters`.
    """
    checked_level(level)
    n, top = checked_number(n), checked_number(top)
    best = best_accuracies(contents, dataset)
    ranked = sorted(best, key=lambda name: (-best[name], name))
    leading = ranked[:top]
    holders: dict[str, list[str]] = {}
    uses: Counter[str] = Counter()
    for name in leading:
        for key, count in occurrences_at_level(contents.models[name], level).items():
            holders.setdefault(key, []).append(name)
            uses[key] += count
    others: Counter[str] = Counter()
    for name in ranked[top:]:
        others.update(dict.fromkeys(occurrences_at_level(contents.models[name], level), 1))
    names = contents.names
    order = sorted(holders, key=lambda k: (-len(holders[k]), others[k], -uses[k], names[k]))[:n]
    rows = [
        (names[k], len(holders[k]), uses[k], best[holders[k][0]], others[k], *_described(contents, k)) for k in order
    ]
    columns = ["name", "models", "count", "accuracy", "in_others", "class", "hyperparameters"]
    return data_frame(rows, columns)


def best_accuracies(contents: Contents, dataset: str | None = None) -> dict[str, float]:
    """The best accuracy of each model that a job trained, as a fraction."""
    best: dict[str, float] = {}
    for job in filter_jobs(contents, None, dataset):
        if job.model is not None and job.accuracy is not None:
            best[job.model] = max(job.accuracy, best.get(job.model, 0.0))
    return best


def filter_jobs(
    contents: Contents,
    user: str | None = None,
    dataset: str | None = None,
    model: str | None = None,
    since: TimeLike = None,
    until: TimeLike = None,
) -> list[JobNode]:
    """Returns the jobs of these names and times; raises `UnknownPathError` for unknown names. Raises `UnknownPathError`
    for unknown names.
    """
    for kind, name, known in (
        ("user", user, contents.users), ("data set", dataset, contents.datasets), ("model", model, contents.models)
    ):  # fmt: skip
        if name is not None and (not isinstance(name, str) or name not in known):
            raise unknown_name_error(kind, name, known)
    first, last = timestamp(since, "since"), timestamp(until, "until")
    return [
        job
        for job in contents.jobs.values()
        if (user is None or job.user == user)
        and (dataset is None or job.dataset == dataset)
        and (model is None or job.model == model)
        and (first is None or (job.started if job.ended is None else job.ended) >= first)
        and (last is None or job.started <= last)
    ]


def occurrences_at_level(model: ModelNode, level: str | None) -> Counter[str]:
    """Number of occurrences of each structure in `model`, at one level or at any."""
    uses: Counter[str] = Counter()
    for (key, at), count in model.occurrences.items():
        if level is None or at == level:
            uses[key] += count
    return uses


def structures_at_level(contents: Contents, level: str | None) -> Collection[str]:
    """Returns the structures at one level of some model, or all; raises `UnknownNameError`."""
    checked_level(level)
    if level is None:
        return contents.modules
    return {key for model in contents.models.values() for key, at in model.occurrences if at == level}


def checked_level(level: str | None) -> None:
    """Raise `UnknownNameError` for what is no level."""
    if level is not None and level not in LEVELS:
        raise UnknownNameError(f"there is no level {printable(str(level))!r}: {closest_match_hint(str(level), LEVELS)}")


def checked_number(n: int) -> int:
    """A number of rows; raises `UnknownNameError` for anything else, such as a level in its place."""
    if isinstance(n, bool) or not hasattr(n, "__index__") or n < 0:
        raise UnknownNameError(
            f"{printable(repr(n))} is no number of rows: give one first, as most_used(10, level='op')"
        )
    return operator.index(n)


def unknown_name_error(kind: str, name: object, known: Iterable[str]) -> UnknownPathError:
    """Returns the error for an unknown name, with similar names."""
    return UnknownPathError(f"there is no {kind} {printable(str(name))!r}: {closest_match_hint(str(name), known)}")


def _described(contents: Contents, key: str) -> tuple[str, Properties]:
    return contents.modules[key].class_name, deepcopy(contents.modules[key].hyperparameters)


def _accuracies(jobs: list[JobNode]) -> tuple[float, float, float]:
    known = [job.accuracy for job in jobs if job.accuracy is not None]
    return _mean(known), _apply(pstdev, known), _apply(max, known)


def _mean(values: Iterable[float | None]) -> float:
    return _apply(fmean, [value for value in values if value is not None])


def _apply(statistic: Callable[[list[float]], float], values: list[float]) -> float:
    return statistic(values) if values else float("nan")


def _utc(seconds: float | None) -> datetime | None:
    return None if seconds is None or seconds != seconds else datetime.fromtimestamp(seconds, timezone.utc)
