"""MetricPanel under load in JupyterLab; run with `pytest -m nightly tests/benchmarks/test_panel_speed.py -s`.

The figures are printed, and written to $MODULEKG_BENCHMARKS (default: panel_speed.json in the temporary folder).
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from benchmarks.figures import collected
from browser.metrics import FLOOD, ROOT, MetricsPage, assert_final_state, last_of_flood
from browser.page import NotebookPage

# name → (unit, goal, whether less is better)
GOALS = {
    "frames while 4 × 2,000 points stream at 30/s": ("frames/s", 50, False),
    "drawings while 4 × 2,000 points stream at 30/s": ("drawings/s", 9, False),
    "frames while 61 × 2,000 points stream at 30/s, all metrics": ("frames/s", 50, False),
    "frames while 61 × 2,000 points stream at 30/s, lines": ("frames/s", 50, False),
    "frames while 61 × 2,000 points stream at 30/s, heat map": ("frames/s", 50, False),
    "flood of 60 s: messages": ("messages/s", 20, True),
    "flood of 60 s: right after": ("ms", 1000, True),
    "flood of 60 s: heap of the page": ("MB", 50, True),
    "500 series each 50 ms: CPU of the stream": ("% of a core", 3, True),
}

STREAM = """
import pathlib, threading, time
import numpy as np
from IPython.display import display
import modulekg_widgets as mk
from modulekg_widgets.engine.monitoring.readings import Slot
from modulekg_widgets.engine.monitoring.run import Run

def live(count):
    run = Run("stream")
    run.is_running = True
    return run, [run.history.slot_number(Slot(f"layer{number}", "Norm", 0, "train")) for number in range(count)]

def stream(run, slots, rate, seconds, stop=pathlib.Path("stop")):
    rng, start = np.random.default_rng(0), time.monotonic()
    for number in range(int(rate * seconds)):
        if stop.exists():
            break
        run.history.append(len(run.history), slots, rng.normal(size=len(slots)))
        time.sleep(max(0, start + (number + 1) / rate - time.monotonic()))

def cpu(name):
    thread = next(t for t in threading.enumerate() if t.name == name)
    with open(f"/proc/self/task/{thread.native_id}/schedstat") as file:
        return int(file.read().split()[0]) / 1e9
"""

FRAMES = f"""async seconds => {{
  const root = document.querySelector('{ROOT}');
  let frames = 0, drawings = 0, last = root.dataset.mkgLast;
  const begin = performance.now();
  while (performance.now() - begin < seconds * 1000) {{
    await new Promise(resolve => requestAnimationFrame(resolve));
    frames += 1;
    if (root.dataset.mkgLast !== last) {{ drawings += 1; last = root.dataset.mkgLast; }}
  }}
  const passed = (performance.now() - begin) / 1000;
  return [frames / passed, drawings / passed];
}}"""


@pytest.fixture(scope="module")
def figures() -> Iterator[dict[str, float]]:
    """Measured values by name; a table at the end."""
    yield from collected(GOALS, "panel_speed")


def heap(notebook: NotebookPage) -> float:
    """Megabytes that the page's scripts hold after a garbage collection."""
    session = notebook.context.new_cdp_session(notebook.page)
    session.send("HeapProfiler.collectGarbage")
    used = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return used / 1e6


def test_frames_while_four_series_stream(notebook: NotebookPage, figures: dict[str, float]) -> None:
    prepare = "run, slots = live(4)\nfor step in range(2000):\n    run.history.append(step, slots, np.random.rand(4))"
    shown = "panel = mk.MetricPanel(run, view='lines')\ndisplay(panel)\nstream(run, slots, 30, 120)"
    notebook.open([STREAM + prepare, shown])
    stop = notebook.server.notebooks / "stop"
    notebook.run(0)
    panel = MetricsPage(notebook)
    panel.start(1)
    panel.wait_for_points(4 * 1000, timeout=30_000)
    notebook.pause(1000)
    frames, drawings = notebook.page.evaluate(FRAMES, 8)
    assert panel.is_busy
    stop.touch()
    figures["frames while 4 × 2,000 points stream at 30/s"] = frames
    figures["drawings while 4 × 2,000 points stream at 30/s"] = drawings
    notebook.wait_for_kernel()
    stop.unlink()
    panel.wait_for_last(notebook.value("run.get_output()['layer0']['Norm'][len(run.history) - 1]"))
    notebook.screenshot("metric-panel-stream")


def test_frames_while_the_panel_chooses_among_many_series(notebook: NotebookPage, figures: dict[str, float]) -> None:
    prepare = "run, slots = live(61)\nfor step in range(2000):\n    run.history.append(step, slots, np.random.rand(61))"
    notebook.open([STREAM + prepare, "panel = mk.MetricPanel(run)\ndisplay(panel)\nstream(run, slots, 30, 120)"])
    stop = notebook.server.notebooks / "stop"
    notebook.run(0)
    panel = MetricsPage(notebook)
    panel.start(1)
    panel.wait_for_points(8 * 1000, timeout=30_000)
    for name, view in (("all metrics", "grid"), ("lines", "lines"), ("heat map", "heatmap")):
        panel.choose("metric-view", view)
        notebook.pause(1000)
        frames, _ = notebook.page.evaluate(FRAMES, 8)
        assert panel.is_busy
        figures[f"frames while 61 × 2,000 points stream at 30/s, {name}"] = frames
    stop.touch()
    notebook.wait_for_kernel()
    stop.unlink()


def test_a_minute_of_flood(notebook: NotebookPage, figures: dict[str, float]) -> None:
    notebook.open([FLOOD, "display(panel)\ncount = flood(2)"])
    notebook.run(0)
    panel = MetricsPage(notebook)
    panel.start(1)
    notebook.wait_for_kernel()
    before = heap(notebook)
    notebook.traffic.clear()
    begin = time.monotonic()
    count = int(notebook.execute("first, count = count, flood(60)\nprint(count)"))
    ended = time.monotonic()
    panel.wait_for_last(last_of_flood(count), timeout=20_000)
    figures["flood of 60 s: right after"] = 1000 * (time.monotonic() - ended)
    assert_final_state(panel, seconds=1)
    seconds = ended - begin
    figures["flood of 60 s: messages"] = len(panel.updates()) / seconds
    figures["flood of 60 s: heap of the page"] = heap(notebook) - before
    assert len(panel.updates()) <= 20 * (seconds + 1)
    assert notebook.value("count - first") >= 590_000


def test_what_the_stream_takes_from_the_training(notebook: NotebookPage, figures: dict[str, float]) -> None:
    prepare = "run, slots = live(500)\npanel = mk.MetricPanel(run)\n"
    notebook.open([STREAM + prepare, "display(panel)\nstream(run, slots, 20, 1)"])
    notebook.run(0)
    MetricsPage(notebook).start(1)
    notebook.wait_for_kernel()
    measured = "before = cpu('modulekg-metrics'); stream(run, slots, 20, 10); spent = cpu('modulekg-metrics') - before"
    notebook.execute(measured)
    figures["500 series each 50 ms: CPU of the stream"] = 100 * notebook.value("spent") / 10
