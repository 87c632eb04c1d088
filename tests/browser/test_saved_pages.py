"""Pages of `mk.save_html` in Chromium: they work by themselves, linked widgets follow each other, texts stay texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ipywidgets
import numpy as np
import pytest
import torch
from PIL import Image
from playwright.sync_api import Browser
from torch import nn

import modulekg_widgets as mk
from browser import graph as graphs
from browser import metrics
from browser.graph import GraphPage
from browser.hostile import model_code
from browser.knowledge import READY as EXPLORER_READY
from browser.knowledge import ROOT as EXPLORER
from browser.metrics import MetricsPage
from browser.saved import SavedPage, saved_page
from cases.payloads import PAYLOADS
from modulekg_widgets.engine.monitoring.readings import Slot
from modulekg_widgets.engine.monitoring.run import Run

PATHS = ("conv", "block.0", "block.1", "fc")
PANEL_PATH = f"path => document.querySelector('{graphs.ROOT} .mkg-side-panel').dataset.mkgPath === path"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.block = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU())
        self.fc = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.block(self.conv(x)).mean((2, 3)))


def recorded(name: str, paths: tuple[str, ...] = PATHS, slope: float = 1.0) -> Run:
    """A run of 20 steps: "Norm" of each path goes up, "Loss" of the first goes down."""
    run = Run(name)
    slots = [run.history.slot_number(Slot(path, "Norm", 0, "train")) for path in paths]
    loss = run.history.slot_number(Slot(paths[0], "Loss", 0, "train"))
    for step in range(20):
        numbers = [slope * step + place for place in range(len(paths))] + [1 / (step + 1)]
        run.history.append(step, [*slots, loss], np.array(numbers))
    return run


def graph_and_panel() -> tuple[mk.ModelGraph, mk.MetricPanel]:
    graph = mk.ModelGraph(Net(), torch.zeros(1, 3, 8, 8))
    panel = mk.MetricPanel([recorded("a"), recorded("b", slope=2.0)], metric="Norm", modules=PATHS)
    panel.link(graph)
    return graph, panel


def written(widget: Any, folder: Path) -> Path:
    return mk.save_html(widget, folder / "page.html")


def looked_at(page: SavedPage, kind: Any) -> Any:
    """The helper for a widget of a notebook page, on this page."""
    module = graphs if kind is GraphPage else metrics
    page.wait_for(module.READY)
    return kind(page)


@pytest.mark.gate
def test_a_graph_fills_the_window_and_works(browser: Browser, tmp_path: Path) -> None:
    graph = mk.ModelGraph(Net(), torch.zeros(1, 3, 8, 8), selected="conv", color_by="params")
    with saved_page(browser, written(graph, tmp_path)) as page:
        shown = looked_at(page, GraphPage)
        assert page.page.title() == "Net"
        assert shown.panel_path() == "conv"
        assert page.page.locator(graphs.ROOT).bounding_box() == {"x": 0, "y": 0, "width": 1280, "height": 900}
        assert shown.find(".mkg-color-by select").input_value() == "params"
        shown.click("fc")
        page.wait_for(PANEL_PATH, "fc")
        page.page.keyboard.press("/")
        page.page.keyboard.type("type:BatchNorm2d")
        page.page.keyboard.press("Enter")
        page.wait_for(PANEL_PATH, "block.0")
        page.screenshot("saved-graph")


def test_a_page_saves_itself_again(browser: Browser, tmp_path: Path) -> None:
    """The export menu of a saved page writes a page that works as well."""
    with saved_page(browser, written(mk.ModelGraph(Net()), tmp_path)) as page:
        shown = looked_at(page, GraphPage)
        shown.click("fc")
        shown.find(".mkg-export-button").click()
        with page.page.expect_download() as download:
            shown.find("[data-mkg-export=html]").click()
        again = Path(download.value.path()).rename(tmp_path / "again.html")
    with saved_page(browser, again) as page:
        shown = looked_at(page, GraphPage)
        assert shown.panel_path() == "fc"
        shown.click("conv")
        page.wait_for(PANEL_PATH, "conv")


def test_an_explorer_works_without_a_kernel(browser: Browser, tmp_path: Path) -> None:
    kg = mk.KnowledgeGraph()
    net, wide = Net(), Net()
    wide.fc = nn.Linear(8, 16)
    kg.add_model(net, name="net")
    kg.add_model(wide, name="wide")
    explorer, graph = mk.KnowledgeExplorer(kg), mk.ModelGraph(net)
    mk.link(explorer, graph)
    with saved_page(browser, written(ipywidgets.VBox([explorer, graph]), tmp_path)) as page:
        page.wait_for(EXPLORER_READY)
        root = page.page.locator(EXPLORER)
        root.locator('[data-mkg-item="f0"] .mkg-twisty').click()
        root.locator('[data-mkg-item="f0/m0"]').click()
        page.wait_for(PANEL_PATH, "")
        page.page.locator(f'{graphs.ROOT} [role=treeitem][data-mkg-path="conv"]').click()
        page.wait_for(f"() => document.querySelector('{EXPLORER} .mkg-panel-class').textContent.startsWith('Conv2d')")
        root.locator('[data-mkg-view="overlap"]').click()
        root.locator(".mkg-kg-matrix canvas").wait_for()
        root.locator(".mkg-kg-matrix").press("ArrowDown")
        said = "net × net: 1.000, 6 structures shared"
        root.locator(".mkg-kg-matrix-view .mkg-kg-note").get_by_text(said, exact=True).wait_for()


def test_a_single_model_has_nothing_to_be_compared_with(browser: Browser, tmp_path: Path) -> None:
    kg = mk.KnowledgeGraph()
    kg.add_model(Net(), name="net")
    with saved_page(browser, written(mk.KnowledgeExplorer(kg), tmp_path)) as page:
        page.wait_for(EXPLORER_READY)
        root = page.page.locator(EXPLORER)
        root.locator('[data-mkg-view="overlap"]').click()
        root.locator(".mkg-kg-matrix-view .mkg-kg-nothing").wait_for()
        assert "The graph has one model" in root.locator(".mkg-kg-matrix-view").inner_text()
        assert not root.locator(".mkg-kg-matrix").is_visible()


def test_a_panel_has_all_values(browser: Browser, tmp_path: Path) -> None:
    panel = mk.MetricPanel([recorded("a"), recorded("b", slope=2.0)], metric="Norm", modules=["fc"])
    with saved_page(browser, written(panel, tmp_path), accept_downloads=True) as page:
        shown = looked_at(page, MetricsPage)
        assert page.page.title() == "a, b"
        assert shown.points() == 40
        shown.wait_for_state("Ended")
        rows = shown.drawn()
        values = {(row["run"], row["module"], int(row["step"])): float(row["value"]) for row in rows}
        assert values == {
            (run, "fc", step): slope * step + 3 for run, slope in (("a", 1), ("b", 2)) for step in range(20)
        }
        shown.choose("metric-select", "Loss")
        shown.wait_for_last(0.05)
        shown.choose("metric-view", "heatmap")
        shown.wait_until_painted("canvas")
        page.screenshot("saved-panel")


def test_the_png_of_all_metrics_has_charts_out_of_sight(browser: Browser, tmp_path: Path) -> None:
    run = Run("many")
    slots = [run.history.slot_number(Slot("", f"metric {number}", 0, "train")) for number in range(40)]
    for step in range(5):
        run.history.append(step, slots, np.arange(40.0) + step)
    file = mk.save_html(mk.MetricPanel(run), tmp_path / "panel.html")
    with saved_page(browser, file, viewport={"width": 1000, "height": 600}) as saved:
        saved.wait_for(metrics.READY)
        charts = saved.page.locator(".mkg-metric-card canvas")
        charts.first.wait_for()
        drawn = charts.count()
        assert 0 < drawn < 30
        with saved.page.expect_download() as download:
            saved.page.locator(".mkg-metric-png").click()
        grid = saved.page.locator(".mkg-metric-grid").evaluate("grid => [grid.offsetWidth, grid.offsetHeight]")
        picture = Image.open(download.value.path()).convert("L")
        assert picture.width >= grid[0] > 500
        assert picture.height >= grid[1] > 1000
        # the curve of the last chart, which nobody has seen, and of the first
        ground = max(picture.getcolors(), key=lambda found: found[0])[1]
        for card in (saved.page.locator(".mkg-metric-card").last, saved.page.locator(".mkg-metric-card").first):
            place = card.evaluate("e => [e.offsetLeft, e.offsetTop, e.offsetWidth, e.offsetHeight]")
            left, top, width, height = place
            part = picture.crop((left + 20, top + 60, left + width, top + height))
            assert sum(count for count, color in part.getcolors() if abs(color - ground) > 30) > 300
        assert charts.count() == drawn  # and those out of sight are gone again


def test_a_page_asks_for_nothing_that_only_a_kernel_can_do(browser: Browser, tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.zeros(1, 4)
    graph, editor = mk.ModelGraph(model, x), mk.MaskEditor(model, x)
    model[0] = nn.Linear(4, 8, bias=False)
    for widget in (graph, editor):
        widget._check_outdated()
        assert widget.outdated
        with saved_page(browser, mk.save_html(widget, tmp_path / "page.html")) as saved:
            saved.page.locator("[data-mkg-ready=true]").wait_for()
            text = saved.page.locator(".mkg-page").inner_text()
            assert not any(word in text for word in ("Outdated", "Refresh", "Pass batches="))


def test_linked_widgets_follow_each_other(browser: Browser, tmp_path: Path) -> None:
    graph, panel = graph_and_panel()
    with saved_page(browser, written(ipywidgets.VBox([graph, panel]), tmp_path)) as page:
        shown, values = looked_at(page, GraphPage), looked_at(page, MetricsPage)
        shown.click("fc")
        values.wait_for_selected("fc")
        values.find(".mkg-metric-legend-item").first.click()
        page.wait_for(PANEL_PATH, "conv")
        shown.wait_for_selected_node("conv")
        page.screenshot("saved-linked")
    # what a page does stays in the page
    assert graph.selected is None
    assert panel.selected is None


def test_a_page_begins_with_what_was_selected(browser: Browser, tmp_path: Path) -> None:
    graph, panel = graph_and_panel()
    graph.selected = "block.0"
    with saved_page(browser, written(ipywidgets.HBox([graph, panel]), tmp_path)) as page:
        shown, values = looked_at(page, GraphPage), looked_at(page, MetricsPage)
        assert shown.panel_path() == "block.0"
        values.wait_for_selected("block.0")


def test_tabs_by_click_and_by_keyboard(browser: Browser, tmp_path: Path) -> None:
    graph, panel = graph_and_panel()
    tab = ipywidgets.Tab([graph, ipywidgets.VBox([panel])], titles=["Model", "Training"])
    with saved_page(browser, written(tab, tmp_path)) as page:
        shown = looked_at(page, GraphPage)
        tabs = page.page.get_by_role("tab")
        assert tabs.all_inner_texts() == ["Model", "Training"]
        assert not page.page.locator(metrics.ROOT).is_visible()
        tabs.nth(1).click()
        values = looked_at(page, MetricsPage)
        values.wait_until_painted("canvas")
        assert not page.page.locator(graphs.ROOT).is_visible()
        assert page.page.get_by_role("tabpanel").count() == 1
        page.page.keyboard.press("ArrowRight")
        assert [tabs.nth(place).get_attribute("aria-selected") for place in (0, 1)] == ["true", "false"]
        shown.click("fc")
        tabs.nth(1).click()
        values.wait_for_selected("fc")


def test_a_dark_page(browser: Browser, tmp_path: Path) -> None:
    graph, panel = graph_and_panel()
    with saved_page(browser, written(ipywidgets.VBox([graph, panel]), tmp_path), color_scheme="dark") as page:
        looked_at(page, MetricsPage)
        style = "element => getComputedStyle(element).backgroundColor"
        colors = [page.page.locator(root).evaluate(style) for root in (graphs.ROOT, metrics.ROOT)]
        assert colors == ["rgb(27, 31, 36)"] * 2
        page.screenshot("saved-dark")


def test_hostile_texts_stay_texts(browser: Browser, tmp_path: Path) -> None:
    """As names of modules, classes, attributes, runs, metrics and tabs, and as what is selected."""
    made: dict[str, Any] = {}
    exec(model_code(), made)
    run = Run(PAYLOADS[0])
    slots = [run.history.slot_number(Slot(text, text, 0, "train")) for text in PAYLOADS]
    for step in range(3):
        run.history.append(step, slots, np.full(len(slots), float(step)))
    graph, panel = mk.ModelGraph(made["model"]), mk.MetricPanel(run)
    panel.link(graph)
    tab = ipywidgets.Tab([ipywidgets.VBox([graph, panel])], titles=[PAYLOADS[1]])
    with saved_page(browser, written(tab, tmp_path)) as page:
        shown, values = looked_at(page, GraphPage), looked_at(page, MetricsPage)
        assert page.page.get_by_role("tab").all_text_contents() == [PAYLOADS[1]]
        names = shown.find("[role=treeitem]").all_inner_texts()
        assert [text for text in PAYLOADS if not any(text.strip() in name for name in names)] == []
        for text in PAYLOADS:
            values.choose("metric-select", text)
            values.wait_for_last(2)
        shown.find("[role=treeitem]").nth(1).click()
        for path in shown.tree_paths()[2:]:
            page.page.keyboard.press("ArrowDown")
            assert shown.panel_path() == path
        page.screenshot("saved-hostile")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('{"schema_version":1,', '{"schema_version":99,'),
        ('"kind":"ModelGraph"', '"kind":"Unheard"'),
        ('"widgets":[', ""),
    ],
    ids=["another version", "an unknown widget", "no JSON"],
)
def test_a_damaged_page_says_so(old: str, new: str, browser: Browser, tmp_path: Path) -> None:
    file = written(mk.ModelGraph(Net()), tmp_path)
    text = file.read_text("utf-8")
    head, found, rest = text.partition(old)
    assert found
    file.write_text(head + new + rest, "utf-8")
    page = SavedPage(browser, file)
    try:
        page.wait_for("() => document.querySelector('[role=alert]') !== null")
        assert page.page.locator("[role=alert]").inner_text() == (
            "This page is damaged. Save it again with mk.save_html."
        )
        assert page.trouble.page_errors == []
    finally:
        page.close()
