"""What a test does with a KnowledgeExplorer in a notebook page: click circles and rows, read panel and tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from browser.page import NotebookPage

if TYPE_CHECKING:
    from playwright.sync_api import Locator

ROOT = ".mkg-knowledge-explorer"
READY = f"() => document.querySelector('{ROOT}[data-mkg-ready=\"true\"]') !== null"
MOST_CIRCLES = 500

STAGE = f"document.querySelector('{ROOT} .mkg-graph-canvas')?.mkgStage"
ITEMS = f"{STAGE}.picture.items"
# names on the canvas that overlap each other, and how many there are
LABELS = f"""() => {{
  const {{ labels }} = {STAGE}.picture;
  const overlap = (a, b) => a[0] < b[2] && a[2] > b[0] && a[1] < b[3] && a[3] > b[1];
  const pairs = labels.flatMap((one, i) =>
    labels.slice(0, i).flatMap(other => (overlap(one.box, other.box) ? [`${{one.text}} × ${{other.text}}`] : [])));
  return {{ pairs, ids: labels.map(({{ id }}) => id), boxes: labels.map(({{ box }}) => box) }};
}}"""

# five models that share blocks, and three jobs
SETUP = """
from IPython.display import display
from torch import nn
import modulekg_widgets as mk

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.conv = nn.Conv2d(width, width, 3)
        self.norm = nn.BatchNorm2d(width)
        self.act = nn.ReLU()

class Net(nn.Sequential):
    def __init__(self, *widths):
        super().__init__(*(Block(width) for width in widths), nn.Flatten(), nn.Linear(widths[-1], 2))

class Mixer(nn.Sequential):
    def __init__(self, *widths):
        super().__init__(*(nn.Sequential(nn.Linear(w, w), nn.GELU()) for w in widths))

models = {"net2": Net(4, 8), "net3": Net(4, 8, 16), "net4": Net(4, 4, 8, 16)}
models.update(mixer2=Mixer(8, 16), mixer3=Mixer(8, 8, 32))
kg = mk.KnowledgeGraph()
for name, model in models.items():
    kg.add_model(model, name=name)
kg.add_user("ada")
kg.add_dataset("digits")
for number, name in enumerate(["net2", "net3", "mixer2"]):
    kg.add_job(user="ada", dataset="digits", model=name, accuracy=0.9 + number / 100)
def digest(module):
    return mk.fingerprint(module).hexdigest
"""
SHOW = "explorer = mk.KnowledgeExplorer(kg)\ndisplay(explorer)"

# a circle is hit in the middle, an open group under its rim, where no member is
POINT = f"""id => {{
  const {{ camera, host, picture }} = {STAGE};
  const found = picture.items.filter(item => item.id === id);
  if (found.length !== 1) {{ throw new Error('not on the canvas: ' + id); }}
  const [left, top, width, height] = found[0].box;
  const canvas = host.getBoundingClientRect();
  const {{ x, y, zoom }} = camera.pose;
  return [canvas.left + x + (left + width / 2) * zoom, canvas.top + y + (top + height / 2) * zoom];
}}"""


class ExplorerPage:
    """The one KnowledgeExplorer of a notebook page."""

    def __init__(self, notebook: NotebookPage) -> None:
        self.notebook = notebook
        self.page = notebook.page

    @classmethod
    def show(cls, notebook: NotebookPage, setup: str = SETUP, show: str = SHOW) -> ExplorerPage:
        notebook.open([setup, show])
        notebook.run(0)
        notebook.traffic.clear()
        notebook.run(1, until=READY)
        return cls(notebook)

    def find(self, selector: str) -> Locator:
        return self.page.locator(f"{ROOT} {selector}")

    def row(self, item: str) -> Locator:
        """The row of a circle in the tree."""
        return self.find(f'[role=treeitem][data-mkg-item="{item}"]')

    def items(self) -> list[str]:
        """The circles on the canvas."""
        return self.page.evaluate(f"() => {ITEMS}.map(item => item.id)")

    def item_of(self, key: str) -> str:
        """The first circle of what has this key, such as "Family:Net" or a fingerprint."""
        row = self.find(f'[role=treeitem][data-mkg-key="{key}"]').first
        return row.get_attribute("data-mkg-item") or ""

    def wait_for_item(self, item: str) -> None:
        self.notebook.wait_for(
            f"id => {STAGE}?.picture.items.filter(item => item.id === id).length === 1", item, timeout=10_000
        )

    def point(self, item: str) -> tuple[float, float]:
        """Where a circle is, in page coordinates; scrolled into view, and the page at rest."""
        self.find(".mkg-graph-canvas").scroll_into_view_if_needed()
        return self.notebook.at_rest(POINT, item)

    def labels(self) -> dict[str, list[Any]]:
        """The circles whose names are on the canvas after the next frames (`ids`), and which overlap (`pairs`)."""
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return self.page.evaluate(LABELS)

    def zoom(self, factor: float) -> None:
        """Around the middle of the canvas, as the wheel does."""
        self.page.evaluate(
            f"factor => {{ const {{ camera }} = {STAGE}, {{ width, height }} = camera.extent; "
            "camera.zoomBy(factor, width / 2, height / 2); }",
            factor,
        )

    def click(self, item: str) -> None:
        self.page.mouse.click(*self.point(item))

    def double_click(self, item: str) -> None:
        self.page.mouse.dblclick(*self.point(item))

    def view(self, name: str) -> None:
        """Click on the button of a view, and wait until Python has it."""
        self.find(f'[data-mkg-view="{name}"]').click()
        self.notebook.wait_for_value("explorer.view", name)

    def groups(self, name: str) -> None:
        """Choose what the circles of the graph stand for: "families" or "communities"."""
        self.find(".mkg-kg-groups").select_option(name)

    def drawn(self) -> int:
        return int(self.page.locator(ROOT).get_attribute("data-mkg-drawn") or 0)

    def wait_for_selection(self, key: str) -> None:
        """Wait until the side panel shows the key, and Python has it."""
        self.notebook.wait_for(
            f"key => document.querySelector('{ROOT} .mkg-side-panel').dataset.mkgKey === key", key, timeout=5_000
        )
        self.notebook.wait_for_value("explorer.selected", key)

    def names(self) -> list[str]:
        """The first column of the table that is shown."""
        return self.find("[role=row] [role=gridcell]:first-child").all_inner_texts()
