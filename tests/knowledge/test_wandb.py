"""Runs that W&B exported as CSV: what becomes a job, what is left out and why, and nothing of a file that is wrong."""

from __future__ import annotations

import csv
import math
import time
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import GraphFileError, ModuleKGError, PropertyError
from modulekg_widgets.engine.knowledge.facts.contents import JobNode
from modulekg_widgets.engine.knowledge.facts.jobs import MAX_POINTS
from modulekg_widgets.engine.knowledge.facts.results import Result, results_of
from modulekg_widgets.engine.knowledge.imports import wandb

# as the page exports it: its own columns, the configuration and the summary by letters, everything quoted
COLUMNS = [
    "Name", "State", "Notes", "User", "Tags", "Created", "Runtime", "Sweep",
    "arch", "data.name", "epochs", "image_size", "epochs", "test/latency", "val_acc",
]  # fmt: skip
RUNS = [
    ("brisk-sun-1", "finished", "-", "ada", "a, b", "2026-03-01T10:00:00.000Z", "90", "", "net", "digits", "20", "224",
     "19", "3.5", "61.5"),
    ("calm-sea-2", "running", "-", "", "", "2026-03-01T11:00:00.000Z", "10", "s1", "net", "", "20", "", "3", "", "0.9"),
    ("dim-fog - 3", "crashed", "-", "ada", "", "2026-03-02T11:00:00.000Z", "7", "", "net", "digits", "", "", "",
     "NaN", ""),
    ("lost-lake-4", "finished", "-", "eve", "", "2026-03-02T11:00:00.000Z", "7", "", "large", "digits", "", "", "",
     "1", "2"),
    ("idle-owl-5", "finished", "-", "eve", "", "2026-03-02T11:00:00.000Z", "7", "", "", "digits", "", "", "", "1", "2"),
]  # fmt: skip
TARGETS = {"test/latency": "latency"}


def table(path: Path, rows: Any, columns: list[str] = COLUMNS) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([columns, *rows])
    return path


def chart(path: Path, axis: str, lines: dict[str, list[Any]], steps: list[Any] | None = None) -> Path:
    """A chart with the bounds of each line beside it."""
    columns = [axis, *(f"{name}{end}" for name in lines for end in ("", "__MIN", "__MAX"))]
    length = len(next(iter(lines.values())))
    rows = [
        [step, *(values[at] for values in lines.values() for _ in range(3))]
        for at, step in enumerate(steps or range(length))
    ]
    return table(path, rows, columns)


@pytest.fixture
def kg() -> mk.KnowledgeGraph:
    found = mk.KnowledgeGraph()
    found.add_model(nn.Linear(2, 2), name="net")
    return found


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return table(tmp_path / "wandb_export_2026-03-03T12_00_00.000+01_00.csv", RUNS)


def jobs(kg: mk.KnowledgeGraph) -> dict[str, JobNode]:
    """The jobs by the name of their run."""
    return {job.properties["wandb"]["Name"]: job for job in kg.contents().jobs.values()}


