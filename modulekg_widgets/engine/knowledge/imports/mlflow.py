"""Jobs, data sets and users from an MLflow file store (`mlruns/`) or database (`mlflow.db`)."""

from __future__ import annotations

import math
import os
import re
import sqlite3
import sys
from array import array
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from modulekg_widgets.engine.errors import GraphFileError, MissingPackageError, PropertyError, StoreError, printable
from modulekg_widgets.engine.knowledge.exchange.graph_files import MAX_FILE_BYTES, checked_path
from modulekg_widgets.engine.knowledge.facts.contents import DataSetNode, JobNode, UserNode
from modulekg_widgets.engine.knowledge.facts.jobs import (
    ACCURACIES,
    ACCURACY,
    Point,
    accuracy_of,
    checked_seconds,
    convergence_of,
    sampled_indices,
)
from modulekg_widgets.engine.knowledge.facts.property_values import Properties
from modulekg_widgets.engine.knowledge.store.sqlite_file import foreign_database, plain_columns
from modulekg_widgets.engine.safe_files import read_bounded

# -------------------- A run of MLflow, as both kinds of stores hold it, and its conversion to a job


RUN_STATUS = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}
ACTIVE = "active"  # the stage of what is not deleted
CONTEXT_TAG = "mlflow.data.context"  # the tag that says what a data set was given for
Settings: TypeAlias = dict[str, Any]  # of a `meta.yaml`, whose scalars are all texts
MAX_TEXT_BYTES = 1 << 20  # bytes of a tag or parameter


@dataclass(slots=True)
class MLflowRun:
    """One run that is not deleted; times are in milliseconds since 1970, as stored."""

    name: str
    experiment: str
    run_name: str
    status: str
    user: str | None
    started: str | int | None
    ended: str | int | None
    params: dict[str, str]
    tags: dict[str, str]
    datasets: list[DataSetNode]  # those for training first
    history: dict[str, list[Point]]

    def job(self, accuracies: tuple[str, ...], model: str, known: Container[str] | None) -> JobNode:
        """The job; its accuracy is the last value of the first of `accuracies` that it has."""
        tags = dict(self.tags)
        trained = tags.get(model, self.params.get(model))
        started, ended = self._seconds("start_time", self.started), self._seconds("end_time", self.ended)
        datasets = [dataset.name for dataset in self.datasets]
        properties: Properties = {
            "experiment": self.experiment,
            "run_name": tags.pop("mlflow.runName", None) or self.run_name,
            "status": self.status,
            "params": self.params,
        }
        user = tags.pop("mlflow.user", None) or self.user
        if len(datasets) > 1:
            properties["datasets"] = datasets
        began = started if started is not None else ended or 0.0
        return JobNode(
            self.name, user or None, datasets[0] if datasets else None,
            trained if trained is not None and (known is None or trained in known) else None,
            self._accuracy(accuracies), convergence_of(self.history, accuracies), self.history, began,
            None if ended is None else max(began, ended), {**properties, "tags": tags},
        )  # fmt: skip

    def _seconds(self, what: str, value: object) -> float | None:
        if value is None:
            return None
        if isinstance(value, bool) or not re.fullmatch("[0-9]{1,15}", str(value)):
            raise GraphFileError(f"{what!r} of the run {printable(self.name)!r} is not a time in milliseconds")
        try:
            return checked_seconds(int(str(value)) / 1000, what)
        except PropertyError as error:
            raise GraphFileError(f"the run {printable(self.name)!r} has no time: {error}") from None

    def _accuracy(self, accuracies: tuple[str, ...]) -> float | None:
        """The last value as a fraction, if it can be an accuracy."""
        try:
            return accuracy_of(self.history, accuracies)
        except PropertyError:
            return None


