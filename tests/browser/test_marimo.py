"""`mk.marimo` in a real marimo: drawn, clicked, heard in Python and in its cells, and set from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Frame, expect

from browser.marimo_page import FRAME, MarimoPage, MarimoServer, marimo_notebook

STEPS = 120
SETUP = """
import json, os, threading, time
import marimo as mo
import torch
from ipywidgets.widgets.widget import _instances
from torch import nn
import modulekg_widgets as mk

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
x = torch.zeros(1, 4)
graph = mk.ModelGraph(model, x)
editor = mk.MaskEditor(model, x)
monitor = mk.Monitor(model, {nn.Linear: ["OutputSndNorm"]})
panel = mk.MetricPanel(monitor, modules=["0", "2"])

def tell(change=None):
    gone = sum(byte.bit_count() for byte in editor.dropped)
    adapters = sum(type(one).__name__ == "LiveWidget" for one in list(_instances.values()))
    state = {"selected": graph.selected, "gone": gone, "modules": panel.modules, "adapters": adapters}
    with open("state.new", "w") as file:
        json.dump(state, file)
    os.replace("state.new", "state.json")

for widget, name in ((graph, "selected"), (editor, "revision"), (panel, "modules")):
    widget.observe(tell, name)
tell()

def train():
    with monitor:
        for step in range(STEPS):
            model(torch.randn(8, 4)).sum().backward()
            monitor.track(step)
            time.sleep(0.03)
""".replace("STEPS", str(STEPS))
BUTTONS = """
choose = mo.ui.button(label="choose 1", on_change=lambda _: setattr(graph, "selected", "1"))
start = mo.ui.button(label="train", on_change=lambda _: threading.Thread(target=train, daemon=True).start())
anew = mo.ui.button(label="anew", value=0, on_click=lambda count: count + 1)
mo.hstack([choose, start, anew])
"""
CELLS = [
    ("", SETUP, "mk, mo, graph, editor, panel, tell, train, threading"),
    ("mk, mo, graph", "view = mo.ui.anywidget(mk.marimo(graph))\nview", "view"),
    ("mo, graph, view", 'view\nmo.md(f"chosen: {graph.selected}")', ""),
    ("mo, graph, train, threading", BUTTONS, "choose, start, anew"),
    ("mk, graph, tell, anew", "anew.value\nagain = mk.marimo(graph)\ntell()\nagain", ""),
    ("mk, editor", "mk.marimo(editor)", ""),
    ("mk, panel", "mk.marimo(panel)", ""),
]


@pytest.fixture(scope="module", params=["run", pytest.param("edit", marks=pytest.mark.nightly)])
def page(
    request: pytest.FixtureRequest,
    browser: Browser,
    tmp_path_factory: pytest.TempPathFactory,
    require: Callable[..., None],
) -> Iterator[MarimoPage]:
    """The notebook, as an app and in the editor."""
    require("marimo", "anywidget")
    server = MarimoServer(tmp_path_factory.mktemp("marimo"), marimo_notebook(CELLS), request.param)
    try:
        shown = MarimoPage(browser, server, 4, viewport={"width": 1280, "height": 1400})
        yield shown
        shown.assert_healthy()
        shown.close()
    finally:
        server.stop()


def selected(frame: Frame, path: str) -> None:
    expect(frame.locator(".mkg-side-panel").first).to_have_attribute("data-mkg-path", path)


def row(page: MarimoPage, frame: Frame, path: str) -> None:
    page.click(frame, f"[role=treeitem][data-mkg-path='{path}']")


@pytest.mark.gate
def test_a_click_runs_the_cells_that_use_the_widget(page: MarimoPage) -> None:
    """The value is in Python, in the cell, and in the other view; what Python sets is drawn in both."""
    graph, other = page.frame("model-graph"), page.frame("model-graph", 1)
    row(page, graph, "2")
    expect(page.page.get_by_text("chosen: 2")).to_be_visible()
    page.wait_for_state(selected="2")
    selected(other, "2")
    row(page, other, "0")
    page.wait_for_state(selected="0")
    selected(graph, "0")
    page.press("choose 1")
    for frame in (graph, other):
        selected(frame, "1")
    page.wait_for_state(selected="1")
    page.screenshot(f"marimo-{page.marimo.command}")


def test_a_cell_that_runs_again_closes_what_it_had_shown(page: MarimoPage) -> None:
    """The new view shows the widget as it is now, and one adapter is there for each of the four cells."""
    old = page.frame("model-graph", 1)
    row(page, page.frame("model-graph"), "2")
    page.press("anew")
    for _ in range(100):
        if old.is_detached():
            break
        page.pause(100)
    assert old.is_detached()
    new = page.frame("model-graph", 1)
    selected(new, "2")
    row(page, new, "1")
    page.wait_for_state(selected="1", adapters=4)


def test_an_edited_mask_is_checked_by_the_kernel(page: MarimoPage) -> None:
    editor = page.frame("mask-editor")
    field = editor.locator(".mkg-mask-ratio-field")
    for ratio, gone in (("0.5", 4), ("0.25", 2)):
        field.fill(ratio)
        field.press("Enter")
        page.wait_for_state(gone=gone)
    page.click(editor, ".mkg-mask-check")
    expect(editor.locator(".mkg-mask-report")).to_contain_text("Dry run passed")


def test_values_come_while_a_thread_trains(page: MarimoPage) -> None:
    page.frame("metric-panel")
    page.press("train")
    panel = page.frame("metric-panel")  # in sight again
    points = "Number(document.querySelector('.mkg-metric-panel').dataset.mkgPoints)"
    page.wait_in(panel, f"{points} > 8")
    assert panel.evaluate(points) < 2 * STEPS
    page.click(panel, ".mkg-metric-modules li[data-mkg-path='0'] input")
    page.wait_for_state(modules=["2"])
    page.wait_in(panel, f"{points} === {STEPS}")  # of the one that is drawn
    page.screenshot(f"marimo-{page.marimo.command}-trained")


def test_a_frame_has_no_origin_and_no_network(page: MarimoPage) -> None:
    """What is in it could reach neither marimo's page nor its server."""
    graph = page.frame("model-graph")
    assert graph.evaluate("() => origin") == "null"
    reached = "() => { try { return String(parent.document.title) } catch (error) { return error.name } }"
    assert graph.evaluate(reached) == "SecurityError"
    for element in page.page.locator(FRAME).all():
        assert element.get_attribute("sandbox") == "allow-scripts allow-downloads"


ASK = """async address => {
  const violated = [];
  document.addEventListener('securitypolicyviolation', event => violated.push(event.effectiveDirective));
  const image = new Image();
  const loaded = new Promise(resolve => {
    image.onload = () => resolve('loaded');
    image.onerror = () => resolve('no');
  });
  image.src = address;
  const fetched = await fetch(address, {mode: 'no-cors'}).then(() => 'fetched', () => 'no');
  const answers = [fetched, await loaded];
  await new Promise(resolve => setTimeout(resolve, 100));
  return [...answers, ...violated.sort()];
}"""


def test_a_frame_asks_nobody_for_anything(page: MarimoPage) -> None:
    """Its policy forbids it, even where a server would answer."""
    graph = page.frame("model-graph")
    assert graph.evaluate(ASK, page.marimo.url) == ["no", "no", "connect-src", "img-src"]
    page.trouble.clear()  # the browser's own words about it
