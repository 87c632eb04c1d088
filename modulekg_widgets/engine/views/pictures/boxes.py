"""SVG elements of model pictures: cards, frames and pills."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from modulekg_widgets.engine.palette import PAGE, PALETTE, family_color
from modulekg_widgets.engine.views.payload import class_of

WIDTH, ROW_HEIGHT, GAP, INSET, HEADER, MARGIN = 460, 30, 12, 12, 26, 16
PILL_HEIGHT = ROW_HEIGHT - 6
MAX_DEPTH = 12  # frames of deeper ones are no narrower
_MAX_CHARACTERS = 62  # characters of one line
_CHARACTER_WIDTH = 7  # pixels, as most fonts have it at this size


@dataclass(frozen=True, slots=True)
class Box:
    """A card, frame or pill, in pixels from the top left."""

    x: float
    y: float
    width: float
    height: float
    title: str
    detail: str
    color: str
    kind: str  # "card", "frame" or "pill"
    stacked: bool = False
    suffix: str = ""  # of the title, which is shortened before it
    crossed: bool = False  # a line goes down through the middle of the header


def pill(title: str, y: float, height: float = PILL_HEIGHT) -> Box:
    """Returns a pill in the middle of the column, as wide as its text."""
    width = max(90, min(WIDTH - 2 * MARGIN, _CHARACTER_WIDTH * len(title) + 24))
    return Box((WIDTH - width) / 2, y, width, height, title, "", PALETTE.other_family, "pill")


def module_box(
    payload: dict[str, Any], node: int, fold: list[Any] | None, shape: str, y: float, depth: int, kind: str
) -> Box:
    """Returns the card of a module at this depth, or the header of its frame."""
    class_name = class_of(payload, node)
    title = f"{payload['nodes']['name'][node]}  {class_name}"
    suffix = "" if fold is None else f"  ×{fold[1]}" if fold[2] == "exact" else f"  ≈×{fold[1]}"
    detail = " · ".join(filter(None, (shape, _params(payload, node, fold))))
    x = MARGIN + INSET * min(depth, MAX_DEPTH)
    color = family_color(class_name, payload["nodes"]["parent"][node + 1 : node + 2] == [node])
    height = HEADER if kind == "frame" else ROW_HEIGHT
    return Box(x, y, WIDTH - 2 * x, height, title, detail, color, "card", fold is not None, suffix)


def _params(payload: dict[str, Any], node: int, fold: list[Any] | None) -> str:
    """The parameter count of a module; for a run of similar ones the range."""
    column = payload["columns"]["params"]
    if fold is None or fold[2] == "exact":
        return _short(column[node]) if column[node] else ""
    parents = payload["nodes"]["parent"]
    siblings = [other for other in range(node, len(parents)) if parents[other] == parents[node]]
    ends = [_short(find(float(column[member] or 0) for member in siblings[: fold[1]])) for find in (min, max)]
    return "" if ends[1] == "0" else "–".join(dict.fromkeys(ends))


def _short(value: int | float | str) -> str:
    amount = float(value)
    for unit in ("", "k", "M", "G", "T"):
        if amount < 1000:
            return f"{amount:.3g}{unit}"
        amount /= 1000
    return f"{amount:.3g}P"


def svg_header(title: str, width: float, height: float) -> list[str]:
    """Returns the first lines of an SVG: size, title and background."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}"',
        f'  viewBox="0 0 {width:g} {height:g}" font-family="system-ui, sans-serif" font-size="12" role="img">',
        f"<title>{xml_text(title)}</title>",
        f'<rect width="{width:g}" height="{height:g}" fill="{PAGE.surface}"/>',
    ]


