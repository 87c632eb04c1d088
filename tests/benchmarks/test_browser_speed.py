"""Times of ModelGraph in a warm JupyterLab; run with `pytest -m nightly tests/benchmarks/test_browser_speed.py -s`.

The figures are printed, and written to $MODULEKG_BENCHMARKS (default: browser_speed.json in the temporary folder).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import pytest

from benchmarks.figures import collected, p95
from browser.graph import ITEMS, READY, ROOT, SETUP, SHOW, STAGE, GraphPage
from browser.page import NotebookPage

# name → (unit, goal, whether less is better)
GOALS = {
    "first paint after the cell ran, resnet152": ("ms", 500, True),
    "first paint after the cell ran, densenet201": ("ms", 500, True),
    "first paint after the cell ran, resnet152 with inputs": ("ms", 500, True),
    "first paint after the cell ran, densenet201 with inputs": ("ms", 500, True),
    "first paint after the cell ran, Mask R-CNN with inputs": ("ms", 1000, True),
    "expand, p95": ("ms", 150, True),
    "expand all, resnet152": ("ms", 1000, True),
    "selection round trip, p95": ("ms", 100, True),
    "panning 150 nodes": ("frames/s", 50, False),
}

# starts to wait: from the last mouse button release, or at once, until the condition holds and has been painted
START = """([condition, fromMouse]) => {
  const holds = eval(condition);
  let begin = performance.now();
  if (fromMouse) { document.addEventListener('mouseup', () => { begin = performance.now(); }, { capture: true }); }
  window.__measured = (async () => {
    while (!await holds()) { await new Promise(resolve => requestAnimationFrame(resolve)); }
    await new Promise(resolve => requestAnimationFrame(() => setTimeout(resolve)));
    return performance.now() - begin;
  })();
}"""

PAN = f"""async () => {{
  const {{ camera }} = {STAGE}, seconds = 2, gaps = [];
  const begin = performance.now();
  let last = begin;
  while (last - begin < seconds * 1000) {{
    camera.panBy(3 * Math.sin(last / 200), 2 * Math.cos(last / 300));
    await new Promise(resolve => requestAnimationFrame(resolve));
    gaps.push(performance.now() - last);
    last = performance.now();
  }}
  return gaps.length / ((last - begin) / 1000);
}}"""

# the kernel answers a selection at once with another trait, which the page shows
ANSWER = "graph.observe(lambda change: setattr(graph, 'query', f'seen {change.new}'), 'selected')"
ANSWERED = f"() => document.querySelector('{ROOT} .mkg-search input').value === 'seen PATH'"

KERNEL = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"

# 150 cards that do not fold: neighbours are of different classes, and the containers of different lengths
MANY = """
from torch import nn
from IPython.display import display
import modulekg_widgets as mk
layers = iter([layer for width in range(1, 76) for layer in (nn.Linear(width, width + 1), nn.ReLU())])
model = nn.Sequential(*[nn.Sequential(*[next(layers) for _ in range(length)]) for length in (28, 29, 30, 31, 32)])
"""
SHOW_ALL = "graph = mk.ModelGraph(model)\ngraph.expanded = [str(i) for i in range(5)]\ndisplay(graph)"


@pytest.fixture(scope="module")
def figures() -> Iterator[dict[str, float]]:
    """Measured values by name; a table at the end."""
    yield from collected(GOALS, "browser_speed")


IMAGES = "args=(torch.zeros(1, 3, 224, 224),)"
SHOW_TRACED = "import torch\ngraph = mk.ModelGraph(model, {args})\ndisplay(graph)"
FIRST_PAINTS = {
    "resnet152": ("resnet152", SHOW),
    "densenet201": ("densenet201", SHOW),
    "resnet152 with inputs": ("resnet152", SHOW_TRACED.format(args=IMAGES)),
    "densenet201 with inputs": ("densenet201", SHOW_TRACED.format(args=IMAGES)),
    "Mask R-CNN with inputs": (
        "detection.maskrcnn_resnet50_fpn(weights_backbone=None).eval",
        SHOW_TRACED.format(args="args=([torch.zeros(3, 224, 224)],)"),
    ),
}


@pytest.mark.parametrize("model", FIRST_PAINTS)
def test_first_paint(notebook: NotebookPage, figures: dict[str, float], model: str) -> None:
    """Median of five runs of the same cell; the first one, which loads the scripts, does not count."""
    name, show = FIRST_PAINTS[model]
    notebook.open([SETUP.format(model=name), show])
    notebook.run(0)
    waits = []
    for _ in range(6):
        notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets[1].model.clearExecution()")
        notebook.wait_for(f"() => document.querySelector('{ROOT}') === null")
        times = notebook.run(1, until=READY)
        waits.append(max(0.0, times["painted"] - times["done"]))
        notebook.pause(300)
    figures[f"first paint after the cell ran, {model}"] = statistics.median(waits[1:])


def measured(graph: GraphPage, condition: str, point: tuple[float, float] | None = None, clicks: int = 1) -> float:
    """Milliseconds from clicking at the point (default: from now) until the JavaScript condition is painted."""
    graph.evaluate(START, [condition, point is not None])
    if point is not None:
        graph.page.mouse.click(*point, click_count=clicks)
    return graph.evaluate("() => window.__measured")


def test_expand(notebook: NotebookPage, figures: dict[str, float]) -> None:
    graph = GraphPage.show(notebook)
    values = []
    for name in ("layer1", "layer2", "layer3", "layer4") * 6:
        notebook.execute("graph.expanded = []")
        graph.wait_for_node(f"{name}.0", there=False)
        condition = f"() => {ITEMS}.some(item => item.id === '{name}.0')"
        values.append(measured(graph, condition, graph.point(name), clicks=2))
    figures["expand, p95"] = p95(values)


def test_expand_all(notebook: NotebookPage, figures: dict[str, float]) -> None:
    graph = GraphPage.show(notebook)
    notebook.execute("graph.expanded = []")
    graph.wait_for_node("layer1.0", there=False)
    notebook.execute("containers = [n for n, m in model.named_modules() if n and next(m.children(), None) is not None]")
    graph.evaluate(f"() => {{ void {KERNEL}.requestExecute({{ code: 'graph.expanded = containers' }}); }}")
    condition = f"() => {ITEMS}.some(item => item.id === 'layer4.0.conv1') && {ITEMS}.length > 60"
    figures["expand all, resnet152"] = measured(graph, condition)
    notebook.screenshot("expanded")


def test_pan(notebook: NotebookPage, figures: dict[str, float]) -> None:
    graph = GraphPage.show_code(notebook, MANY, SHOW_ALL)
    graph.wait_for_node("4.31")
    assert len(graph.nodes()) >= 150
    notebook.pause(500)
    graph.find(".mkg-fit").first.click()
    figures["panning 150 nodes"] = graph.evaluate(PAN)


def test_selection_round_trip(notebook: NotebookPage, figures: dict[str, float]) -> None:
    graph = GraphPage.show(notebook)
    notebook.execute(ANSWER)
    paths = ("fc", "bn1", "conv1", "relu") * 5
    figures["selection round trip, p95"] = p95(
        [measured(graph, ANSWERED.replace("PATH", path), graph.point(path)) for path in paths]
    )
