"""Draws the pictures on the gallery's cards: `python -m docs.gallery_pictures SITE`, run in tests/; look at each.

SITE is the site as Sphinx has built it. Each of its saved pages is drawn as it opens, light and dark: of a model the
canvas alone, of other widgets all. They stand in docs/_static/gallery, so that building the site needs no browser.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from browser.contact_sheet import reduced
from browser.fixtures import CHROMIUM_OPTIONS
from docs.site import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ENTRIES = ROOT / "docs" / "gallery"
FOLDER = ROOT / "docs" / "_static" / "gallery"
THEMES = ("light", "dark")
SIZE = (480, 300)
SCALES = {"canvas": 2 / 3, "widget": 0.5}
LATER = 1000  # milliseconds: some pictures come a few frames after the widget
CANVAS_ALONE = """
.mkg-model-graph > :not(.mkg-main), .mkg-model-graph .mkg-main > :not(.mkg-centre) { display: none !important; }
.mkg-model-graph .mkg-main { display: flex !important; }
.mkg-model-graph, .mkg-model-graph .mkg-main { min-height: 0 !important; }
"""
ADD_STYLE = f"""
const sheet = new CSSStyleSheet();
sheet.replaceSync({CANVAS_ALONE!r});
document.adoptedStyleSheets = [sheet];
"""


def names() -> list[str]:
    """The entries of the gallery."""
    return sorted(path.stem for path in ENTRIES.glob("*.md") if path.stem != "index")


def part_of(name: str) -> str:
    """What is drawn of an entry: the canvas of a model's graph, or all of any other widget."""
    return "canvas" if "mk.ModelGraph(model" in (ENTRIES / f"{name}.md").read_text("utf-8") else "widget"


def drawn(browser: Browser, page: Path, theme: str) -> bytes:
    """The saved page as it opens, as WebP."""
    part = part_of(page.stem)
    scale = SCALES[part]
    width, height = (round(side / scale) for side in SIZE)
    context = browser.new_context(viewport={"width": width, "height": height}, device_scale_factor=scale)
    opened = context.new_page()
    if part == "canvas":
        opened.add_init_script(ADD_STYLE)
    opened.goto(f"{page.as_uri()}#theme={theme}")
    opened.locator(".mkg-widget").first.wait_for()
    opened.wait_for_timeout(LATER)
    shot = opened.screenshot()
    context.close()
    return reduced(shot)


def main(site: Path) -> None:
    from playwright.sync_api import sync_playwright

    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_OPTIONS)
        for name in names():
            for theme in THEMES:
                picture = drawn(browser, site / "live" / f"{name}.html", theme)
                (FOLDER / f"{name}_{theme}.webp").write_bytes(picture)
        browser.close()
    size = sum(file.stat().st_size for file in FOLDER.iterdir())
    print(f"{FOLDER}: {size / 1e6:.2f} MB of pictures")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