def svg_box(box: Box) -> Iterator[str]:
    """Yields the SVG of a box with its text."""
    frame = f'width="{box.width:g}" height="{box.height:g}" rx="{12 if box.kind == "pill" else 5}"'
    if box.stacked:
        yield f'<rect x="{box.x + 4:g}" y="{box.y + 4:g}" {frame} fill="{PAGE.behind}" stroke="{PAGE.border}"/>'
    fill = PAGE.frame if box.kind == "frame" else PAGE.surface
    yield f'<rect x="{box.x:g}" y="{box.y:g}" {frame} fill="{fill}" stroke="{PAGE.border}"/>'
    middle = box.y + box.height / 2 + 4
    if box.kind == "pill":
        at = f'x="{box.x + box.width / 2:g}" y="{middle:g}" text-anchor="middle"'
        yield f'<text {at} fill="{PAGE.muted}">{xml_text(box.title, int((box.width - 16) / _CHARACTER_WIDTH))}</text>'
        return
    bar = min(box.height, ROW_HEIGHT) if box.kind == "frame" else box.height
    yield f'<rect x="{box.x:g}" y="{box.y:g}" width="4" height="{bar:g}" fill="{box.color}"/>'
    baseline = box.y + 18 if box.kind == "frame" else middle
    half = int((box.width / 2 - 16) / _CHARACTER_WIDTH) if box.crossed else _MAX_CHARACTERS
    detail = xml_text(box.detail, half)
    room = min(int((box.width - 22) / _CHARACTER_WIDTH) - (len(box.detail) + 2 if box.detail else 0), half)
    title = xml_text(box.title, max(room - len(box.suffix), 8)) + xml_text(box.suffix)
    yield f'<text x="{box.x + 12:g}" y="{baseline:g}" fill="{PAGE.text}">{title}</text>'
    if box.detail:
        end = box.x + box.width - 10
        yield f'<text x="{end:g}" y="{baseline:g}" text-anchor="end" fill="{PAGE.muted}">{detail}</text>'


def xml_text(text: str, longest: int = _MAX_CHARACTERS) -> str:
    """Returns one line of escaped XML text, shortened, without invalid characters."""
    longest = min(longest, _MAX_CHARACTERS)
    short = text if len(text) <= longest else text[: longest - 1] + "…"
    return escape("".join(c if c.isprintable() else "\ufffd" for c in short), {'"': "&quot;"})


# -------------------- Several pictures in one SVG, arranged in rows with titles


MAX_WIDTH = 1200  # pixels of a row of pictures; the next one stands below
MAX_CHARACTERS = 90_000  # characters; what comes after is counted only
PICTURE_GAP, TITLE_HEIGHT, TITLE_COLOR = 12, 24, PAGE.text


@dataclass(frozen=True, slots=True)
class SizedPicture:
    """An SVG and its size in pixels."""

    svg: str
    width: float
    height: float


def with_size(svg: str | None) -> SizedPicture | None:
    """Returns a picture with its size; None for None."""
    if svg is None:
        return None
    size = ElementTree.fromstring(svg).attrib
    return SizedPicture(svg, float(size["width"]), float(size["height"]))


def arrange_in_rows(name: str, parts: list[tuple[str, SizedPicture]], max_width: float) -> SizedPicture:
    """Returns the pictures in rows of at most `max_width` pixels, up to a total length."""
    lines: list[str] = []
    x = y = bottom = across = 0.0
    written = 0
    for number, (title, picture) in enumerate(parts):
        written += len(picture.svg)
        if number and written > MAX_CHARACTERS:
            lines.append(_text(0, bottom + PICTURE_GAP + 16, f"and {len(parts) - number} more"))
            bottom += PICTURE_GAP + TITLE_HEIGHT
            break
        if number and x + picture.width > max_width:
            x, y = 0.0, bottom + PICTURE_GAP
        top = y + (TITLE_HEIGHT if title else 0)
        if title:
            lines.append(_text(x, y + 16, title))
        lines.append(picture.svg.replace("<svg", f'<svg x="{x:g}" y="{top:g}"', 1))
        bottom = max(bottom, top + picture.height)
        across = max(across, x + picture.width)
        x += picture.width + PICTURE_GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{across:g}" height="{bottom:g}"'
        f' viewBox="0 0 {across:g} {bottom:g}" font-family="system-ui, sans-serif" font-size="12" role="img">'
    )
    ground = f'<rect width="{across:g}" height="{bottom:g}" fill="{PAGE.surface}"/>'
    title = f"<title>{xml_text(f'{name} of {len(parts)}')}</title>"
    return SizedPicture("\n".join([head, title, ground, *lines, "</svg>"]), across, bottom)


def _text(x: float, y: float, words: str) -> str:
    return f'<text x="{x + 4:g}" y="{y:g}" font-weight="600" fill="{TITLE_COLOR}">{xml_text(words)}</text>'
