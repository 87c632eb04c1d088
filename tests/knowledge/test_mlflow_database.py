"""MLflow's SQLite database: the same jobs as of a file store, and nothing of a file that is wrong."""

from __future__ import annotations

import hashlib
import math
import os
import sqlite3
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import GraphFileError
from modulekg_widgets.engine.knowledge.facts.jobs import MAX_POINTS
from modulekg_widgets.engine.knowledge.imports import mlflow
from modulekg_widgets.engine.knowledge.imports.mlflow import mlflow_jobs
from modulekg_widgets.engine.knowledge.store import sqlite_file

# of MLflow 3.17's own schema the tables that are read, an index and a trigger of another table
SCHEMA = """
CREATE TABLE "experiments" (experiment_id INTEGER NOT NULL, name VARCHAR(256) NOT NULL, artifact_location VARCHAR(256),
    lifecycle_stage VARCHAR(32), creation_time BIGINT, last_update_time BIGINT,
    workspace VARCHAR(63) DEFAULT 'default' NOT NULL, CONSTRAINT experiment_pk PRIMARY KEY (experiment_id),
    CONSTRAINT experiments_lifecycle_stage CHECK (lifecycle_stage IN ('active', 'deleted')));
CREATE TABLE "runs" (run_uuid VARCHAR(32) NOT NULL, name VARCHAR(250), source_type VARCHAR(20),
    user_id VARCHAR(256), status VARCHAR(9), start_time BIGINT, end_time BIGINT, lifecycle_stage VARCHAR(20),
    artifact_uri VARCHAR(200), experiment_id INTEGER, deleted_time BIGINT, CONSTRAINT run_pk PRIMARY KEY (run_uuid),
    FOREIGN KEY(experiment_id) REFERENCES experiments (experiment_id));
CREATE TABLE "metrics" ("key" VARCHAR(250) NOT NULL, value FLOAT NOT NULL, timestamp BIGINT NOT NULL,
    run_uuid VARCHAR(32) NOT NULL, step BIGINT DEFAULT '0' NOT NULL, is_nan BOOLEAN DEFAULT '0' NOT NULL,
    CONSTRAINT metric_pk PRIMARY KEY ("key", timestamp, step, run_uuid, value, is_nan), CHECK (is_nan IN (0, 1)));
CREATE INDEX index_metrics_run_uuid ON metrics (run_uuid);
CREATE TABLE "params" ("key" VARCHAR(250) NOT NULL, value VARCHAR(8000) NOT NULL, run_uuid VARCHAR(32) NOT NULL,
    CONSTRAINT param_pk PRIMARY KEY ("key", run_uuid));
CREATE TABLE "tags" ("key" VARCHAR(250) NOT NULL, value VARCHAR(8000), run_uuid VARCHAR(32) NOT NULL,
    CONSTRAINT tag_pk PRIMARY KEY ("key", run_uuid));
CREATE TABLE "secrets" (secret_id VARCHAR(36) NOT NULL);
CREATE TRIGGER prevent_secrets_update BEFORE UPDATE ON secrets BEGIN SELECT RAISE(ABORT, 'immutable'); END;
"""
OF_DATA_SETS = """
CREATE TABLE "datasets" (dataset_uuid VARCHAR(36) NOT NULL, experiment_id INTEGER NOT NULL, name VARCHAR(500) NOT NULL,
    digest VARCHAR(36) NOT NULL, dataset_source_type VARCHAR(36) NOT NULL, dataset_source TEXT NOT NULL,
    CONSTRAINT dataset_pk PRIMARY KEY (experiment_id, name, digest));
CREATE TABLE inputs (input_uuid VARCHAR(36) NOT NULL, source_type VARCHAR(36) NOT NULL, source_id VARCHAR(36) NOT NULL,
    destination_type VARCHAR(36) NOT NULL, destination_id VARCHAR(36) NOT NULL, step BIGINT DEFAULT '0' NOT NULL,
    CONSTRAINT inputs_pk PRIMARY KEY (source_type, source_id, destination_type, destination_id));
CREATE TABLE input_tags (input_uuid VARCHAR(36) NOT NULL, name VARCHAR(255) NOT NULL, value VARCHAR(500) NOT NULL,
    CONSTRAINT input_tags_pk PRIMARY KEY (input_uuid, name));
"""
EXPERIMENTS = [(0, "Default", "active"), (1, "vision", "active"), (2, "gone", "deleted")]
RUNS = [  # id, name, user, status, start, end, stage, experiment
    ("r1", "whole", "eve", "FINISHED", 1_700_000_000_000, 1_700_000_060_500, "active", 1),
    ("r2", "", "eve", "RUNNING", 1_600_000_000_000, None, "active", 0),
    ("r3", "thrown", "eve", "FAILED", 1, 2, "deleted", 1),
    ("r4", "with its experiment", "eve", "KILLED", 1, 2, "active", 2),
]
METRICS = [  # name, value, time, run, step
    *(("val_acc", value, 5, "r1", step) for step, value in enumerate([10.0, 60.0, 80.0])),
    *(("loss", value, 5, "r1", step) for step, value in [(2, math.nan), (0, 2.5), (1, math.inf), (3, -math.inf)]),
    ("val/deep/f1", 0.5, 5, "r1", 7), ("val/f1", 0.25, 5, "r1", 7),
    ("again", 2.0, 9, "r1", 0), ("again", 1.0, 8, "r1", 0), ("val_acc", 99.0, 5, "r3", 0),
]  # fmt: skip
PARAMS = [("lr", "0.1", "r1"), ("a/b", "<script>", "r1"), ("lr", "1", "r3")]
TAGS = [
    ("mlflow.user", "ada", "r1"), ("mlflow.runName", "whole", "r1"), ("model", "net", "r1"), ("note", "=1+1", "r1"),
    ("model", "unknown", "r2"),
]  # fmt: skip
DATA_SETS = [("d1", "digits-test", "testing"), ("d2", "digits", "training")]  # of the first run


