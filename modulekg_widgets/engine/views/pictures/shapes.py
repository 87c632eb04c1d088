"""Pictures as lists of rectangles, paths, texts and pictures, which svg.py writes as SVG and png.py as PNG.

Lengths are pixels from the top left. Texts are plain: the writers see to it that no name of a user's module is markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

FONT_SIZE = 12
MAX_CHARACTERS = 62  # characters of one line

PathCommand: TypeAlias = tuple[Literal["M", "L", "l", "V", "H", "h", "z"], tuple[float, ...]]  # those of SVG


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle, with rounded corners if it has a radius."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    stroke: str | None = None
    radius: float = 0


@dataclass(frozen=True, slots=True)
class Path:
    """Lines along some points; the inside is filled if there is a color for it."""

    commands: Sequence[PathCommand]
    fill: str | None = "none"  # None where no line goes around anything
    stroke: str | None = None
    width: float = 1
    dashes: tuple[float, ...] = ()  # lengths of a dash and of a gap
    has_round_ends: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text on a baseline, from, around or up to a point."""

    x: float
    y: float
    content: str
    fill: str
    anchor: Literal["start", "middle", "end"] = "start"
    size: float = FONT_SIZE
    is_bold: bool = False


@dataclass(frozen=True, slots=True)
class NestedPicture:
    """A picture within another one."""

    x: float
    y: float
    picture: Picture


Shape: TypeAlias = Rect | Path | Text | NestedPicture


@dataclass(frozen=True, slots=True)
class Picture:
    """Shapes on the ground of the page, later ones above earlier ones."""

    title: str
    width: float
    height: float
    shapes: Sequence[Shape]


def one_line(text: str, longest: int = MAX_CHARACTERS) -> str:
    """Returns a text as one line, shortened, with a mark for each character that cannot be shown."""
    longest = min(longest, MAX_CHARACTERS)
    short = text if len(text) <= longest else text[: longest - 1] + "…"
    return short if short.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in short)
