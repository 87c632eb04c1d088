"""Several pictures as one: in rows, each with its title."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass

from modulekg_widgets.engine.palette import PAGE
from modulekg_widgets.engine.views.pictures.boxes import clean

WIDEST = 1200  # pixels of a row of pictures; the next one stands below
LARGEST = 90_000  # characters; what comes after is counted only
GAP, TITLE, INK = 12, 24, PAGE.text


@dataclass(frozen=True, slots=True)
class SizedPicture:
    """An SVG and its size in pixels."""

    svg: str
    width: float
    height: float


def sized(svg: str | None) -> SizedPicture | None:
    """A picture with the size that it says of itself."""
    if svg is None:
        return None
    size = ElementTree.fromstring(svg).attrib
    return SizedPicture(svg, float(size["width"]), float(size["height"]))


def in_rows(name: str, parts: list[tuple[str, SizedPicture]], widest: float) -> SizedPicture:
    """The pictures in rows of at most `widest` pixels, as many as are `LARGEST` together."""
    lines: list[str] = []
    x = y = bottom = across = 0.0
    written = 0
    for number, (title, picture) in enumerate(parts):
        written += len(picture.svg)
        if number and written > LARGEST:
            lines.append(_text(0, bottom + GAP + 16, f"and {len(parts) - number} more"))
            bottom += GAP + TITLE
            break
        if number and x + picture.width > widest:
            x, y = 0.0, bottom + GAP
        top = y + (TITLE if title else 0)
        if title:
            lines.append(_text(x, y + 16, title))
        lines.append(picture.svg.replace("<svg", f'<svg x="{x:g}" y="{top:g}"', 1))
        bottom = max(bottom, top + picture.height)
        across = max(across, x + picture.width)
        x += picture.width + GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{across:g}" height="{bottom:g}"'
        f' viewBox="0 0 {across:g} {bottom:g}" font-family="system-ui, sans-serif" font-size="12" role="img">'
    )
    ground = f'<rect width="{across:g}" height="{bottom:g}" fill="{PAGE.surface}"/>'
    title = f"<title>{clean(f'{name} of {len(parts)}')}</title>"
    return SizedPicture("\n".join([head, title, ground, *lines, "</svg>"]), across, bottom)


def _text(x: float, y: float, words: str) -> str:
    return f'<text x="{x + 4:g}" y="{y:g}" font-weight="600" fill="{INK}">{clean(words)}</text>'
