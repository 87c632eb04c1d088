"""Picture of a knowledge graph: the most used structures, and the families of models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from modulekg_widgets.engine.palette import PAGE, PALETTE
from modulekg_widgets.engine.views.knowledge_payload import DONE
from modulekg_widgets.engine.views.pictures.shapes import Picture, Rect, Shape, Text, one_line
from modulekg_widgets.engine.views.schema import Parts

WIDTH, ROW_HEIGHT, MARGIN = 720, 22, 16
MAX_BARS = 15  # bars of each list
_LABEL_WIDTH, _VALUE_WIDTH = 250, 60


def draw_knowledge(payload: Parts) -> Picture:
    """Returns the picture of the most used structures and of the families of models."""
    used, families = _most_used(payload), _families(payload)
    communities = payload["communities"]["count"]
    found = f" in {communities:,} communities" if payload["analysis"] == DONE else ""
    title = f"{payload['title']}: {payload['size']:,} structures{found}"
    shapes: list[Shape] = [Text(MARGIN, 30, one_line(title), PAGE.text, size=15, is_bold=True)]
    height = 48.0
    colors = PALETTE.bars
    for heading, bars, color in (("Most used", used, colors.first), ("Model families", families, colors.second)):
        if bars:
            shapes += _chart(heading, bars, color, height)
            height += 24 + len(bars) * ROW_HEIGHT + 14
    return Picture(title, WIDTH, height, shapes)


def _chart(heading: str, bars: list[tuple[str, int]], color: str, top: float) -> Iterator[Shape]:
    yield Text(MARGIN, top + 14, heading, PAGE.muted, is_bold=True)
    longest = max(value for _, value in bars) or 1
    room = WIDTH - 2 * MARGIN - _LABEL_WIDTH - _VALUE_WIDTH
    left = MARGIN + _LABEL_WIDTH
    for index, (name, value) in enumerate(bars):
        y = top + 24 + index * ROW_HEIGHT
        width = max(1.0, room * value / longest)
        yield Text(left - 10, y + 14, one_line(name, 34), PAGE.text, "end")
        yield Rect(left, y + 3, width, ROW_HEIGHT - 8, color, radius=2)
        yield Text(left + width + 8, y + 14, f"{value:,}", PAGE.muted)


def _most_used(payload: Parts) -> list[tuple[str, int]]:
    uses: Counter[int] = Counter()
    for members in payload["models"]["members"]:
        for at in range(0, len(members), 3):
            uses[members[at]] += members[at + 2]
    names = payload["entities"]["name"]
    return [(names[entity], count) for entity, count in uses.most_common(MAX_BARS)]


def _families(payload: Parts) -> list[tuple[str, int]]:
    sizes = Counter(payload["models"]["family"])
    return [(payload["families"][family], count) for family, count in sizes.most_common(MAX_BARS)]
