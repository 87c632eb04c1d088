"""The fixtures of all tests that drive a browser; tests/conftest.py makes them known."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from browser.lab import JupyterServer
from browser.page import NotebookPage

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


@pytest.fixture
def notebook(browser: Browser, jupyterlab: JupyterServer) -> Iterator[NotebookPage]:
    """A fresh page; after the test it must be healthy, and its kernels are shut down."""
    page = NotebookPage(browser, jupyterlab)
    try:
        yield page
        page.assert_healthy()
    finally:
        page.close()
        jupyterlab.shut_down_kernels()
