"""The AMD module in a classic notebook, whose page loads widgets by name: VS Code loads the same file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, WebSocket

from browser import graph as graphs
from browser import metrics
from browser.graph import GraphPage
from browser.lab import JupyterServer, code_notebook
from browser.metrics import MetricsPage
from browser.page import WatchedPage

SETUP = """
import torch
from torch import nn
from IPython.display import display
import modulekg_widgets as mk
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
graph = mk.ModelGraph(model, torch.zeros(1, 4))
monitor = mk.Monitor(model, {nn.Linear: ["OutputSndNorm"]})
panel = mk.MetricPanel(monitor, modules=["0", "2"])
panel.link(graph)
editor = mk.MaskEditor(model, torch.zeros(1, 4))
"""
TRAIN = """
with monitor:
    for step in range(30):
        model(torch.randn(8, 4)).sum().backward()
        monitor.track(step)
"""
CELLS = [SETUP, "display(graph)", "display(panel)", "display(editor)", TRAIN]
KERNEL_IDLE = "() => window.Jupyter?.notebook?.kernel?.info_reply?.status === 'ok'"
EXECUTE = """code => new Promise(resolve => {
  let text = '';
  const output = message => { text += message.content.text ?? message.content.traceback.join('\\n'); };
  const reply = () => setTimeout(() => resolve(text), 100);  // the output may come after the reply
  Jupyter.notebook.kernel.execute(code, { iopub: { output }, shell: { reply } });
})"""


class ClassicPage(WatchedPage):
    """The one notebook of the server; `value` asks its kernel."""

    def _on_websocket(self, socket: WebSocket) -> None:
        """Its messages are in a format of their own, and are not counted."""

    def value(self, expression: str) -> Any:
        return json.loads(self.page.evaluate(EXECUTE, f"import json; print(json.dumps({expression}))"))

    def wait_for_value(self, expression: str, expected: Any, timeout: float = 5_000) -> None:
        found = self.value(expression)
        for _ in range(int(timeout / 100)):
            if found == expected:
                break
            self.pause(100)
            found = self.value(expression)
        assert found == expected


@pytest.fixture(scope="module")
def page(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory, require: Callable[..., None]
) -> Iterator[ClassicPage]:
    """A classic notebook whose cells have run."""
    require("nbclassic")
    server = JupyterServer(tmp_path_factory.mktemp("nbclassic"), "nbclassic")
    shown = ClassicPage(browser, server)
    try:
        server.write("classic.ipynb", code_notebook(CELLS))
        shown.page.goto(f"{server.url}/nbclassic/notebooks/classic.ipynb")
        shown.wait_for(KERNEL_IDLE)
        shown.wait_for("() => Jupyter.notebook._fully_loaded")  # before that there may be no cells to run
        shown.page.evaluate("() => Jupyter.notebook.execute_all_cells()")
        shown.wait_for(graphs.READY, timeout=60_000)  # the kernel has torch to import
        shown.wait_for(metrics.READY)
        yield shown
    finally:
        shown.close()
        server.stop()


def test_the_module_came_from_the_notebook_extension(page: ClassicPage) -> None:
    loaded = page.page.evaluate("() => performance.getEntriesByType('resource').map(entry => entry.name)")
    own = [url for url in loaded if "modulekg-widgets" in url]
    assert [url.partition("?")[0].rpartition("/")[2] for url in own] == ["extension.js", "index.js"]
    assert all(url.startswith(f"{page.server.url}/") and "/nbextensions/modulekg-widgets/" in url for url in own)


@pytest.mark.gate
def test_a_click_is_a_python_value(page: ClassicPage) -> None:
    shown = GraphPage(page)  # type: ignore[arg-type]
    shown.click("2")
    shown.wait_for_selection("2")
    page.value("setattr(graph, 'selected', '0')")
    shown.wait_for_selected_node("0")
    page.screenshot("classic")


def test_values_come_and_a_choice_is_a_python_value(page: ClassicPage) -> None:
    shown = MetricsPage(page)  # type: ignore[arg-type]
    shown.find(".mkg-metric-stage").scroll_into_view_if_needed()  # what is not seen is not drawn
    shown.wait_for_points(60)
    shown.row("2").locator("input").click()
    page.wait_for_value("panel.modules", ["0"])
    page.value("setattr(graph, 'selected', '2')")
    shown.wait_for_selected("2")


def test_an_edited_mask_is_a_python_value(page: ClassicPage) -> None:
    field = page.page.locator(".mkg-mask-editor .mkg-mask-ratio-field")
    field.fill("0.5")
    field.press("Enter")
    page.wait_for_value("sum(byte.bit_count() for byte in editor.dropped)", 4)
    page.page.locator(".mkg-mask-editor .mkg-mask-cut").click()
    page.page.locator(".mkg-mask-confirm").click()
    page.wait_for_value("model[0].out_features", 4)


def test_nothing_of_ours_went_wrong(page: ClassicPage) -> None:
    # the server's own pages have errors of their own, and it remarks on each message of a comm that it does not know
    texts = [text for text in page.trouble.console if "Comm promise not found" not in text]
    assert [text for text in texts + page.trouble.page_errors if "modulekg" in text or "mkg" in text] == []
    assert page.trouble.dialogs == []
