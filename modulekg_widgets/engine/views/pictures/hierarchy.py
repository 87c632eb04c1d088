"""The static picture of a model: what a saved notebook, nbconvert or a code host shows in place of the widget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from modulekg_widgets.engine.palette import PAGE, PALETTE, family_color
from modulekg_widgets.engine.views.opening import as_drawn, output_shapes, rows_of
from modulekg_widgets.engine.views.payload import class_of

WIDTH, ROW, GAP, INSET, HEADER, MARGIN = 460, 30, 12, 12, 26, 16
_LONGEST = 62  # characters of one line
_CHARACTER = 7  # pixels, as most fonts have it at this size


@dataclass(frozen=True, slots=True)
class Box:
    """A card, a frame or a pill of the picture, in pixels from the top left."""

    x: float
    y: float
    width: float
    height: float
    title: str
    detail: str
    color: str
    kind: str  # "card", "frame" or "pill"
    stacked: bool = False


def layout(
    payload: dict[str, Any], opened_nodes: Iterable[int]
) -> tuple[list[Box], list[tuple[float, float, float]], float]:
    """Boxes, arrows (x, from y, to y) and the height: a column from input to output, open containers as frames."""
    boxes, arrows = [_pill("input", MARGIN)], []
    rows, folds = rows_of(payload), {fold[0]: fold for fold in payload["folds"]}
    opened, shapes = as_drawn(payload, opened_nodes), output_shapes(payload)
    y = float(MARGIN + ROW)
    # (node, or None where a frame ends and its box is known), depth
    waiting: list[tuple[int | None, int, int]] = [(c, 0, -1) for c in reversed(rows.get(0, []))]
    frames: list[int] = []
    follows = True  # whether something stands above on the same level, so that an arrow leads here
    while waiting:
        node, depth, frame = waiting.pop()
        if node is None:
            start = boxes[frame]
            y += INSET
            boxes[frame] = Box(
                start.x,
                start.y,
                start.width,
                y - start.y,
                start.title,
                start.detail,
                start.color,
                "frame",
                start.stacked,
            )
            follows = True
            continue
        if follows:
            arrows.append((WIDTH / 2, y, y + GAP))
        y += GAP
        box = _box(payload, node, folds.get(node), shapes.get(node, ""), y, depth, node in opened, node in rows)
        boxes.append(box)
        if node in opened:
            frames.append(len(boxes) - 1)
            waiting.append((None, depth, len(boxes) - 1))
            waiting.extend((c, depth + 1, -1) for c in reversed(rows[node]))
            y += HEADER - GAP
            follows = False
        else:
            y += ROW
            follows = True
    arrows.append((WIDTH / 2, y, y + GAP))
    boxes.append(_pill("output", y + GAP))
    return boxes, arrows, y + GAP + ROW + MARGIN


def _pill(label: str, y: float) -> Box:
    return Box(WIDTH / 2 - 45, y, 90, ROW - 6, label, "", PALETTE.other_family, "pill")


def _box(
    payload: dict[str, Any],
    node: int,
    fold: list[Any] | None,
    shape: str,
    y: float,
    depth: int,
    is_open: bool,
    is_container: bool,
) -> Box:
    class_name = class_of(payload, node)
    title = f"{payload['nodes']['name'][node]}  {class_name}"
    if fold is not None:
        title += f"  ×{fold[1]}" if fold[2] == "exact" else f"  ≈×{fold[1]}"
    params = payload["columns"]["params"][node]
    detail = " · ".join(filter(None, (shape, _short(params) if params else "")))
    x = MARGIN + INSET * depth
    width = WIDTH - 2 * x
    height, color = HEADER if is_open else ROW, family_color(class_name, is_container)
    return Box(x, y, width, height, title, detail, color, "card", fold is not None)


def _short(value: int | float | str) -> str:
    amount = float(value)
    for unit in ("", "k", "M", "G", "T"):
        if amount < 1000:
            return f"{amount:.3g}{unit}"
        amount /= 1000
    return f"{amount:.3g}P"


def svg(payload: dict[str, Any], opened: Iterable[int]) -> str:
    """The picture as SVG without scripts, styles or references; text is escaped."""
    boxes, arrows, height = layout(payload, opened)
    title = f"{payload['title']}: {len(payload['nodes']['name'])} modules"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:g}"',
        f'  viewBox="0 0 {WIDTH} {height:g}" font-family="system-ui, sans-serif" font-size="12" role="img">',
        f"<title>{clean(title)}</title>",
        f'<rect width="{WIDTH}" height="{height:g}" fill="{PAGE.surface}"/>',
    ]
    for box in boxes:
        lines.extend(_svg_box(box))
    for x, start, end in arrows:
        lines.append(f'<path d="M{x:g} {start:g}V{end - 4:g}" stroke="{PAGE.line}" stroke-dasharray="3 2"/>')
        lines.append(f'<path d="M{x - 4:g} {end - 5:g}l4 5l4 -5z" fill="{PAGE.line}"/>')
    lines.append("</svg>")
    return "\n".join(lines)


def _svg_box(box: Box) -> Iterator[str]:
    frame = f'width="{box.width:g}" height="{box.height:g}" rx="{12 if box.kind == "pill" else 5}"'
    if box.stacked:
        yield f'<rect x="{box.x + 4:g}" y="{box.y + 4:g}" {frame} fill="{PAGE.behind}" stroke="{PAGE.border}"/>'
    fill = PAGE.frame if box.kind == "frame" else PAGE.surface
    yield f'<rect x="{box.x:g}" y="{box.y:g}" {frame} fill="{fill}" stroke="{PAGE.border}"/>'
    if box.kind == "pill":
        at = f'x="{box.x + box.width / 2:g}" y="{box.y + 16:g}" text-anchor="middle"'
        yield f'<text {at} fill="{PAGE.muted}">{clean(box.title)}</text>'
        return
    yield f'<rect x="{box.x:g}" y="{box.y:g}" width="4" height="{min(box.height, ROW):g}" fill="{box.color}"/>'
    baseline = box.y + (18 if box.kind == "frame" else 19)
    room = int((box.width - 22) / _CHARACTER) - (len(box.detail) + 2 if box.detail else 0)
    yield f'<text x="{box.x + 12:g}" y="{baseline:g}" fill="{PAGE.text}">{clean(box.title, max(room, 8))}</text>'
    if box.detail:
        end = box.x + box.width - 10
        yield f'<text x="{end:g}" y="{baseline:g}" text-anchor="end" fill="{PAGE.muted}">{clean(box.detail)}</text>'


def clean(text: str, longest: int = _LONGEST) -> str:
    """One line of text for XML: shortened, escaped, without characters that XML does not know."""
    longest = min(longest, _LONGEST)
    short = text if len(text) <= longest else text[: longest - 1] + "…"
    return escape("".join(c if c.isprintable() else "\ufffd" for c in short), {'"': "&quot;"})
