"""What is saved: a page of `mk.save_html` opened from the disk, without server, kernel or network; and pictures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import nbformat

from browser.hostile import inspect
from browser.page import WatchedPage

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SAVE = "() => window.jupyterapp.commands.execute('docmanager:save').then(() => {})"  # the notebook in front
SHOWN = "() => document.querySelector('.mkg-page > *') !== null"


class SavedPage(WatchedPage):
    """A file in a page that may ask for nothing but this file."""

    def __init__(self, browser: Browser, file: Path, **context: Any) -> None:
        super().__init__(browser, SimpleNamespace(url="file://"), **context)  # type: ignore[arg-type]
        self.file = file
        self.requests: list[str] = []
        self.context.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())
        self.wait_for(SHOWN)

    def assert_alone(self) -> None:
        """The page is healthy, has asked for nothing but itself, and its policy had nothing to refuse."""
        self.assert_healthy()
        foreign = [url for url in self.requests if not url.startswith(("blob:", "data:"))]
        assert set(foreign) == {self.file.as_uri()}
        found = inspect(self.page, ".mkg-page")
        assert found == {"found": [], "ran": None, "violations": [], "at": self.file.as_uri()}
        assert self.page.locator(".mkg-is-disconnected").count() == 0


def picture_in(file: Path, cell: int) -> str:
    """The picture of a cell's output in a notebook's file."""
    content: Any = nbformat.read(file, nbformat.NO_CONVERT)
    (output,) = [each for each in content.cells[cell].outputs if "data" in each]
    svg = output["data"]["image/svg+xml"]
    return svg if isinstance(svg, str) else "".join(svg)


@contextmanager
def saved_page(browser: Browser, file: Path, **context: Any) -> Iterator[SavedPage]:
    """The file in a page of its own; in the end it must have been alone."""
    page = SavedPage(browser, file, **context)
    try:
        yield page
        page.assert_alone()
    finally:
        page.close()
