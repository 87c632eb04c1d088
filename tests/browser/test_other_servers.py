"""The same prebuilt extension in Notebook 7 and in Voila: shown, clicked, and heard in Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from browser import graph as graphs
from browser import metrics
from browser.graph import ITEMS, GraphPage
from browser.keys import CELLS, press_after_clicks
from browser.lab import JupyterServer, code_notebook
from browser.metrics import MetricsPage
from browser.page import WatchedPage
from browser.saved import SAVE, picture_in

SETUP = """
import json, threading, time
import ipywidgets, torch
from torch import nn
import modulekg_widgets as mk
from IPython.display import display

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
x = torch.zeros(1, 4)
graph = mk.ModelGraph(model, x)
monitor = mk.Monitor(model, {nn.Linear: ["OutputSndNorm"]})
panel = mk.MetricPanel(monitor, modules=["0", "2"])
editor = mk.MaskEditor(model, x)
# what a page without cells shows of the Python side
state = ipywidgets.Label()
state.add_class("python-state")

def tell(change=None):
    gone = sum(byte.bit_count() for byte in editor.dropped)
    state.value = json.dumps({"selected": graph.selected, "modules": panel.modules, "gone": gone})

graph.observe(tell, "selected")
panel.observe(tell, "modules")
editor.observe(tell, "revision")
tell()

def train(steps):
    with monitor:
        for step in range(steps):
            model(torch.randn(8, 4)).sum().backward()
            monitor.track(step)
            time.sleep(0.05)
