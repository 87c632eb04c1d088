"""A page written by `mk.save_html`, opened from the disk: no server, no kernel, no network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from browser.hostile import inspect
from browser.page import WatchedPage

if TYPE_CHECKING:
    from playwright.sync_api import Browser

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
        assert foreign == [self.file.as_uri()]
        found = inspect(self.page, ".mkg-page")
        assert found == {"found": [], "ran": None, "violations": [], "at": self.file.as_uri()}
        assert self.page.locator(".mkg-is-disconnected").count() == 0


@contextmanager
def saved_page(browser: Browser, file: Path, **context: Any) -> Iterator[SavedPage]:
    """The file in a page of its own; in the end it must have been alone."""
    page = SavedPage(browser, file, **context)
    try:
        yield page
        page.assert_alone()
    finally:
        page.close()
