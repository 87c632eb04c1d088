"""Picture of a model hierarchy, for saved notebooks, nbconvert and code hosts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from modulekg_widgets.engine.palette import PAGE
from modulekg_widgets.engine.views.pictures.boxes import (
    GAP,
    HEADER,
    INSET,
    MARGIN,
    ROW_HEIGHT,
    WIDTH,
    Box,
    arrowhead,
    box_shapes,
    module_box,
    pill,
)
from modulekg_widgets.engine.views.pictures.flow_column import draw_flow
from modulekg_widgets.engine.views.pictures.shapes import Path, PathCommand, Picture
from modulekg_widgets.engine.views.schema import Payload
from modulekg_widgets.engine.views.static_expansion import fold_representatives, output_shapes, visible_children


def draw_hierarchy(payload: Payload, opened: Iterable[int]) -> Picture:
    """Returns the picture of a model with some containers open; a traced one with its data flow."""
    title = f"{payload['title']}: {len(payload['nodes']['name'])} modules"
    if payload["traced"] and payload["flow"]:
        return draw_flow(payload, opened, title)
    boxes, arrows, height = layout(payload, opened)
    shapes = [shape for box in boxes for shape in box_shapes(box)]
    for x, start, end in arrows:
        line: list[PathCommand] = [("M", (x, start)), ("V", (end - 4,))]
        shapes.append(Path(line, fill=None, stroke=PAGE.line, dashes=(3, 2)))
        shapes.append(arrowhead(x, end))
    return Picture(title, WIDTH, height, shapes)


def layout(payload: Payload, opened_nodes: Iterable[int]) -> tuple[list[Box], list[tuple[float, float, float]], float]:
    """Returns boxes, arrows (x, from y, to y) and the height: a column with expanded containers as frames.

    A file without a graph does not tell in which order its modules run: there they only stand below each other.
    """
    is_ordered = payload["file"] is None or payload["flow"] is not None
    boxes, arrows = [pill("input", MARGIN)] if is_ordered else [], []
    rows, folds = visible_children(payload), {fold[0]: fold for fold in payload["folds"]}
    opened, shapes = fold_representatives(payload, opened_nodes), output_shapes(payload)
    y = float(MARGIN + ROW_HEIGHT if is_ordered else MARGIN - GAP)
    # (node, or None where a frame ends and its box is known), depth
    waiting: list[tuple[int | None, int, int]] = [(c, 0, -1) for c in reversed(rows.get(0, []))]
    frames: list[int] = []
    follows = True  # whether something stands above on the same level, so that an arrow leads here
    while waiting:
        node, depth, frame = waiting.pop()
        if node is None:
            start = boxes[frame]
            y += INSET
            boxes[frame] = replace(start, height=y - start.y, kind="frame")
            follows = True
            continue
        if follows and is_ordered:
            arrows.append((WIDTH / 2, y, y + GAP))
        y += GAP
        kind = "frame" if node in opened else "card"
        boxes.append(module_box(payload, node, folds.get(node), shapes.get(node, ""), y, depth, kind))
        if node in opened:
            frames.append(len(boxes) - 1)
            waiting.append((None, depth, len(boxes) - 1))
            waiting.extend((c, depth + 1, -1) for c in reversed(rows[node]))
            y += HEADER - GAP
            follows = False
        else:
            y += ROW_HEIGHT
            follows = True
    if not is_ordered:
        return boxes, arrows, y + MARGIN
    arrows.append((WIDTH / 2, y, y + GAP))
    boxes.append(pill("output", y + GAP))
    return boxes, arrows, y + GAP + ROW_HEIGHT + MARGIN