class TestTables:
    def test_a_run_becomes_a_job(self, kg: mk.KnowledgeGraph, runs: Path) -> None:
        report = kg.add_wandb(runs, model="arch", dataset="data.name", targets=TARGETS, unit="ms")
        job = jobs(kg)["brisk-sun-1"]
        assert (job.user, job.dataset, job.model) == ("ada", "digits", "net")
        assert job.accuracy == pytest.approx(0.615)
        assert job.ended == job.started + 90
        assert results_of(job) == {"acc@1": Result(61.5, "%"), "latency": Result(3.5, "ms")}
        assert job.properties["image_size"] == 224
        assert job.properties["wandb"]["Tags"] == "a, b"
        assert job.properties["params"] == {"arch": "net", "data.name": "digits", "epochs": "20", "image_size": "224",
                                            "val_acc": "61.5"}  # fmt: skip
        assert (kg.datasets, kg.users) == (["digits"], ["ada"])
        assert report.jobs == 3

    def test_what_is_left_out_says_why(self, kg: mk.KnowledgeGraph, runs: Path) -> None:
        report = kg.add_wandb(runs, model="arch", dataset="data.name", targets=TARGETS)
        assert report.left_out == {
            "lost-lake-4": "no model is called 'large': known: 'net'",
            "idle-owl-5": "its 'arch' is empty: it names no model",
            "calm-sea-2, latency": "its 'test/latency' is not a finite number: None",
            "dim-fog - 3, latency": "its 'test/latency' is not a finite number: 'NaN'",
        }
        assert "no unit is known of latency" in str(report)
        assert "run lost-lake-4: no model" in str(report)
        running = jobs(kg)["calm-sea-2"]
        assert (running.ended, running.user, running.dataset) == (None, None, None)
        assert running.accuracy == pytest.approx(0.009)  # its column is in percent

    def test_a_key_of_both_configuration_and_summary(self, kg: mk.KnowledgeGraph, runs: Path) -> None:
        kg.add_wandb(runs, model="config.arch", targets={"epochs": "epochs", "config.epochs": "planned"}, unit="epochs",
                     training=["config.epochs"])  # fmt: skip
        job = jobs(kg)["brisk-sun-1"]
        found = {target: result.value for target, result in results_of(job).items()}
        assert (found["epochs"], found["planned"]) == (19.0, 20.0)
        assert job.properties["epochs"] == 20

    def test_a_data_set_for_all_runs(self, kg: mk.KnowledgeGraph, runs: Path) -> None:
        kg.add_dataset("mine", classes=10)
        kg.add_wandb(runs, model="arch", dataset="mine")
        assert {job.dataset for job in jobs(kg).values()} == {"mine"}
        assert kg.contents().datasets["mine"].properties == {"classes": 10}

    def test_again_it_replaces_itself(self, kg: mk.KnowledgeGraph, runs: Path) -> None:
        first = kg.add_wandb(runs, model="arch", targets=TARGETS, unit="ms")
        before = kg.contents().jobs
        assert kg.add_wandb(runs, model="arch", targets=TARGETS, unit="ms") == first
        assert kg.contents().jobs == before

    def test_runs_of_one_name_are_told_apart(self, kg: mk.KnowledgeGraph, tmp_path: Path) -> None:
        columns, row = ["Name", "Created", "model"], ("x", "2026-03-01", "net")
        kg.add_wandb(table(tmp_path / "a.csv", [row, ("x", "2026-03-02", "net")], columns))
        assert len(kg.jobs()) == 2
        assert kg.add_wandb(table(tmp_path / "b.csv", [row, row], columns)).left_out.keys() == {"x"}
        report = kg.add_wandb(chart(tmp_path / "c.csv", "Step", {"x - acc": [0.1, 0.2]}))
        assert report.left_out == {"x - acc": "2 runs are called 'x'"}
        by_id = table(tmp_path / "d.csv", [("x", "1a", "net"), ("x", "1b", "net")], ["Name", "ID", "model"])
        kg.add_wandb(by_id)
        assert {"1a", "1b"} <= set(kg.contents().jobs)

    def test_a_job_of_somebody_else_is_not_replaced(self, kg: mk.KnowledgeGraph, tmp_path: Path) -> None:
        kg.add_job(model="net", accuracy=0.5, name="1a")
        report = kg.add_wandb(table(tmp_path / "a.csv", [("x", "1a", "net")], ["Name", "ID", "model"]))
        assert report.left_out == {"x": "the graph has a job '1a' that is none of W&B"}
        assert kg.contents().jobs["1a"].accuracy == 0.5


