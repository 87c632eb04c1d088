"""Times of KnowledgeExplorer on the whole zoo; run with `pytest -m nightly tests/benchmarks/test_explorer_speed.py -s`.

The figures are printed, and written to $MODULEKG_BENCHMARKS (default: explorer_speed.json in the temporary folder).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.figures import collected, p95
from browser.knowledge import MOST_CIRCLES, READY, ROOT, STAGE, ExplorerPage
from browser.page import NotebookPage
from browser.test_explorer_zoo import ZOO, zoo

__all__ = ["zoo"]  # the fixture
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
# name → (unit, goal, whether less is better)
GOALS = {
    "explorer made, analyses included": ("s", 3.0, True),
    "payload": ("kB", 1500, True),
    "first paint after the cell ran": ("ms", 1000, True),
    "open a group, p95": ("ms", 200, True),
    "search, p95": ("ms", 200, True),
    "panning with all open": ("frames/s", 50, False),
}
MAKE = (
    "import time\nstart = time.perf_counter()\nexplorer = mk.KnowledgeExplorer(kg)\nmade = time.perf_counter() - start"
)

# milliseconds until two frames have been drawn after each step
STEPS = """async ([root, steps]) => {
  const frame = () => new Promise(resolve => requestAnimationFrame(resolve));
  const found = [];
  for (const [selector, text] of steps) {
    const place = document.querySelector(`${root} ${selector}`);
    const begin = performance.now();
    if (text === null) { place.click(); }
    else {
      place.value = text;
      place.dispatchEvent(new Event('input', { bubbles: true }));
      place.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true }));
    }
    await frame();
    await frame();
    found.push(performance.now() - begin);
    await new Promise(resolve => setTimeout(resolve, 120));
  }
  return found;
}"""

PAN = f"""async () => {{
  const {{ camera }} = {STAGE}, begin = performance.now();
  let frames = 0;
  while (performance.now() - begin < 2000) {{
    camera.panBy(3 * Math.sin(frames / 12), 2);
    await new Promise(resolve => requestAnimationFrame(resolve));
    frames += 1;
  }}
  return frames / ((performance.now() - begin) / 1000);
}}"""


@pytest.fixture(scope="module")
def figures() -> Iterator[dict[str, float]]:
    yield from collected(GOALS, "explorer_speed")


def test_the_whole_zoo(notebook: NotebookPage, zoo: Path, figures: dict[str, float]) -> None:
    notebook.open([ZOO.format(file=str(zoo)), MAKE, "display(explorer)"])
    notebook.run(0)
    made = []
    for _ in range(3):
        notebook.run(1)
        made.append(notebook.value("made"))
    figures["explorer made, analyses included"] = statistics.median(made)
    size = notebook.value("len(__import__('json').dumps(explorer.payload, separators=(',', ':')).encode())")
    figures["payload"] = size / 1000
    waits = []
    for _ in range(6):
        notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets[2].model.clearExecution()")
        notebook.wait_for(f"() => document.querySelector('{ROOT}') === null")
        times = notebook.run(2, until=READY)
        waits.append(times["painted"])
        notebook.pause(300)
    figures["first paint after the cell ran"] = statistics.median(waits[1:])  # the first one loads the scripts
    explorer = ExplorerPage(notebook)
    explorer.groups("communities")
    toggles = [[f'[data-mkg-item="c{i}"] .mkg-twisty', None] for i in range(20) for _ in range(2)]
    opened = notebook.page.evaluate(STEPS, [ROOT, toggles])[::2]
    figures["open a group, p95"] = p95(opened)
    words = [
        ["conv", "batch params>1k", "class:Conv2d", "kernel_size=3", "resnet", "models>5 norm"][i % 6] + " " * i
        for i in range(18)
    ]
    figures["search, p95"] = p95(notebook.page.evaluate(STEPS, [ROOT, [[".mkg-search input", text] for text in words]]))
    notebook.page.evaluate(STEPS, [ROOT, [[".mkg-search input", ""]]])
    notebook.page.evaluate(STEPS, [ROOT, toggles[::2]])
    assert 400 < explorer.drawn() <= MOST_CIRCLES
    figures["panning with all open"] = notebook.page.evaluate(PAN)
    assert all(figures[name] > 0 for name in GOALS)
