"""SVG writer of the static pictures: no scripts, styles or references, and every text escaped."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from modulekg_widgets.engine.palette import PAGE
from modulekg_widgets.engine.views.pictures.shapes import FONT_SIZE, NestedPicture, Path, Picture, Rect, Text, one_line


def svg_text(picture: Picture) -> str:
    """Returns a picture as SVG."""
    return "\n".join(_lines(picture, ""))


def xml_text(text: str) -> str:
    """Returns one line of escaped XML text, shortened, without invalid characters."""
    return _escaped(one_line(text))


def _escaped(text: str) -> str:
    return escape(text, {'"': "&quot;"})


def _lines(picture: Picture, position: str) -> Iterator[str]:
    size = f'width="{picture.width:g}" height="{picture.height:g}"'
    yield f'<svg{position} xmlns="http://www.w3.org/2000/svg" {size}'
    box = f'viewBox="0 0 {picture.width:g} {picture.height:g}"'
    yield f'  {box} font-family="system-ui, sans-serif" font-size="{FONT_SIZE}" role="img">'
    yield f"<title>{xml_text(picture.title)}</title>"
    yield f'<rect {size} fill="{PAGE.surface}"/>'
    for shape in picture.shapes:
        if isinstance(shape, NestedPicture):
            yield from _lines(shape.picture, f' x="{shape.x:g}" y="{shape.y:g}"')
        else:
            yield _element(shape)
    yield "</svg>"


def _element(shape: Rect | Path | Text) -> str:
    match shape:
        case Rect():
            place = f'x="{shape.x:g}" y="{shape.y:g}" width="{shape.width:g}" height="{shape.height:g}"'
            radius = f' rx="{shape.radius:g}"' if shape.radius else ""
            return f'<rect {place}{radius} fill="{shape.fill}"{_optional("stroke", shape.stroke)}/>'
        case Text():
            anchor = f' text-anchor="{shape.anchor}"' if shape.anchor != "start" else ""
            size = f' font-size="{shape.size:g}"' if shape.size != FONT_SIZE else ""
            weight = ' font-weight="600"' if shape.is_bold else ""
            style = f'{anchor}{size}{weight} fill="{shape.fill}"'
            return f'<text x="{shape.x:g}" y="{shape.y:g}"{style}>{_escaped(shape.content)}</text>'
        case Path():
            d = "".join(letter + " ".join(f"{number:g}" for number in numbers) for letter, numbers in shape.commands)
            width = f' stroke-width="{shape.width:g}"' if shape.width != 1 else ""
            ends = ' stroke-linecap="round"' if shape.has_round_ends else ""
            dashes = f' stroke-dasharray="{" ".join(f"{length:g}" for length in shape.dashes)}"' if shape.dashes else ""
            colors = _optional("fill", shape.fill) + _optional("stroke", shape.stroke)
            return f'<path d="{d}"{colors}{width}{ends}{dashes}/>'


def _optional(name: str, value: str | None) -> str:
    return "" if value is None else f' {name}="{value}"'
