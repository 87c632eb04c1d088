"""Every row of "Coming from Taiyi": configuration, and what is shown and kept; taiyi_metrics.py has the others."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from migration.models import ResNet, new
from migration.tables import Row, Table
from migration.taiyi_metrics import metrics, norm, step, tracked
from monitoring.surroundings import hook_count

taiyi = Table("Coming from Taiyi", metrics)


# --------------------------------------------------------------- configuration


@taiyi("`monitor = Monitor(model, config)` · `monitor.track(step)`")
def _monitor() -> None:
    model, config = new(ResNet), {"fc": ["WeightNorm"]}
    with mk.Monitor(model, config) as monitor:
        for at in range(3):
            step(model)
            monitor.track(at)
    assert list(monitor.get_output()["fc"]["WeightNorm"]) == [0, 1, 2]


@taiyi('modules in the config: `"fc"`, `"Conv2d"`, `nn.BatchNorm2d`')
def _modules() -> None:
    norms, convolutions = {"bn1", "layer1.0.bn1"}, {"conv1", "layer1.0.conv1", "layer1.1.conv2"}
    config = {"fc": ["WeightNorm"], "Conv2d": ["WeightNorm"], nn.BatchNorm2d: ["WeightNorm"], "bn1": ["InputMean"]}
    output = tracked(new(ResNet), {**config, "layer*.conv*": ["InputSndNorm"]})
    assert {"fc"} | norms | convolutions <= output.keys()
    assert output["bn1"].keys() == {"WeightNorm", "InputMean"}
    assert output["layer1.0.conv1"].keys() == {"WeightNorm", "InputSndNorm"}
    assert output["conv1"].keys() == {"WeightNorm"}


@taiyi('metrics: `"WeightNorm"`, `["MeanTID"]`, `["MeanTID", "linear(5,0)"]`')
def _metrics() -> None:
    with_settings = mk.monitoring.Metric("OutlierRatio", sigmas=4)
    config = {"bn1": ["WeightNorm", ["MeanTID", "linear(5,0)"], ["VarTID"], with_settings]}
    output = tracked(new(ResNet), config, steps=6)["bn1"]
    assert {metric: list(values) for metric, values in output.items()} == {
        "WeightNorm": [0, 1, 2, 3, 4, 5],
        "MeanTID": [0, 5],
        "VarTID": [0, 1, 2, 3, 4, 5],
        "OutlierRatio": [0, 1, 2, 3, 4, 5],
    }
    with pytest.raises(mk.ModuleKGError, match="has no setting"):
        mk.monitoring.Metric("OutlierRatio", sigma=4)


@taiyi("`linear(interval, offset)`")
def _schedules() -> None:
    steps = {}
    for schedule in ("linear(3, 1)", "window(4)", "steps(1, 3)", "range(2, 6, 2)", "logarithmic(1, 8, 4)"):
        output = tracked(new(ResNet), {"fc": [["WeightNorm", schedule]]}, steps=9)
        steps[schedule] = list(output["fc"]["WeightNorm"])
    assert steps == {
        "linear(3, 1)": [1, 4, 7],
        "window(4)": [3, 7],
        "steps(1, 3)": [1, 3],
        "range(2, 6, 2)": [2, 4],
        "logarithmic(1, 8, 4)": [1, 2, 4, 8],
    }


@taiyi("no schedule of its kind")
def _event() -> None:
    config = {"fc": [["WeightNorm", "steps(2)"], ["WeightHistogram", "on(WeightNorm, above, 0)"]]}
    output = tracked(new(ResNet), config, steps=6)
    assert list(output["fc"]["WeightHistogram"]) == [3]


@taiyi("`monitor.get_output()`")
def _output() -> None:
    model = new(ResNet)
    with mk.Monitor(model, {"fc": ["WeightNorm"]}) as monitor:
        step(model)
        monitor.track(0)
    assert monitor.get_output() == {"fc": {"WeightNorm": {0: pytest.approx(norm(model.fc.weight))}}}
    (row,) = monitor.frame().to_dict("records")
    assert (row["module"], row["metric"], row["step"]) == ("fc", "WeightNorm", 0)


@taiyi("`monitor.clean_mem()`")
def _memory() -> None:
    monitor = mk.Monitor(nn.Linear(2, 2), {"": ["WeightNorm"]})
    for at in range(1_000):
        monitor.log({"loss": 0.5}, at)
    tracemalloc.start()
    for at in range(1_000, 31_000):
        monitor.log({"loss": 0.5}, at)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 30_000 * 28 / 2  # a row packs into 28 bytes
    assert len(monitor.get_output()[""]["loss"]) == 31_000


# -------------------------------------------------------------- visualisation


class Run:
    """What a run of wandb is to a monitor."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def log(self, row: dict[str, Any], **_: Any) -> None:
        self.rows.append(dict(row))


