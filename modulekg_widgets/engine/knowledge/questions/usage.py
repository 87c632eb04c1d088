"""Questions about use: structures, users and data sets by jobs and their accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modulekg_widgets.engine.knowledge.repository import GraphParts

if TYPE_CHECKING:
    import pandas as pd

    from modulekg_widgets.engine.knowledge.facts.jobs import TimeLike


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
    from modulekg_widgets.engine.knowledge.facts import usage

    return usage.most_used(self.contents(), n, level, over=over, since=since, until=until, user=user, dataset=dataset)


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
    from modulekg_widgets.engine.knowledge.facts import usage

    return usage.jobs_table(self.contents(), user, dataset, model, since, until)


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
    from modulekg_widgets.engine.knowledge.facts import usage

    return usage.module_statistics(self.contents(), dataset, level)


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
    from modulekg_widgets.engine.knowledge.facts import usage

    return usage.best_modules(self.contents(), n, level, dataset=dataset, top=top)
