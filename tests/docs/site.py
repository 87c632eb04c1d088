"""The documentation site, built once for all tests, and what its pages link to and load."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parents[2]
BUILD = ["-m", "sphinx", "-W", "--keep-going", "-n", "-q"]  # quiet: what is printed is a warning
# what a page loads by itself; links of other kinds are followed by readers
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src"}
LOADING_RELATIONS = {"stylesheet", "icon", "preload", "modulepreload", "prefetch", "preconnect", "dns-prefetch"}


class Page:
    """An HTML file of the site."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.soup = BeautifulSoup(path.read_text("utf-8"), "html.parser")

    @cached_property
    def ids(self) -> set[str]:
        return {str(tag["id"]) for tag in self.soup.find_all(id=True)}

    @cached_property
    def loaded(self) -> list[str]:
        """The addresses of what the page loads."""
        tags = [str(tag[name]) for kind, name in LOADED.items() for tag in self.soup.find_all(kind) if tag.get(name)]
        links = [tag for tag in self.soup.find_all("link") if LOADING_RELATIONS & set(tag.get("rel") or ())]
        return tags + [str(tag["href"]) for tag in links]

    @cached_property
    def links(self) -> list[str]:
        """The addresses that a reader may go to."""
        return [str(tag["href"]) for tag in self.soup.find_all("a", href=True)]


@dataclass
class Site:
    """A built site: its folder, and what building it has printed and cost."""

    folder: Path
    printed: str = ""
    code: int = 0
    cpu_seconds: float = 0.0

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
            return None if is_whole or parts.scheme == "data" else f"{address} is no address"
        target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
        target = target / "index.html" if target.is_dir() else target
        if not target.is_file() or not target.is_relative_to(self.folder):
            return f"there is no {address}"
        name = target.relative_to(self.folder).as_posix()
        known = self.pages[name].ids if name in self.pages else None
        anchor = unquote(parts.fragment)
        return f"{name} has no #{anchor}" if anchor and known is not None and anchor not in known else None


def built(folder: Path) -> Site:
    """The site, made as CONTRIBUTING.md says, in a folder; with $MODULEKG_SITE, the one that stands there already."""
    if there := os.environ.get("MODULEKG_SITE"):
        return Site(Path(there).resolve())
    before = _cpu_seconds()
    command = [sys.executable, *BUILD, "-d", str(folder / "doctrees"), str(ROOT / "docs"), str(folder / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return Site((folder / "site").resolve(), done.stdout + done.stderr, done.returncode, _cpu_seconds() - before)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
