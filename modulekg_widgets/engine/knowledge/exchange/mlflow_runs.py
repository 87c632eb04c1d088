"""Runs of MLflow's file store (`mlruns/`) as jobs, data sets and users.

The folder is read as MLflow documents it. MLflow's own client refuses file stores unless an environment variable says
otherwise, writes into them when it opens them, and loses the step of a metric that belongs to a data set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from modulekg_widgets.engine.errors import GraphFileError, MissingPackageError, PropertyError, shown
from modulekg_widgets.engine.knowledge.contents import DataSetNode, JobNode, UserNode
from modulekg_widgets.engine.knowledge.exchange.files import checked_path
from modulekg_widgets.engine.knowledge.jobs import ACCURACIES, ACCURACY, accuracy_of, checked_seconds, convergence_of
from modulekg_widgets.engine.safe_files import read_whole

STATUS = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}
MOST_POINTS = 10_000  # of one metric; of more, some are left out between the first and the last
SETTINGS = frozenset({
    "name", "lifecycle_stage", "run_id", "run_uuid", "run_name", "status", "user_id", "start_time", "end_time",
    "digest", "source_id", "source_type", "tags",
})  # fmt: skip
_SMALL, _LARGE = 1 << 20, 1 << 28  # bytes of a tag or parameter, and of a file of settings or of a metric
_NONE = ("", "null", "~")
_PARSED = 1 << 15  # characters of YAML, which is parsed slowly
Point = tuple[float, float]
Found = tuple[list[DataSetNode], list[UserNode], list[JobNode]]


def mlflow_jobs(
    folder: str | os.PathLike[str],
    accuracy: str = "accuracy",
    model: str = "model",
    known: Container[str] | None = None,
) -> Found:
    """The data sets, users and jobs of all runs in the folder that are not deleted, oldest first.

    A job is called by the run's id, so that a run that is read twice is one job. `accuracy` is the metric whose last
    value is the job's accuracy ("accuracy" stands for all of `jobs.ACCURACIES`);
    values above 1 are percent. `model` is the tag or parameter with the model's name; with `known`, the names of the
    graph's models, others are left out. Of a metric with more than 10,000 points some are left out. Raises
    `GraphFileError` for a folder that is no such store.
    """
    store = _store(checked_path(folder))
    datasets: dict[str, DataSetNode] = {}
    users: dict[str, UserNode] = {}
    jobs: list[JobNode] = []
    for experiment in _with_settings(store):
        about = _settings(experiment / "meta.yaml")
        if about.get("lifecycle_stage", "active") != "active":
            continue
        for folder_of_run in _with_settings(experiment):
            run = _MLflowRun(folder_of_run, about.get("name", experiment.name))
            if not run.is_active:
                continue
            for dataset in run.datasets:
                datasets.setdefault(dataset.name, dataset)
            job = run.job(_accuracies(accuracy), model, known)
            if job.user is not None:
                users.setdefault(job.user, UserNode(job.user, {}))
            jobs.append(job)
    jobs.sort(key=lambda job: (job.started, job.name))
    return list(datasets.values()), list(users.values()), jobs


def _accuracies(accuracy: str) -> tuple[str, ...]:
    return ACCURACIES if accuracy == ACCURACY else (accuracy,)


def _store(folder: Path) -> Path:
    """The folder with the experiments: this one or its `mlruns`."""
    try:
        for place in (folder, folder / "mlruns"):
            if place.is_dir() and next(_with_settings(place), None) is not None:
                return place
    except (OSError, ValueError) as error:
        raise GraphFileError(f"{shown(str(folder))!r} cannot be read: {shown(str(error))}") from None
    raise GraphFileError(
        f"{shown(str(folder))!r} is no file store of MLflow: there is no experiment in it (a folder with a meta.yaml)"
    )


class _MLflowRun:
    """One run's folder."""

    def __init__(self, folder: Path, experiment: str) -> None:
        self.folder = folder
        self.experiment = experiment
        self.about = _settings(folder / "meta.yaml")
        self.is_active = self.about.get("lifecycle_stage", "active") == "active"

    @property
    def name(self) -> str:
        return self.about.get("run_id") or self.about.get("run_uuid") or self.folder.name

    @property
    def datasets(self) -> list[DataSetNode]:
        """The data sets that it was given, those for training first."""
        found: list[tuple[bool, DataSetNode]] = []
        for place in _with_settings(self.folder / "inputs"):
            given = _settings(place / "meta.yaml")
            source = given.get("source_id", "")
            about = self.folder.parent / "datasets" / source / "meta.yaml"
            if given.get("source_type") != "DATASET" or Path(source).name != source or not about.is_file():
                continue
            dataset, tags = _settings(about), given.get("tags")
            context = None if tags is None else tags.get("mlflow.data.context")
            facts = {key: dataset[key] for key in ("digest", "source_type") if key in dataset}
            found.append((context not in ("training", "train"), DataSetNode(dataset.get("name", source), facts)))
        return [dataset for _, dataset in sorted(found, key=lambda pair: (pair[0], pair[1].name))]

    def job(self, accuracies: tuple[str, ...], model: str, known: Container[str] | None) -> JobNode:
        tags, parameters = _texts(self.folder / "tags"), _texts(self.folder / "params")
        history = {name: _points(file) for name, file in _files(self.folder / "metrics")}
        trained = tags.get(model, parameters.get(model))
        started, ended = self._seconds("start_time"), self._seconds("end_time")
        datasets = [dataset.name for dataset in self.datasets]
        properties: dict[str, Any] = {
            "experiment": self.experiment,
            "run_name": tags.pop("mlflow.runName", None) or self.about.get("run_name") or "",
            "status": STATUS.get(self.about.get("status", ""), "UNKNOWN"),
            "params": parameters,
        }
        user = tags.pop("mlflow.user", None) or self.about.get("user_id")
        if len(datasets) > 1:
            properties["datasets"] = datasets
        began = started if started is not None else ended or 0.0
        return JobNode(
            self.name, user or None, datasets[0] if datasets else None,
            trained if trained is not None and (known is None or trained in known) else None,
            _accuracy(history, accuracies), convergence_of(history, accuracies), history, began,
            None if ended is None else max(began, ended), {**properties, "tags": tags},
        )  # fmt: skip

    def _seconds(self, name: str) -> float | None:
        value = self.about.get(name)
        if value is None:
            return None
        if not re.fullmatch("[0-9]{1,15}", value):
            raise GraphFileError(f"{name!r} of the run {shown(self.name)!r} is no time in milliseconds")
        try:
            return checked_seconds(int(value) / 1000, name)
        except PropertyError as error:
            raise GraphFileError(f"the run {shown(self.name)!r} has no time: {error}") from None


