"""Runs of MLflow's file store as jobs, data sets and users."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import GraphFileError, MissingPackageError
from modulekg_widgets.engine.knowledge.facts.contents import DataSetNode, UserNode
from modulekg_widgets.engine.knowledge.facts.jobs import MAX_POINTS
from modulekg_widgets.engine.knowledge.imports.mlflow import mlflow_jobs


@pytest.fixture(scope="module")
def client(require: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """MLflow's own client of a file store."""
    require("mlflow")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow.tracking import MlflowClient

        yield MlflowClient((tmp_path_factory.mktemp("mlflow") / "mlruns").as_uri())


@pytest.fixture(scope="module")
def store(client: Any) -> Path:
    """Two experiments with five runs: a whole one, an empty one, two deleted ones and one that still runs."""
    from mlflow.entities import Dataset, DatasetInput, InputTag, Metric

    def given(name: str, context: str) -> Any:
        return DatasetInput(
            Dataset(name, f"{name}-1", "local", "{}", "{}", "{}"), [InputTag("mlflow.data.context", context)]
        )

    first, second = client.create_experiment("vision"), client.create_experiment("deleted")
    whole = client.create_run(first, 1_700_000_000_000, {"mlflow.user": "ada", "model": "net", "note": "=1+1"}, "whole")
    metrics = [Metric("val_acc", value, 5, step) for step, value in enumerate([10.0, 60.0, 80.0])]
    metrics += [Metric("loss", value, 5, step) for step, value in [(2, math.nan), (0, 2.5), (1, math.inf)]]
    metrics += [Metric("val/deep/f1", 0.5, 5, 7, dataset_name="digits", dataset_digest="x")]
    client.log_batch(whole.info.run_id, metrics=metrics)
    client.log_param(whole.info.run_id, "lr", "0.1")
    client.log_param(whole.info.run_id, "a/b", "<script>")
    client.log_inputs(whole.info.run_id, [given("digits-test", "testing"), given("digits", "training")])
    client.set_terminated(whole.info.run_id, "FINISHED", 1_700_000_060_500)
    client.create_run(first, 1_600_000_000_000, {"model": "unknown"})
    client.delete_run(client.create_run(first).info.run_id)
    client.create_run(second)
    client.delete_experiment(second)
    running = client.create_run("0", 1_800_000_000_000, {"mlflow.user": "ada"})
    client.log_metric(running.info.run_id, "accuracy", -3.0)
    return Path(client.tracking_uri.removeprefix("file://"))


@pytest.mark.slow
def test_a_run_becomes_a_job(store: Path) -> None:
    datasets, users, jobs = mlflow_jobs(store, known={"net"})
    assert datasets == [
        DataSetNode("digits", {"digest": "digits-1", "source_type": "local"}),
        DataSetNode("digits-test", {"digest": "digits-test-1", "source_type": "local"}),
    ]
    assert UserNode("ada", {}) in users
    older, whole, running = jobs
    assert (older.model, older.accuracy, older.history, older.ended) == (None, None, {}, None)
    assert (whole.user, whole.dataset, whole.model) == ("ada", "digits", "net")
    assert (whole.started, whole.ended) == (1_700_000_000.0, 1_700_000_060.5)
    assert whole.accuracy == 0.8
    assert whole.convergence == 2.0
    assert whole.history["val_acc"] == [(0.0, 10.0), (1.0, 60.0), (2.0, 80.0)]
    assert whole.history["val/deep/f1"] == [(7.0, 0.5)]
    assert str(whole.history["loss"]) == "[(0.0, 2.5), (1.0, inf), (2.0, nan)]"
    assert whole.properties == {
        "experiment": "vision", "run_name": "whole", "status": "FINISHED", "params": {"a/b": "<script>", "lr": "0.1"},
        "datasets": ["digits", "digits-test"], "tags": {"model": "net", "note": "=1+1"},
    }  # fmt: skip
    assert (running.properties["status"], running.accuracy, running.ended) == ("RUNNING", None, None)


def test_the_client_finds_the_same_runs(store: Path, client: Any) -> None:
    runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    jobs = {job.name: job for job in mlflow_jobs(store)[2]}
    assert jobs.keys() == {run.info.run_id for run in runs}
    for run in runs:
        job = jobs[run.info.run_id]
        assert job.properties["params"] == run.data.params
        last = {metric: points[-1][1] for metric, points in job.history.items()}
        assert str(last) == str({metric: run.data.metrics[metric] for metric in last})
        assert job.model == run.data.tags.get("model")


