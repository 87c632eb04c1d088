"""Picture of a ForwardPlayer: the steps of the forward as a list."""

from __future__ import annotations

from collections.abc import Iterator

from modulekg_widgets.engine.palette import PAGE
from modulekg_widgets.engine.playback.player import Playback
from modulekg_widgets.engine.playback.steps import ForwardStep
from modulekg_widgets.engine.playback.summaries import TensorLayout
from modulekg_widgets.engine.views.pictures.boxes import xml_text

WIDTH, ROW_HEIGHT, MARGIN, INDENT = 640, 20, 16, 12
MAX_ROWS = 40
MAX_DEPTH = 12


def svg(played: Playback, current: int, hide_shapes: bool) -> str:
    """Returns the steps around the current one as SVG without scripts, styles and references."""
    first = max(0, min(current - MAX_ROWS // 2, len(played) - MAX_ROWS))
    steps = played.steps[first : first + MAX_ROWS]
    height = MARGIN * 2 + ROW_HEIGHT * (len(steps) + 1)
    title = f"forward pass of {played.title}: {len(played)} steps"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"',
        f'  viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" font-size="12" role="img">',
        f"<title>{xml_text(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="{PAGE.surface}"/>',
        f'<text x="{MARGIN}" y="{MARGIN + 12}" font-weight="600" fill="{PAGE.text}">{xml_text(title)}</text>',
    ]
    for row, step in enumerate(steps, 1):
        lines.extend(_row(step, MARGIN + ROW_HEIGHT * row, step.index == current, hide_shapes))
    return "\n".join([*lines, "</svg>"])


def _row(step: ForwardStep, y: float, is_current: bool, hide_shapes: bool) -> Iterator[str]:
    if is_current:
        yield f'<rect x="6" y="{y}" width="{WIDTH - 12}" height="{ROW_HEIGHT}" rx="4" fill="{PAGE.current}"/>'
    x = MARGIN + INDENT * min(step.depth, MAX_DEPTH)
    name = f"{step.path or '(model)'}  {step.class_name}"
    broken = step.statistics.non_finite if step.statistics else 0
    fill = PAGE.error if step.error or broken else PAGE.text
    said = f"{name} · {broken:,} not finite" if broken else name
    yield f'<text x="{x}" y="{y + 14}" fill="{fill}">{xml_text(said)}</text>'
    shape = "stopped here" if step.error else "?" if hide_shapes else shape_text(step.outputs)
    yield f'<text x="{WIDTH - MARGIN}" y="{y + 14}" text-anchor="end" fill="{PAGE.muted}">{xml_text(shape)}</text>'


def shape_text(layouts: tuple[TensorLayout, ...]) -> str:
    """Returns the sizes of the first tensor, and the count of others."""
    if not layouts:
        return "no tensor"
    sizes = " × ".join(map(str, layouts[0].sizes)) or "scalar"
    return sizes if len(layouts) == 1 else f"{sizes} and {len(layouts) - 1} more"