def sort_datasets(inputs: Iterable[tuple[str | None, DataSetNode]]) -> list[DataSetNode]:
    """Returns data sets sorted by context, those for training first, then by name."""
    ordered = sorted(inputs, key=lambda pair: (pair[0] not in ("training", "train"), pair[1].name))
    return [dataset for _, dataset in ordered]


# -------------------- Reader of MLflow's file store (`mlruns/`) by its documented layout
# MLflow's own client refuses file stores unless an environment variable says otherwise, writes into them when it opens
# them, and loses the step of a metric that belongs to a data set.


SETTINGS = frozenset({
    "name", "lifecycle_stage", "run_id", "run_uuid", "run_name", "status", "user_id", "start_time", "end_time",
    "digest", "source_id", "source_type", "tags",
})  # fmt: skip
_MAX_FILE_BYTES = 1 << 28  # bytes of a file of settings or of a metric
_EMPTY = ("", "null", "~")
_MAX_YAML_LENGTH = 1 << 15  # characters of YAML, which is parsed slowly


def find_file_store(folder: Path) -> Path | None:
    """The folder with the experiments: this one or its `mlruns`."""
    try:
        for place in (folder, folder / "mlruns"):
            if place.is_dir() and next(_folders_with_settings(place), None) is not None:
                return place
    except (OSError, ValueError) as error:
        raise GraphFileError(f"{printable(str(folder))!r} cannot be read: {printable(str(error))}") from None
    return None


def read_file_runs(store: Path) -> Iterator[MLflowRun]:
    """The runs of a file store that are not deleted; raises `GraphFileError` for files that are none of MLflow's."""
    for experiment in _folders_with_settings(store):
        about = _settings(experiment / "meta.yaml")
        if about.get("lifecycle_stage", ACTIVE) != ACTIVE:
            continue
        for folder in _folders_with_settings(experiment):
            settings = _settings(folder / "meta.yaml")
            if settings.get("lifecycle_stage", ACTIVE) == ACTIVE:
                yield _run(folder, settings, about.get("name", experiment.name))


def _run(folder: Path, about: Settings, experiment: str) -> MLflowRun:
    return MLflowRun(
        about.get("run_id") or about.get("run_uuid") or folder.name,
        experiment,
        about.get("run_name") or "",
        RUN_STATUS.get(about.get("status", ""), "UNKNOWN"),
        about.get("user_id"),
        about.get("start_time"),
        about.get("end_time"),
        _texts(folder / "params"),
        _texts(folder / "tags"),
        sort_datasets(_datasets(folder)),
        {name: _points(file) for name, file in _files(folder / "metrics")},
    )


def _datasets(folder: Path) -> Iterator[tuple[str | None, DataSetNode]]:
    """Yields the data sets of a run with their context."""
    for place in _folders_with_settings(folder / "inputs"):
        given = _settings(place / "meta.yaml")
        source = given.get("source_id", "")
        about = folder.parent / "datasets" / source / "meta.yaml"
        if given.get("source_type") != "DATASET" or Path(source).name != source or not about.is_file():
            continue
        dataset, tags = _settings(about), given.get("tags")
        facts = {key: dataset[key] for key in ("digest", "source_type") if key in dataset}
        yield None if tags is None else tags.get(CONTEXT_TAG), DataSetNode(dataset.get("name", source), facts)


# ------------------------------------------------------------------ files


def _folders_with_settings(folder: Path) -> Iterator[Path]:
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
    return {name: _read(file, MAX_TEXT_BYTES) for name, file in _files(folder)}


def _read(file: Path, max_bytes: int) -> str:
    try:
        return read_bounded(file, max_bytes, links=False).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GraphFileError(f"{printable(str(file))!r} cannot be read: {printable(str(error))}") from None


