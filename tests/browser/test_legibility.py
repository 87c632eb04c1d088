"""The first picture of 25 models in JupyterLab, with no click: nothing overlaps, all is in view, and can be read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from browser.legibility import LARGEST, Figures, measure, table
from browser.legibility_models import MODELS
from browser.legibility_page import LegibilityPage
from sampling import sampled

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from browser.lab import JupyterServer

VIEWS = ("hierarchy", "dataflow")
IN_CI = [
    "resnet18", "densenet201", "unet", "mask_rcnn", "swin", "llama", "t5", "experts_as_list", "lstm_tagger", "siamese",
    "nas_cells", "wide", "many_ends",
]  # fmt: skip
ROOMS = ("beside", "large")  # as a cell shows it, beside JupyterLab's list of files; and with the page for itself

NOT_ONE = (
    "overlaps",
    "through_cards",
    "through_titles",
    "through_frames",
    "on_lines",
    "loose_ends",
    "hairpins",
    "labels",
    "stray_labels",
    "out_of_view",
    "covered",
    "ends",
)
AT_LEAST = {"title_px": 10.0, "text_px": 10.0, "used": 0.3, "inked": 0.04}
CROSSINGS = 4  # of lines without a common end
MORE_CROSSINGS = {
    "hrnet": 14,
    "looped_cell": 14,
    "nas_cells": 10,
}  # by model: exchanges, loops and cells cross by themselves

MOST_TOLD = 30  # faults of a picture


@dataclass
class Gallery:
    """The page that shows the models, and all that was measured in it."""

    page: LegibilityPage
    found: list[tuple[str, Figures]] = field(default_factory=list)
    begin: float = field(default_factory=time.perf_counter)

    def figures(self, name: str, view: str, room: str) -> Figures:
        figures = measure(self.page.show(name, view, large=room == "large"))
        self.found.append((f"{name} {view} {room}", figures))
        return figures

    def print(self) -> None:
        seconds = time.perf_counter() - self.begin
        print(f"\n{len(self.found)} pictures in {seconds:.0f} s", *table(self.found), sep="\n")


@pytest.fixture(scope="module")
def gallery(browser: Browser, jupyterlab: JupyterServer) -> Iterator[Gallery]:
    page = LegibilityPage(browser, jupyterlab)
    gallery = Gallery(page)
    yield gallery
    gallery.print()
    page.notebook.assert_healthy()
    page.close()
    jupyterlab.shut_down_kernels()


def faults(name: str, figures: Figures) -> list[str]:
    """What is not as it should be, in words."""
    found = [f"{kind}: {fault}" for kind in NOT_ONE for fault in getattr(figures, kind)]
    for measured, least in AT_LEAST.items():
        is_as_large_as_can_be = figures.zoom >= LARGEST and not measured.endswith("_px")
        if (value := getattr(figures, measured)) < least and not is_as_large_as_can_be:
            found.append(f"{measured} is {value:.2f}, less than {least}")
    if figures.crossings > (most := MORE_CROSSINGS.get(name, CROSSINGS)):
        found.append(f"{figures.crossings} crossings, more than {most}")
    return found


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("room", sampled(ROOMS, ["beside"]))
@pytest.mark.parametrize("name", sampled(MODELS, IN_CI))
def test_the_first_picture_is_legible(gallery: Gallery, room: str, name: str, view: str) -> None:
    figures = gallery.figures(name, view, room)
    assert figures.cards > 2
    assert figures.lines > 0
    found = faults(name, figures)
    assert not found, "\n".join([f"{len(found)} faults", *found[:MOST_TOLD]])