class TestCharts:
    def test_histories_by_step(self, kg: mk.KnowledgeGraph, runs: Path, tmp_path: Path) -> None:
        lines = {
            "brisk-sun-1 - val_acc": [10, 60, 62], "dim-fog - 3 - val/loss": ["3.5", "", "NaN"],
            "lost-lake-4 - val_acc": [1, 2, 3], "Group: a - val_acc": [1, 2, 3],
        }  # fmt: skip
        report = kg.add_wandb(runs, chart(tmp_path / "chart.csv", "Step", lines, [0, 10, 20]), model="arch")
        whole, other = jobs(kg)["brisk-sun-1"], jobs(kg)["dim-fog - 3"]
        assert whole.history == {"val_acc": [(0.0, 10.0), (10.0, 60.0), (20.0, 62.0)]}
        assert (whole.accuracy, whole.convergence) == (0.62, 10.0)
        (metric,) = other.history
        assert metric == "val/loss"
        assert str(other.history[metric]) == "[(0.0, 3.5), (20.0, nan)]"
        assert report.left_out["Group: a - val_acc"] == "no run is called 'Group: a'"
        assert report.left_out["lost-lake-4 - val_acc"] == "no run is called 'lost-lake-4'"

    def test_they_may_come_later_and_stay(self, kg: mk.KnowledgeGraph, runs: Path, tmp_path: Path) -> None:
        kg.add_wandb(runs, model="arch", targets=TARGETS, unit="ms")
        kg.add_wandb(chart(tmp_path / "one.csv", "Step", {"brisk-sun-1 - val_acc": [10, 95]}))
        kg.add_wandb(chart(tmp_path / "two.csv", "Step", {"brisk-sun-1 - loss": [3, 2]}))
        kg.add_convergence(reach=0.9)
        kg.add_wandb(runs, model="arch")
        job = jobs(kg)["brisk-sun-1"]
        assert set(job.history) == {"val_acc", "loss"}
        assert set(results_of(job)) == {"acc@1", "convergence", "latency", "steps to accuracy 0.9"}

    def test_another_axis(self, kg: mk.KnowledgeGraph, runs: Path, tmp_path: Path) -> None:
        lines = {"brisk-sun-1 - _step": [5, 7], "brisk-sun-1 - acc": [0.1, 0.2], "calm-sea-2 - acc": [0.1, 0.2]}
        kg.add_wandb(runs, chart(tmp_path / "a.csv", "epoch", lines), model="arch")
        assert jobs(kg)["brisk-sun-1"].history == {"acc": [(5.0, 0.1), (7.0, 0.2)]}
        assert jobs(kg)["calm-sea-2"].history == {"acc": [(0.0, 0.1), (1.0, 0.2)]}
        report = kg.add_wandb(chart(tmp_path / "b.csv", "Relative Time (Process)", {"calm-sea-2 - loss": [1, 2]}))
        assert "export it over 'Step'" in report.left_out["calm-sea-2 - loss"]

    def test_long_ones_are_thinned_and_text_is_told(self, kg: mk.KnowledgeGraph, runs: Path, tmp_path: Path) -> None:
        lines = {"brisk-sun-1 - acc": [0.5] * (2 * MAX_POINTS + 1), "calm-sea-2 - note": ["x"] * (2 * MAX_POINTS + 1)}
        report = kg.add_wandb(runs, chart(tmp_path / "a.csv", "Step", lines), model="arch")
        points = jobs(kg)["brisk-sun-1"].history["acc"]
        assert len(points) <= MAX_POINTS + 1
        assert points[-1][0] == 2 * MAX_POINTS
        assert "row 2 holds '0', 'x': no step and number" in report.left_out["calm-sea-2 - note"]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({}, "no column 'model'.*say model="), ({"model": "config.arc"}, "no column 'config.arc'"),
        ({"model": "arch", "dataset": "digit"}, "say dataset="),
        ({"model": "arch", "targets": {"x": "y"}}, "say targets="),
        ({"model": "arch", "accuracy": "val_ac"}, "no file has 'val_ac'.*'val_acc'"),
        ({"model": "arch", "training": ["size"]}, "say training="),
    ],
)  # fmt: skip
def test_columns_that_are_not_there(kg: mk.KnowledgeGraph, runs: Path, how: dict[str, Any], reason: str) -> None:
    with pytest.raises(PropertyError, match=reason):
        kg.add_wandb(runs, **how)
    assert (kg.jobs().empty, kg.datasets, kg.users) == (True, [], [])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"), (b"\n\n", "empty"), (b"\xff\xfe", "comma-separated"), (b"a,b\n1,2\n", "not an export of W&B"),
        (b"Name,model\nx\n", "row 2 has 1 cells, the first 2"), (b'Name,model\n"x,net\n', "comma-separated"),
        (b'"Name","model"\n"x"y,"net"\n', "comma-separated"), (b"Name\n" + b"x" * 200_000, "field larger"),
        (b"\0\0\0", "not an export|line contains NUL"), (b"PK\x03\x04\0\0,\0", "not an export|NUL"),
        (b"Name,summary,config\nx,\"{'acc': 1}\",{}\n", "no column 'model'"),
    ],
    ids=range(11),
)  # fmt: skip
def test_files_that_are_no_exports_are_refused(
    kg: mk.KnowledgeGraph, runs: Path, tmp_path: Path, content: bytes, reason: str
) -> None:
    (tmp_path / "wrong.csv").write_bytes(content)
    start = time.process_time()
    with pytest.raises(ModuleKGError, match=reason) as caught:
        kg.add_wandb(tmp_path / "wrong.csv", runs)
    assert isinstance(caught.value, (GraphFileError, PropertyError))
    assert time.process_time() - start < 2
    assert kg.jobs().empty


