"""Picture of a mask editor: the removed blocks, and the kept share of each pruned axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modulekg_widgets.engine.palette import PAGE, PALETTE
from modulekg_widgets.engine.views.pictures.boxes import xml_text

if TYPE_CHECKING:
    from modulekg_widgets.engine.pruning.draft import Draft

WIDTH, ROW_HEIGHT, MAX_ROWS = 720, 22, 40
BAR_LEFT, BAR_WIDTH = 280, 300  # where the bars begin, and how long a full one is


def svg(draft: Draft, title: str) -> str:
    """Returns a row per removed block and per pruned axis, with the sizes of the model above."""
    before, after = draft.sizes()
    losing = [(name, draft.axes[draft.axis_number(name)].size, len(gone)) for name, gone in draft.dropped.items()]
    losing = [*((path, 1, 1) for path in draft.removed_paths), *losing]
    free = [(axis.name, axis.size, 0) for axis in draft.axes if axis.frozen is None]
    rows = (losing or free)[:MAX_ROWS]
    head = f"{title}: parameters {before.params:,} → {after.params:,}, FLOPs {before.flops:,} → {after.flops:,}"
    more = len(losing or free) - len(rows)
    height = ROW_HEIGHT * (len(rows) + 2 + (more > 0))
    box = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="{PAGE.surface}"/>',
        f'<text x="12" y="{ROW_HEIGHT}" font-weight="bold" fill="{PAGE.text}">{xml_text(head)}</text>',
    ]
    for at, (name, size, gone) in enumerate(rows, start=1):
        y = ROW_HEIGHT * (at + 1)
        stays = BAR_WIDTH * (size - gone) / size
        left = "goes as a whole" if gone == size else f"{size - gone} of {size}"  # no axis loses all
        lines += [
            f'<text x="12" y="{y}" fill="{PAGE.text}">{xml_text(name[:44])}</text>',
            f'<rect x="{BAR_LEFT}" y="{y - 11}" width="{BAR_WIDTH}" height="13" fill="{PALETTE.mask.goes}"/>',
            f'<rect x="{BAR_LEFT}" y="{y - 11}" width="{stays:.1f}" height="13" fill="{PALETTE.mask.stays}"/>',
            f'<text x="{BAR_LEFT + BAR_WIDTH + 10}" y="{y}" fill="{PAGE.text}">{left}</text>',
        ]
    if more > 0:
        lines.append(f'<text x="12" y="{ROW_HEIGHT * (len(rows) + 2)}" fill="{PAGE.muted}">and {more} more</text>')
    return "\n".join([*lines, "</svg>"])
