"""Writes docs/pictures.md anew: `python -m browser.contact_sheet`, run in tests/; look at each picture it has drawn.

The 25 models of legibility_models.py as JupyterLab first shows them in a cell, in two views, light and dark.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from browser.fixtures import CHROMIUM_OPTIONS
from browser.lab import JupyterServer
from browser.legibility import Figures, measure
from browser.legibility_models import MODELS
from browser.legibility_page import LegibilityPage

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDER = Path("images/legibility")
VIEWS = {"hierarchy": "Hierarchy", "dataflow": "Data flow"}
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
COLUMNS = {
    "cards": "cards",
    "lines": "edges",
    "title_px": "smallest title (px)",
    "used": "canvas used",
    "crossings": "crossings",
}

HEAD = """# Pictures of 25 models

The first view of `ModelGraph(model, args=…)` for each model, before any click. It is in a cell of JupyterLab, with a
window of 1400×900 and the file list next to it. The views are *hierarchy* and *data flow*, light and dark.
`tests/browser/test_legibility.py` checks that nothing overlaps, and that input and output are in view. No edge may run
through an unrelated card, title or frame, and text has at least 10 pixels. `tests/browser/contact_sheet.py` wrote
this page.
"""


def write(docs: Path, browser: Browser, server: JupyterServer) -> None:
    """Draw all pictures and write the page."""
    folder = docs / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    figures: dict[tuple[str, str], Figures] = {}
    page = LegibilityPage(browser, server)
    for theme, title in THEMES.items():
        page.notebook.command("apputils:change-theme", theme=title)
        for name in MODELS:
            for view in VIEWS:
                figures[name, view] = measure(page.show(name, view))
                shot = page.notebook.page.locator(".mkg-canvas-wrap").screenshot()
                (folder / f"{name}_{view}_{theme}.webp").write_bytes(reduced(shot))
    page.notebook.assert_healthy()
    page.close()
    (docs / "pictures.md").write_text("\n".join(lines(figures)) + "\n", "utf-8")


def reduced(png: bytes) -> bytes:
    """The picture as WebP without loss: flat colors take a third of the bytes."""
    from PIL import Image

    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").save(out, "WEBP", lossless=True, quality=80, method=4)
    return out.getvalue()


def lines(figures: dict[tuple[str, str], Figures]) -> Iterator[str]:
    yield HEAD
    yield from table(figures)
    for name in MODELS:
        yield f"\n## {caption(name)}\n"
        yield f"| | {' | '.join(THEMES)} |"
        yield "|---|" + "---|" * len(THEMES)
        for view, title in VIEWS.items():
            cells = (
                f"![{caption(name)}, {title.lower()}, {theme}]({FOLDER}/{name}_{view}_{theme}.webp)" for theme in THEMES
            )
            yield f"| {title} | {' | '.join(cells)} |"


def table(figures: dict[tuple[str, str], Figures]) -> Iterator[str]:
    """The figures of the pictures below."""
    yield f"| model | view | {' | '.join(COLUMNS.values())} |"
    yield "|---|---|" + "--:|" * len(COLUMNS)
    for (name, view), found in figures.items():
        cells = (cell(column, getattr(found, column)) for column in COLUMNS)
        yield f"| {caption(name).partition(':')[0]} | {VIEWS[view].lower()} | {' | '.join(cells)} |"


def cell(column: str, value: Any) -> str:
    return f"{value:.0%}" if column == "used" else f"{value:.1f}" if isinstance(value, float) else str(value)


def caption(name: str) -> str:
    return (MODELS[name].__doc__ or name).strip().removesuffix(".")


def main(docs: Path) -> None:
    from playwright.sync_api import sync_playwright

    server = JupyterServer(Path(tempfile.mkdtemp()))
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_OPTIONS)
            write(docs, browser, server)
            browser.close()
    finally:
        server.stop()
    size = sum(file.stat().st_size for file in (docs / FOLDER).iterdir())
    print(f"{docs / 'pictures.md'}: {size / 1e6:.2f} MB of pictures")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
