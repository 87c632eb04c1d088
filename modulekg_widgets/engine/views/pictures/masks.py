"""Picture of a mask editor: the removed blocks, and the kept share of each pruned axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modulekg_widgets.engine.palette import PAGE, PALETTE
from modulekg_widgets.engine.views.pictures.shapes import Picture, Rect, Shape, Text, one_line

if TYPE_CHECKING:
    from modulekg_widgets.engine.pruning.draft import Draft

WIDTH, ROW_HEIGHT, MAX_ROWS = 720, 22, 40
BAR_LEFT, BAR_WIDTH = 280, 300  # where the bars begin, and how long a full one is


def draw_masks(draft: Draft, title: str) -> Picture:
    """Returns a row per removed block and per pruned axis, with the sizes of the model above."""
    before, after = draft.sizes()
    losing = [(name, draft.axes[draft.axis_number(name)].size, len(gone)) for name, gone in draft.dropped.items()]
    losing = [*((path, 1, 1) for path in draft.removed_paths), *losing]
    free = [(axis.name, axis.size, 0) for axis in draft.axes if axis.frozen is None]
    rows = (losing or free)[:MAX_ROWS]
    head = f"{title}: parameters {before.params:,} → {after.params:,}, FLOPs {before.flops:,} → {after.flops:,}"
    more = len(losing or free) - len(rows)
    shapes: list[Shape] = [Text(12, ROW_HEIGHT, one_line(head), PAGE.text, is_bold=True)]
    for at, (name, size, gone) in enumerate(rows, start=1):
        y = ROW_HEIGHT * (at + 1)
        left = "removed as a whole" if gone == size else f"{size - gone} of {size}"  # no axis loses all
        shapes += [
            Text(12, y, one_line(name[:44]), PAGE.text),
            Rect(BAR_LEFT, y - 11, BAR_WIDTH, 13, PALETTE.mask.goes),
            Rect(BAR_LEFT, y - 11, round(BAR_WIDTH * (size - gone) / size, 1), 13, PALETTE.mask.stays),
            Text(BAR_LEFT + BAR_WIDTH + 10, y, left, PAGE.text),
        ]
    if more > 0:
        shapes.append(Text(12, ROW_HEIGHT * (len(rows) + 2), f"and {more} more", PAGE.muted))
    return Picture(head, WIDTH, ROW_HEIGHT * (len(rows) + 2 + (more > 0)), shapes)
