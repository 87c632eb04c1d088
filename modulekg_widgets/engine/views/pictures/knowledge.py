"""Picture of a knowledge graph: the most used structures, and the families of models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from modulekg_widgets.engine.palette import PAGE, PALETTE
from modulekg_widgets.engine.views.knowledge_payload import DONE
from modulekg_widgets.engine.views.pictures.boxes import xml_text

WIDTH, ROW_HEIGHT, MARGIN = 720, 22, 16
MAX_BARS = 15  # bars of each list
_LABEL_WIDTH, _VALUE_WIDTH = 250, 60


def svg(payload: Mapping[str, Any]) -> str:
    """Returns the picture as SVG without scripts, styles and references; text is escaped."""
    used, families = _most_used(payload), _families(payload)
    communities = payload["communities"]["count"]
    found = f" in {communities:,} communities" if payload["analysis"] == DONE else ""
    title = f"{payload['title']}: {payload['size']:,} structures{found}"
    lines = [f'<text x="{MARGIN}" y="30" font-size="15" font-weight="600" fill="{PAGE.text}">{xml_text(title)}</text>']
    height = 48.0
    colors = PALETTE.bars
    for heading, bars, color in (("Most used", used, colors.first), ("Families of models", families, colors.second)):
        if bars:
            lines += _chart(heading, bars, color, height)
            height += 24 + len(bars) * ROW_HEIGHT + 14
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:g}"',
            f'  viewBox="0 0 {WIDTH} {height:g}" font-family="system-ui, sans-serif" font-size="12" role="img">',
            f"<title>{xml_text(title)}</title>",
            f'<rect width="{WIDTH}" height="{height:g}" fill="{PAGE.surface}"/>',
            *lines,
            "</svg>",
        ]
    )


def _chart(heading: str, bars: list[tuple[str, int]], color: str, top: float) -> Iterator[str]:
    yield f'<text x="{MARGIN}" y="{top + 14:g}" font-weight="600" fill="{PAGE.muted}">{xml_text(heading)}</text>'
    longest = max(value for _, value in bars) or 1
    room = WIDTH - 2 * MARGIN - _LABEL_WIDTH - _VALUE_WIDTH
    for index, (name, value) in enumerate(bars):
        y = top + 24 + index * ROW_HEIGHT
        left = MARGIN + _LABEL_WIDTH
        width = max(1.0, room * value / longest)
        label = name if len(name) <= 34 else name[:33] + "…"
        yield f'<text x="{left - 10}" y="{y + 14:g}" text-anchor="end" fill="{PAGE.text}">{xml_text(label)}</text>'
        yield f'<rect x="{left}" y="{y + 3:g}" width="{width:g}" height="{ROW_HEIGHT - 8}" rx="2" fill="{color}"/>'
        yield f'<text x="{left + width + 8:g}" y="{y + 14:g}" fill="{PAGE.muted}">{value:,}</text>'


def _most_used(payload: Mapping[str, Any]) -> list[tuple[str, int]]:
    uses: Counter[int] = Counter()
    for members in payload["models"]["members"]:
        for at in range(0, len(members), 3):
            uses[members[at]] += members[at + 2]
    names = payload["entities"]["name"]
    return [(names[entity], count) for entity, count in uses.most_common(MAX_BARS)]


def _families(payload: Mapping[str, Any]) -> list[tuple[str, int]]:
    sizes = Counter(payload["models"]["family"])
    return [(payload["families"][family], count) for family, count in sizes.most_common(MAX_BARS)]
