"""A mask editor as a picture, for saved notebooks: what stays of each axis that loses indices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modulekg_widgets.engine.palette import PAGE, PALETTE
from modulekg_widgets.engine.views.pictures.boxes import clean

if TYPE_CHECKING:
    from modulekg_widgets.engine.pruning.plan.draft import Draft

WIDTH, ROW, MOST_ROWS = 720, 22, 40
NAMES, BARS = 280, 300  # where the bars begin, and how long a full one is


def svg(draft: Draft, title: str) -> str:
    """A row per axis that loses indices, with the sizes of the whole model above."""
    before, after = draft.sizes()
    losing = [(axis, int(draft.goes(axis.number).sum())) for axis in draft.axes]
    losing = [(axis, gone) for axis, gone in losing if gone]
    free = [(axis, 0) for axis in draft.axes if axis.frozen is None]
    rows = (losing or free)[:MOST_ROWS]
    head = f"{title}: parameters {before.params:,} → {after.params:,}, FLOPs {before.flops:,} → {after.flops:,}"
    more = len(losing or free) - len(rows)
    height = ROW * (len(rows) + 2 + (more > 0))
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="{PAGE.surface}"/>',
        f'<text x="12" y="{ROW}" font-weight="bold" fill="{PAGE.text}">{clean(head)}</text>',
    ]
    for at, (axis, gone) in enumerate(rows, start=1):
        y = ROW * (at + 1)
        stays = BARS * (axis.size - gone) / axis.size
        lines += [
            f'<text x="12" y="{y}" fill="{PAGE.text}">{clean(axis.name[:44])}</text>',
            f'<rect x="{NAMES}" y="{y - 11}" width="{BARS}" height="13" fill="{PALETTE.mask.goes}"/>',
            f'<rect x="{NAMES}" y="{y - 11}" width="{stays:.1f}" height="13" fill="{PALETTE.mask.stays}"/>',
            f'<text x="{NAMES + BARS + 10}" y="{y}" fill="{PAGE.text}">{axis.size - gone} of {axis.size}</text>',
        ]
    if more > 0:
        lines.append(f'<text x="12" y="{ROW * (len(rows) + 2)}" fill="{PAGE.muted}">and {more} more axes</text>')
    return "\n".join([*lines, "</svg>"])
