"""The widget follows the theme of JupyterLab and stays usable when enlarged."""

import pytest

from browser.graph import ROOT, GraphPage
from browser.page import NotebookPage

# mean of red, green and blue of a CSS color in any notation, as the browser paints it; null where it is transparent
MEAN = """color => {
  const pen = new OffscreenCanvas(1, 1).getContext('2d');
  pen.fillStyle = color;
  pen.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
  return a === 0 ? null : (r + g + b) / 765;
}"""

BRIGHTNESS = f"""() => {{
  let element = document.querySelector('{ROOT} .mkg-graph-canvas'), mean = null;
  while (element && mean === null) {{
    mean = ({MEAN})(getComputedStyle(element).backgroundColor);
    element = element.parentElement;
  }}
  return mean;
}}"""

INK = f"() => ({MEAN})(getComputedStyle(document.querySelector('{ROOT} [role=treeitem]')).color)"


def test_dark_and_light(notebook: NotebookPage) -> None:
    graph = GraphPage.show(notebook, "resnet18")
    graph.click("layer1")
    graph.wait_for_selection("layer1")
    assert graph.evaluate(BRIGHTNESS) > 0.8
    notebook.command("apputils:change-theme", theme="JupyterLab Dark")
    notebook.wait_for(f"() => ({BRIGHTNESS})() < 0.35", timeout=10_000)
    assert graph.evaluate(INK) > 0.5
    notebook.pause(300)
    notebook.screenshot("dark")
    notebook.command("apputils:change-theme", theme="JupyterLab Light")
    notebook.wait_for(f"() => ({BRIGHTNESS})() > 0.8", timeout=10_000)
    assert graph.evaluate(INK) < 0.5


@pytest.mark.nightly
def test_a_small_window_at_200_percent(notebook: NotebookPage) -> None:
    notebook.page.set_viewport_size({"width": 640, "height": 450})
    graph = GraphPage.show(notebook, "resnet18")
    notebook.execute("graph.selected = 'layer1'")
    graph.wait_for_selection("layer1")
    canvas = graph.find(".mkg-graph-canvas").bounding_box()
    root = notebook.page.locator(ROOT).bounding_box()
    assert canvas is not None
    assert root is not None
    assert canvas["width"] > 150
    assert canvas["height"] > 150
    # nothing is wider than the output it stands in
    assert notebook.page.locator(ROOT).evaluate("root => root.scrollWidth <= root.clientWidth + 1")
    notebook.screenshot("zoomed")
