"""Widgets in Colab, imitated: its loader gets one file of exactly this version, and clicks are Python values."""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from IPython.core.formatters import DisplayFormatter
from playwright.sync_api import Browser
from torch import nn

import modulekg_widgets as mk
from browser import graph as graphs
from browser.graph import GraphPage
from browser.hosts import SETUP, FrameView, Host, HostPage, bundle, opened, use
from browser.lab import JupyterServer
from browser.page import WatchedPage
from modulekg_widgets.widgets.hosts.colab import ColabFormat

# an output has no origin of its own here, which is as little as is allowed anywhere
COLAB = Host(
    script="colab.js",
    sandbox="allow-scripts allow-downloads",
    is_frame_per_output=True,
    manager="https://manager.invalid/manager.min.js",
)
KERNEL = Path(__file__).parent / "colab_kernel"
BEGIN = f"import sys; sys.path.insert(0, {str(KERNEL)!r}); import google.colab"
ADDRESS = f"/npm/modulekg-widgets@{mk.__version__}/dist/index.js"
NETWORK = "from modulekg_widgets.widgets.hosts import colab\ncolab.CDN_URL = '{}/npm'"
PANEL_PATH = f"path => document.querySelector('{graphs.ROOT} .mkg-side-panel').dataset.mkgPath === path"


@pytest.fixture
def colab(browser: Browser, jupyterlab: JupyterServer) -> Iterator[HostPage]:
    with opened(browser, jupyterlab, COLAB) as page:
        page.network.put(ADDRESS, bundle())
        yield page


def begin(colab: HostPage) -> None:
    """A kernel in Colab, which asks the network that its pages ask."""
    colab.cell(BEGIN)
    colab.cell(NETWORK.format(colab.network.url))


@pytest.mark.gate
def test_clicks_in_colab_are_python_values(colab: HostPage) -> None:
    """The last value of a cell and what `display` shows; each output is a page by itself, and loads the one file."""
    begin(colab)
    colab.cell(f"{SETUP}\ngraph")
    colab.cell("display(panel)")
    colab.cell("display(editor)")
    stated = colab.value("[f'{w._model_module}@{w._model_module_version}' for w in (graph, panel, editor)]")
    assert stated == [f"modulekg-widgets@{mk.__version__}"] * 3
    use(*(colab.output(number) for number in range(3)))
    colab.screenshot("colab")
    assert colab.asked_of_network() == [ADDRESS] * 4  # the kernel has looked whether it is its own


def test_a_page_in_colab_needs_no_network(browser: Browser) -> None:
    """What stands in for a widget is searched and clicked in a frame within a frame, where nothing can be asked for."""
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    graph = mk.ModelGraph(net, torch.zeros(2, 4))
    data, _ = ColabFormat(DisplayFormatter().format)(graph, include={"text/html"})
    offline = WatchedPage(browser, SimpleNamespace(url="about:blank"), offline=True)  # type: ignore[arg-type]
    try:
        output = html.escape(data["text/html"])
        offline.page.set_content(
            f'<iframe sandbox="{COLAB.sandbox}" srcdoc="{output}" style="width: 100%; height: 680px">'
        )
        inner = offline.page.frame_locator("iframe").locator("iframe").element_handle().content_frame()
        assert inner is not None
        frame = FrameView(offline.page, inner)
        shown = GraphPage(frame)  # type: ignore[arg-type]
        frame.wait_for(graphs.READY)
        shown.click("2")
        frame.wait_for(PANEL_PATH, "2")
        offline.page.keyboard.press("/")
        offline.page.keyboard.type("type:BatchNorm1d")
        offline.page.keyboard.press("Enter")
        frame.wait_for(PANEL_PATH, "1")
        offline.screenshot("colab-page")
        offline.assert_healthy()
    finally:
        offline.close()
    assert graph.selected is None


@pytest.mark.nightly
def test_another_version_and_another_module_are_refused(colab: HostPage) -> None:
    """The imitation itself: it is no loader that takes whatever it is given."""
    begin(colab)
    colab.cell(f"{SETUP}\ngraph._model_module_version = '9.9.9'\ngraph")
    other = ADDRESS.replace(mk.__version__, "9.9.9")
    assert colab.output(0).frame.locator(".failed").inner_text() == f"Error: {colab.network.url}{other}: 404"
    colab.network.put(ADDRESS, "define(['@jupyter-widgets/base', '@jupyter-widgets/controls'], () => ({}))")
    colab.cell("panel")
    said = colab.output(1).frame.locator(".failed").inner_text()
    assert said == "Error: modulekg-widgets asks for @jupyter-widgets/controls"
    assert colab.network.missed == [other]
    colab.network.asked.clear()
    colab.trouble.clear()


@pytest.mark.nightly
def test_an_output_that_names_no_manager_is_refused(colab: HostPage) -> None:
    """Without what this package says in Colab, the last value of a cell would stay empty there."""
    colab.cell(f"{SETUP}\ngraph")
    colab.pause(500)
    assert colab.trouble.page_errors == ["a widget that undefined manages"]
    colab.trouble.clear()
