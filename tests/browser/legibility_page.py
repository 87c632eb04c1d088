"""The models of legibility_models.py in a notebook page, one after the other, each as it is first seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from browser.graph import STAGE
from browser.page import NotebookPage

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from browser.lab import JupyterServer

VIEWPORT = {"width": 1400, "height": 900}
# the graph over all of the page, as in a tab of its own; JupyterLab's boxes would hold it back
LARGE = """
.mkg-large :has(.mkg-model-graph) { contain: none !important; transform: none !important; }
.mkg-large .mkg-model-graph { position: fixed; inset: 0; margin: 0; display: flex; flex-direction: column; }
.mkg-large .mkg-model-graph .mkg-main { flex: 1 1 0; height: auto; }
"""

SETUP = f"""
import sys
sys.path.insert(0, {str(Path(__file__).resolve().parents[1])!r})
import torch
import modulekg_widgets as mk
from browser import legibility_models
from modulekg_widgets.engine.axes import graph as axes_graph

torch.set_num_threads(1)
made, wanted, graph = {{}}, None, None
trace, traced = axes_graph.trace, {{}}

def trace_once(model, *inputs):
    if model not in traced:
        traced[model] = trace(model, *inputs)
    return traced[model]

axes_graph.trace = trace_once

def want(name, view):
    global wanted
    if name not in made:
        made.clear()
        traced.clear()
        made[name] = legibility_models.build(name)
    wanted = made[name], view

def show():
    global graph
    (model, args), view = wanted
    graph = mk.ModelGraph(model, args=args, view=view)
    return graph
"""

# a new picture, of which the one before has been marked
DRAWN = f"""() => {{
  const root = document.querySelector('.mkg-model-graph[data-mkg-ready="true"]');
  const stage = {STAGE};
  return root !== null && stage !== undefined && !stage.host.dataset.mkgMeasured;
}}"""

# what lies on the canvas in sight: its neighbors in the element around it, in pixels of the canvas
SCENE = f"""() => {{
  const stage = {STAGE};
  const canvas = stage.host.getBoundingClientRect();
  const covered = [];
  for (const element of stage.host.parentElement.children) {{
    const {{ left, top, width, height }} = element.getBoundingClientRect();
    const {{ opacity, visibility }} = getComputedStyle(element);
    if (element !== stage.host && width * height > 0 && opacity !== '0' && visibility === 'visible') {{
      covered.push([left - canvas.left, top - canvas.top, width, height]);
    }}
  }}
  const {{ items, lines }} = stage.picture;
  const {{ width, height }} = canvas;
  return {{ width, height, look: {{ ...stage.camera.pose }}, covered, items, lines }};
}}"""

MARK = f"() => {STAGE}.host.setAttribute('data-mkg-measured', 'true')"

AT_REST = f"""() => {{
  const stage = {STAGE};
  const seen = JSON.stringify([stage.camera.pose, stage.picture.items.length, stage.picture.lines.length]);
  const before = stage.host.mkgSeen;
  stage.host.mkgSeen = seen;
  return before === seen;
}}"""


class LegibilityPage:
    """Shows models by name, in a cell, or `large` over all of the page."""

    def __init__(self, browser: Browser, server: JupyterServer) -> None:
        self.notebook = NotebookPage(browser, server, viewport=VIEWPORT)
        self.notebook.open([SETUP, "show()"])
        self.notebook.page.add_style_tag(content=LARGE)
        self.notebook.run(0)

    def show(self, name: str, view: str, large: bool = False) -> Any:
        """The scene of a model as it is first seen in a view."""
        page = self.notebook.page
        page.evaluate("large => document.body.classList.toggle('mkg-large', large)", large)
        self.notebook.execute(f"want({name!r}, {view!r})")
        self.notebook.run(1, until=DRAWN, timeout=60_000)
        page.locator(".mkg-graph-canvas").scroll_into_view_if_needed()
        page.wait_for_function(AT_REST, polling=80)
        scene = page.evaluate(SCENE)
        page.evaluate(MARK)
        return scene

    def close(self) -> None:
        self.notebook.close()
