"""The same prebuilt extension in Notebook 7 and in Voila."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser

from browser.graph import CY, READY
from browser.lab import JupyterServer, code_notebook
from browser.page import WatchedPage

CELL = "import torchvision\nimport modulekg_widgets as mk\nmk.ModelGraph(torchvision.models.resnet18())"


ADDRESSES = {"notebook": "/notebooks/graph.ipynb", "voila": "/voila/render/graph.ipynb"}
KERNEL_IDLE = "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"


@pytest.mark.parametrize("application", ADDRESSES)
def test_the_graph_is_shown(
    application: str,
    browser: Browser,
    tmp_path_factory: pytest.TempPathFactory,
    require: Callable[..., None],
) -> None:
    require(application)
    server = JupyterServer(tmp_path_factory.mktemp(application), application)
    page = WatchedPage(browser, server)
    try:
        server.write("graph.ipynb", code_notebook([CELL]))
        page.page.goto(server.url + ADDRESSES[application])
        if application == "notebook":
            page.wait_for(KERNEL_IDLE)
            page.page.evaluate("() => { void window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
        page.wait_for(READY)
        assert page.page.evaluate(f"() => {CY}.nodes().length") > 5
        page.screenshot(application)
        # both servers have errors of their own, and Voila's template asks a CDN for icons
        texts = page.trouble.page_errors + page.trouble.console
        assert [text for text in texts if "modulekg" in text or "mkg" in text] == []
    finally:
        page.close()
        server.stop()
