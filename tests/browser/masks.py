"""What a test does with a MaskEditor in a notebook page: brush cells, press keys and buttons, read the counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from browser.page import NotebookPage

if TYPE_CHECKING:
    from playwright.sync_api import Locator

ROOT = ".mkg-mask-editor"
READY = f"() => document.querySelector('{ROOT}[data-mkg-ready=\"true\"]') !== null"
KERNEL = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"

# rows of 24 and of 40 cells, each in one line
SETUP = """
import torch
from IPython.display import display
from torch import nn
import modulekg_widgets as mk
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 40), nn.ReLU(), nn.Linear(40, 3))
x = torch.zeros(2, 8)
weights = mk.weight_fingerprint(model)
"""
SHOW = "editor = mk.MaskEditor(model, x)\ndisplay(editor)"
DROPPED = "editor._draft.dropped"
HIDDEN, WIDE = "0.out", "2.out"

PITCH, GROUP, GAP = 16, 8, 3  # of cells in rows of at most 96


EVERY = 8 * 24 + 24 + 24 * 40 + 40 + 40 * 3 + 3  # parameters of the model


def params(hidden: int = 24, wide: int = 40) -> int:
    """Parameters of the model with so many units left."""
    return 8 * hidden + hidden + hidden * wide + wide + wide * 3 + 3


class MasksPage:
    """The one MaskEditor of a notebook page."""

    def __init__(self, notebook: NotebookPage) -> None:
        self.notebook = notebook
        self.page = notebook.page

    @classmethod
    def show(cls, notebook: NotebookPage, setup: str = SETUP, show: str = SHOW) -> MasksPage:
        notebook.open([setup, show])
        notebook.run(0)
        notebook.traffic.clear()
        notebook.run(1, until=READY)
        masks = cls(notebook)
        masks.find(".mkg-mask-rows").scroll_into_view_if_needed()
        return masks

    def find(self, selector: str) -> Locator:
        return self.page.locator(f"{ROOT} {selector}")

    def strip(self, axis: str) -> Locator:
        """The cells of an axis."""
        return self.find(f'[role=listbox][aria-label="Channels of {axis}"]')

    def point(self, axis: str, index: int) -> tuple[float, float]:
        """Where a cell is, in page coordinates; it is in the first line."""
        strip = self.strip(axis)
        strip.scroll_into_view_if_needed()
        box = strip.bounding_box()
        assert box is not None
        return box["x"] + index * PITCH + index // GROUP * GAP + PITCH / 2, box["y"] + PITCH / 2

    def click(self, axis: str, index: int) -> None:
        self.page.mouse.click(*self.point(axis, index))

    def drag(self, axis: str, first: int, last: int, steps: int = 4) -> None:
        """Brush from one cell to another; the pointer is seen on few of those between."""
        self.page.mouse.move(*self.point(axis, first))
        self.page.mouse.down()
        self.page.mouse.move(*self.point(axis, last), steps=steps)
        self.page.mouse.up()

    def press(self, axis: str, *keys: str) -> None:
        for key in keys:
            self.strip(axis).press(key)

    def open_tools(self) -> None:
        """Open the menu of tools, in a cell that has no room for them all."""
        opener = self.find(".mkg-more-opener")
        if opener.is_visible() and opener.get_attribute("aria-expanded") == "false":
            opener.click()

    def button(self, name: str) -> Locator:
        """One of "check", "mask", "cut", "undo-model", "save", "load", "undo", "redo", "confirm", "cancel"."""
        return self.find(f".mkg-mask-{name}")

    def open_file(self) -> None:
        """Show the fields of the plan's file, which a narrow editor folds away."""
        toggle = self.find(".mkg-mask-more-file")
        if toggle.is_visible() and toggle.get_attribute("aria-expanded") == "false":
            toggle.click()

    def after(self, unit: str) -> int:
        """The number that the counter of "params", "flops" or "bytes" shows as left."""
        return int(self.find(f"[data-mkg-counter={unit}]").get_attribute("data-mkg-after") or -1)

    def wait_for_after(self, unit: str, expected: int, timeout: float = 5_000) -> None:
        self.notebook.wait_for(
            f"""expected => Number(document.querySelector('{ROOT} [data-mkg-counter={unit}]').dataset.mkgAfter)
              === expected""",
            expected,
            timeout=timeout,
        )

    def wait_for_dropped(self, expected: dict[str, list[int]]) -> None:
        """Wait until Python has these indices."""
        self.notebook.wait_for_value(DROPPED, expected)

    def wait_for_report(self, text: str) -> None:
        """Wait until the report of the dry run has this text."""
        self.notebook.wait_for(
            f"text => (document.querySelector('{ROOT} .mkg-mask-report')?.textContent ?? '').includes(text)", text
        )

    def edits(self) -> list[Any]:
        """The messages with a draft, of the page and of the kernel, since the traffic was cleared."""
        found = [m for m in self.notebook.traffic.messages if m.kind == "comm_msg"]
        return [m for m in found if "draft" in (m.content["data"].get("state") or {})]
