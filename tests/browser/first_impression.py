"""Writes the README's moving picture: `python -m browser.first_impression`, run in tests/; look at what it has drawn.

A ResNet-18 in JupyterLab: into a stage and out, indices brushed away, the cut, and what Python then has.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from browser.fixtures import CHROMIUM_OPTIONS
from browser.graph import READY as GRAPH_READY
from browser.graph import GraphPage
from browser.lab import JupyterServer
from browser.masks import ROOT as EDITOR
from browser.masks import MasksPage
from browser.page import NotebookPage

if TYPE_CHECKING:
    from PIL.Image import Image
    from playwright.sync_api import Browser

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "first_impression.webp"
WINDOW = {"width": 1240, "height": 1000}
SIZE = (992, 800)  # of the picture
STEP, LOOK, READ = 90, 900, 1900  # milliseconds that a frame is seen
AXIS = "layer1.0.conv1.out"
PARAMETERS = "[data-mkg-counter=params]"
CELLS = [
    """import torch, torchvision
import modulekg_widgets as mk
model, x = torchvision.models.resnet18(weights=None), torch.randn(1, 3, 64, 64)""",
    "bench = mk.Workbench(model, x)\nbench",
    "model.layer1[0].conv1",
]
READY = f"() => ({GRAPH_READY})() && document.querySelector('{EDITOR}[data-mkg-ready=\"true\"]') !== null"
# a headless browser draws no pointer
POINTER = """() => {
  const tip = document.createElement('div');
  Object.assign(tip.style, {
    position: 'fixed', zIndex: 1e6, width: '18px', height: '18px', marginLeft: '-2px', marginTop: '-2px',
    clipPath: 'polygon(0 0, 0 88%, 25% 66%, 42% 100%, 58% 92%, 42% 60%, 74% 60%)', background: '#d0431a',
    pointerEvents: 'none', filter: 'drop-shadow(0 0 1px white)'
  });
  document.body.append(tip);
  addEventListener('pointermove', event => {
    Object.assign(tip.style, { left: `${event.clientX}px`, top: `${event.clientY}px` });
  }, true);
}"""


CAPTION = """text => {
  const strip = document.querySelector('#caption') ?? document.body.appendChild(document.createElement('div'));
  strip.id = 'caption';
  Object.assign(strip.style, {
    position: 'fixed', zIndex: 1e5, left: 0, right: 0, bottom: 0, padding: '12px 24px', background: '#14304d',
    color: 'white', font: '600 21px system-ui, sans-serif', pointerEvents: 'none'
  });
  strip.textContent = text;
}"""


@dataclass
class Film:
    """Frames of a page, each with the time for which it is seen."""

    notebook: NotebookPage
    frames: list[Image] = field(default_factory=list)
    durations: list[int] = field(default_factory=list)
    at: tuple[float, float] = (560.0, 700.0)

    def take(self, milliseconds: int) -> None:
        from PIL import Image

        shot = Image.open(io.BytesIO(self.notebook.page.screenshot())).convert("RGB")
        self.frames.append(shot.resize(SIZE, Image.Resampling.LANCZOS))
        self.durations.append(milliseconds)

    def say(self, text: str) -> None:
        """Have a strip beneath the page say what is done."""
        self.notebook.page.evaluate(CAPTION, text)

    def move(self, point: tuple[float, float], steps: int = 5) -> None:
        """The pointer goes there in a straight line, slower at both ends."""
        start = self.at
        for step in range(1, steps + 1):
            part = (step / steps) ** 2 * (3 - 2 * step / steps)
            self.at = (start[0] + (point[0] - start[0]) * part, start[1] + (point[1] - start[1]) * part)
            self.notebook.page.mouse.move(*self.at)
            self.take(STEP)

    def write(self, path: Path) -> None:
        """As WebP, which stores what changes from frame to frame."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.frames[0].save(
            path, save_all=True, append_images=self.frames[1:], duration=self.durations, loop=0, quality=68, method=6,
            minimize_size=True, kmax=40, kmin=20,
        )  # fmt: skip