def _accuracy(history: dict[str, list[Point]], accuracies: tuple[str, ...]) -> float | None:
    """The last value as a fraction, if it can be an accuracy."""
    try:
        return accuracy_of(history, accuracies)
    except PropertyError:
        return None


# ------------------------------------------------------------------ files


def _with_settings(folder: Path) -> Iterator[Path]:
    """The folders within that have a `meta.yaml`, by name; links are not followed."""
    if not folder.is_dir():
        return
    for place in sorted(folder.iterdir()):
        if not place.is_symlink() and place.is_dir() and place.name != ".trash" and (place / "meta.yaml").is_file():
            yield place


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """The files below with their names; a name with slashes is a file in folders."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            yield path.relative_to(folder).as_posix(), path


def _texts(folder: Path) -> dict[str, str]:
    return {name: _read(file, _SMALL) for name, file in _files(folder)}


def _read(file: Path, most: int) -> str:
    try:
        return read_whole(file, most, links=False).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GraphFileError(f"{shown(str(file))!r} cannot be read: {shown(str(error))}") from None


def _points(file: Path) -> list[Point]:
    """A metric's values by step: a line each of time, value, step and, it may be, the data set's name and digest."""
    timed = []
    for line in filter(str.strip, _read(file, _LARGE).split("\n")):
        parts = line.split()
        try:
            timed.append((int(parts[2]) if len(parts) > 2 else 0, int(parts[0]), float(parts[1])))
        except (IndexError, ValueError):
            raise GraphFileError(
                f"{shown(str(file))!r} has the line {shown(line, 40)!r}: no metric of MLflow"
            ) from None
    timed.sort(key=lambda point: point[:2])
    stride = -(-len(timed) // MOST_POINTS) or 1
    kept = timed[::stride] if stride == 1 else [*timed[:-1:stride], timed[-1]]
    return [(float(step), value) for step, _, value in kept]


def _settings(file: Path) -> dict[str, Any]:
    """What a file of settings says that is of use here; the rest, which may be long, is not parsed."""
    try:
        import yaml
    except ImportError as error:
        hint = "pip install 'modulekg-widgets[mlflow]'"
        raise MissingPackageError(f"reading runs of MLflow needs PyYAML: {hint}") from error
    try:
        # this loader makes texts of all scalars and knows no objects
        found = yaml.load(_of_use(_read(file, _LARGE), file), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, GraphFileError):
            raise
        raise GraphFileError(f"{shown(str(file))!r} is no YAML: {shown(str(error))}") from None
    known = {key: value for key, value in found.items() if _is_setting(key, value)} if isinstance(found, dict) else {}
    if not known:
        raise GraphFileError(f"{shown(str(file))!r} is no file of settings of MLflow")
    return known


def _is_setting(key: str, value: object) -> bool:
    """Whether a value is a text; lists may hold themselves, or more than memory."""
    return value not in _NONE if isinstance(value, str) else key == "tags" and isinstance(value, dict)


def _of_use(text: str, file: Path) -> str:
    """The lines of the settings that are used, with the indented ones below each."""
    kept: list[str] = []
    wanted = False
    for line in text.split("\n"):
        if line[:1] not in ("", " "):
            wanted = line.partition(":")[0] in SETTINGS
        if wanted:
            kept.append(line)
    found = "\n".join(kept)
    if len(found) > _PARSED:
        raise GraphFileError(f"the settings in {shown(str(file))!r} are longer than {_PARSED:,} characters")
    return found
