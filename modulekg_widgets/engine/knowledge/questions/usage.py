"""Questions about use: structures, users and data sets by jobs and their accuracy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from copy import deepcopy
from datetime import datetime, timezone
from statistics import fmean, pstdev

import pandas as pd

from modulekg_widgets.engine.errors import UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.knowledge.facts.contents import Contents, JobNode
from modulekg_widgets.engine.knowledge.facts.jobs import TimeLike
from modulekg_widgets.engine.knowledge.facts.property_values import Properties
from modulekg_widgets.engine.knowledge.facts.tables import data_frame
from modulekg_widgets.engine.knowledge.facts.usage import (
    checked_level,
    checked_number,
    filter_jobs,
    occurrences_at_level,
)
from modulekg_widgets.engine.knowledge.repository import GraphParts

COUNTED_OVER = ("models", "jobs")
UTC_DTYPE = "datetime64[us, UTC]"
JOB_COLUMNS = ["job", "user", "dataset", "model", "accuracy", "convergence", "started", "ended", "properties"]


def most_used(
    self: GraphParts,
    n: int = 10,
    level: str | None = None,
    *,
    over: str = "models",
    since: TimeLike = None,
    until: TimeLike = None,
    user: str | None = None,
    dataset: str | None = None,
) -> pd.DataFrame:
    """Returns the structures with the most occurrences.

    Parameters
    ----------
    n : int, default 10
        The number of rows at most.
    level : {"model", "stage", "block", "op"}, optional
        Counts only occurrences at that level of the hierarchy.
    over : {"models", "jobs"}, default "models"
        Whether a model counts once, or once for every job that trained it.
    since, until : datetime, date, str or float, optional
        Keep the models of jobs that ran in that time; texts in ISO format, floats in seconds since 1970.
    user, dataset : str, optional
        Keep the models of jobs of that user, on that data set.

    Returns
    -------
    pandas.DataFrame
        `name` (display name), `count` (occurrences), `models` (how many have it), `class`, `hyperparameters`; the
        most used first.

    Raises
    ------
    UnknownNameError
        For another level, a number that is none, or another `over`.
    UnknownPathError
        For a user or data set that is not in the graph.
    PropertyError
        For a time that is none.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> digest = kg.add_model(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU(), torch.nn.Linear(2, 2)))
    >>> kg.most_used(1)[["count", "models", "class"]].values.tolist()
    [[2, 1, 'ReLU']]
    """
    contents = self.contents()
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


def jobs(
    self: GraphParts,
    user: str | None = None,
    dataset: str | None = None,
    model: str | None = None,
    since: TimeLike = None,
    until: TimeLike = None,
) -> pd.DataFrame:
    """Returns the jobs with user, data set, model, accuracy and times.

    Parameters
    ----------
    user, dataset, model : str, optional
        Keep the jobs of these alone.
    since, until : datetime, date, str or float, optional
        Keep the jobs that ran in that time; texts in ISO format, floats in seconds since 1970.

    Returns
    -------
    pandas.DataFrame
        A row per job, oldest first: `job`, `user`, `dataset`, `model`, `accuracy` (fraction), `convergence` (steps
        until 95 % of the way to the final value), `started` and `ended` (UTC), `properties`.

    Raises
    ------
    UnknownPathError
        For a user, data set or model that is not in the graph.
    PropertyError
        For a time that is none.
    """
    contents = self.contents()
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


def module_statistics(self: GraphParts, dataset: str | None = None, level: str | None = None) -> pd.DataFrame:
    """Accuracy and convergence of each module over the jobs whose models contain it.

    Parameters
    ----------
    dataset : str, optional
        Keeps the jobs on that data set.
    level : {"model", "stage", "block", "op"}, optional
        Counts only occurrences at that level of the hierarchy.

    Returns
    -------
    pandas.DataFrame
        `name`, `class`, `jobs` (how many), `accuracy` (mean, as a fraction), `accuracy_std` (of the population),
        `best`, `convergence` (mean, in steps); most jobs first. NaN where no job tells.

    Raises
    ------
    UnknownPathError
        For a data set that is not in the graph.
    UnknownNameError
        For another level.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> digest = kg.add_model(torch.nn.ReLU(), name="one")
    >>> jobs = [kg.add_job(model="one", accuracy=percent) for percent in (50, 75)]
    >>> kg.module_statistics()[["class", "jobs", "accuracy", "best"]].values.tolist()
    [['ReLU', 2, 0.625, 0.75]]
    """
    contents = self.contents()
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
    self: GraphParts, n: int = 10, level: str | None = "block", *, dataset: str | None = None, top: int = 5
) -> pd.DataFrame:
    """The modules that most of the models with the best accuracy contain.

    Parameters
    ----------
    n : int, default 10
        The number of rows at most.
    level : {"model", "stage", "block", "op"} or None, default "block"
        Which modules count; None for all.
    dataset : str, optional
        Keeps the jobs on that data set.
    top : int, default 5
        How many models are the best, each by its best job.

    Returns
    -------
    pandas.DataFrame
        `name`, `models` (of the best that contain it), `count` (occurrences in them), `accuracy` (the best of these
        models, as a fraction), `in_others` (how many of the other trained models contain it), `class`,
        `hyperparameters`.

    Raises
    ------
    UnknownPathError
        For a data set that is not in the graph.
    UnknownNameError
        For another level, or a number that is none.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> for name, act in {"good": torch.nn.GELU(), "bad": torch.nn.ReLU()}.items():
    ...     digest = kg.add_model(torch.nn.Sequential(torch.nn.Linear(2, 2), act), name=name)
    ...     job = kg.add_job(model=name, accuracy=0.9 if name == "good" else 0.5)
    >>> kg.best_modules(level="op", top=1)[["class", "accuracy", "in_others"]].values.tolist()
    [['GELU', 0.9, 0], ['Linear', 0.9, 1]]
    """
    contents = self.contents()
    checked_level(level)
    n, top = checked_number(n), checked_number(top)
    best = _best_accuracies(contents, dataset)
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


def _best_accuracies(contents: Contents, dataset: str | None = None) -> dict[str, float]:
    """The best accuracy of each model that a job trained, as a fraction."""
    best: dict[str, float] = {}
    for job in filter_jobs(contents, None, dataset):
        if job.model is not None and job.accuracy is not None:
            best[job.model] = max(job.accuracy, best.get(job.model, 0.0))
    return best


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