def film(browser: Browser, server: JupyterServer) -> Film:
    """The whole story, which is the same as in the README's first jobs."""
    notebook = NotebookPage(browser, server, viewport=WINDOW).open(CELLS)
    notebook.command("application:toggle-left-area")
    notebook.run(0)
    made = Film(notebook)
    notebook.page.evaluate(POINTER)
    notebook.page.mouse.move(*made.at)
    notebook.run(1, until=READY)
    graph, masks = GraphPage(notebook), MasksPage(notebook)
    notebook.page.locator(".jp-Notebook .jp-Cell").nth(1).evaluate("cell => cell.scrollIntoView({ block: 'start' })")
    made.say("One line shows the model. A double click opens what is inside.")
    notebook.pause(500)
    made.take(READ)
    explored(made, graph)
    pruned(made, masks)
    told(made)
    notebook.assert_healthy()
    notebook.close()
    return made


def explored(made: Film, graph: GraphPage) -> None:
    for container, inside in (("layer3", "layer3.0"), ("layer3.0", "layer3.0.conv1")):
        made.move(graph.point(container))
        graph.page.mouse.dblclick(*made.at)
        graph.wait_for_node(inside)
        made.notebook.pause(600)
        made.take(LOOK)
    made.move(graph.point("layer3.0.conv1"))
    graph.page.mouse.click(*made.at)
    graph.wait_for_selected_node("layer3.0.conv1")
    made.notebook.pause(300)
    made.take(READ)
    graph.page.get_by_role("button", name="Collapse all").first.click()
    graph.find(".mkg-graph-canvas").press("f")
    made.notebook.pause(600)
    made.take(LOOK)


def pruned(made: Film, masks: MasksPage) -> None:
    made.say("Brush channels away, or take half of all: each edit is run on tensors without data.")
    masks.find(".mkg-mask-fold-toggle").first.click()  # the blocks that can go as a whole: all is in sight then
    made.move(masks.point(AXIS, 4))
    made.notebook.page.mouse.down()
    for index in range(6, 24, 3):
        made.move(masks.point(AXIS, index), steps=1)
    made.notebook.page.mouse.up()
    masks.wait_for_report("Dry run passed")
    made.take(LOOK)
    ratio = masks.find(".mkg-mask-ratio-field")
    ratio.fill("0.5")
    ratio.press("Enter")
    made.notebook.wait_for(f"() => Number(document.querySelector('{EDITOR} {PARAMETERS}').dataset.mkgAfter) < 5e6")
    masks.wait_for_report("Dry run passed")
    made.notebook.pause(600)
    made.take(READ)
    made.say("Cut: the tensors are smaller, not masked, and every byte can come back.")
    for button in ("cut", "confirm"):
        box = masks.button(button).bounding_box()
        assert box is not None
        made.move((box["x"] + box["width"] / 2, box["y"] + box["height"] / 2))
        made.notebook.page.mouse.click(*made.at)
        made.notebook.pause(500)
        made.take(LOOK)
    made.notebook.wait_for_value("bench.editor.stage", "cut")


def told(made: Film) -> None:
    """The last cell: what the pictures say is what Python has."""
    made.say("What the page shows is what Python has: 64 channels are 32.")
    made.notebook.run(2)
    last = made.notebook.page.locator(".jp-Notebook .jp-Cell").nth(2)
    last.evaluate("cell => { cell.style.scrollMarginBottom = '90px'; cell.scrollIntoView({ block: 'end' }); }")
    made.notebook.pause(300)
    made.take(READ + LOOK)


def main(path: Path) -> None:
    from playwright.sync_api import sync_playwright

    server = JupyterServer(Path(tempfile.mkdtemp()))
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_OPTIONS)
            made = film(browser, server)
            browser.close()
    finally:
        server.stop()
    made.write(path)
    print(f"{path}: {len(made.frames)} frames, {sum(made.durations) / 1e3:.1f} s, {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