"""
STEPS = 160
# a cell that trains, and where all cells run before the page is there, a thread
TRAIN = {
    "notebook": f"train({STEPS})",
    "voila": f"threading.Thread(target=train, args=({STEPS},), daemon=True).start()",
}
SHOWN = [SETUP, "display(graph)", "display(panel)", "display(editor)", "display(state)"]
PRINT = "print(state.value)"
EDITOR = ".mkg-mask-editor"
ADDRESSES = {"notebook": "/notebooks/page.ipynb", "voila": "/voila/render/page.ipynb"}

KERNEL_IDLE = "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
RUN = """index => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  notebook.deselectAll();
  notebook.activeCellIndex = index;
  void window.jupyterapp.commands.execute('notebook:run-cell');
}"""
PRINTED = """index => {
  const cell = window.jupyterapp.shell.currentWidget.content.widgets[index];
  const text = cell.model.outputs.toJSON().map(output => output.text ?? '').join('');
  return cell.model.executionState === 'idle' && text ? text : null;
}"""
IS_BUSY = "index => window.jupyterapp.shell.currentWidget.content.widgets[index].model.executionState === 'running'"


class HostPage(WatchedPage):
    """The notebook in one of the servers."""

    def __init__(self, browser: Browser, server: JupyterServer) -> None:
        super().__init__(browser, server)
        self.host = server.application
        cells = [*SHOWN, TRAIN[self.host]] + [PRINT] * (self.host == "notebook")
        self.train, self.print = len(SHOWN), len(SHOWN) + 1
        server.write("page.ipynb", code_notebook(cells))
        self.page.goto(server.url + ADDRESSES[self.host])
        if self.host == "notebook":
            self.wait_for(KERNEL_IDLE)
            for index in range(len(SHOWN)):
                self.page.evaluate(RUN, index)
        self.wait_for(graphs.READY)
        self.wait_for(metrics.READY)
        self.wait_for(f"() => document.querySelector('{EDITOR}[data-mkg-ready=true]') !== null")

    def state(self) -> dict[str, Any]:
        """What Python has: printed by a cell, or told to a label."""
        if self.host == "voila":
            return json.loads(self.page.locator(".python-state").inner_text())
        self.page.evaluate(RUN, self.print)
        self.pause(100)
        self.wait_for(PRINTED, self.print)
        return json.loads(self.page.evaluate(PRINTED, self.print))

    def wait_for_state(self, **expected: Any) -> None:
        for _ in range(50):
            if expected.items() <= self.state().items():
                return
            self.pause(100)
        assert expected.items() <= self.state().items()


@pytest.fixture(scope="module", params=["notebook", pytest.param("voila", marks=pytest.mark.nightly)])
def host(
    request: pytest.FixtureRequest,
    browser: Browser,
    tmp_path_factory: pytest.TempPathFactory,
    require: Callable[..., None],
) -> Iterator[HostPage]:
    """The notebook, shown by each of the servers."""
    require(request.param)
    server = JupyterServer(tmp_path_factory.mktemp(request.param), request.param)
    try:
        page = HostPage(browser, server)
        yield page
        page.close()
    finally:
        server.stop()


def test_values_come_while_the_model_trains(host: HostPage) -> None:
    """The page follows the training, also where the kernel is busy with it, and draws what is chosen meanwhile."""
    if host.host == "notebook":
        host.page.evaluate(RUN, host.train)
    panel = MetricsPage(host)  # type: ignore[arg-type]
    panel.find(".mkg-metric-stage").scroll_into_view_if_needed()
    panel.wait_for_points(8)
    before = panel.points()
    panel.row("0").locator("input").click()
    panel.wait_for_ticked(["2"])
    panel.wait_for_points(before // 2 + 10)
    assert panel.points() < STEPS
    if host.host == "notebook":
        assert host.page.evaluate(IS_BUSY, host.train)
    host.screenshot(f"{host.host}-training")
    panel.wait_for_points(STEPS)
    host.wait_for_state(modules=["2"])


@pytest.mark.gate
def test_a_click_on_the_graph_is_a_python_value(host: HostPage) -> None:
    graph = GraphPage(host)  # type: ignore[arg-type]
    assert host.page.evaluate(f"() => {ITEMS}.length") >= 5
    graph.click("2")
    graph.wait_for_selected_node("2")
    host.wait_for_state(selected="2")
    graph.click("1")
    host.wait_for_state(selected="1")
    host.screenshot(host.host)


def test_an_edited_mask_is_a_python_value(host: HostPage) -> None:
    """Half of the eight hidden units go, and two of them come back."""
    field = host.page.locator(f"{EDITOR} .mkg-mask-ratio-field")
    for ratio, gone in (("0.5", 4), ("0.25", 2)):
        field.fill(ratio)
        field.press("Enter")
        host.wait_for_state(gone=gone)
    assert host.page.locator(f"{EDITOR} .mkg-mask-dropped").inner_text() == "2 channels in 1 group removed"
    host.page.wait_for_timeout(1000)
    host.screenshot(f"{host.host}-editor")


ROOTS = (graphs.ROOT, ".mkg-metric-panel", EDITOR)


def test_no_key_after_a_click_in_a_widget_changes_cells(host: HostPage) -> None:
    if host.host != "notebook":
        pytest.skip("there are no cells")
    for selector in ROOTS:
        root = host.page.locator(selector).first
        root.evaluate("root => root.scrollIntoView({ block: 'start' })")
        host.pause(300)
        assert press_after_clicks(root) > 0
    cells = host.page.evaluate(CELLS)
    host.page.locator(".jp-InputPrompt").nth(host.print).click()
    host.page.keyboard.press("b")  # a click in the notebook gives it its keys back
    host.wait_for(f"cells => ({CELLS})() === cells + 1", cells)
    host.page.keyboard.press("d")
    host.page.keyboard.press("d")
    host.wait_for(f"cells => ({CELLS})() === cells", cells)


def test_the_saved_notebook_has_the_last_pictures(host: HostPage) -> None:
    """Those of after the training and the edits, not of when the cells ran."""
    if host.host != "notebook":
        pytest.skip("it saves nothing")
    file = host.server.notebooks / "page.ipynb"
    panel, editor = SHOWN.index("display(panel)"), SHOWN.index("display(editor)")
    host.page.evaluate(SAVE)
    if "no values yet" in picture_in(file, panel):  # this test runs alone
        host.page.evaluate(RUN, host.train)
        host.state()
        host.page.evaluate(SAVE)
    assert "no values yet" not in picture_in(file, panel)
    before = picture_in(file, editor)
    field = host.page.locator(f"{EDITOR} .mkg-mask-ratio-field")
    field.fill("0.75")
    field.press("Enter")
    host.wait_for_state(gone=6)
    for _ in range(50):
        host.page.evaluate(SAVE)
        if picture_in(file, editor) != before:
            break
        host.pause(100)
    assert picture_in(file, editor) != before


def test_nothing_of_ours_went_wrong(host: HostPage) -> None:
    # both servers have errors of their own, and Voila's template asks a CDN for icons
    texts = host.trouble.page_errors + host.trouble.console
    assert [text for text in texts if "modulekg" in text or "mkg" in text] == []
    assert host.trouble.dialogs == []
