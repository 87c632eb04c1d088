"""The fixtures of all tests that drive a browser; tests/conftest.py makes them known."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from browser.lab import JupyterServer
from browser.page import NotebookPage
from browser.plugin import LabPlugin

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM_OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser(require: Callable[..., None]) -> Iterator[Browser]:
    """The system's Chromium, headless."""
    require("playwright", "jupyterlab", "$chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_OPTIONS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def jupyterlab(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    """One JupyterLab server for all tests."""
    server = JupyterServer(tmp_path_factory.mktemp("jupyterlab"))
    yield server
    server.stop()


class SharedPage:
    """Holds a page with JupyterLab for the next test, as long as all is well with it."""

    def __init__(self) -> None:
        self.kept: NotebookPage | None = None

    def take(self) -> NotebookPage | None:
        page, self.kept = self.kept, None
        return page


@pytest.fixture(scope="session")
def shared_page(browser: Browser) -> Iterator[SharedPage]:
    """The page in which tests open their notebooks one after the other, instead of loading JupyterLab each."""
    shared = SharedPage()
    yield shared
    if page := shared.take():
        page.close()


in_shared_page = pytest.mark.usefixtures("shared_page")


@pytest.fixture
def notebook(request: pytest.FixtureRequest, browser: Browser, jupyterlab: JupyterServer) -> Iterator[NotebookPage]:
    """A fresh page or, `in_shared_page`, a shared one; after the test it must be healthy, and its kernel shuts down."""
    is_shared = "shared_page" in request.fixturenames
    shared = request.getfixturevalue("shared_page") if is_shared else SharedPage()
    page = shared.take() or NotebookPage(browser, jupyterlab)
    failures = request.session.testsfailed
    try:
        yield page
        page.assert_healthy()
        if is_shared and request.session.testsfailed == failures:
            page.close_notebook()
            page.assert_healthy()
            shared.kept = page
    finally:
        if shared.kept is None:
            page.close()
        jupyterlab.shut_down_kernels()


@pytest.fixture
def plugin(notebook: NotebookPage) -> Iterator[LabPlugin]:
    """What the lab extension adds to the page; the notebook is in front again at the end."""
    plugin = LabPlugin(notebook)
    yield plugin
    plugin.focus_notebook()
