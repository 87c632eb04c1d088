"""MetricPanel in the kernel: traits, errors, what comes to its page, and what it leaves behind."""

from __future__ import annotations

import gc
import math
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ipywidgets.widgets.widget import _instances
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.monitoring.run import Run
from modulekg_widgets.engine.monitoring.sinks.recording import load_recording
from modulekg_widgets.engine.views.pictures.svg import svg_text
from modulekg_widgets.widgets.metric_panel.metric_panel import MetricPanel
from widgets.metric_samples import (
    FakeComm,
    fake_kernel,
    histogram,
    live_run,
    measured_run,
    put,
    threads,
    wait_for_values,
    wait_until,
)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeComm]]:
    yield from fake_kernel(monkeypatch)


@pytest.fixture
def run() -> Run:
    return measured_run()


@pytest.fixture
def panel(run: Run) -> Iterator[MetricPanel]:
    widget = MetricPanel(run)
    yield widget
    widget.close()


# ------------------------------------------------------------------ traits


def test_state_is_what_the_protocol_says(run: Run) -> None:
    panel = MetricPanel([run, live_run("ResNet"), live_run("\ud800")], modules=["layer2"], window=100)
    state = panel.get_state()
    names = ["ResNet", "ResNet (2)", "\\ud800"]
    assert state["payload"] == {"schema_version": 1, "kind": "metric_panel", "runs": names, "limit": 2000}
    own = {key: value for key, value in state.items() if key in MetricPanel.class_own_traits() and key[0] != "_"}
    own.pop("payload")
    assert own == {
        "selected": None,
        "metric": "",
        "modules": ["layer2"],
        "view": "grid",
        "window": 100,
        "log_scale": None,
        "paused": False,
        "phase": "train",
    }
    assert (state["_model_module"], state["_model_name"]) == ("modulekg-widgets", "MetricPanelModel")
    assert state["_view_name"] == "MetricPanelView"
    panel.close()


@pytest.mark.parametrize(
    ("trait", "value", "message"),
    [
        ("metric", "OutputSndNrm", "'OutputSndNrm' so far: did you mean 'OutputSndNorm'"),
        ("modules", ["layer2", "layer1.1"], r"module 'layer1\.1' so far: did you mean 'layer1\.0'"),
        ("view", "heat map", "no view 'heat map': did you mean 'heatmap'"),
        ("phase", "test", "no phase 'test': known: 'both', 'eval', 'train'"),
        ("window", 0, "a count of steps, or None for all of them: 0 was passed"),
        ("window", "many", "window"),
        ("log_scale", "yes", "log_scale"),
        ("metric", None, "metric"),
        ("modules", 3, "modules"),
        ("selected", 3, "selected"),
    ],
)
def test_a_wrong_value_is_refused_and_changes_nothing(
    panel: MetricPanel, trait: str, value: object, message: str
) -> None:
    before = getattr(panel, trait)
    with pytest.raises(mk.ModuleKGError, match=message):
        setattr(panel, trait, value)
    assert getattr(panel, trait) == before


def test_any_name_is_taken_before_there_is_a_value() -> None:
    run = live_run()
    panel = MetricPanel(run, metric="RankMe", modules=["layer9"])
    put(run, 0, {("layer1", "RankMe"): 1.0, ("layer1", "Stat"): {"mean": 1.0}, ("layer1", "H"): histogram([1])})
    for metric in ("Stat.mean", "H", ""):
        panel.metric = metric
    with pytest.raises(mk.ModuleKGError, match=r"did you mean 'Stat\.mean'"):
        panel.metric = "Stat"
    panel.close()


def test_any_module_can_be_selected(panel: MetricPanel) -> None:
    for path in ("layer1", "layer9.nowhere", "", None):
        panel.selected = path
        assert panel.selected == path


def test_what_the_page_sends_is_taken_and_escapes_are_names_again(panel: MetricPanel, run: Run) -> None:
    put(run, 1, {("\ud800", "M\udfff"): 1.0})
    panel.set_state({"metric": "M\\udfff", "modules": ["\\ud800"], "selected": "\\ud800", "view": "heatmap"})
    assert (panel.metric, panel.modules, panel.selected) == ("M\udfff", ["\ud800"], "\ud800")
    state = panel.get_state()
    assert (state["metric"], state["modules"], state["selected"]) == ("M\\udfff", ["\\ud800"], "\\ud800")


def test_keywords_and_attributes_are_strict(run: Run, panel: MetricPanel) -> None:
    with pytest.raises(TypeError, match="MetricPanel takes no keyword 'metrics': did you mean 'metric'"):
        MetricPanel(run, metrics="loss")
    with pytest.raises(mk.ModuleKGError, match="no attribute 'modul': did you mean 'modules'"):
        panel.modul = ["layer1"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([], "one run at least"),
        (nn.Linear(2, 2), "monitors, recorded runs and the paths of recorded files: a Linear was passed"),
        ([3], "an int was passed"),
        (None, "None was passed"),
    ],
)
@pytest.mark.slow
def test_only_runs_and_recorded_files_are_shown(runs: Any, message: str) -> None:
    before = set(_instances), len(threads())
    with pytest.raises(mk.ModuleKGError, match=message):
        MetricPanel(runs)
    gc.collect()
    assert (set(_instances), len(threads())) == before