def _points(file: Path) -> list[Point]:
    """A metric's values by step: a line each of time, value, step and, it may be, the data set's name and digest."""
    timed = []
    for line in filter(str.strip, _read(file, _MAX_FILE_BYTES).split("\n")):
        parts = line.split()
        try:
            timed.append((int(parts[2]) if len(parts) > 2 else 0, int(parts[0]), float(parts[1])))
        except (IndexError, ValueError):
            raise GraphFileError(
                f"{printable(str(file))!r} has the line {printable(line, 40)!r}: no metric of MLflow"
            ) from None
    timed.sort(key=lambda point: point[:2])
    return [(float(timed[place][0]), timed[place][2]) for place in sampled_indices(len(timed))]


def _settings(file: Path) -> Settings:
    """Returns the used settings of a `meta.yaml`; others, which may be long, are not parsed."""
    try:
        import yaml
    except ImportError as error:
        hint = "pip install 'modulekg-widgets[mlflow]'"
        raise MissingPackageError(f"reading runs of MLflow needs PyYAML: {hint}") from error
    try:
        # this loader makes texts of all scalars and knows no objects
        found = yaml.load(_used_lines(_read(file, _MAX_FILE_BYTES), file), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, GraphFileError):
            raise
        raise GraphFileError(f"{printable(str(file))!r} is not YAML: {printable(str(error))}") from None
    known = {key: value for key, value in found.items() if _is_setting(key, value)} if isinstance(found, dict) else {}
    if not known:
        raise GraphFileError(f"{printable(str(file))!r} is not a file of settings of MLflow")
    return known


def _is_setting(key: str, value: object) -> bool:
    """True for a text that is not empty, and for the mapping of tags."""
    return value not in _EMPTY if isinstance(value, str) else key == "tags" and isinstance(value, dict)


def _used_lines(text: str, file: Path) -> str:
    """Returns the lines of used settings, with the indented lines below each."""
    kept: list[str] = []
    wanted = False
    for line in text.split("\n"):
        if line[:1] not in ("", " "):
            wanted = line.partition(":")[0] in SETTINGS
        if wanted:
            kept.append(line)
    found = "\n".join(kept)
    if len(found) > _MAX_YAML_LENGTH:
        raise GraphFileError(
            f"the settings in {printable(str(file))!r} are longer than {_MAX_YAML_LENGTH:,} characters"
        )
    return found


# --------------------
# Read-only access to MLflow's SQLite database, the default of MLflow 3, with checks of every value.


READ_SECONDS = 30.0  # for a file of up to 64 MiB, and as long again for each further 64
ROW_BYTES = 100  # in memory, beside its texts
INFINITY_VALUE = sys.float_info.max  # what MLflow's database keeps of an infinity
TABLES = {
    "experiments": ("experiment_id", "name", "lifecycle_stage"),
    "runs": ("run_uuid", "name", "user_id", "status", "start_time", "end_time", "lifecycle_stage", "experiment_id"),
    "metrics": ("key", "value", "timestamp", "run_uuid", "step", "is_nan"),
    "params": ("key", "value", "run_uuid"),
    "tags": ("key", "value", "run_uuid"),
}
DATASET_TABLES = {  # since MLflow 2.4
    "datasets": ("dataset_uuid", "name", "digest", "dataset_source_type"),
    "inputs": ("input_uuid", "source_type", "source_id", "destination_type", "destination_id"),
    "input_tags": ("input_uuid", "name", "value"),
}
_ACTIVE_RUNS = (
    f"(SELECT r.run_uuid AS id FROM runs r JOIN experiments e ON e.experiment_id = r.experiment_id "
    f"WHERE coalesce(r.lifecycle_stage, '{ACTIVE}') = '{ACTIVE}' "
    f"AND coalesce(e.lifecycle_stage, '{ACTIVE}') = '{ACTIVE}')"
)
_RUNS = (
    "SELECT r.run_uuid, coalesce(e.name, CAST(e.experiment_id AS TEXT)), r.name, r.status, r.user_id, r.start_time, "
    f"r.end_time FROM runs r JOIN experiments e ON e.experiment_id = r.experiment_id WHERE r.run_uuid IN {_ACTIVE_RUNS}"
)
_METRICS = (
    f"SELECT run_uuid, key, step, value, is_nan FROM metrics WHERE run_uuid IN {_ACTIVE_RUNS} "
    "ORDER BY run_uuid, key, step, timestamp, rowid"
)
_DATA_SETS = (
    "SELECT i.destination_id, d.name, d.digest, d.dataset_source_type, t.value FROM inputs i "
    "JOIN datasets d ON d.dataset_uuid = i.source_id "
    f"LEFT JOIN input_tags t ON t.input_uuid = i.input_uuid AND t.name = '{CONTEXT_TAG}' "
    f"WHERE i.source_type = 'DATASET' AND i.destination_type = 'RUN' AND i.destination_id IN {_ACTIVE_RUNS}"
)
DatasetInput = tuple[str | None, DataSetNode]


