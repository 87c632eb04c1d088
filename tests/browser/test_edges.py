"""The edge under the pointer: the path of its value stands out, and a box says what it carries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from browser.fixtures import in_shared_page
from browser.graph import LINES, ROOT, STAGE, GraphPage
from browser.page import NotebookPage
from browser.saved import saved_page
from browser.test_gestures import show

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LIT = f"() => {STAGE}.picture.lit"
TIP = f"{ROOT} .mkg-metric-tip"
RESIDUAL = """
class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.last = nn.Conv2d(8, 4, 1)

    def forward(self, x):
        y = self.first(x)
        return self.last(y + self.second(y)), y.mean().to(torch.float64), y > 0

model = Residual()
"""

# a place on the screen beside an edge, away from every card, with the ids of its ends
EDGE = f"""([from, to]) => {{
  const stage = {STAGE};
  const canvas = stage.host.getBoundingClientRect();
  const {{ x, y, zoom }} = stage.camera.pose;
  const step = 3;
  for (let top = 4; top < canvas.height - 4; top += step) {{
    for (let left = 4; left < canvas.width - 4; left += step) {{
      stage.host.dispatchEvent(new PointerEvent('pointermove', {{
        clientX: canvas.left + left, clientY: canvas.top + top, pointerId: 1, bubbles: true
      }}));
      const [under] = stage.picture.lit ?? [];
      if (under && under[0] === from && under[1] === to) {{ return [canvas.left + left, canvas.top + top]; }}
    }}
  }}
  return null;
}}"""

MIDDLE = f"""path => {{
  const {{ camera, host, picture }} = {STAGE};
  const [left, top, width, height] = picture.items.find(item => item.id === path).box;
  const canvas = host.getBoundingClientRect();
  const {{ x, y, zoom }} = camera.pose;
  return [canvas.left + x + (left + width / 2) * zoom, canvas.top + y + (top + height / 2) * zoom];
}}"""


def point_at_edge(graph: GraphPage, source: str, target: str) -> None:
    graph.page.mouse.move(2, 2)
    place = graph.evaluate(EDGE, [source, target])
    assert place is not None, f"no edge from {source} to {target}"
    graph.page.mouse.move(*place)
    graph.notebook.wait_for(f"ends => ({LIT})()[0]?.join() === ends.join()", [source, target])
    graph.page.locator(TIP).wait_for()


@in_shared_page
@pytest.mark.parametrize("view", ["hierarchy", "dataflow"])
def test_an_edge_lights_the_path_of_its_value(notebook: NotebookPage, view: str) -> None:
    graph = show(notebook, f"{RESIDUAL}graph = mk.ModelGraph(model, x, view={view!r})\ndisplay(graph)")
    graph.page.keyboard.press("f")
    plain = graph.find(".mkg-graph-picture").evaluate("canvas => canvas.toDataURL()")
    point_at_edge(graph, "first", "second")
    lit = graph.evaluate(LIT)
    # what the first gives goes to the second and past it, and nowhere else
    lines = graph.evaluate(f"() => {LINES}.map(line => [line.source, line.target])")
    from_first = [line for line in lines if line[0] == "first"]
    assert [line for line in lit if line not in from_first] == []
    if view == "dataflow":  # a hierarchy also has lines of what operators without a card make of it
        assert sorted(lit) == sorted(from_first)
    assert len(lit) >= 2
    tip = graph.page.locator(TIP)
    assert tip.is_visible()
    text = tip.inner_text()
    assert "first → second" in text
    assert "1×8×64×64" in text
    assert "float32 · 128 KiB" in text
    assert f"read in {len(lit)} places" in text
    assert graph.find(".mkg-graph-picture").evaluate("canvas => canvas.toDataURL()") != plain
    notebook.screenshot(f"edge-{view}")

    # the panel says the same to those who use no mouse
    graph.click("first")
    graph.wait_for_selection("first")
    assert "1×8×64×64 float32" in graph.find(".mkg-traffic").inner_text()

    graph.page.mouse.move(2, 2)
    notebook.wait_for(f"() => ({LIT})().length === 0")
    assert not tip.is_visible()


@in_shared_page
def test_an_edge_says_what_is_not_known(notebook: NotebookPage) -> None:
    graph = show(notebook, f"{RESIDUAL}graph = mk.ModelGraph(model)\ndisplay(graph)")
    point_at_edge(graph, "first", "second")
    assert "Order of registration" in graph.page.locator(TIP).inner_text()


@in_shared_page
def test_an_edge_lists_several_values_and_their_number(notebook: NotebookPage) -> None:
    code = """
