"""PNG rendering of the static SVG pictures, with Pillow."""

from __future__ import annotations

import base64
import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from modulekg_widgets.engine.palette import PAGE

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

# Pillow is imported where it is used. It comes with matplotlib and with torchvision, which write no picture without it

CAPTION = "run the cell to make it live"
MAX_PNG_BYTES = 60_000  # bytes
PNG_SCALES = (1.5, 1.0)  # pixels of the PNG to one of the SVG; the next one where the picture gets too large
COLORS = 64
SUPERSAMPLING = 2  # shapes are drawn this much larger, for smooth edges
FILE_SCALE = 2.0  # of a file, which may be printed
MAX_SMOOTH_PIXELS = (
    60_000_000  # pixels; the shapes of a larger picture keep rough edges, for they would fill the memory
)
MAX_HEIGHT = 2400  # pixels of the SVG; of a taller picture the beginning is shown
FOOTER_HEIGHT, LEFT, CAPTION_COLOR = 26, 16, PAGE.muted
_FONT_SIZE = 11 / 12  # the font of the PNG runs wider than those of browsers
_ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}
_BOLD = ("600", "700", "bold")

Point = tuple[float, float]


def notebook_pictures(picture: str) -> dict[str, str]:
    """Returns the pictures for a saved notebook by MIME type: SVG, and PNG for viewers that block SVG."""
    return {"image/svg+xml": _with_caption(picture), "image/png": base64.b64encode(png(picture)).decode("ascii")}


def _with_caption(picture: str) -> str:
    """The SVG with a caption that tells how to bring the widget back.

    By the classes a page of ours knows the picture, and the words, which it writes itself (saved_picture.ts).
    """
    width, height = (float(ElementTree.fromstring(picture).attrib[name]) for name in ("width", "height"))
    size = f'width="{width:g}" height="{height + FOOTER_HEIGHT:g}" viewBox="0 0 {width:g} {height + FOOTER_HEIGHT:g}"'
    style = f'font-family="system-ui, sans-serif" font-size="12" fill="{CAPTION_COLOR}"'
    return "\n".join(
        [
            f'<svg class="mkg-saved-picture" xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f'<rect width="{width:g}" height="{height + FOOTER_HEIGHT:g}" fill="{PAGE.surface}"/>',
            picture,
            f'<text class="mkg-words" x="{LEFT}" y="{height + FOOTER_HEIGHT - 9:g}" {style}>{CAPTION}</text>',
            "</svg>",
        ]
    )


def file_png(svg: str) -> bytes:
    """Returns an SVG picture (rect, path and text) as PNG at twice its size."""
    root = ElementTree.fromstring(svg)
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    smooth = SUPERSAMPLING if width * height * (FILE_SCALE * SUPERSAMPLING) ** 2 <= MAX_SMOOTH_PIXELS else 1
    buffer = io.BytesIO()
    _render(root, height, FILE_SCALE, 0, smooth).save(buffer, "PNG")
    return buffer.getvalue()


def png(svg: str) -> bytes:
    """Returns an SVG picture (rect, path and text) as PNG of bounded size, with a caption."""
    root = ElementTree.fromstring(svg)
    height = min(float(root.attrib["height"]), MAX_HEIGHT)
    while True:
        for scale in PNG_SCALES:
            content = _encoded(_with_footer(root, height, scale))
            if len(content) <= MAX_PNG_BYTES:
                return content
        height /= 2


def _with_footer(root: ElementTree.Element, height: float, scale: float) -> Image:
    """The picture cut at `height`, with a caption below."""
    from PIL import ImageDraw

    image = _render(root, height, scale, FOOTER_HEIGHT, SUPERSAMPLING)
    is_whole = height >= float(root.attrib["height"])
    words = CAPTION if is_whole else f"the beginning of the picture; {CAPTION}"
    _text(
        ImageDraw.Draw(image),
        {"x": str(LEFT), "y": str(height + FOOTER_HEIGHT - 9), "fill": CAPTION_COLOR},
        words,
        (0, 0),
        scale,
    )
    return image


def _render(root: ElementTree.Element, height: float, scale: float, foot: int, smooth: int) -> Image:
    from PIL import Image, ImageDraw

    width = float(root.attrib["width"])
    large = scale * smooth
    image = Image.new("RGB", (round(width * scale) * smooth, round((height + foot) * scale) * smooth), PAGE.surface)
    draw = ImageDraw.Draw(image)
    for element, origin in _positioned(root):
        match _kind(element):
            case "rect":
                _rect(draw, element.attrib, origin, large)
            case "path":
                _path(draw, element.attrib, origin, large)
    # nothing of what was cut off may stand below
    draw.rectangle((0, height * large, *image.size), fill=PAGE.surface)
    image = image.reduce(smooth)
    draw = ImageDraw.Draw(image)
    for element, origin in _positioned(root):
        if _kind(element) == "text" and float(element.attrib["y"]) + origin[1] <= height:
            _text(draw, element.attrib, element.text or "", origin, scale)
    return image


