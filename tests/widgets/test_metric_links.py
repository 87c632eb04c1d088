"""What joins a MetricPanel to a ModelGraph: the selection and the colors."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.monitoring.run import Run
from modulekg_widgets.widgets.metric_panel.metric_panel import MetricPanel
from modulekg_widgets.widgets.shared.pair_links import links_of
from widgets.metric_samples import FakeComm, fake_kernel, measured_run, put, wait_until


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


@pytest.fixture
def graph() -> Iterator[Any]:
    inner = nn.ModuleDict({"layer1": nn.Sequential(nn.Linear(2, 2)), "layer2": nn.Linear(2, 2)})
    graph = mk.ModelGraph(inner)
    yield graph
    graph.close()


def test_a_link_joins_the_selections_both_ways(panel: MetricPanel, graph: Any) -> None:
    graph.selected = "layer2"
    panel.link(graph)
    panel.link(graph)
    assert panel.selected == "layer2"
    graph.selected = "layer1"
    assert panel.selected == "layer1"
    panel.selected = "layer1.0"
    assert graph.selected == "layer1.0"
    panel.selected = "only in the run"
    assert graph.selected == "layer1.0"
    graph.selected = None
    assert panel.selected is None
    assert len(links_of(panel)) == 1


def test_a_link_starts_with_the_selection_that_there_is(panel: MetricPanel, graph: Any) -> None:
    panel.selected = "layer1"
    panel.link(graph)
    assert graph.selected == "layer1"


def test_what_the_page_has_joined_is_not_sent_back(run: Run, kernel: list[FakeComm], graph: Any) -> None:
    """A kernel that was busy hears old clicks one by one: sent on, they would undo the newest."""
    panel, own = MetricPanel(run), mk.ModelGraph(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    panel.link(own)
    panel.comm.states.clear()
    own.comm.receive({"method": "update", "state": {"selected": "1"}})
    assert own.selected == "1"
    assert [state for state in panel.comm.states if "selected" in state] == []
    own.selected = "0"
    assert panel.comm.states[-1] == {"selected": "0"}


def test_colors_follow_the_latest_values(run: Run, panel: MetricPanel, graph: Any) -> None:
    panel._repr_mimebundle_()
    panel.color(graph, metric="OutputSndNorm")
    assert graph.color_by == "overlay"
    wait_until(lambda: graph.overlay == {"layer1.0": 1.0, "layer2": 2.0})
    changes: list[float] = []
    graph.observe(lambda change: changes.append(time.monotonic()), "overlay")
    for step in range(1, 60):
        put(run, step, {("layer2", "OutputSndNorm"): float(step), ("elsewhere", "OutputSndNorm"): 5.0})
        time.sleep(0.03)
    put(run, 60, {("layer2", "OutputSndNorm"): math.inf})
    wait_until(lambda: graph.overlay == {"layer1.0": 1.0, "layer2": math.inf})
    assert 3 <= len(changes) <= 2 * 1.8 + 2 + 2
    assert min(np.diff(changes)) >= 0.45
    count = len(changes)
    time.sleep(0.7)
    assert len(changes) == count


def test_colors_follow_the_shown_metric_and_the_phase(run: Run, panel: MetricPanel, graph: Any) -> None:
    put(run, 1, {("layer1", "OutputSndNorm"): 9.0}, phase="eval")
    panel._repr_mimebundle_()
    panel.color(graph)
    wait_until(lambda: graph.overlay == {"layer1.0": 1.0, "layer2": 2.0})
    panel.metric = "WeightNorm"
    wait_until(lambda: graph.overlay == {"layer2": 3.0})
    panel.color(graph, "OutputSndNorm", phase="eval")
    wait_until(lambda: graph.overlay == {"layer1": 9.0})
    assert len(panel._colorings) == 1


def test_the_former_name_of_color_warns_and_colors(panel: MetricPanel, graph: Any) -> None:
    with pytest.warns(FutureWarning, match="will be removed in version 0.2.0: write MetricPanel.color$"):
        panel.colour(graph)
    assert graph.color_by == "overlay"


def test_what_cannot_be_linked_or_colored_is_refused(panel: MetricPanel, graph: Any) -> None:
    for wrong in (panel, nn.Linear(2, 2), None):
        with pytest.raises(mk.ModuleKGError, match="a ModelGraph is wanted"):
            panel.link(wrong)  # type: ignore[arg-type]
        with pytest.raises(mk.ModuleKGError, match="a ModelGraph is wanted"):
            panel.color(wrong)  # type: ignore[arg-type]
    with pytest.raises(mk.ModuleKGError, match="did you mean 'WeightNorm'"):
        panel.color(graph, "WeightNrm")
    with pytest.raises(mk.ModuleKGError, match="no phase 'both'"):
        panel.color(graph, phase="both")
    assert graph.color_by == "none"
