"""The documentation site, built once for all tests, and what its pages link to and load."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parents[2]
BUILD = ["-m", "sphinx", "-W", "--keep-going", "-n", "-q"]  # quiet: what is printed is a warning
# what a page loads by itself; links of other kinds are followed by readers
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src"}
LOADING_RELATIONS = {"stylesheet", "icon", "preload", "modulepreload", "prefetch", "preconnect", "dns-prefetch"}


class Page(HTMLParser):
    """An HTML file of the site: its ids, what it loads by itself, and where a reader may go from it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.ids: set[str] = set()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.ids.add(values["id"])
        if values.get(LOADED.get(tag, "")):
            self.loaded.append(values[LOADED[tag]])
        if tag == "link" and LOADING_RELATIONS & set(values.get("rel", "").split()):
            self.loaded.append(values["href"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])

    @cached_property
    def soup(self) -> BeautifulSoup:
        from bs4 import BeautifulSoup

        return BeautifulSoup(self.path.read_text("utf-8"), "html.parser")


@dataclass(frozen=True)
class Build:
    """How a site was built: what that has printed, how it ended, and what it cost."""

    printed: str
    code: int
    cpu_seconds: float


@dataclass
class Site:
    """A site: its folder, and how it was built, unless that was before the tests."""

    folder: Path
    build: Build | None = None

    @cached_property
    def pages(self) -> dict[str, Page]:
        """The pages by their path; the saved pages in frames are none."""
        names = [path.relative_to(self.folder).as_posix() for path in sorted(self.folder.rglob("*.html"))]
        return {name: Page(self.folder / name) for name in names if not name.startswith(("live/", "_static/"))}

    def missing(self, page: Page, address: str) -> str | None:
        """Why an address in a page leads nowhere; None where it does, or where another host would have to be asked."""
        parts = urlsplit(address)
        if parts.scheme:
            is_whole = parts.scheme == "mailto" or (parts.scheme in ("http", "https") and "." in parts.netloc)
            return None if is_whole or parts.scheme == "data" else f"{address} is not an address"
        target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
        target = target / "index.html" if target.is_dir() else target
        if not target.is_file() or not target.is_relative_to(self.folder):
            return f"there is no {address}"
        name = target.relative_to(self.folder).as_posix()
        known = self.pages[name].ids if name in self.pages else None
        anchor = unquote(parts.fragment)
        return f"{name} has no #{anchor}" if anchor and known is not None and anchor not in known else None


def built(folder: Path) -> Site:
    """The site, made as CONTRIBUTING.md says, in a folder; with $MODULEKG_SITE, the one that stands there already.

    Where nothing may be skipped it is made in any case: a site that is there does not tell how it was built.
    """
    there = os.environ.get("MODULEKG_SITE")
    if there and os.environ.get("MODULEKG_REQUIRE_ALL") != "1":
        return Site(Path(there).resolve())
    before = _cpu_seconds()
    command = [sys.executable, *BUILD, "-d", str(folder / "doctrees"), str(ROOT / "docs"), str(folder / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    how = Build(done.stdout + done.stderr, done.returncode, _cpu_seconds() - before)
    return Site((folder / "site").resolve(), how)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