def _encoded(image: Image) -> bytes:
    from PIL.Image import Dither, Quantize

    indexed = image.quantize(COLORS, Quantize.FASTOCTREE, dither=Dither.NONE)
    palette = indexed.getpalette() or []
    ground = indexed.getpixel((0, 0))
    if isinstance(ground, int):
        palette[3 * ground : 3 * ground + 3] = 255, 255, 255  # the mean of its neighbours makes white a light grey
        indexed.putpalette(palette)
    buffer = io.BytesIO()
    indexed.save(buffer, "PNG", compress_level=6)  # 9 takes ten times as long for a tenth
    return buffer.getvalue()


def _kind(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _positioned(
    element: ElementTree.Element, x: float = 0, y: float = 0
) -> Iterator[tuple[ElementTree.Element, Point]]:
    """Yields every element with the origin of the nested SVG that it is in."""
    if _kind(element) == "svg":
        x, y = x + float(element.get("x", 0)), y + float(element.get("y", 0))
    yield element, (x, y)
    for child in element:
        yield from _positioned(child, x, y)


def _text(draw: ImageDraw, given: Mapping[str, str], words: str, origin: Point, scale: float) -> None:
    size = float(given.get("font-size", 12)) * _FONT_SIZE * scale
    font = _font(given.get("font-weight", "") in _BOLD, size)
    at = (origin[0] + float(given["x"])) * scale, (origin[1] + float(given["y"])) * scale
    draw.text(at, words, given["fill"], font, _ANCHORS[given.get("text-anchor", "start")])


@cache
def _font(is_bold: bool, size: float) -> FreeTypeFont | ImageFont:
    """Returns DejaVu Sans from matplotlib, without its font search, which takes seconds on a new machine."""
    from PIL import ImageFont

    found = find_spec("matplotlib")
    folders = (found and found.submodule_search_locations) or ["."]
    name = f"DejaVuSans{'-Bold' if is_bold else ''}.ttf"
    file = Path(folders[0]) / "mpl-data" / "fonts" / "ttf" / name
    try:
        # the other layout engine is not on every machine
        return ImageFont.truetype(file, size, layout_engine=ImageFont.Layout.BASIC)
    except OSError:  # distributions keep fonts elsewhere
        return ImageFont.load_default(size)


def _rect(draw: ImageDraw, given: Mapping[str, str], origin: Point, scale: float) -> None:
    x, y, width, height, radius = (float(given.get(name, 0)) * scale for name in ("x", "y", "width", "height", "rx"))
    x, y = x + origin[0] * scale, y + origin[1] * scale
    if min(width, height) < 1:
        return
    box = (x, y, x + width - 1, y + height - 1)
    radius = min(radius, width / 2, height / 2)
    draw.rounded_rectangle(box, radius, given.get("fill"), given.get("stroke"), max(1, round(scale)))


def _path(draw: ImageDraw, given: Mapping[str, str], origin: Point, scale: float) -> None:
    fill, stroke = given.get("fill", "none"), given.get("stroke")
    width = max(1, round(float(given.get("stroke-width", 1)) * scale))
    dashes = [float(part) * scale for part in given.get("stroke-dasharray", "").split()]
    for points in polylines(given["d"]):
        line = [((x + origin[0]) * scale, (y + origin[1]) * scale) for x, y in points]
        if fill != "none" and len(line) > 2:
            draw.polygon(line, fill)
        if stroke is None:
            continue
        if len(set(line)) == 1:
            draw.circle(line[0], width / 2, stroke)
        for piece in _dashed(line, *dashes) if dashes else [line]:
            draw.line(piece, stroke, width, "curve")


_TOKEN = re.compile(r"[A-Za-z]|-?[\d.]+(?:e[-+]?\d+)?")


def polylines(d: str) -> Iterator[list[Point]]:
    """Yields the lines of a path with the commands M, L, l, V, H, h and z."""
    line: list[Point] = []
    tokens = iter(_TOKEN.findall(d))
    for command in tokens:
        x, y = line[-1] if line else (0.0, 0.0)
        match command:
            case "M":
                if line:
                    yield line
                line = [(float(next(tokens)), float(next(tokens)))]
            case "L":
                line.append((float(next(tokens)), float(next(tokens))))
            case "l":
                line.append((x + float(next(tokens)), y + float(next(tokens))))
            case "V":
                line.append((x, float(next(tokens))))
            case "H":
                line.append((float(next(tokens)), y))
            case "h":
                line.append((x + float(next(tokens)), y))
            case "z":
                line.append(line[0])
            case _:
                raise ValueError(f"a static picture has no path command {command!r}")
    if line:
        yield line


def _dashed(line: list[Point], on: float, off: float) -> Iterator[list[Point]]:
    """Yields the dashes of a line; each segment begins with a dash."""
    for (x, y), (end_x, end_y) in pairwise(line):
        length = ((end_x - x) ** 2 + (end_y - y) ** 2) ** 0.5
        at = 0.0
        while at < length:
            a, b = at / length, min(at + on, length) / length
            yield [(x + (end_x - x) * share, y + (end_y - y) * share) for share in (a, b)]
            at += on + off
