"""Runs of MLflow as jobs, data sets and users: of a file store (`mlruns/`) or of a database (`mlflow.db`)."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from pathlib import Path

from modulekg_widgets.engine.errors import GraphFileError, shown
from modulekg_widgets.engine.knowledge.contents import DataSetNode, JobNode, UserNode
from modulekg_widgets.engine.knowledge.exchange.files import checked_path
from modulekg_widgets.engine.knowledge.exchange.mlflow_database import database_runs
from modulekg_widgets.engine.knowledge.exchange.mlflow_files import runs_in, store_in
from modulekg_widgets.engine.knowledge.exchange.mlflow_record import MLflowRun
from modulekg_widgets.engine.knowledge.jobs import ACCURACIES, ACCURACY

DATABASE = "mlflow.db"  # what MLflow 3 calls it
SQLITE = "sqlite:///"
Found = tuple[list[DataSetNode], list[UserNode], list[JobNode]]


def mlflow_jobs(
    path: str | os.PathLike[str],
    accuracy: str = ACCURACY,
    model: str = "model",
    known: Container[str] | None = None,
) -> Found:
    """The data sets, users and jobs of all runs in the store that are not deleted, oldest first.

    A job is called by the run's id, so that a run that is read twice is one job. `accuracy` is the metric whose last
    value is the job's accuracy ("accuracy" stands for all of `jobs.ACCURACIES`);
    values above 1 are percent. `model` is the tag or parameter with the model's name; with `known`, the names of the
    graph's models, others are left out. Of a metric with more than 10,000 points some are left out. Raises
    `GraphFileError` for what is no such store.
    """
    accuracies = ACCURACIES if accuracy == ACCURACY else (accuracy,)
    datasets: dict[str, DataSetNode] = {}
    users: dict[str, UserNode] = {}
    jobs: list[JobNode] = []
    for run in _runs(_path(path)):
        for dataset in run.datasets:
            datasets.setdefault(dataset.name, dataset)
        job = run.job(accuracies, model, known)
        if job.user is not None:
            users.setdefault(job.user, UserNode(job.user, {}))
        jobs.append(job)
    jobs.sort(key=lambda job: (job.started, job.name))
    return list(datasets.values()), list(users.values()), jobs


def _path(given: str | os.PathLike[str]) -> Path:
    """The path, which may be written as MLflow's own address of a database."""
    return checked_path(given.removeprefix(SQLITE) if isinstance(given, str) else given)


def _runs(path: Path) -> Iterable[MLflowRun]:
    try:
        database = next((place for place in (path, path / DATABASE) if place.is_file()), None)
    except (OSError, ValueError) as error:
        raise GraphFileError(f"{shown(str(path))!r} cannot be read: {shown(str(error))}") from None
    store = None if database == path else store_in(path)
    if store is not None:
        return runs_in(store)
    if database is not None:
        return database_runs(database)
    raise GraphFileError(
        f"{shown(str(path))!r} is no file store of MLflow, in which experiments are folders with a meta.yaml, and no "
        f"database: name the folder mlruns or the file {DATABASE}"
    )