def test_a_wrong_value_at_the_start_opens_nothing(run: Run, kernel: list[FakeComm]) -> None:
    with pytest.raises(mk.ModuleKGError):
        MetricPanel(run, view="pie")
    assert [one for one in kernel if "metric" in str(one.states)] == []
    assert threads() == []


def test_a_recorded_file_is_a_run(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    with mk.Monitor(nn.Linear(2, 2), sinks=[str(file)], name="first try") as monitor:  # type: ignore[attr-defined]
        monitor.log({"loss": 0.5})
    panel = MetricPanel([str(file), file, monitor])
    name = load_recording(file).name
    assert panel.payload["runs"][:2] == [name, f"{name} (2)"]
    assert [run.get_output() for run in panel.runs] == [{"": {"loss": {0: 0.5}}}] * 3
    panel.close()
    with pytest.raises(mk.ModuleKGError, match="nowhere"):
        MetricPanel(tmp_path / "nowhere.jsonl")


def test_the_repr_is_one_line(panel: MetricPanel) -> None:
    panel.selected = "layer2"
    assert repr(panel) == "<MetricPanel of ResNet: 4 series, metric='', selected='layer2'>"


# ------------------------------------------------------------------ the stream


def test_outside_of_a_kernel_the_thread_starts_with_the_display(panel: MetricPanel) -> None:
    assert threads() == []
    panel._repr_mimebundle_()
    assert len(threads()) == 1
    panel._repr_mimebundle_()
    assert len(threads()) == 1


def test_in_a_kernel_the_values_come_by_themselves(run: Run, kernel: list[FakeComm]) -> None:
    """Also to a panel inside of a box, which no page has asked for because the kernel is busy."""
    panel = MetricPanel(run)
    page = wait_for_values(panel)
    assert page.messages[0]["reset"] is True
    assert page.line("", "loss") == [(0, 2.0)]
    for step in range(1, 50):
        put(run, step, {("", "loss"): 2.0 / step})
        time.sleep(0.002)
    wait_until(lambda: len(page.line("", "loss")) == 50)
    assert page.line("", "loss")[1:] == [(step, 2.0 / step) for step in range(1, 50)]
    assert [message["seq"] for message in page.messages] == list(range(1, len(page.messages) + 1))


def test_the_page_can_ask_for_everything(run: Run, kernel: list[FakeComm]) -> None:
    panel = MetricPanel(run)
    page = wait_for_values(panel)
    panel.comm.receive({"method": "custom", "content": {"kind": "resync"}})
    wait_until(lambda: len(page.messages) == 2)
    assert page.messages[1]["reset"] is True
    assert page.line("", "loss") == [(0, 2.0)]
    panel.comm.receive({"method": "custom", "content": {"kind": "ack", "seq": 2}})
    assert panel._stream._acknowledged == 2
    panel.comm.receive({"method": "custom", "content": ["<script>"]})


def test_an_answer_is_no_cell(panel: MetricPanel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heard beside a running cell, it must not show and close the figures that the cell is drawing."""
    events: list[str] = []
    shell = SimpleNamespace(events=SimpleNamespace(trigger=events.append))
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)

    def receive(data: dict[str, Any]) -> None:
        panel.comm.handle_msg({"content": {"data": data}, "buffers": []})

    receive({"method": "custom", "content": {"kind": "resync"}})
    assert panel._stream._asked_at is not None
    assert events == []
    receive({"method": "update", "state": {"view": "heatmap"}, "buffer_paths": []})
    assert panel.view == "heatmap"
    assert events == ["pre_execute", "post_execute"]


def test_a_recorded_run_replays(run: Run, kernel: list[FakeComm]) -> None:
    for step in range(1, 11):
        put(run, step, {("", "loss"): float(step)})
    panel = MetricPanel(run)
    page = wait_for_values(panel)
    panel.replay(speed=20)
    seen: list[int] = []
    wait_until(lambda: seen.append(len(page.points.get(0, ()))) or seen[-1:] == [1])
    wait_until(lambda: seen.append(len(page.line("", "loss"))) or seen[-1:] == [11])
    assert len(set(seen)) >= 5
    for wrong in (0, -1, "fast", True, math.nan):
        with pytest.raises(mk.ModuleKGError, match="above 0, or None"):
            panel.replay(wrong)  # type: ignore[arg-type]


@pytest.mark.slow
def test_closing_leaves_no_comm_and_no_thread(run: Run, kernel: list[FakeComm]) -> None:
    panel, graph = MetricPanel(run), mk.ModelGraph(nn.Sequential(nn.Linear(2, 2)))
    panel.link(graph)
    panel.color(graph)
    wait_for_values(panel)
    alive = weakref.ref(panel)
    panel.close()
    assert threads() == []
    assert {one.comm_id for one in kernel if one.is_open} == {graph.model_id, graph.layout.model_id}
    del panel
    gc.collect()
    assert alive() is None
    graph.selected = "0"  # nobody follows
    assert len(run.history) == 2


def test_a_second_run_of_the_cell_replaces_the_panel(
    run: Run, kernel: list[FakeComm], monkeypatch: pytest.MonkeyPatch
) -> None:
    from modulekg_widgets.widgets.shared import base as _base

    others = {id(w) for w in _instances.values()}  # that other tests have left
    for number in range(3):
        monkeypatch.setattr(_base, "_current_run", lambda number=number: ("cell", f"run {number}"))
        panel = MetricPanel(run)
        panel._repr_mimebundle_()
    assert len(threads()) == 1
    assert [w for w in _instances.values() if isinstance(w, MetricPanel) and id(w) not in others] == [panel]


@pytest.mark.slow
def test_a_panel_that_is_no_longer_there_leaves_no_thread(run: Run) -> None:
    panel = MetricPanel(run)
    panel._repr_mimebundle_()
    _instances.pop(panel.model_id)
    panel.comm.close()
    alive = weakref.ref(panel)
    del panel
    gc.collect()
    assert alive() is None
    wait_until(lambda: threads() == [])


@pytest.mark.slow
def test_no_model_is_kept_alive_by_a_panel_and_its_graph() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    run, graph = live_run(), mk.ModelGraph(model)
    put(run, 0, {("0", "WeightNorm"): 1.0})
    panel = MetricPanel(run)
    panel.link(graph)
    panel.color(graph, "WeightNorm")
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None
    panel.close()


# ------------------------------------------------------------------ what a panel chooses by the values


def test_a_panel_of_histograms_alone_opens_on_them() -> None:
    run = live_run()
    put(run, 0, {("layer1", "H"): math.nan, ("layer2", "H"): histogram([1, 2])})  # one had no value at the step
    panel = MetricPanel(run)
    assert panel.view == "histogram"
    assert "no values yet" not in svg_text(panel._static_picture())
    assert MetricPanel(run, view="lines").view == "lines"
    put(run, 1, {("layer1", "Norm"): 1.0})
    assert MetricPanel(run).view == "grid"
    assert MetricPanel(run, metric="H").view == "histogram"
    assert MetricPanel(run, metric="Norm").view == "lines"


def test_a_panel_that_was_there_before_the_values_goes_by_them_until_somebody_chooses() -> None:
    run = live_run()
    panel, chosen = MetricPanel(run), MetricPanel(run)
    assert (panel.view, panel.phase) == ("grid", "train")
    chosen.view, chosen.phase = "heatmap", "both"
    chosen.view, chosen.phase = "lines", "train"
    put(run, 0, {("layer1", "H"): histogram([1, 2])}, phase="eval")
    for each in (panel, chosen):
        each._repr_mimebundle_()
    wait_until(lambda: (panel.view, panel.phase) == ("histogram", "eval"))
    put(run, 1, {("layer1", "H"): histogram([1, 2])})
    put(run, 1, {("layer1", "Norm"): 1.0})
    wait_until(lambda: (panel.view, panel.phase) == ("grid", "train"))
    assert (chosen.view, chosen.phase) == ("lines", "train")
    panel.close()
    chosen.close()


def test_a_metric_that_is_chosen_in_python_is_opened(panel: MetricPanel) -> None:
    assert panel.view == "grid"
    panel.metric = "OutputSndNorm"
    assert panel.view == "lines"
    panel.view = "grid"  # from now on as it is set
    panel.metric = "loss"
    assert panel.view == "grid"


@pytest.mark.parametrize(
    ("rows", "phase"),
    [
        ([({("a", "Norm"): 1.0}, "eval"), ({("a", "WeightNorm"): 1.0}, "train")], "eval"),  # weights are in train
        ([({("a", "Norm"): 1.0}, "eval"), ({("a", "Norm"): 1.0}, "train")], "train"),
        ([({("a", "WeightNorm"): 1.0}, "train")], "train"),
        ([], "train"),
    ],
)
def test_the_phase_is_the_one_that_has_values(rows: list[Any], phase: str) -> None:
    run = live_run()
    for values, own in rows:
        put(run, 0, values, phase=own)
    panel = MetricPanel(run)
    assert panel.phase == phase
    assert MetricPanel(run, phase="train").phase == "train"
    for metric in {metric for values, _ in rows for _, metric in values}:
        panel.metric = metric
        assert ">a<" in svg_text(panel._static_picture())  # drawn, in whichever phase it has values