class Many(nn.Module):
    def __init__(self):
        super().__init__()
        self.split, self.join = Split(), Join()

    def forward(self, x):
        return self.join(self.split(x))

class Split(nn.Module):
    def forward(self, x):
        return [x.narrow(3, 0, i + 1) * 2 for i in range(8)]

class Join(nn.Module):
    def forward(self, parts):
        return torch.cat(parts, 3)

model = Many()
graph = mk.ModelGraph(model, x, view='dataflow')
display(graph)
"""
    graph = show(notebook, code)
    point_at_edge(graph, "split", "join")
    tip = graph.page.locator(TIP)
    assert tip.locator(".mkg-metric-tip-row").count() == 5
    assert "+3 more" in tip.inner_text()
    assert "1×3×64×1" in tip.inner_text()


MOVES = f"""count => {{
  const stage = {STAGE};
  const canvas = stage.host.getBoundingClientRect();
  const move = at => stage.host.dispatchEvent(new PointerEvent('pointermove', {{
    clientX: canvas.left + (at * 37) % canvas.width, clientY: canvas.top + (at * 23) % canvas.height,
    pointerId: 1, bubbles: true
  }}));
  for (let at = 0; at < 50; at++) {{ move(at * 7); }} // what is found once for all moves
  const begin = performance.now();
  for (let at = 1; at <= count; at++) {{ move(at); }}
  return [(performance.now() - begin) / count, stage.picture.lines.length];
}}"""


@pytest.mark.nightly
@in_shared_page
def test_a_move_over_two_thousand_edges_takes_less_than_a_millisecond(notebook: NotebookPage) -> None:
    code = """
class Sum(nn.Module):
    def forward(self, *made):
        return sum(made)

sorts = [type(f'Sum{k}', (Sum,), {}) for k in range(5)]
kinds = [nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU]

class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        for i in range(47):  # alike ones do not stand beside each other, so that none are folded
            self.add_module(f'row{i}', kinds[i * i % 5]())
            self.add_module(f'end{i}', sorts[(i * i + i) % 5]())

    def forward(self, x):
        made = [self.get_submodule(f'row{i}')(x) for i in range(47)]
        return [self.get_submodule(f'end{i}')(*made) for i in range(47)]

graph = mk.ModelGraph(Wide(), torch.zeros(1, 8), expanded=[])
display(graph)
"""
    graph = show(notebook, code)
    milliseconds, edges = graph.evaluate(MOVES, 500)
    print(f"{edges} edges: {milliseconds:.3f} ms a move")
    assert edges >= 2_000
    assert milliseconds <= 1


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
        self.head = nn.Conv2d(4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(x))


def test_the_same_in_a_saved_page(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    mk.save_html(mk.ModelGraph(Net(), torch.zeros(1, 3, 8, 8), expanded=[]), file)
    with saved_page(browser, file) as saved:
        saved.wait_for(f"() => document.querySelector('{ROOT}[data-mkg-ready]') !== null")
        page = saved.page
        place = page.evaluate(EDGE, ["block", "head"])
        page.mouse.move(*place)
        page.locator(TIP).wait_for()
        text = page.locator(TIP).inner_text()
        assert "block → head" in text
        assert "1×4×6×6" in text
        assert "float32 · 576 B" in text
        page.mouse.dblclick(*page.evaluate(MIDDLE, "block"))
        saved.wait_for(f"() => {STAGE}.picture.items.some(item => item.id === 'block.0')")
        page.keyboard.press("Shift+F")
        saved.wait_for("() => document.fullscreenElement?.matches('.mkg-model-graph')")
        page.keyboard.press("Escape")
        saved.wait_for("() => document.fullscreenElement === null")
        assert not page.locator(".mkg-open-tab").is_visible()