def database(path: Path, more: str = "", with_datasets: bool = True) -> Path:
    """The runs above as MLflow keeps them in a database: infinities as the largest double, NaN as a mark."""
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA + (OF_DATA_SETS if with_datasets else ""))
    insert(connection, "experiments (experiment_id, name, lifecycle_stage)", EXPERIMENTS)
    columns = "run_uuid, name, user_id, status, start_time, end_time, lifecycle_stage, experiment_id"
    insert(connection, f"runs ({columns})", RUNS)
    insert(connection, "metrics (key, value, timestamp, run_uuid, step, is_nan)", map(stored, METRICS))
    insert(connection, "params (key, value, run_uuid)", PARAMS)
    insert(connection, "tags (key, value, run_uuid)", TAGS)
    for key, name, context in DATA_SETS if with_datasets else ():
        insert(connection, "datasets", [(key, 1, name, f"{name}-1", "local", "{}")])
        insert(connection, "inputs", [(f"i{key}", "DATASET", key, "RUN", "r1", 0)])
        insert(connection, "input_tags", [(f"i{key}", "mlflow.data.context", context)])
    connection.executescript(more)
    connection.commit()
    connection.close()
    return path


def insert(connection: sqlite3.Connection, into: str, rows: Iterable[tuple[Any, ...]]) -> None:
    for row in rows:
        connection.execute(f"INSERT INTO {into} VALUES ({', '.join('?' * len(row))})", row)


def stored(metric: tuple[str, float, int, str, int]) -> tuple[Any, ...]:
    name, value, moment, run, step = metric
    kept = 0.0 if math.isnan(value) else math.copysign(min(abs(value), sys.float_info.max), value)
    return name, kept, moment, run, step, math.isnan(value)


def file_store(folder: Path) -> Path:
    """The same runs as MLflow's file store keeps them."""
    for experiment, name, stage in EXPERIMENTS:
        write(folder / str(experiment) / "meta.yaml", f"name: {name}\nlifecycle_stage: {stage}\n")
    statuses = {"RUNNING": 1, "FINISHED": 3, "FAILED": 4, "KILLED": 5}
    for run, name, user, status, start, end, stage, experiment in RUNS:
        place = folder / str(experiment) / run
        settings = {
            "run_id": run, "run_name": f"'{name}'", "user_id": user, "status": statuses[status], "start_time": start,
            "end_time": "null" if end is None else end, "lifecycle_stage": stage,
        }  # fmt: skip
        write(place / "meta.yaml", "".join(f"{key}: {value}\n" for key, value in settings.items()))
        for metric, value, moment, of, step in METRICS:
            if of == run:
                write(place / "metrics" / metric, f"{moment} {value} {step}\n", "a")
        for kind, rows in (("params", PARAMS), ("tags", TAGS)):
            for key, text, of in rows:
                if of == run:
                    write(place / kind / key, text)
    for key, name, context in DATA_SETS:
        write(folder / "1" / "datasets" / key / "meta.yaml", f"name: {name}\ndigest: {name}-1\nsource_type: local\n")
        about = f"source_id: {key}\nsource_type: DATASET\ntags:\n  mlflow.data.context: {context}\n"
        write(folder / "1" / "r1" / "inputs" / key / "meta.yaml", about)
    return folder


