"""MLflow's SQLite database, the default of MLflow 3: only read, and nothing in it runs or is believed unchecked."""

from __future__ import annotations

import math
import sqlite3
import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from modulekg_widgets.engine.errors import GraphFileError, StoreError, shown
from modulekg_widgets.engine.knowledge.contents import DataSetNode
from modulekg_widgets.engine.knowledge.exchange.files import LARGEST_FILE
from modulekg_widgets.engine.knowledge.exchange.mlflow_record import (
    ACTIVE,
    CONTEXT,
    LONGEST_TEXT,
    STATUS,
    MLflowRun,
    training_first,
)
from modulekg_widgets.engine.knowledge.jobs import Point, kept_places
from modulekg_widgets.engine.knowledge.store.sqlite_file import foreign_database, plain_columns

SECONDS_TO_READ = 30.0  # for a file of up to 64 MiB, and as long again for each further 64
BYTES_OF_A_ROW = 100  # in memory, beside its texts
INFINITE = sys.float_info.max  # what MLflow's database keeps of an infinity
TABLES = {
    "experiments": ("experiment_id", "name", "lifecycle_stage"),
    "runs": ("run_uuid", "name", "user_id", "status", "start_time", "end_time", "lifecycle_stage", "experiment_id"),
    "metrics": ("key", "value", "timestamp", "run_uuid", "step", "is_nan"),
    "params": ("key", "value", "run_uuid"),
    "tags": ("key", "value", "run_uuid"),
}
OF_DATA_SETS = {  # since MLflow 2.4
    "datasets": ("dataset_uuid", "name", "digest", "dataset_source_type"),
    "inputs": ("input_uuid", "source_type", "source_id", "destination_type", "destination_id"),
    "input_tags": ("input_uuid", "name", "value"),
}
_WANTED = (
    f"(SELECT r.run_uuid AS id FROM runs r JOIN experiments e ON e.experiment_id = r.experiment_id "
    f"WHERE coalesce(r.lifecycle_stage, '{ACTIVE}') = '{ACTIVE}' "
    f"AND coalesce(e.lifecycle_stage, '{ACTIVE}') = '{ACTIVE}')"
)
_RUNS = (
    "SELECT r.run_uuid, coalesce(e.name, CAST(e.experiment_id AS TEXT)), r.name, r.status, r.user_id, r.start_time, "
    f"r.end_time FROM runs r JOIN experiments e ON e.experiment_id = r.experiment_id WHERE r.run_uuid IN {_WANTED}"
)
_METRICS = (
    f"SELECT run_uuid, key, step, value, is_nan FROM metrics WHERE run_uuid IN {_WANTED} "
    "ORDER BY run_uuid, key, step, timestamp, rowid"
)
_DATA_SETS = (
    "SELECT i.destination_id, d.name, d.digest, d.dataset_source_type, t.value FROM inputs i "
    "JOIN datasets d ON d.dataset_uuid = i.source_id "
    f"LEFT JOIN input_tags t ON t.input_uuid = i.input_uuid AND t.name = '{CONTEXT}' "
    f"WHERE i.source_type = 'DATASET' AND i.destination_type = 'RUN' AND i.destination_id IN {_WANTED}"
)
Given = tuple[str | None, DataSetNode]


def database_runs(path: Path) -> list[MLflowRun]:
    """The runs of a database that are not deleted; raises `GraphFileError` for what is no database of MLflow's."""
    name = shown(str(path))
    try:
        with foreign_database(path, SECONDS_TO_READ) as connection:
            return _MLflowTables(connection).runs()
    except StoreError as error:
        raise GraphFileError(f"{name!r} cannot be read as a database of MLflow: {error}") from None
    except sqlite3.Error as error:
        is_slow = "interrupted" in str(error)
        reason = "it takes longer than a sound file of its size does" if is_slow else shown(str(error), 200)
        raise GraphFileError(f"the database {name!r} cannot be read: {reason}") from None
    except (OSError, ValueError) as error:  # a path with a NUL in it is a ValueError
        if isinstance(error, GraphFileError):
            raise
        raise GraphFileError(f"{name!r} cannot be read: {shown(str(error))}") from None


class _MLflowTables:
    """One pass over each table."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.room = LARGEST_FILE  # bytes that may yet be kept
        for table, columns in TABLES.items():
            self._check(table, columns, plain_columns(connection, table))
        self.has_datasets = any(plain_columns(connection, table) for table in OF_DATA_SETS)
        for table, columns in OF_DATA_SETS.items() if self.has_datasets else ():
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
                status if status in STATUS.values() else "UNKNOWN",
                self._text(user or "", "the user of a run") or None,
                started,
                ended,
                params.get(key, {}),
                tags.get(key, {}),
                training_first(datasets.get(key, ())),
                histories.get(key, {}),
            )
        return list(found.values())

    def _texts(self, table: str) -> dict[str, dict[str, str]]:
        """The parameters or tags of each run."""
        found: dict[str, dict[str, str]] = {}
        asked = f"SELECT run_uuid, key, value FROM {table} WHERE run_uuid IN {_WANTED}"
        for run, key, value in self.connection.execute(asked):
            own = found.setdefault(self._text(run, "the id of a run"), {})
            name = self._text(key, f"a name among the {table}")
            own[name] = self._text("" if value is None else value, f"{shown(name)!r} of the {table}")
        return found

    def _datasets(self) -> dict[str, list[Given]]:
        """The data sets that each run was given, each with what for."""
        found: dict[str, list[Given]] = {}
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
        return {run: {name: own[name] for name in sorted(own, key=_as_file)} for run, own in found.items()}

    def _points(self, metric: str, rows: Iterator[tuple[Any, ...]]) -> list[Point]:
        steps, values = array("d"), array("d")
        for _, _, step, value, is_nan in rows:
            if type(step) is not int or type(value) not in (int, float) or is_nan not in (0, 1):
                raise GraphFileError(f"the metric {shown(metric)!r} has a step or a value that is no number")
            steps.append(step)
            values.append(math.nan if is_nan else math.copysign(math.inf, value) if abs(value) >= INFINITE else value)
        kept = kept_places(len(steps))
        self._take(len(kept) * BYTES_OF_A_ROW)
        return [(steps[place], values[place]) for place in kept]

    def _text(self, value: object, what: str) -> str:
        if not isinstance(value, str):
            raise GraphFileError(f"{what} is no text")
        if len(value) > LONGEST_TEXT:
            raise GraphFileError(f"{what} is larger than {LONGEST_TEXT >> 20} MB")
        self._take(len(value) + BYTES_OF_A_ROW)
        return value

    def _take(self, size: int) -> None:
        self.room -= size
        if self.room < 0:
            raise GraphFileError(f"the runs take more than {LARGEST_FILE >> 20} MB")


def _as_file(metric: str) -> list[tuple[bool, str]]:
    """Where a metric stands among the files of a store: those of a folder before its folders, each by name."""
    *folders, name = metric.split("/")
    return [*((True, folder) for folder in folders), (False, name)]