def test_what_is_no_file_or_huge_is_refused(
    kg: mk.KnowledgeGraph, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (tmp_path, tmp_path / "none.csv", "nul\0", 7):
        with pytest.raises(GraphFileError):
            kg.add_wandb(place)  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(wandb, "MAX_CELLS", 10)
    with pytest.raises(GraphFileError, match="more than 10 cells"):
        kg.add_wandb(runs, model="arch")


def test_cells_that_are_strange_are_kept_as_text_or_told(kg: mk.KnowledgeGraph, tmp_path: Path) -> None:
    columns = ["Name", "Created", "Runtime", "State", "model", "results", "wandb", "note", "acc"]
    rows = [
        ("=1+1", "", "-5", "?", "net", "x", "y", "<script>\x1b[2J", "1e999"),
        ("b", "soon", "1", "", "net", "", "", "", ""),
        ("c", "2026-01-01", "1e300", "", "net", "", "", "", "1_0"), ("d", "9" * 5000, "1", "", "net", "", "", "", "-3"),
        ("", "", "", "", "net", "", "", "", ""), ("e", "", "", "", "net", "", "", "", "200"),
    ]  # fmt: skip
    report = kg.add_wandb(table(tmp_path / "a.csv", rows, columns), training=["note", "results", "wandb"])
    assert set(jobs(kg)) == {"=1+1", "e"}
    assert report.left_out.keys() == {"b", "c", "d", "row 6", "=1+1, acc", "d, acc", "e, acc"}
    odd = jobs(kg)["=1+1"]
    assert (odd.accuracy, odd.started, odd.ended, odd.properties["note"]) == (None, 0.0, None, "<script>\x1b[2J")
    assert results_of(odd) == {}
    assert "\x1b" not in str(report)
    assert not math.isnan(odd.started)


def test_a_job_of_a_chart_is_predicted_from(kg: mk.KnowledgeGraph, runs: Path, tmp_path: Path) -> None:
    kg.add_wandb(runs, chart(tmp_path / "a.csv", "Step", {"brisk-sun-1 - loss": [3.0, 2.0, 1.0]}), model="arch")
    assert kg.add_convergence("loss", reach=1.5).added == 1
    assert results_of(jobs(kg)["brisk-sun-1"])["steps to loss 1.5"] == Result(2.0, "steps")
