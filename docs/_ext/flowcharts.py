"""Draws the flow charts of the documents: blocks `mermaid`, of which code hosts show a picture as well.

Mermaid itself is a script of several megabytes that lays out in the reader's browser. The documents use a small part of
it, `a["text"] -->|"label"| b["text"]`, which is drawn here, from top to bottom, as lines and texts of the page.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from html import escape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

NODE = r'(\w+)(?:\["([^"]*)"\])?'
LABEL = r'(?:\|(?:"([^"]*)"|([^|]*))\|)?'
ARROW = re.compile(rf"\s*{NODE}\s*-->{LABEL}\s*{NODE}\s*")
WIDTH, GAP, BETWEEN = 210, 50, 66  # of a box, between boxes side by side, between rows
MARGIN = 110  # room for labels at either side
LINE, PAD, WRAP = 17, 11, 26
LABEL_WRAP = 30


class FlowchartError(ValueError):
    """A line of a flow chart that is not drawn here."""


@dataclass(frozen=True)
class Arrow:
    """From a box to a box, by their ids."""

    start: str
    end: str
    label: str


@dataclass
class Chart:
    """Texts of boxes by id, in the order of the text, and the arrows between them."""

    texts: dict[str, str] = field(default_factory=dict)
    arrows: list[Arrow] = field(default_factory=list)

    def add(self, id: str, text: str | None) -> str:
        self.texts[id] = text or self.texts.get(id, id)
        return id

    def described(self) -> str:
        """The chart in words, for those who do not see it."""
        said = [
            f"{self.texts[one.start]} to {self.texts[one.end]}{f': {one.label}' if one.label else ''}"
            for one in self.arrows
        ]
        return "Flow chart. " + "; ".join(said)


def chart_of(lines: list[str]) -> Chart:
    """The boxes and arrows of a block.

    Raises
    ------
    FlowchartError
        For a line that is no arrow.
    """
    chart = Chart()
    for line in filter(str.strip, lines[1:]):
        match = ARROW.fullmatch(line)
        if not match:
            raise FlowchartError(f'a line of a flow chart reads a["text"] -->|"label"| b["text"]: {line.strip()!r}')
        start, start_text, quoted, bare, end, end_text = match.groups()
        chart.arrows.append(Arrow(chart.add(start, start_text), chart.add(end, end_text), quoted or bare or ""))
    return chart


def rows_of(chart: Chart) -> list[list[str]]:
    """The boxes by row: each below all that lead to it, but for arrows that lead back."""
    order = list(chart.texts)
    row = dict.fromkeys(order, 0)
    for id in order:  # ids stand in the order in which the text first names them, so that few passes are needed
        for arrow in chart.arrows:
            if arrow.start == id and not _leads_back(arrow, order):
                row[arrow.end] = max(row[arrow.end], row[id] + 1)
    for id in order:  # what nothing leads to stands right above what it leads to
        into = [arrow for arrow in chart.arrows if arrow.end == id and not _leads_back(arrow, order)]
        out = [row[arrow.end] for arrow in chart.arrows if arrow.start == id and not _leads_back(arrow, order)]
        if out and not into:
            row[id] = min(out) - 1
    return [[id for id in order if row[id] == at] for at in range(max(row.values(), default=0) + 1)]


def _leads_back(arrow: Arrow, order: list[str]) -> bool:
    return arrow.end == order[0]


class Drawing:
    """A chart as SVG."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.rows = rows_of(chart)
        most = max(map(len, self.rows))
        self.width = most * WIDTH + (most - 1) * GAP + 2 * MARGIN
        self.places: dict[str, tuple[float, float, float]] = {}  # middle, top and height
        top = 4.0
        for ids in self.rows:
            heights = [len(self._lines(id)) * LINE + 2 * PAD for id in ids]
            left = (self.width - len(ids) * WIDTH - (len(ids) - 1) * GAP) / 2
            for place, (id, height) in enumerate(zip(ids, heights, strict=True)):
                self.places[id] = (left + place * (WIDTH + GAP) + WIDTH / 2, top, height)
            top += max(heights) + BETWEEN
        self.height = top - BETWEEN + 4

    def svg(self) -> str:
        drawn = [*map(self._arrow, self.chart.arrows), *map(self._box, self.chart.texts)]
        size = f'viewBox="0 0 {self.width:g} {self.height:g}" style="max-width:{self.width:g}px"'
        head = f'<svg class="flowchart" role="img" aria-label="{escape(self.chart.described())}" {size}>'
        return f"{head}{''.join(drawn)}</svg>"

    def _lines(self, id: str) -> list[str]:
        return textwrap.wrap(self.chart.texts[id], WRAP)

    def _box(self, id: str) -> str:
        middle, top, height = self.places[id]
        box = f'<rect x="{middle - WIDTH / 2:g}" y="{top:g}" width="{WIDTH}" height="{height:g}" rx="6"/>'
        return box + _texts(self._lines(id), middle, top + PAD + LINE * 0.76, "box")

    def _arrow(self, arrow: Arrow) -> str:
        (x, top, height), (to_x, to_top, to_height) = self.places[arrow.start], self.places[arrow.end]
        if _leads_back(arrow, list(self.chart.texts)):
            side = MARGIN * 0.5
            begin, end = (x - WIDTH / 2, top + height / 2), (to_x - WIDTH / 2, to_top + to_height / 2)
            path = f"M{begin[0]:g} {begin[1]:g}H{side + 12:g}Q{side:g} {begin[1]:g} {side:g} {begin[1] - 12:g}"
            path += f"V{end[1] + 12:g}Q{side:g} {end[1]:g} {side + 12:g} {end[1]:g}H{end[0] - 2:g}"
            head = f"M{end[0] - 9:g} {end[1] - 5:g}L{end[0] - 1:g} {end[1]:g}L{end[0] - 9:g} {end[1] + 5:g}Z"
            label = _texts([arrow.label], side, (begin[1] + end[1]) / 2, "over")
        else:
            begin, end = top + height, to_top
            half = (begin + end) / 2
            path = f"M{x:g} {begin:g}C{x:g} {half:g} {to_x:g} {half:g} {to_x:g} {end - 2:g}"
            head = f"M{to_x - 5:g} {end - 9:g}L{to_x:g} {end - 1:g}L{to_x + 5:g} {end - 9:g}Z"
            label = self._label(arrow, x, to_x, half)
        return f'<path d="{path}"/><path class="head" d="{head}"/>{label}'

    def _label(self, arrow: Arrow, x: float, to_x: float, half: float) -> str:
        """Beside a straight arrow; over a bent one, in the column that it does not share with others."""
        lines = textwrap.wrap(arrow.label, LABEL_WRAP)
        first = half + LINE * (0.35 - (len(lines) - 1) / 2)
        if x == to_x:
            return _texts(lines, x + 10, first, "label")
        parts = sum(one.start == arrow.start for one in self.chart.arrows) > 1
        return _texts(lines, to_x, first + 10, "over") if parts else _texts(lines, x, first - 10, "over")


def _texts(lines: list[str], x: float, y: float, kind: str) -> str:
    spans = "".join(f'<tspan x="{x:g}" y="{y + at * LINE:g}">{escape(line)}</tspan>' for at, line in enumerate(lines))
    return f'<text class="{kind}">{spans}</text>' if lines else ""


class Flowchart(SphinxDirective):
    """The block `mermaid`."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        try:
            chart = chart_of(list(self.content))
        except FlowchartError as error:
            raise self.error(str(error)) from error
        return [nodes.raw("", Drawing(chart).svg(), format="html")]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("mermaid", Flowchart)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
