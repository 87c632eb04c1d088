"""The built site, and pages of it in a browser that has no network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import pytest

from docs.site import Site, built

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDE = {"width": 1280, "height": 900}


@pytest.fixture(scope="session")
def site(require: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The documentation, built."""
    require(
        "sphinx", "myst_nb", "numpydoc", "pydata_sphinx_theme", "sphinx_copybutton", "sphinx_design", "transformers"
    )
    return built(tmp_path_factory.mktemp("site"))


@pytest.fixture
def opened(site: Site, browser: Browser) -> Callable[..., AbstractContextManager[Page]]:
    """Opens a page of the site from the disk, offline: nothing may fail, and nothing ask another host."""

    @contextmanager
    def open_page(name: str, scheme: str = "light", width: int = WIDE["width"]) -> Iterator[Page]:
        trouble: list[str] = []
        context = browser.new_context(
            viewport={**WIDE, "width": width}, offline=True, color_scheme="dark" if scheme == "dark" else "light"
        )
        context.on("request", lambda one: None if is_here(one.url) else trouble.append(f"asks {one.url}"))
        context.on("requestfailed", lambda one: trouble.append(f"{one.url} failed"))
        context.on("weberror", lambda one: trouble.append(str(one.error)))
        page = context.new_page()
        page.goto((site.folder / name).as_uri())
        try:
            yield page
            assert trouble == []
        finally:
            context.close()

    return open_page


def is_here(address: str) -> bool:
    """Whether an address is a file or stands in the page itself."""
    return address.startswith(("file:", "data:", "blob:"))
