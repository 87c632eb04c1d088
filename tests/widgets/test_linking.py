"""What joins widgets: selection, axis, masks and colors, and a workbench of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from ipywidgets.widgets.widget import _instances
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import TraceError, UnknownKeywordError, UnknownNameError
from modulekg_widgets.widgets.shared.base import WidgetValueError
from modulekg_widgets.widgets.shared.pair_links import links_of

X = torch.zeros(2, 4)
HIDDEN = "0.out"


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    known = set(_instances)
    yield
    for name in set(_instances) - known:
        if name in _instances:  # a widget takes its links along
            _instances[name].close()


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 3))


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return net()


def test_selection_and_axis_are_shared_both_ways(model: nn.Module) -> None:
    graph, editor = mk.ModelGraph(model, X), mk.MaskEditor(model, X, axis=HIDDEN)
    mk.link(editor, graph)
    assert graph.axis == HIDDEN
    graph.selected = "2"
    assert editor.selected == "2"
    editor.axis = "2.out"
    assert graph.axis == "2.out"
    editor.axis = None
    assert graph.axis is None


def test_three_widgets_share_the_selection(model: nn.Module) -> None:
    with mk.Monitor(model, {nn.Linear: ["WeightNorm"]}) as monitor:
        model(X).sum().backward()
        monitor.track(0)
        graph, editor, panel = mk.ModelGraph(model, X), mk.MaskEditor(model, X), mk.MetricPanel(monitor)
        link = mk.link(panel, editor, graph)
        panel.selected = "2"
        assert (graph.selected, editor.selected) == ("2", "2")
        editor.selected = "0"
        assert (graph.selected, panel.selected) == ("0", "0")
        assert graph.color_by == "overlay"
        assert graph.overlay.keys() == {"0", "2", "4"}
        link.close()
        editor.selected = "4"
        assert (graph.selected, panel.selected) == ("0", "0")


def test_what_one_lacks_is_left_to_the_other() -> None:
    small, large = mk.ModelGraph(nn.Sequential(nn.Linear(2, 2))), mk.ModelGraph(net())
    mk.link(small, large)
    large.selected = "4"
    assert small.selected is None
    small.selected = "0"
    assert large.selected == "0"


def test_linking_twice_joins_once_and_closing_parts(model: nn.Module) -> None:
    graph, editor = mk.ModelGraph(model, X), mk.MaskEditor(model, X)
    first = mk.link(graph, editor)
    links = list(links_of(graph))
    mk.link(editor, graph)
    assert links_of(graph) == links
    assert editor.graphs == [graph]
    first.close()
    assert links_of(graph) == links_of(editor) == []
    assert editor.graphs == []
    first.close()


@pytest.mark.parametrize("closed", [0, 1])
def test_a_widget_that_closes_takes_its_links_along(model: nn.Module, closed: int) -> None:
    before = len(_instances)
    widgets: list[Any] = [mk.ModelGraph(model, X), mk.MaskEditor(model, X)]
    link = mk.link(*widgets)
    widgets[closed].close()
    other = widgets[1 - closed]
    other.selected = "2"
    assert links_of(other) == []
    if closed == 0:
        assert other.graphs == []
    link.close()
    other.close()
    assert len(_instances) == before


def test_the_graph_follows_a_cut_and_its_undoing(model: nn.Module) -> None:
    graph, editor = mk.ModelGraph(model, X, selected="2", expanded=[]), mk.MaskEditor(model, X)
    mk.link(graph, editor)
    assert graph.color_by == "pruned"
    before = graph.payload
    editor.plan = mk.plan(editor.graph, per_axis={HIDDEN: [0, 1, 2, 3]})
    editor.cut()
    assert graph.payload["columns"]["params"][0] == sum(p.numel() for p in model.parameters()) == 4 * 8 + 8 + 180 + 63
    assert graph.selected == "2"
    editor.undo()
    assert graph.payload == before


@pytest.mark.parametrize("widgets", [(), (1, 2), ("graph",)])
def test_only_widgets_of_the_package_are_linked(widgets: tuple[Any, ...]) -> None:
    with pytest.raises(WidgetValueError):
        mk.link(*widgets)
    graph = mk.ModelGraph(net())
    with pytest.raises(WidgetValueError, match="two widgets at least"):
        mk.link(graph, graph)


# ------------------------------------------------------------------ refresh


def test_a_graph_that_shows_another_model_drops_what_is_gone() -> None:
    deep = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)), nn.Linear(3, 2))
    graph = mk.ModelGraph(deep, torch.zeros(1, 4), selected="0.1", expanded=["0"], view="dataflow", overlay={"0.1": 2})
    graph.refresh(nn.ModuleDict({"only": nn.Linear(4, 2)}))
    assert (graph.selected, graph.expanded, graph.axis, graph.view, graph.overlay) == (None, [], None, "hierarchy", {})
    graph.selected = "only"
    assert graph.payload["nodes"]["name"] == ["", "only"]


# ---------------------------------------------------------------- workbench


def test_a_workbench_is_its_linked_parts(model: nn.Module) -> None:
    before = len(_instances)
    with mk.Monitor(model, {nn.Linear: ["WeightNorm"]}) as monitor:
        bench = mk.Workbench(model, X, monitor=monitor)
        assert bench.panel is not None
        assert bench.panel.runs == (monitor,)
        bench.graph.selected = "2"
        assert (bench.editor.selected, bench.panel.selected) == ("2", "2")
        bench.editor.axis = HIDDEN
        assert bench.graph.axis == HIDDEN
        state = bench.get_state()
        assert state["graph"] == f"IPY_MODEL_{bench.graph.model_id}"
        assert state["split"] == {"rows": 0.5, "columns": 0.6}
        bench.close()
    assert len(_instances) == before


def test_a_workbench_without_a_monitor_has_no_panel(model: nn.Module) -> None:
    bench = mk.Workbench(model, X)
    assert bench.panel is None
    assert bench.get_state()["panel"] is None
    assert bench.graph.color_by == "pruned"
    bench.split = {"rows": 0.3}
    assert bench.split == {"rows": 0.3, "columns": 0.6}
    for split, error in (({"rows": 2}, WidgetValueError), ({"row": 0.5}, UnknownNameError)):
        with pytest.raises(error):
            bench.split = split
    assert bench.split == {"rows": 0.3, "columns": 0.6}


def test_a_workbench_takes_a_knowledge_graph_along(model: nn.Module) -> None:
    kg = mk.KnowledgeGraph()
    kg.add_model(model, name="ours")
    before = len(_instances)
    bench = mk.Workbench(model, X, kg=kg)
    assert bench.explorer is not None
    digest = mk.fingerprint(model[2]).hexdigest
    bench.graph.selected = "2"
    assert bench.explorer.selected == digest
    bench.explorer.selected = mk.fingerprint(model[0]).hexdigest
    assert (bench.graph.selected, bench.editor.selected) == ("0", "0")
    assert bench.get_state()["explorer"] == f"IPY_MODEL_{bench.explorer.model_id}"
    bench.close()
    assert len(_instances) == before
    assert kg.models == ["ours"]
    with pytest.raises(WidgetValueError):
        mk.Workbench(model, X, kg=3)
    assert len(_instances) == before


def test_a_workbench_that_cannot_be_made_leaves_nothing(model: nn.Module) -> None:
    before = len(_instances)
    with pytest.raises(TraceError):
        mk.Workbench(model, torch.zeros(2, 5))
    with pytest.raises(WidgetValueError):
        mk.Workbench(model, X, monitor=3)
    with pytest.raises(WidgetValueError):
        mk.Workbench(model, X, split={"rows": "half"})
    with pytest.raises(UnknownKeywordError):
        mk.Workbench(model, X, monitors=None)
    assert len(_instances) == before