def write(path: Path, text: str, mode: str = "w") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode) as file:
        file.write(text)


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_runs_become_the_same_jobs_as_those_of_a_file_store(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    datasets, users, jobs = mlflow_jobs(database(tmp_path / "mlflow.db"), known={"net"})
    of_files = mlflow_jobs(file_store(tmp_path / "mlruns"), known={"net"})
    assert str(jobs) == str(of_files[2])  # NaN is no other NaN's equal
    assert datasets == of_files[0]
    assert sorted(user.name for user in users) == sorted(user.name for user in of_files[1]) == ["ada", "eve"]
    assert [job.name for job in jobs] == ["r2", "r1"]
    whole = jobs[1]
    assert (whole.user, whole.dataset, whole.model, whole.accuracy) == ("ada", "digits", "net", 0.8)
    assert list(whole.history) == ["again", "loss", "val_acc", "val/f1", "val/deep/f1"]
    assert str(whole.history["loss"]) == "[(0.0, 2.5), (1.0, inf), (2.0, nan), (3.0, -inf)]"
    assert whole.history["again"] == [(0.0, 1.0), (0.0, 2.0)]  # by time


def test_it_is_found_by_its_path_its_address_and_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = database(tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    before = digests(tmp_path)
    found = [mlflow_jobs(place) for place in (path, str(path), f"sqlite:///{path}", "sqlite:///mlflow.db", tmp_path)]
    assert len({str(each) for each in found}) == 1
    assert digests(tmp_path) == before  # and no file beside it


def test_a_database_before_data_sets_and_one_with_a_log(tmp_path: Path) -> None:
    old = database(tmp_path / "old.db", with_datasets=False)
    assert [job.dataset for job in mlflow_jobs(old)[2]] == [None, None]
    logged = database(tmp_path / "logged.db", "PRAGMA journal_mode=WAL; INSERT INTO params VALUES ('late', '1', 'r2');")
    assert mlflow_jobs(logged)[2][0].properties["params"] == {"late": "1"}


def test_long_histories_are_thinned(tmp_path: Path) -> None:
    steps = 2 * MAX_POINTS + 1
    more = f"""WITH RECURSIVE s(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < {steps - 1})
        INSERT INTO metrics SELECT 'long', n / 100000.0, n, 'r2', n, 0 FROM s"""
    points = mlflow_jobs(database(tmp_path / "mlflow.db", more))[2][0].history["long"]
    assert len(points) <= MAX_POINTS + 1
    assert (points[0], points[-1][0]) == ((0.0, 0.0), steps - 1.0)


def test_runs_become_jobs_of_a_graph_once(tmp_path: Path) -> None:
    path = database(tmp_path / "mlflow.db")
    graph = mk.KnowledgeGraph()
    graph.add_model(nn.ReLU(), name="net")
    assert graph.add_mlflow(path) == graph.add_mlflow(path) == ["Job:r2", "Job:r1"]
    assert graph.jobs(model="net")["accuracy"].tolist() == pytest.approx([0.8])
    assert graph.datasets == ["digits", "digits-test"]


# ------------------------------------------------------------------ files of others

AGAIN = "ALTER TABLE {0} RENAME TO other; "
FORGED = "PRAGMA writable_schema=ON; UPDATE sqlite_schema SET {} WHERE name = 'params'; PRAGMA writable_schema=OFF"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("DROP TABLE metrics", "no table 'metrics'"), ("DROP TABLE input_tags", "no table 'input_tags'"),
        ("ALTER TABLE metrics RENAME COLUMN is_nan TO nan", "no column 'is_nan'"),
        ("ALTER TABLE runs RENAME COLUMN user_id TO who", "no column 'user_id'; `mlflow db upgrade`"),
        (AGAIN.format("tags") + "CREATE VIEW tags AS SELECT * FROM other", "'tags' is not a table"),
        (AGAIN.format("params") + "CREATE VIRTUAL TABLE params USING rtree(key, value, run_uuid)", "'params' is no"),
        (AGAIN.format("params") + "CREATE TABLE params (key, value AS (hex('a')), run_uuid)", "no column 'value'"),
        (FORGED.format("sql = 'CREATE VIEW params AS SELECT 1 AS key, 2 AS value, 3 AS run_uuid'"), "not a table|malf"),
        ("UPDATE params SET value = x'ff00'", "not text"), ("UPDATE params SET value = CAST(x'ff' AS TEXT)", "read"),
        ("UPDATE tags SET key = x'00' WHERE key = 'note'", "not text"),
        ("UPDATE metrics SET value = 'soon' WHERE key = 'loss' AND step = 0", "'loss' has a step or a value"),
        ("UPDATE metrics SET step = 'one' WHERE key = 'loss' AND step = 0", "not a number"),
        ("UPDATE metrics SET value = x'01' WHERE key = 'loss' AND step = 0", "not a number"),
        ("UPDATE runs SET start_time = 'soon'", "'start_time' of the run 'r[12]' is not a time"),
        ("UPDATE runs SET start_time = -1", "is not a time"), ("UPDATE runs SET end_time = 1e300", "is not a time"),
        ("UPDATE runs SET start_time = 999999999999999", "in no calendar"),
        ("UPDATE runs SET run_uuid = x'01' WHERE run_uuid = 'r1'", "the id of a run is not text"),
        ("UPDATE experiments SET name = x'01'", "the name of an experiment is not text"),
        ("UPDATE params SET value = hex(zeroblob(600000))", "larger than 1 MB"),
    ],
    ids=range(21),
)  # fmt: skip
def test_tables_that_are_none_of_mlflow_are_refused(more: str, reason: str, tmp_path: Path) -> None:
    path = database(tmp_path / "mlflow.db", more)
    graph, before = mk.KnowledgeGraph(), digests(tmp_path)
    start = time.process_time()
    with pytest.raises(GraphFileError, match=reason):
        graph.add_mlflow(path)
    assert time.process_time() - start < 2
    assert (graph.jobs().empty, graph.users, graph.datasets) == (True, [], [])
    assert digests(tmp_path) == before