def test_reading_again_gives_the_same_and_writes_nothing(store: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    assert str(mlflow_jobs(store)) == str(mlflow_jobs(str(store))) == str(mlflow_jobs(store.parent))
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before


def test_the_metric_and_the_model_are_called_as_the_user_says(store: Path) -> None:
    whole = mlflow_jobs(store, accuracy="val/deep/f1", model="lr")[2][1]
    assert (whole.accuracy, whole.model) == (0.5, "0.1")
    assert mlflow_jobs(store, accuracy="loss")[2][1].accuracy is None


# ------------------------------------------------------------------ stores of others


def made(folder: Path, **files: str | bytes) -> Path:
    """A store with one run, and files in the run's folder, `__` for a slash."""
    run = folder / "0" / "r1"
    run.mkdir(parents=True)
    (folder / "0" / "meta.yaml").write_text("name: e\nlifecycle_stage: active\n")
    contents = {"meta.yaml": "run_id: r1\nstart_time: 1000\nend_time: 500\nlifecycle_stage: active\n", **files}
    for name, content in contents.items():
        path = run / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def test_a_store_by_hand(tmp_path: Path) -> None:
    _, _, (job,) = mlflow_jobs(made(tmp_path, metrics__acc="1 0.5\n2 75 3\n\n", tags__model="a\nb"))
    assert (job.name, job.started, job.ended, job.model) == ("r1", 1.0, 1.0, "a\nb")
    assert (job.history, job.accuracy) == ({"acc": [(0.0, 0.5), (3.0, 75.0)]}, 0.75)


def test_long_histories_are_thinned(tmp_path: Path) -> None:
    lines = "".join(f"1 {step / 100_001} {step}\n" for step in range(100_001))
    points = mlflow_jobs(made(tmp_path, metrics__acc=lines))[2][0].history["acc"]
    assert len(points) <= MAX_POINTS + 1
    assert (points[0], points[-1][0]) == ((0.0, 0.0), 100_000.0)


BOMB = "tags:\n  - &b0 [x, x]\n" + "".join(f"  - &b{i} [*b{i - 1}, *b{i - 1}]\n" for i in range(1, 60))


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"meta.yaml": "- 1"}, "not a file of settings"), ({"meta.yaml": "name: ["}, "not YAML"),
        ({"meta.yaml": b"\xff"}, "read"), ({"meta.yaml": "name: " + "[" * 30_000}, "not YAML"),
        ({"meta.yaml": "name: !!python/object/apply:os.getcwd []"}, "not a file"), ({"meta.yaml": ""}, "not a file"),
        ({"meta.yaml": "name: &a [*a]"}, "not YAML"), ({"meta.yaml": "name: *a"}, "not YAML"),
        ({"meta.yaml": "start_time: soon"}, "not a time"), ({"meta.yaml": "start_time: " + "9" * 400}, "not a time"),
        ({"meta.yaml": "name:\n" + "  - x\n" * 10_000}, "longer than"), ({"metrics__m": "1"}, "no metric"),
        ({"metrics__m": "x y z"}, "no metric"), ({"metrics__m": "1 " + "9" * 5000 + "x 1"}, "no metric"),
        ({"metrics__m": b"\0\xff"}, "cannot be read"), ({"params__p": b"\xff"}, "cannot be read"),
        ({"meta.yaml": "start_time: " + "9" * 15}, "in no calendar"),
        ({"tags__t": "x" * 2_000_000}, "larger than"), ({"meta.yaml": "start_time: 2024-13-99"}, "not YAML|not a time"),
    ],
    ids=range(19),
)  # fmt: skip
def test_files_that_are_no_runs_are_refused(files: dict[str, str | bytes], reason: str, tmp_path: Path) -> None:
    start = time.process_time()
    with pytest.raises(GraphFileError, match=reason):
        mlflow_jobs(made(tmp_path, **files))
    assert time.process_time() - start < 2


def test_shared_parts_of_settings_are_not_expanded(tmp_path: Path) -> None:
    assert mlflow_jobs(made(tmp_path, **{"meta.yaml": "start_time: 1000\n" + BOMB}))[2][0].started == 1.0


def test_links_are_not_followed(tmp_path: Path) -> None:
    folder = made(tmp_path / "store", params__p="1")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    os.symlink(secret, folder / "0" / "r1" / "params" / "q")
    with pytest.raises(GraphFileError, match="not a regular file"):
        mlflow_jobs(folder)


def test_a_data_set_outside_the_store_is_not_read(tmp_path: Path) -> None:
    folder = made(tmp_path / "store", inputs__i__meta_yaml="")
    place = folder / "0" / "r1" / "inputs" / "j"
    place.mkdir()
    (tmp_path / "meta.yaml").write_text("name: outside")
    (place / "meta.yaml").write_text("source_type: DATASET\nsource_id: ../../..\n")
    assert mlflow_jobs(folder)[0] == []


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in (tmp_path, tmp_path / "missing", tmp_path / "file", "sqlite:///mlflow.db", "nul\0"):
        with pytest.raises(GraphFileError, match=r"is not a file store of MLflow|cannot be read|there is no file"):
            mlflow_jobs(place)


def test_without_yaml_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingPackageError, match=r"modulekg-widgets\[mlflow\]"):
        mlflow_jobs(made(tmp_path))
    assert issubclass(MissingPackageError, mk.ModuleKGError)


def test_runs_become_jobs_of_a_graph_once(store: Path) -> None:
    graph = mk.KnowledgeGraph()
    graph.add_model(nn.ReLU(), name="net")
    ids = graph.add_mlflow(store, accuracy="val_acc")
    first = graph.contents()
    assert graph.add_mlflow(store, accuracy="val_acc") == ids
    assert list(graph.contents().jobs) == list(first.jobs)
    assert [f"Job:{name}" for name in first.jobs] == ids
    trained = graph.jobs(model="net")
    assert trained["user"].tolist() == ["ada"]
    assert trained["accuracy"].tolist() == pytest.approx([0.8])
