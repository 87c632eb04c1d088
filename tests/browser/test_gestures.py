"""Gestures on the graph: into a container and out of it, and a minimap that covers nothing."""

from __future__ import annotations

import pytest

from browser.fixtures import in_shared_page
from browser.graph import ROOT, STAGE, GraphPage
from browser.page import NotebookPage
from sampling import sampled

FLIGHT = 400  # milliseconds after which every flight has arrived

SETUP = """
import torch, torchvision
from torch import nn
from IPython.display import display
import modulekg_widgets as mk
model = torchvision.models.resnet18().eval()
x = torch.zeros(1, 3, 64, 64)
"""
TRACED = "graph = mk.ModelGraph(model, x)\ndisplay(graph)"
LOOK = f"() => {STAGE}.camera.pose"

# how much of the canvas a frame takes, and whether its title can be read
FRAMED = f"""path => {{
  const {{ camera, host, picture }} = {STAGE};
  const [x, y, width, height] = picture.items.find(item => item.id === path).box;
  const {{ zoom, x: left, y: top }} = camera.pose;
  const box = [x * zoom + left, y * zoom + top, width * zoom, height * zoom];
  const [across, down] = [host.clientWidth, host.clientHeight];
  return {{
    inside: box[0] >= 0 && box[1] >= 0,
    share: Math.max(box[2] / across, box[3] / down),
    zoom,
  }};
}}"""

# a place of the canvas where nothing is drawn
EMPTY = f"""() => {{
  const stage = {STAGE};
  const canvas = stage.host.getBoundingClientRect();
  const {{ x, y, zoom }} = stage.camera.pose;
  for (let top = 6; top < canvas.height; top += 10) {{
    for (let left = 6; left < canvas.width; left += 10) {{
      const [px, py] = [(left - x) / zoom, (top - y) / zoom];
      const isFree = stage.picture.items.every(({{ box: [bx, by, width, height] }}) =>
        px < bx - 8 || py < by - 8 || px > bx + width + 8 || py > by + height + 8);
      if (isFree) {{ return [canvas.left + left, canvas.top + top]; }}
    }}
  }}
  throw new Error('cards everywhere');
}}"""

OVERLAPS = f"""() => {{
  const stage = {STAGE};
  const canvas = stage.host.getBoundingClientRect();
  const map = document.querySelector('{ROOT} .mkg-minimap');
  const shown = map !== null && !map.hidden && map.offsetWidth > 0;
  const {{ x, y, zoom }} = stage.camera.pose;
  const view = stage.camera.view;
  const all = stage.picture.items.every(({{ box: [left, top, width, height] }}) =>
    left >= view[0] && top >= view[1] && left + width <= view[0] + view[2] && top + height <= view[1] + view[3]);
  if (!shown) {{ return {{ shown, all, covered: [] }}; }}
  const place = map.getBoundingClientRect();
  const covered = stage.picture.items.filter(({{ box: [left, top, width, height] }}) => {{
    const [sx, sy] = [canvas.left + x + left * zoom, canvas.top + y + top * zoom];
    const [right, bottom] = [Math.min(sx + width * zoom, canvas.right), Math.min(sy + height * zoom, canvas.bottom)];
    return Math.max(sx, canvas.left) < place.right && right > place.left
      && Math.max(sy, canvas.top) < place.bottom && bottom > place.top;
  }}).map(({{ id }}) => id);
  return {{ shown, all, covered }};
}}"""


def show(notebook: NotebookPage, code: str = TRACED) -> GraphPage:
    graph = GraphPage.show_code(notebook, SETUP, code)
    graph.find(".mkg-graph-canvas").first.scroll_into_view_if_needed()
    notebook.pause(200)
    return graph


def look(graph: GraphPage) -> dict[str, float]:
    graph.notebook.pause(FLIGHT)
    return graph.evaluate(LOOK)


# ------------------------------------------------------------ into and out of containers


