"""This package: a page of a ModelGraph that was traced."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

from torch import nn

from benchmarks.research.rivals.drawing import Drawing, share
from benchmarks.research.rivals.tool import Args, Tool, folder

# what can be opened is marked in the tree, and has a chevron at this place from the corner of its box
BOXES = """() => {
  const stage = document.querySelector('.mkg-model-graph[data-mkg-ready=true] .mkg-graph-canvas')?.mkgStage;
  if (!stage?.picture) { return []; }
  const canvas = stage.host.getBoundingClientRect(), { x, y, zoom } = stage.camera.pose;
  const rows = document.querySelectorAll('.mkg-tree [role=treeitem][aria-expanded]');
  const opening = new Set([...rows].map(row => row.dataset.mkgPath));
  return stage.picture.items.map(({ id, isOpen, box: [left, top] }) => ({
    id, opens: opening.has(id) && !isOpen,
    x: canvas.left + x + (left + 20) * zoom, y: canvas.top + y + (top + 16) * zoom
  }));
}"""

PAGE = re.compile(r'<script type="application/json" id="mkg-page">(.*?)</script>', re.DOTALL)


def prepare() -> object:
    import modulekg_widgets

    return modulekg_widgets


def make(model: nn.Module, args: Args, file: Path) -> Path:
    import modulekg_widgets as mk

    return mk.save_html(mk.ModelGraph(model, args=args), file.with_suffix(".html"))


def drawn(file: Path) -> Drawing:
    """The payload holds what the page draws in its view of operators: a module that ran one of them is a box."""
    page = PAGE.search(file.read_text("utf-8"))
    payload = json.loads(page[1])["widgets"][0]["state"]["payload"] if page else {}
    nodes, flow = payload["nodes"], payload["flow"]
    calls, steps = flow["calls"], flow["steps"]
    callers = set(calls["parent"])
    operators = Counter(call for call, inputs in zip(steps["call"], steps["inputs"], strict=True) if inputs)
    of_classes = [payload["entities"]["class"][entity] for entity in nodes["entity"]]
    names: dict[str, str] = {}
    modules: dict[str, str] = {}
    boxes: list[str] = []  # of each step
    for step, call in enumerate(steps["call"]):
        node = calls["node"][call]
        leaf = call not in callers and operators[call] <= 1
        box = f"call {call}" if leaf else f"step {step}"
        function = flow["names"][steps["name"][step]] if steps["name"][step] >= 0 else ""
        names[box] = payload["classes"]["name"][of_classes[node]] if leaf else function
        modules[box] = path_of(node, nodes) if leaf else ""
        boxes.append(box if steps["inputs"][step] or step not in flow["steps"]["view"] else "")  # "" looks at a weight
    arrows: set[tuple[str, str]] = set()
    for step, values in enumerate(steps["inputs"]):
        made = [flow["values"]["step"][value] for value in values]
        arrows |= {(boxes[maker] if maker >= 0 else "input", boxes[step]) for maker in made}
    arrows = {(begin, end) for begin, end in arrows if begin and end and begin != end}
    levels = max(path_of(node, nodes).count(".") + 1 if node else 0 for node in range(len(nodes["name"])))
    shapes = share(bool(re.search(r"\d|scalar", shape)) for _, _, shape in payload["edges"])
    return Drawing(names, frozenset(arrows), shapes, levels, modules)


def path_of(node: int, nodes: dict[str, list]) -> str:
    parts = []
    while node > 0:
        parts.append(nodes["name"][node])
        node = nodes["parent"][node]
    return ".".join(reversed(parts))


TOOL = Tool(
    name="modulekg-widgets",
    package="modulekg-widgets",
    call="mk.save_html(mk.ModelGraph(model, args), path)",
    prepare=prepare,
    make=make,
    served=folder,
    drawn=drawn,
    boxes=BOXES,
    clicks=1,
    surface=".mkg-graph-canvas",
)
