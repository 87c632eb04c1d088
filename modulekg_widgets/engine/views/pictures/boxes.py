"""Parts of model pictures: cards, frames and pills, and pictures in rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from modulekg_widgets.engine.palette import PAGE, PALETTE, family_color
from modulekg_widgets.engine.views.payload import class_of
from modulekg_widgets.engine.views.pictures.shapes import (
    MAX_CHARACTERS,
    NestedPicture,
    Path,
    Picture,
    Rect,
    Shape,
    Text,
    one_line,
)
from modulekg_widgets.engine.views.pictures.svg import svg_text
from modulekg_widgets.engine.views.schema import Fold, Payload

WIDTH, ROW_HEIGHT, GAP, INSET, HEADER, MARGIN = 460, 30, 12, 12, 26, 16
PILL_HEIGHT = ROW_HEIGHT - 6
MAX_DEPTH = 12  # frames of deeper ones are no narrower
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


def module_box(payload: Payload, node: int, fold: Fold | None, shape: str, y: float, depth: int, kind: str) -> Box:
    """Returns the card of a module at this depth, or the header of its frame."""
    class_name = class_of(payload, node)
    title = f"{payload['nodes']['name'][node]}  {class_name}"
    suffix = "" if fold is None else f"  ×{fold[1]}" if fold[2] == "exact" else f"  ≈×{fold[1]}"
    detail = " · ".join(filter(None, (shape, _params(payload, node, fold))))
    x = MARGIN + INSET * min(depth, MAX_DEPTH)
    color = family_color(class_name, payload["nodes"]["parent"][node + 1 : node + 2] == [node])
    height = HEADER if kind == "frame" else ROW_HEIGHT
    return Box(x, y, WIDTH - 2 * x, height, title, detail, color, "card", fold is not None, suffix)


def _params(payload: Payload, node: int, fold: Fold | None) -> str:
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


def box_shapes(box: Box) -> Iterator[Shape]:
    """Yields the shapes of a box with its text."""
    radius = 12 if box.kind == "pill" else 5
    if box.stacked:
        yield Rect(box.x + 4, box.y + 4, box.width, box.height, PAGE.behind, PAGE.border, radius)
    fill = PAGE.frame if box.kind == "frame" else PAGE.surface
    yield Rect(box.x, box.y, box.width, box.height, fill, PAGE.border, radius)
    middle = box.y + box.height / 2 + 4
    if box.kind == "pill":
        title = one_line(box.title, int((box.width - 16) / _CHARACTER_WIDTH))
        yield Text(box.x + box.width / 2, middle, title, PAGE.muted, "middle")
        return
    bar = min(box.height, ROW_HEIGHT) if box.kind == "frame" else box.height
    yield Rect(box.x, box.y, 4, bar, box.color)
    baseline = box.y + 18 if box.kind == "frame" else middle
    half = int((box.width / 2 - 16) / _CHARACTER_WIDTH) if box.crossed else MAX_CHARACTERS
    room = min(int((box.width - 22) / _CHARACTER_WIDTH) - (len(box.detail) + 2 if box.detail else 0), half)
    title = one_line(box.title, max(room - len(box.suffix), 8)) + one_line(box.suffix)
    yield Text(box.x + 12, baseline, title, PAGE.text)
    if box.detail:
        yield Text(box.x + box.width - 10, baseline, one_line(box.detail, half), PAGE.muted, "end")


def arrowhead(x: float, tip: float) -> Path:
    """Returns the head of an arrow that goes down to `tip`."""
    return Path([("M", (x - 4, tip - 5)), ("l", (4, 5)), ("l", (4, -5)), ("z", ())], fill=PAGE.line)


# -------------------- Several pictures in one, arranged in rows with titles


MAX_WIDTH = 1200  # pixels of a row of pictures; the next one stands below
MAX_SVG_CHARACTERS = 90_000  # what comes after is counted only
PICTURE_GAP, TITLE_HEIGHT = 12, 24


def arrange_in_rows(name: str, parts: Sequence[tuple[str, Picture]], max_width: float) -> Picture:
    """Returns titled pictures in rows of at most `max_width` pixels, up to a total length."""
    shapes: list[Shape] = []
    x = y = bottom = across = 0.0
    written = 0
    for number, (title, picture) in enumerate(parts):
        written += len(svg_text(picture))
        if number and written > MAX_SVG_CHARACTERS:
            shapes.append(_heading(0, bottom + PICTURE_GAP, f"and {len(parts) - number} more"))
            bottom += PICTURE_GAP + TITLE_HEIGHT
            break
        if number and x + picture.width > max_width:
            x, y = 0.0, bottom + PICTURE_GAP
        top = y + (TITLE_HEIGHT if title else 0)
        if title:
            shapes.append(_heading(x, y, title))
        shapes.append(NestedPicture(x, top, picture))
        bottom = max(bottom, top + picture.height)
        across = max(across, x + picture.width)
        x += picture.width + PICTURE_GAP
    return Picture(f"{name} of {len(parts)}", across, bottom, shapes)


def _heading(x: float, y: float, words: str) -> Text:
    return Text(x + 4, y + 16, one_line(words), PAGE.text, is_bold=True)