@in_shared_page
def test_a_double_click_opens_a_container_and_fills_the_view_with_it(notebook: NotebookPage) -> None:
    graph = show(notebook)
    notebook.execute("graph.expanded = []")
    graph.wait_for_node("layer2.0", there=False)
    graph.double_click("layer2")
    graph.wait_for_node("layer2.0")
    notebook.pause(FLIGHT)
    framed = graph.evaluate(FRAMED, "layer2")
    assert framed["inside"]
    assert framed["zoom"] >= 0.62  # legible
    assert framed["share"] > 0.6 or framed["zoom"] >= 1.1  # small ones are not blown up
    notebook.screenshot("zoomed-in")

    # into the next, then again on what is open: it stays open
    graph.double_click("layer2.0")
    graph.wait_for_node("layer2.0.conv1")
    inner = look(graph)
    graph.double_click("layer2")
    assert look(graph) != inner
    assert "layer2.0" in graph.nodes()
    notebook.wait_for_value("'layer2' in graph.expanded", True)

    # the background: all of it
    graph.page.keyboard.press("f")
    whole = look(graph)
    graph.double_click("layer2")
    assert look(graph) != whole
    notebook.page.mouse.dblclick(*notebook.at_rest(EMPTY, None))
    assert look(graph) == pytest.approx(whole)


@pytest.mark.nightly
@in_shared_page
def test_backspace_goes_out_a_container_at_a_time(notebook: NotebookPage) -> None:
    graph = show(notebook)
    notebook.execute("graph.selected = 'layer3.0.conv2'")
    graph.wait_for_selection("layer3.0.conv2")
    graph.wait_for_selected_node("layer3.0.conv2")
    graph.find(".mkg-graph-canvas").focus()
    graph.page.keyboard.press("z")
    zooms = [look(graph)["zoom"]]
    assert zooms[0] >= 1
    assert graph.evaluate(FRAMED, "layer3.0.conv2")["inside"]
    for _ in range(4):
        graph.page.keyboard.press("Backspace")
        zooms.append(look(graph)["zoom"])
    assert sorted(zooms, reverse=True) == zooms
    assert len(set(zooms)) >= 3
    graph.page.keyboard.press("f")
    assert look(graph)["zoom"] == pytest.approx(zooms[-1])
    assert graph.page.url.endswith(notebook.page.url.rpartition("/")[2])  # the browser did not go back

    # from there, out of what fills the canvas
    notebook.execute("graph.selected = 'layer3'")
    graph.wait_for_selection("layer3")
    graph.find(".mkg-side-panel button").filter(has_text="Focus").click()
    graph.wait_for_node("layer1", there=False)
    graph.find(".mkg-graph-canvas").focus()
    for _ in range(5):
        graph.page.keyboard.press("Backspace")
        notebook.pause(FLIGHT)
    graph.wait_for_node("layer1")


@in_shared_page
def test_every_gesture_has_a_button_that_says_its_key(notebook: NotebookPage) -> None:
    graph = show(notebook)
    expected = {
        "fit": ("Fit to window", "f"),
        "zoom-selection": ("Zoom to selection", "z"),
        "full-screen": ("Full screen", "Shift+F"),
        "open-tab": ("Open in tab", "Shift+T"),
    }
    icons = set()
    for name, (label, key) in expected.items():
        button = graph.find(f".mkg-toolbar .mkg-{name}")
        assert button.get_attribute("aria-label") == label
        assert button.get_attribute("aria-keyshortcuts") == key
        assert button.get_attribute("title") == f"{label} ({key})"
        icons.add(button.locator("path").get_attribute("d"))
    assert len(icons) == len(expected)

    graph.click("layer4")
    before = look(graph)
    graph.press_tool("zoom-selection")
    assert look(graph) != before
    graph.fit()
    assert look(graph)["zoom"] < 1


# ------------------------------------------------------------ cards stay under the pointer

