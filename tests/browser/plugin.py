"""What a test does with JupyterLab's plugin: run its commands, look at its tabs, its side panel and its viewers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from browser.page import NotebookPage

if TYPE_CHECKING:
    from playwright.sync_api import Locator

MODULE = "modulekg-widgets"
EXPLORE, EDIT_MASKS, OPEN_FILE, SHOW_OBJECT, SHOW_PANEL = (
    f"{MODULE}:{command}" for command in ("explore", "edit-masks", "open-file", "show-object", "show-panel")
)
TAB = ".mkg-object-tab"
PANEL = f"#{MODULE}-panel"
VIEWER = ".mkg-saved-view"
SETTINGS = f"{MODULE}:settings"

# one row an object: kind, name, class, size
ROWS = f"""() => Array.from(document.querySelectorAll('{PANEL} li'), row => [
  row.dataset.mkgKind,
  row.dataset.mkgName,
  row.querySelector('.mkg-lab-object-class').textContent,
  row.querySelector('.mkg-lab-object-size').textContent,
].join(' | '))"""

OPEN_TABS = "() => [...window.jupyterapp.shell.widgets('main')].length"

SET = """async ([id, name, value]) => {
  const registry = await window.jupyterapp.resolveRequiredService(
    Array.from(window.jupyterapp.pluginRegistry._services.keys()).find(t => t.name.includes('ISettingRegistry')));
  await registry.set(id, name, value);
}"""


def tabs_in(area: dict[str, Any] | None) -> Iterator[str]:
    """The names of the tabs in an area of a saved layout and in its parts."""
    if area is not None:
        yield from area.get("widgets", [])
        for part in area.get("children", []):
            yield from tabs_in(part)


# a tab that was restored may take the focus late, once it has loaded: then the notebook is brought to the front again
NOTEBOOK_IN_FRONT = """() => {
  const { shell } = window.jupyterapp;
  const isInFront = shell.currentWidget?.context?.path.endsWith('.ipynb');
  const notebook = [...shell.widgets('main')].find(widget => widget.context?.path.endsWith('.ipynb'));
  if (!isInFront && notebook) { shell.activateById(notebook.id); }
  return Boolean(isInFront);
}"""


class LabPlugin:
    """The plugin in a page that shows notebooks."""

    def __init__(self, notebook: NotebookPage) -> None:
        self.notebook = notebook
        self.page = notebook.page

    def start(self, command: str, **arguments: Any) -> None:
        """Run a command without waiting for its end: it may ask something."""
        self.page.evaluate("([name, a]) => { void window.jupyterapp.commands.execute(name, a); }", [command, arguments])

    def focus_notebook(self) -> None:
        """Bring the first notebook's tab to the front: the kernel is asked from there."""
        self.page.locator(".lm-TabBar-tab", has_text=".ipynb").first.click()
        self.notebook.wait_for(NOTEBOOK_IN_FRONT)
        self.notebook.wait_for_kernel()

    def tab(self, selector: str = "") -> Locator:
        return self.page.locator(f"{TAB} {selector}")

    def wait_for_graph(self, root: str, title: str) -> None:
        """Wait until the explorer under `root` shows a model of this class."""
        self.notebook.wait_for(
            """([root, title]) => Array.from(
              document.querySelectorAll(`${root} .mkg-model-graph[data-mkg-ready] [role=treeitem]`))
              .some(row => row.getAttribute('aria-level') === '1' && row.textContent.startsWith(title))""",
            [root, title],
        )

    def wait_for_rows(self, *rows: str) -> None:
        """Wait until the side panel lists exactly these objects, each as "kind | name | class | size"."""
        self.notebook.wait_for(f"rows => ({ROWS})().join('\\n') === rows", "\n".join(rows))

    def rows(self) -> list[str]:
        return self.page.evaluate(ROWS)

    def set(self, name: str, value: Any) -> None:
        """Change one of the plugin's settings, as the settings editor does."""
        self.page.evaluate(SET, [SETTINGS, name, value])

    def wait_until_saved(self, workspace: str) -> None:
        """Wait until the server has a layout with all tabs that are open; on a busy machine it is late."""
        open_tabs = self.page.evaluate(OPEN_TABS)
        for _ in range(300):
            saved = self.notebook.server.request("GET", f"/lab/api/workspaces/{workspace}")
            dock = saved["data"].get("layout-restorer:data", {}).get("main", {}).get("dock")
            if len(list(tabs_in(dock))) == open_tabs:
                return
            self.notebook.pause(200)
        raise AssertionError(f"the layout with {open_tabs} tabs was not saved: {json.dumps(saved)[:2000]}")

    def reload(self) -> None:
        """Load the page again in the same workspace, once JupyterLab has saved its layout."""
        self.notebook.command("docmanager:save-all")
        self.wait_until_saved(self.notebook.workspace)
        address = self.page.url.partition("?")[0]
        self.page.goto(address)
        self.notebook.wait_for("() => window.jupyterapp !== undefined")
        self.page.evaluate("() => window.jupyterapp.restored.then(() => true)")
