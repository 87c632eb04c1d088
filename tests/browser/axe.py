"""axe-core in a notebook page: what stands in the way of people who do not see, hear or point as the author does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from browser.page import NotebookPage

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDGETS = ".mkg-widget"
GRAVE = ("serious", "critical")
CONTRAST = "color-contrast"  # 4.5:1, and 3:1 for large text
MEASURED = {"resultTypes": ["violations", "passes"]}
FEWEST_TEXTS = 8
LOOKS = 5
THEMES = ("JupyterLab Light", "JupyterLab Dark")

# the theme is there when its colors are; canvases are painted a frame or two later
THEME_SHOWN = """isLight => {
  const pen = new OffscreenCanvas(1, 1).getContext('2d');
  pen.fillStyle = getComputedStyle(document.body).getPropertyValue('--jp-layout-color1').trim();
  pen.fillRect(0, 0, 1, 1);
  const [red, green, blue] = pen.getImageData(0, 0, 1, 1).data;
  return (red + green + blue > 382) === isLight;
}"""


# the body of JupyterLab has no height and hides what overflows: to axe-core nothing in it would be visible
UNCLIPPED = "() => { document.body.style.minHeight = '100vh'; }"


def set_theme(notebook: NotebookPage, theme: str) -> None:
    """Change JupyterLab's theme and wait until the page has its colors."""
    notebook.command("apputils:change-theme", theme=theme)
    notebook.wait_for(THEME_SHOWN, theme.endswith("Light"))
    notebook.page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 150)))")


def findings(page: Page, scope: str = WIDGETS) -> list[str]:
    """What axe-core calls serious or critical under `scope`: rule, place and what it says of it.

    Raises playwright's Error where nothing matches; fails where hardly any text had its contrast measured.
    """
    for _ in range(LOOKS):
        response = looked_at(page, scope)
        if texts_of(response) >= FEWEST_TEXTS:
            break
        page.wait_for_timeout(300)  # once in many runs the first look saw no text at all
    assert texts_of(response) >= FEWEST_TEXTS
    grave = [rule for rule in response["violations"] if rule["impact"] in GRAVE]
    return [f"{rule['id']}: {described(node)}" for rule in grave for node in rule["nodes"]]


def looked_at(page: Page, scope: str) -> dict[str, Any]:
    from axe_playwright_python.sync_playwright import Axe

    page.evaluate(UNCLIPPED)
    return Axe().run(page, context=scope, options=MEASURED).response


def texts_of(response: dict[str, Any]) -> int:
    """How many texts had their contrast measured."""
    rules = [rule for kind in MEASURED["resultTypes"] for rule in response[kind] if rule["id"] == CONTRAST]
    return sum(len(rule["nodes"]) for rule in rules)


def described(node: dict[str, Any]) -> str:
    said = [check["message"] for kind in ("any", "all", "none") for check in node[kind]]
    return f"{node['target']} {node['html'][:160]} {'; '.join(said)}"


def assert_accessible(notebook: NotebookPage, state: str, scope: str = WIDGETS) -> None:
    """Nothing grave is found in the light and in the dark theme."""
    found = []
    for theme in THEMES:
        set_theme(notebook, theme)
        notebook.screenshot(f"axe-{state}-{theme.split()[-1].lower()}".replace(" ", "-"))
        found += [f"{theme}: {text}" for text in findings(notebook.page, scope)]
    assert not found, "\n".join([state, *found])