def test_what_is_no_sound_database_is_refused(tmp_path: Path) -> None:
    whole = database(tmp_path / "mlflow.db").read_bytes()
    page = int.from_bytes(whole[16:18], "big")
    wrong = {
        "text": b"x", "empty": b"", "header alone": whole[:100], "cut": whole[: len(whole) - page],
        "no header": b"\0" * page + whole[page:], "pages": whole[: 2 * page] + b"\xff" * (len(whole) - 2 * page),
    }  # fmt: skip
    for name, content in wrong.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(GraphFileError, match=r"SQLite file|damaged|cannot be read"):
            mlflow_jobs(tmp_path / name)
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path / "none.db", "sqlite:///none.db", f"sqlite:///{tmp_path}/x\0"):
        with pytest.raises(GraphFileError, match="not a file store of MLflow"):
            mlflow_jobs(place)


def test_damage_anywhere_gives_the_runs_or_a_named_error(tmp_path: Path) -> None:
    whole = bytearray(database(tmp_path / "mlflow.db").read_bytes())
    for place in range(100, len(whole), 997):
        damaged = bytearray(whole)
        damaged[place : place + 3] = b"\xff\x00\x7f"
        (tmp_path / "damaged.db").write_bytes(damaged)
        try:
            mlflow_jobs(tmp_path / "damaged.db")
        except GraphFileError:
            continue


def test_what_is_huge_or_slow_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = database(tmp_path / "mlflow.db")
    sparse = tmp_path / "sparse.db"
    sparse.write_bytes(path.read_bytes())
    os.truncate(sparse, sqlite_file.MAX_FOREIGN_BYTES + 1)
    with pytest.raises(GraphFileError, match="larger than 4096 MB"):
        mlflow_jobs(sparse)
    with monkeypatch.context() as patch:
        patch.setattr(mlflow, "MAX_FILE_BYTES", 3000)
        with pytest.raises(GraphFileError, match="the runs take more than"):
            mlflow_jobs(path)
    with monkeypatch.context() as patch:
        patch.setattr(mlflow, "READ_SECONDS", -1.0)
        patch.setattr(sqlite_file, "_STEPS_PER_CHECK", 1)
        with pytest.raises(GraphFileError, match="longer than a sound file"):
            mlflow_jobs(path)


def test_a_database_that_is_being_written_is_waited_for_and_then_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = database(tmp_path / "mlflow.db")
    monkeypatch.setattr(sqlite_file, "FOREIGN_LOCK_TIMEOUT", 0.05)
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    with pytest.raises(GraphFileError, match="locked"):
        mlflow_jobs(path)
    writer.execute("ROLLBACK")
    writer.close()
    assert len(mlflow_jobs(path)[2]) == 2