@taiyi("`Visualization(monitor, wandb)` · `vis.show(step)`")
def _sink() -> None:
    model, config, run = new(ResNet), {"fc": ["WeightNorm"]}, Run()
    with mk.Monitor(model, config, sinks=[run]) as monitor:
        for at in range(2):
            step(model)
            monitor.track(at)
    values = [value for row in run.rows for name, value in row.items() if "fc" in name and "WeightNorm" in name]
    assert values == pytest.approx([norm(model.fc.weight)] * 2)


@taiyi("the charts of wandb")
def _panel() -> None:
    model = new(ResNet)
    with mk.Monitor(model, {"fc": ["WeightNorm"]}) as monitor:
        panel = mk.MetricPanel(monitor)
        step(model)
        monitor.track(0)
    panel.metric = "WeightNorm"
    assert panel.runs == (monitor,)
    panel.close()


@taiyi("`vis.show(step, ext)` · `vis.log_ext(step, ext)`")
def _own_numbers() -> None:
    model = new(ResNet)
    with mk.Monitor(model, {"fc": ["WeightNorm"]}) as monitor:
        loss = step(model)
        monitor.log({"loss": loss})
        monitor.track(0)
    assert monitor.get_output()[""]["loss"] == {0: pytest.approx(float(loss))}


@taiyi("`vis.close()`")
def _end() -> None:
    nobody = hook_count()
    with mk.Monitor(new(ResNet), {"fc": ["InputSndNorm"]}) as monitor:
        assert hook_count() > nobody
    assert hook_count() == nobody
    monitor.start()
    assert hook_count() > nobody
    monitor.stop()
    assert hook_count() == nobody


def recorded(name: str, scale: float) -> None:
    """A run of two steps in a file of the current folder."""
    model = new(ResNet)
    with torch.no_grad():
        model.fc.weight.mul_(scale)
    with mk.Monitor(model, {"fc": ["WeightNorm"]}, sinks=[name]) as monitor:
        for at in range(2):
            step(model)
            monitor.track(at)


@taiyi("`dir`, `project`, `name`: a JSON file for each step")
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, config = new(ResNet), {"fc": ["WeightNorm"]}
    with mk.Monitor(model, config, sinks=["run.jsonl"]) as monitor:
        step(model)
        monitor.track(0)
    rows = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text("utf-8").splitlines()]
    assert any(row.get("metric") == "WeightNorm" and row.get("module") == "fc" for row in rows)
    recorded("run.csv", 1.0)
    assert "WeightNorm" in (tmp_path / "run.csv").read_text("utf-8")
    recorded("run.parquet", 1.0)
    assert mk.load_recording("run.parquet").get_output().keys() == {"fc"}


@taiyi('`LocalVisualization(dir, project).show("WeightNorm")`')
def _compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recorded("a.jsonl", 1.0)
    recorded("b.jsonl", 2.0)
    panel = mk.MetricPanel(["a.jsonl", "b.jsonl"], metric="WeightNorm")
    first, second = (run.get_output()["fc"]["WeightNorm"][1] for run in panel.runs)
    assert second == pytest.approx(2 * first)
    panel.close()


@taiyi('`LocalVisualization(…).save("WeightNorm")`')
def _page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recorded("a.jsonl", 1.0)
    panel = mk.MetricPanel("a.jsonl", metric="WeightNorm")
    mk.save_html(panel, "page.html")
    assert "MetricPanelModel" in (tmp_path / "page.html").read_text("utf-8")
    panel.close()


@taiyi('`LoadTaskData(dir, project).load_data("WeightNorm")`')
def _loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recorded("run.jsonl", 1.0)
    table = mk.load_recording("run.jsonl").frame()
    assert list(table[table["metric"] == "WeightNorm"]["step"]) == [0, 1]


@taiyi("`LineFigure` · `Surface3d`")
def _views() -> None:
    monitor = mk.Monitor(new(ResNet), {"fc": ["WeightHistogram"]})
    panels = mk.MetricPanel(monitor, view="lines"), mk.MetricPanel(monitor, view="heatmap")
    panels += (mk.MetricPanel(monitor, view="histogram"),)
    assert [panel.get_state()["view"] for panel in panels] == ["lines", "heatmap", "histogram"]
    for panel in panels:
        panel.close()


@pytest.mark.parametrize("row", taiyi.rows, ids=[row.old for row in taiyi.rows])
def test_row(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taiyi.run(row, tmp_path=tmp_path, monkeypatch=monkeypatch)


def test_every_function_has_its_row() -> None:
    assert taiyi.without_row() == []
