"""MaskEditor with 60 axes of 2,048 indices: `pytest -m nightly tests/benchmarks/test_mask_editor_speed.py -s`.

The figures are printed, and written to $MODULEKG_BENCHMARKS (default: mask_editor_speed.json in the temporary folder).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.figures import collected, p95
from browser.masks import READY, ROOT, MasksPage
from browser.page import NotebookPage

GOALS = {
    "first paint after the cell ran": ("ms", 2000, True),
    "brushing over a row of 2,048": ("frames/s", 30, False),
    "brushing: share of frames within 33 ms": ("%", 95, False),
    "moving the ratio of 60 axes": ("frames/s", 30, False),
    "an edit, there and back, p95": ("ms", 100, True),
    "the largest edit that was sent": ("bytes", 1024, True),
    "the largest answer": ("bytes", 1024, True),
}

SETUP = """
import torch
from IPython.display import display
from torch import nn
import modulekg_widgets as mk

class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.ModuleList(nn.Linear(1, 2048) for _ in range(60))
        self.down = nn.ModuleList(nn.Linear(2048, 1) for _ in range(60))

    def forward(self, x):
        return sum(down(up(x)) for up, down in zip(self.up, self.down))

model = Wide()
"""
SHOW = "editor = mk.MaskEditor(model, torch.zeros(1, 1))\ndisplay(editor)"

# the frames of the page from now on, until they are asked for
COUNT = """() => {
  const gaps = [];
  let last = performance.now();
  window.__counting = true;
  const frame = now => {
    gaps.push(now - last);
    last = now;
    if (window.__counting) { requestAnimationFrame(frame); }
  };
  requestAnimationFrame(frame);
  window.__gaps = gaps;
}"""
COUNTED = "() => { window.__counting = false; return window.__gaps.slice(2); }"

# from the release of a slider until the kernel has confirmed what it did
ROUND_TRIP = f"""([label, value]) => {{
  const root = document.querySelector('{ROOT}');
  const slider = root.querySelector(`input[aria-label="${{label}}"]`);
  const begin = performance.now();
  slider.value = value;
  slider.dispatchEvent(new Event('input', {{ bubbles: true }}));
  slider.dispatchEvent(new Event('change', {{ bubbles: true }}));
  return new Promise(done => {{
    const look = () => (root.dataset.mkgPending === '0' ? done(performance.now() - begin) : setTimeout(look));
    setTimeout(look);
  }});
}}"""


@pytest.fixture(scope="module")
def figures() -> Iterator[dict[str, float]]:
    """Measured values by name; a table at the end."""
    yield from collected(GOALS, "mask_editor_speed")


def rate(gaps: list[float]) -> float:
    return 1000 * len(gaps) / sum(gaps)


def test_sixty_axes_of_2048(notebook: NotebookPage, figures: dict[str, float]) -> None:
    notebook.open([SETUP, SHOW])
    notebook.run(0)
    times = notebook.run(1, until=READY)
    figures["first paint after the cell ran"] = times["painted"]
    masks = MasksPage(notebook)
    masks.find(".mkg-mask-rows").scroll_into_view_if_needed()
    notebook.pause(1000)

    axis = notebook.value("[axis.name for axis in editor.graph.axes if axis.size == 2048][0]")
    box = masks.strip(axis).bounding_box()
    assert box is not None
    notebook.page.mouse.move(box["x"] + 3, box["y"] + 3)
    notebook.page.mouse.down()
    notebook.page.evaluate(COUNT)
    for line in range(6):
        y = box["y"] + 3 + line * 8
        notebook.page.mouse.move(box["x"] + (box["width"] - 6 if line % 2 == 0 else 3), y, steps=40)
    gaps = notebook.page.evaluate(COUNTED)
    notebook.page.mouse.up()
    figures["brushing over a row of 2,048"] = rate(gaps)
    figures["brushing: share of frames within 33 ms"] = 100 * sum(gap <= 34 for gap in gaps) / len(gaps)
    notebook.wait_for_value(f"len(editor._draft.dropped.get({axis!r}, [])) > 200", True)

    slider = masks.button("ratio-slider")
    slider.focus()
    slider.press("ArrowRight")
    notebook.pause(500)
    notebook.page.evaluate(COUNT)
    for _ in range(40):
        slider.press("ArrowRight")
    figures["moving the ratio of 60 axes"] = rate(notebook.page.evaluate(COUNTED))
    notebook.wait_for_value("len(editor._draft.dropped)", 60)


def test_an_edit_there_and_back(notebook: NotebookPage, figures: dict[str, float]) -> None:
    masks = MasksPage.show(notebook, SETUP, SHOW)
    axis = notebook.value("[axis.name for axis in editor.graph.axes if axis.size == 2048][0]")
    label = f"Channels to remove of {axis}"
    masks.find(f'input[aria-label="{label}"]').scroll_into_view_if_needed()
    notebook.traffic.clear()
    waits = []
    for count in range(40, 2040, 100):
        waits.append(notebook.page.evaluate(ROUND_TRIP, [label, str(count)]))  # all bytes of the axis
        assert notebook.value(f"len(editor._draft.dropped[{axis!r}])") == count
        notebook.pause(1500)  # a check runs after a pause; the next edit comes when it has ended
    figures["an edit, there and back, p95"] = p95(waits)
    edits = masks.edits()
    assert len(edits) >= 2 * len(waits)
    sizes = {way: [m.size for m in edits if m.direction == way] for way in ("sent", "received")}
    figures["the largest edit that was sent"] = max(sizes["sent"])
    figures["the largest answer"] = max(sizes["received"])
