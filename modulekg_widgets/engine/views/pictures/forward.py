"""Picture of a ForwardPlayer: the steps of the forward as a list."""

from __future__ import annotations

from collections.abc import Iterator

from modulekg_widgets.engine.palette import PAGE
from modulekg_widgets.engine.playback.player import Playback
from modulekg_widgets.engine.playback.steps import ForwardStep
from modulekg_widgets.engine.playback.summaries import TensorLayout
from modulekg_widgets.engine.views.pictures.shapes import Picture, Rect, Shape, Text, one_line

WIDTH, ROW_HEIGHT, MARGIN, INDENT = 640, 20, 16, 12
MAX_ROWS = 40
MAX_DEPTH = 12


def draw_forward(played: Playback, current: int, hide_shapes: bool) -> Picture:
    """Returns the picture of the steps around the current one."""
    first = max(0, min(current - MAX_ROWS // 2, len(played) - MAX_ROWS))
    steps = played.steps[first : first + MAX_ROWS]
    title = f"forward pass of {played.title}: {len(played)} steps"
    shapes: list[Shape] = [Text(MARGIN, MARGIN + 12, one_line(title), PAGE.text, is_bold=True)]
    for row, step in enumerate(steps, 1):
        shapes.extend(_row(step, MARGIN + ROW_HEIGHT * row, step.index == current, hide_shapes))
    return Picture(title, WIDTH, MARGIN * 2 + ROW_HEIGHT * (len(steps) + 1), shapes)


def _row(step: ForwardStep, y: float, is_current: bool, hide_shapes: bool) -> Iterator[Shape]:
    if is_current:
        yield Rect(6, y, WIDTH - 12, ROW_HEIGHT, PAGE.current, radius=4)
    x = MARGIN + INDENT * min(step.depth, MAX_DEPTH)
    name = f"{step.path or '(model)'}  {step.class_name}"
    broken = step.statistics.non_finite if step.statistics else 0
    fill = PAGE.error if step.error or broken else PAGE.text
    yield Text(x, y + 14, one_line(f"{name} · {broken:,} NaN or infinite" if broken else name), fill)
    shape = "stopped here" if step.error else "?" if hide_shapes else shape_text(step.outputs)
    yield Text(WIDTH - MARGIN, y + 14, one_line(shape), PAGE.muted, "end")


def shape_text(layouts: tuple[TensorLayout, ...]) -> str:
    """Returns the sizes of the first tensor, and the count of others."""
    if not layouts:
        return "no tensor"
    sizes = " × ".join(map(str, layouts[0].sizes)) or "scalar"
    return sizes if len(layouts) == 1 else f"{sizes} and {len(layouts) - 1} more"