# the middle of a chevron in page coordinates, null where it is out of view
CHEVRON = f"""path => {{
  const {{ camera, host, picture }} = {STAGE};
  const item = picture.items.find(item => item.id === path);
  if (!item) {{ return null; }}
  const {{ x, y, zoom }} = camera.pose;
  const canvas = host.getBoundingClientRect();
  const [across, down] = item.isOpen ? [16, 21] : [20, 16];
  const at = [canvas.left + x + (item.box[0] + across) * zoom, canvas.top + y + (item.box[1] + down) * zoom];
  return host.contains(document.elementFromPoint(...at)) ? at : null;
}}"""
IS_OPEN = f"path => {STAGE}.picture.items.find(item => item.id === path)?.isOpen"
CHANGED = f"([path, isOpen]) => {STAGE}.picture.items.find(item => item.id === path)?.isOpen === isOpen"
CONTAINERS = ["layer4", "layer2", "layer3", "layer1", "layer1.0"]


@in_shared_page
def test_a_second_click_at_the_same_place_undoes_the_first(notebook: NotebookPage) -> None:
    graph = show(notebook)
    notebook.execute("graph.expanded = []")
    graph.wait_for_node("layer1.0", there=False)
    notebook.pause(FLIGHT)
    mouse = graph.page.mouse

    def click(path: str, at: list[float]) -> float:
        """Opens or closes the card; how far its chevron is from the pointer then."""
        before = graph.evaluate(IS_OPEN, path)
        mouse.click(*at)
        notebook.wait_for(CHANGED, [path, not before], timeout=5_000)
        notebook.pause(FLIGHT)  # and longer than a double click takes
        chevron = graph.evaluate(CHEVRON, path)
        assert chevron is not None, f"{path} is out of view"
        return max(abs(chevron[0] - at[0]), abs(chevron[1] - at[1]))

    seen = {}
    for path in CONTAINERS:
        at = graph.evaluate(CHEVRON, path)
        if at is None or graph.evaluate(IS_OPEN, path):
            continue
        zoom = look(graph)["zoom"]
        seen[path] = click(path, at)
        assert look(graph)["zoom"] >= 0.79 * zoom
        click(path, at)  # a hit, or nothing would change
        if (again := graph.evaluate(CHEVRON, path)) is not None:
            click(path, again)  # the next ones lie elsewhere then
    notebook.screenshot("toggled")
    assert len(seen) >= 3
    assert max(seen.values()) < 10, seen  # a click may be 12 away, at zoom 1


# ------------------------------------------------------------ the minimap

MODELS = {
    "resnet18": "model = torchvision.models.resnet18()",
    "densenet121": "model = torchvision.models.densenet121()",
    "vit": "model = torchvision.models.vit_b_16()\nx = torch.zeros(1, 3, 224, 224)",
    "googlenet": "model = torchvision.models.googlenet(init_weights=False)\nx = torch.zeros(1, 3, 224, 224)",
    "chain": "model = nn.Sequential(*[nn.Linear(3, 3) for _ in range(40)])\nx = torch.zeros(1, 3)",
}


@in_shared_page
@pytest.mark.parametrize("build", sampled(MODELS.values(), [MODELS["densenet121"]]), ids=MODELS)
def test_the_minimap_covers_no_card(notebook: NotebookPage, build: str) -> None:
    graph = show(notebook, f"{build}\ngraph = mk.ModelGraph(model.eval(), x, view='dataflow')\ndisplay(graph)")
    host = graph.find(".mkg-graph-canvas")
    seen = [graph.evaluate(OVERLAPS)]
    for act in (
        lambda: graph.press_tool("expand-all"),
        graph.fit,
        lambda: graph.evaluate(f"() => {STAGE}.camera.zoomBy(4, 100, 100)"),
        lambda: graph.evaluate(f"() => {STAGE}.camera.panBy(-300, -200)"),
        lambda: graph.evaluate(f"() => {STAGE}.camera.panBy(-900, -600)"),
        lambda: graph.press_tool("collapse-all"),
    ):
        act()
        notebook.pause(250)
        seen.append(graph.evaluate(OVERLAPS))
    assert [found["covered"] for found in seen] == [[]] * len(seen)
    # it is there where there is somewhere to go, and only there
    assert [found["shown"] for found in seen] == [not found["all"] for found in seen]
    assert {found["shown"] for found in seen} == {True, False} or not seen[2]["all"]
    assert host.is_visible()