def read_database_runs(path: Path) -> list[MLflowRun]:
    """The runs of a database that are not deleted; raises `GraphFileError` for what is no database of MLflow's."""
    name = printable(str(path))
    try:
        with foreign_database(path, READ_SECONDS) as connection:
            return _MLflowTables(connection).runs()
    except StoreError as error:
        raise GraphFileError(f"{name!r} cannot be read as a database of MLflow: {error}") from None
    except sqlite3.Error as error:
        is_slow = "interrupted" in str(error)
        reason = "it takes longer than a sound file of its size does" if is_slow else printable(str(error), 200)
        raise GraphFileError(f"the database {name!r} cannot be read: {reason}") from None
    except (OSError, ValueError) as error:  # a path with a NUL in it is a ValueError
        if isinstance(error, GraphFileError):
            raise
        raise GraphFileError(f"{name!r} cannot be read: {printable(str(error))}") from None


class _MLflowTables:
    """Reads each table of the database once."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.bytes_left = MAX_FILE_BYTES  # bytes that may yet be kept
        for table, columns in TABLES.items():
            self._check(table, columns, plain_columns(connection, table))
        self.has_datasets = any(plain_columns(connection, table) for table in DATASET_TABLES)
        for table, columns in DATASET_TABLES.items() if self.has_datasets else ():
            self._check(table, columns, plain_columns(connection, table))

    @staticmethod
    def _check(table: str, wanted: Sequence[str], found: Sequence[str]) -> None:
        if not found:
            raise StoreError(f"it has no table {table!r}")
        for column in wanted:
            if column not in found:
                raise StoreError(
                    f"its table {table!r} has no column {column!r}; `mlflow db upgrade` brings an old one up to date"
                )

    def runs(self) -> list[MLflowRun]:
        params, tags = self._texts("params"), self._texts("tags")
        datasets, histories = self._datasets(), self._histories()
        found: dict[str, MLflowRun] = {}
        for run, experiment, name, status, user, started, ended in self.connection.execute(_RUNS):
            key = self._text(run, "the id of a run")
            found[key] = MLflowRun(
                key,
                self._text(experiment, "the name of an experiment"),
                self._text(name or "", "the name of a run"),
                status if status in RUN_STATUS.values() else "UNKNOWN",
                self._text(user or "", "the user of a run") or None,
                started,
                ended,
                params.get(key, {}),
                tags.get(key, {}),
                sort_datasets(datasets.get(key, ())),
                histories.get(key, {}),
            )
        return list(found.values())

    def _texts(self, table: str) -> dict[str, dict[str, str]]:
        """The parameters or tags of each run."""
        found: dict[str, dict[str, str]] = {}
        asked = f"SELECT run_uuid, key, value FROM {table} WHERE run_uuid IN {_ACTIVE_RUNS}"
        for run, key, value in self.connection.execute(asked):
            own = found.setdefault(self._text(run, "the id of a run"), {})
            name = self._text(key, f"a name among the {table}")
            own[name] = self._text("" if value is None else value, f"{printable(name)!r} of the {table}")
        return found

    def _datasets(self) -> dict[str, list[DatasetInput]]:
        """Returns the data sets of each run with their context."""
        found: dict[str, list[DatasetInput]] = {}
        for run, name, digest, kind, context in self.connection.execute(_DATA_SETS) if self.has_datasets else ():
            facts = {
                fact: self._text(value, f"the {fact} of a data set")
                for fact, value in (("digest", digest), ("source_type", kind))
                if value not in (None, "")
            }
            node = DataSetNode(self._text(name, "the name of a data set"), facts)
            found.setdefault(self._text(run, "the id of a run"), []).append((context, node))
        return found

    def _histories(self) -> dict[str, dict[str, list[Point]]]:
        """The metrics of each run by step, in the order in which a file store has them."""
        found: dict[str, dict[str, list[Point]]] = {}
        for (run, key), rows in groupby(self.connection.execute(_METRICS), lambda row: row[:2]):
            metric = self._text(key, "the name of a metric")
            found.setdefault(self._text(run, "the id of a run"), {})[metric] = self._points(metric, rows)
        return {run: {name: own[name] for name in sorted(own, key=_file_order)} for run, own in found.items()}

    def _points(self, metric: str, rows: Iterator[tuple[Any, ...]]) -> list[Point]:
        steps, values = array("d"), array("d")
        for _, _, step, value, is_nan in rows:
            if type(step) is not int or type(value) not in (int, float) or is_nan not in (0, 1):
                raise GraphFileError(f"the metric {printable(metric)!r} has a step or a value that is not a number")
            steps.append(step)
            values.append(
                math.nan if is_nan else math.copysign(math.inf, value) if abs(value) >= INFINITY_VALUE else value
            )
        kept = sampled_indices(len(steps))
        self._spend(len(kept) * ROW_BYTES)
        return [(steps[place], values[place]) for place in kept]

    def _text(self, value: object, what: str) -> str:
        if not isinstance(value, str):
            raise GraphFileError(f"{what} is not text")
        if len(value) > MAX_TEXT_BYTES:
            raise GraphFileError(f"{what} is larger than {MAX_TEXT_BYTES >> 20} MB")
        self._spend(len(value) + ROW_BYTES)
        return value

    def _spend(self, size: int) -> None:
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise GraphFileError(f"the runs take more than {MAX_FILE_BYTES >> 20} MB")


def _file_order(metric: str) -> list[tuple[bool, str]]:
    """Returns the sort key of a metric among the files of a file store."""
    *folders, name = metric.split("/")
    return [*((True, folder) for folder in folders), (False, name)]


# ----------------------------------------


DATABASE_NAME = "mlflow.db"  # what MLflow 3 calls it
SQLITE_PREFIX = "sqlite:///"
MLflowNodes = tuple[list[DataSetNode], list[UserNode], list[JobNode]]


def mlflow_jobs(
    path: str | os.PathLike[str],
    accuracy: str = ACCURACY,
    model: str = "model",
    known: Container[str] | None = None,
) -> MLflowNodes:
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
    return checked_path(given.removeprefix(SQLITE_PREFIX) if isinstance(given, str) else given)


def _runs(path: Path) -> Iterable[MLflowRun]:
    try:
        database = next((place for place in (path, path / DATABASE_NAME) if place.is_file()), None)
    except (OSError, ValueError) as error:
        raise GraphFileError(f"{printable(str(path))!r} cannot be read: {printable(str(error))}") from None
    store = None if database == path else find_file_store(path)
    if store is not None:
        return read_file_runs(store)
    if database is not None:
        return read_database_runs(database)
    raise GraphFileError(
        f"{printable(str(path))!r} is not a file store of MLflow, in which experiments are folders with a meta.yaml, "
        "and no "
        f"database: name the folder mlruns or the file {DATABASE_NAME}"
    )
