"""The README's moving picture: small, moving, and what the browser shows today."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browser.first_impression import PICTURE, SIZE, film
from browser.lab import JupyterServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MOST = 1_000_000  # bytes


def assert_it_moves(picture: Path) -> None:
    image = pytest.importorskip("PIL.Image").open(picture)
    assert image.size == SIZE
    assert picture.stat().st_size <= MOST
    seen = set()
    for frame in range(image.n_frames):
        image.seek(frame)
        seen.add(image.convert("RGB").tobytes())
    assert len(seen) > 20


def test_the_picture_of_the_readme_moves_and_is_small() -> None:
    assert_it_moves(PICTURE)
    assert PICTURE.relative_to(PICTURE.parents[2]).as_posix() in (PICTURE.parents[2] / "README.md").read_text("utf-8")


@pytest.mark.nightly
def test_it_is_made_of_what_the_browser_shows(browser: Browser, jupyterlab: JupyterServer, tmp_path: Path) -> None:
    made = film(browser, jupyterlab)
    made.write(tmp_path / "picture.webp")
    assert_it_moves(tmp_path / "picture.webp")
