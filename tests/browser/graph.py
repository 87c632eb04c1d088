"""What a test does with a ModelGraph in a notebook page: look at it, click on it, read the panel and the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from browser.page import NotebookPage

if TYPE_CHECKING:
    from playwright.sync_api import Locator

ROOT = ".mkg-model-graph"
READY = f"() => document.querySelector('{ROOT}[data-mkg-ready=\"true\"]') !== null"


# the stage of the first graph in the page, and what it shows
STAGE = f"document.querySelector('{ROOT} .mkg-graph-canvas')?.mkgStage"
ITEMS = f"{STAGE}.picture.items"
LINES = f"{STAGE}.picture.lines"

SETUP = """
import torchvision
from IPython.display import display
import modulekg_widgets as mk
model = torchvision.models.{model}()
"""
SHOW = "graph = mk.ModelGraph(model)\ndisplay(graph)"

# where to point at a module: the middle of a card, or the header of a frame, whose middle its children cover;
# what lies outside of the canvas is first brought to the middle, as a user would pan
POINT = f"""path => {{
  const {{ camera, host, picture }} = {STAGE};
  const found = picture.items.filter(item => item.id === path);
  if (found.length !== 1) {{ throw new Error('not on the canvas: ' + path); }}
  const [{{ box: [left, top, width, height], isOpen }}] = found;
  const point = () => {{
    const canvas = host.getBoundingClientRect();
    const {{ x, y, zoom }} = camera.pose;
    const down = isOpen ? Math.min(10, height * zoom / 20 + 2) : height * zoom / 2;
    return [canvas.left + x + (left + width / 2) * zoom, canvas.top + y + top * zoom + down];
  }};
  if (!host.contains(document.elementFromPoint(...point()))) {{
    camera.centre([left + width / 2, isOpen ? top : top + height / 2]);
  }}
  return point();
}}"""


class GraphPage:
    """The one ModelGraph of a notebook page."""

    def __init__(self, notebook: NotebookPage) -> None:
        self.notebook = notebook
        self.page = notebook.page

    @classmethod
    def show(cls, notebook: NotebookPage, model: str = "resnet152", show: str = SHOW) -> GraphPage:
        """Open a notebook, build a torchvision model and display its graph; only the display's traffic is kept."""
        return cls.show_code(notebook, SETUP.format(model=model), show)

    @classmethod
    def show_code(cls, notebook: NotebookPage, setup: str, show: str = SHOW) -> GraphPage:
        notebook.open([setup, show])
        notebook.run(0)
        notebook.traffic.clear()
        notebook.run(1, until=READY)
        return cls(notebook)

    def find(self, selector: str) -> Locator:
        return self.page.locator(f"{ROOT} {selector}")

    def open_panes(self) -> None:
        """Show the tree and the details, which are folded where there is little room."""
        for fold in self.find(".mkg-pane-gutter:not([hidden]) > .mkg-pane-fold").all():
            if fold.get_attribute("aria-expanded") == "false":
                fold.click()

    def nodes(self) -> list[str]:
        """Paths of the modules that the canvas shows."""
        ids = self.page.evaluate(f"() => {ITEMS}.map(item => item.id)")
        return [name for name in ids if not name.startswith("\0")]

    def wait_for_node(self, path: str, there: bool = True) -> None:
        is_there = f"{STAGE}?.picture.items.some(item => item.id === path)"
        self.notebook.wait_for(f"path => {is_there} === {str(there).lower()}", path, timeout=10_000)

    def point(self, path: str) -> tuple[float, float]:
        """Where the module is drawn, in page coordinates; scrolled into view, and the page at rest."""
        self.find(".mkg-graph-canvas").scroll_into_view_if_needed()
        return self.notebook.at_rest(POINT, path)

    def click(self, path: str) -> None:
        """Click on the module on the canvas, where it is drawn."""
        self.page.mouse.click(*self.point(path))

    def double_click(self, path: str) -> None:
        self.page.mouse.dblclick(*self.point(path))

    def panel_path(self) -> str | None:
        return self.find(".mkg-side-panel").get_attribute("data-mkg-path")

    def tree_paths(self, selected_only: bool = False) -> list[str]:
        mark = "[aria-selected=true]" if selected_only else ""
        rows = self.find(f".mkg-tree [role=treeitem][data-mkg-path]{mark}")
        return rows.evaluate_all("rows => rows.map(row => row.dataset.mkgPath)")

    def open_tools(self) -> None:
        """Open the menu of tools, in a cell that has no room for them all."""
        opener = self.find(".mkg-more-opener")
        if opener.is_visible() and opener.get_attribute("aria-expanded") == "false":
            opener.click()

    def press_tool(self, name: str) -> None:
        """Click on a tool of the toolbar such as "expand-all", in the row or in the menu."""
        self.open_tools()
        self.find(f".mkg-toolbar .mkg-{name}").click()

    def fit(self) -> None:
        self.press_tool("fit")

    def wait_for_selection(self, path: str) -> None:
        """Wait until side panel and tree show the path, and Python has it."""
        self.notebook.wait_for(
            f"path => document.querySelector('{ROOT} .mkg-side-panel').dataset.mkgPath === path", path, timeout=5_000
        )
        self.notebook.wait_for_value("graph.selected", path)
        self.notebook.wait_for(
            f"""path => Array.from(document.querySelectorAll('{ROOT} [role=treeitem][aria-selected=true]'),
              row => row.dataset.mkgPath).join('|') === path""",
            path,
            timeout=5_000,
        )

    def wait_for_selected_node(self, path: str) -> None:
        """Wait until the canvas marks this module, and no other, as selected."""
        selected = f"{ITEMS}.filter(item => item.isSelected).map(item => item.id).join('|')"
        self.notebook.wait_for(f"path => {selected} === path", path, timeout=5_000)

    def evaluate(self, script: str, argument: Any = None) -> Any:
        return self.page.evaluate(script, argument)
