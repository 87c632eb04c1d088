"""Small things that make a graph look right: lines to be seen, a toolbar in rows, room for the legend."""

from __future__ import annotations

import pytest

from browser.fixtures import in_shared_page
from browser.graph import ROOT, SETUP, STAGE, GraphPage
from browser.page import VIEWPORT, NotebookPage

# contrast of the ink on the longest level piece of each line to the ground, as painted
CONTRASTS = f"""() => {{
  const {{ host, camera, picture }} = {STAGE};
  const canvas = host.querySelector('canvas'), ratio = canvas.width / canvas.clientWidth;
  const {{ x, y, zoom }} = camera.pose;
  const pen = canvas.getContext('2d');
  const ground = getComputedStyle(host.closest('.mkg-canvas-wrap')).backgroundColor;
  const sheet = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', {{ willReadFrequently: true }});
  sheet.fillStyle = ground;
  sheet.fillRect(0, 0, canvas.width, canvas.height);
  sheet.drawImage(canvas, 0, 0);
  const part = value => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * part(r / 255) + 0.7152 * part(g / 255) + 0.0722 * part(b / 255);
  const under = sheet.getImageData(2, 2, 1, 1).data;
  const contrast = ink => {{
    const [a, b] = [light(ink), light(under)].sort((one, other) => other - one);
    return (a + 0.05) / (b + 0.05);
  }};
  return picture.lines.map(({{ points }}) => {{
    const pieces = points.slice(1).map((end, at) => [points[at], end]).filter(([from, to]) => from[1] === to[1]);
    const [from, to] = pieces.sort(([a, b], [c, d]) => Math.abs(d[0] - c[0]) - Math.abs(b[0] - a[0]))[0];
    const down = Math.round((from[1] * zoom + y) * ratio);
    const seen = share => {{
      const across = Math.round(((from[0] + (to[0] - from[0]) * share) * zoom + x) * ratio);
      const column = sheet.getImageData(across, down - 2, 1, 5).data;
      return Math.max(...[0, 1, 2, 3, 4].map(at => contrast(column.slice(4 * at, 4 * at + 3))));
    }};
    return Math.max(...[0.1, 0.2, 0.3, 0.4, 0.5, 0.6].map(seen)); // a label or a bend may be in the way
  }});
}}"""
WHOLE = f"""() => {{
  const {{ camera, picture }} = {STAGE};
  const [left, top, width, height] = camera.view;
  return picture.items.length > 3 && picture.items.every(({{ box: [x, y, across, down] }}) =>
    x >= left && y >= top && x + across <= left + width && y + down <= top + height);
}}"""


@in_shared_page
@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_lines_between_structures_can_be_seen(notebook: NotebookPage, theme: str) -> None:
    show = "graph = mk.ModelGraph(model, view='deduplicated')\ndisplay(graph)"
    graph = GraphPage.show(notebook, "resnet152", show)
    try:
        notebook.command("apputils:change-theme", theme=f"JupyterLab {theme}")
        graph.find(".mkg-graph-canvas").scroll_into_view_if_needed()
        notebook.pause(500)
        contrasts = graph.evaluate(CONTRASTS)
        notebook.screenshot(f"structures-{theme}")
        assert len(contrasts) > 5
        assert min(contrasts) >= 3
    finally:
        notebook.command("apputils:change-theme", theme="JupyterLab Light")


ROWS = f"""() => {{
  const controls = [...document.querySelectorAll('{ROOT} .mkg-bar :is(select, input, button:not([role]))')]
    .filter(one => one.offsetParent !== null);
  const middles = controls.map(one => one.getBoundingClientRect()).map(box => Math.round(box.top + box.height / 2));
  return [...new Set(middles)].length;
}}"""
# the placeholder, and the room beside it and the button that clears the field
PLACEHOLDER = f"""() => {{
  const input = document.querySelector('{ROOT} .mkg-search input');
  const style = getComputedStyle(input), pen = new OffscreenCanvas(1, 1).getContext('2d');
  pen.font = style.font;
  const room = input.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return [input.placeholder, room - 20 - pen.measureText(input.placeholder).width];
}}"""


@in_shared_page
@pytest.mark.parametrize(
    ("width", "said"),
    [(1000, "Search"), (1100, "Search: text"), (1400, "Search: text, class:Conv2d, params > 1M")],
)
def test_the_toolbar_is_one_row(notebook: NotebookPage, width: int, said: str) -> None:
    notebook.page.set_viewport_size({"width": width, "height": 800})
    graph = GraphPage.show_code(notebook, SETUP.format(model="resnet18"), "graph = mk.ModelGraph(model)\ngraph")
    notebook.command("application:toggle-left-area") if width == 1400 else None
    try:
        notebook.pause(300)
        notebook.screenshot(f"toolbar-{width}")
        assert graph.evaluate(ROWS) == 1
        text, left = graph.evaluate(PLACEHOLDER)
        assert text == said
        assert left >= 0
        export = graph.page.get_by_role("button", name="Export")
        assert export.count() == 1
        for name in ("View", "Color"):
            assert graph.page.get_by_role("combobox", name=name).count() == 1
    finally:
        notebook.command("application:toggle-left-area") if width == 1400 else None
        notebook.page.set_viewport_size(VIEWPORT)


@in_shared_page
@pytest.mark.parametrize("by", ["the select", "Python"])
def test_the_legend_leaves_all_of_the_graph_in_view(notebook: NotebookPage, by: str) -> None:
    show = "graph = mk.ModelGraph(model)\ndisplay(graph)"
    graph = GraphPage.show(notebook, "resnet18", show)
    graph.find(".mkg-graph-canvas").scroll_into_view_if_needed()
    notebook.wait_for(WHOLE)
    height = graph.find(".mkg-graph-canvas").bounding_box()
    if by == "Python":
        notebook.execute("graph.color_by = 'params'")
    else:
        graph.find(".mkg-color-by select").select_option("params")
    graph.find(".mkg-legend-ramp").wait_for()
    notebook.pause(300)
    now = graph.find(".mkg-graph-canvas").bounding_box()
    assert height is not None
    assert now is not None
    assert now["height"] < height["height"]  # it stands below, on nothing
    assert graph.evaluate(WHOLE)
    notebook.screenshot("legend")
