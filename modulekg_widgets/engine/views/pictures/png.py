"""PNG writer of the static pictures, with Pillow, and both pictures of a saved notebook."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from modulekg_widgets.engine.palette import PAGE
from modulekg_widgets.engine.views.pictures.shapes import NestedPicture, Path, Picture, Rect, Text
from modulekg_widgets.engine.views.pictures.svg import svg_text

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

# Pillow is imported where it is used. It comes with matplotlib and with torchvision, which write no picture without it

CAPTION = "Static preview. Run the cell for the interactive view."
MAX_PNG_BYTES = 60_000  # bytes
PNG_SCALES = (1.5, 1.0)  # pixels of the PNG to one of the picture; the next one where the PNG gets too large
COLORS = 64
SUPERSAMPLING = 2  # shapes are drawn this much larger, for smooth edges
FILE_SCALE = 2.0  # of a file, which may be printed
MAX_SMOOTH_PIXELS = (
    60_000_000  # pixels; the shapes of a larger picture keep rough edges, for they would fill the memory
)
MAX_HEIGHT = 2400  # pixels; of a taller picture the beginning is shown
FOOTER_HEIGHT, LEFT, CAPTION_COLOR = 26, 16, PAGE.muted
_FONT_SCALE = 11 / 12  # the font of the PNG runs wider than those of browsers
_ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}

Point = tuple[float, float]


def notebook_pictures(picture: Picture) -> dict[str, str]:
    """Returns the pictures for a saved notebook by MIME type: SVG, and PNG for viewers that block SVG."""
    return {"image/svg+xml": _with_caption(picture), "image/png": base64.b64encode(png(picture)).decode("ascii")}


def _with_caption(picture: Picture) -> str:
    """The SVG with a caption that tells how to bring the widget back.

    By the classes a page of ours knows the picture, and the words, which it writes itself (saved_picture.ts).
    """
    width, height = picture.width, picture.height + FOOTER_HEIGHT
    size = f'width="{width:g}" height="{height:g}"'
    box = f'viewBox="0 0 {width:g} {height:g}"'
    style = f'font-family="system-ui, sans-serif" font-size="12" fill="{CAPTION_COLOR}"'
    return "\n".join(
        [
            f'<svg class="mkg-saved-picture" xmlns="http://www.w3.org/2000/svg" {size} {box} role="img">',
            f'<rect {size} fill="{PAGE.surface}"/>',
            svg_text(picture),
            f'<text class="mkg-words" x="{LEFT}" y="{height - 9:g}" {style}>{CAPTION}</text>',
            "</svg>",
        ]
    )


def file_png(picture: Picture) -> bytes:
    """Returns a picture as PNG at twice its size."""
    pixels = picture.width * picture.height * (FILE_SCALE * SUPERSAMPLING) ** 2
    smooth = SUPERSAMPLING if pixels <= MAX_SMOOTH_PIXELS else 1
    buffer = io.BytesIO()
    _render(picture, picture.height, FILE_SCALE, 0, smooth).save(buffer, "PNG")
    return buffer.getvalue()


def png(picture: Picture) -> bytes:
    """Returns a picture as PNG of bounded size, with a caption."""
    height = min(picture.height, MAX_HEIGHT)
    while True:
        for scale in PNG_SCALES:
            content = _encoded(_with_footer(picture, height, scale))
            if len(content) <= MAX_PNG_BYTES:
                return content
        height /= 2


def _with_footer(picture: Picture, height: float, scale: float) -> Image:
    """The picture cut at `height`, with a caption below."""
    from PIL import ImageDraw

    image = _render(picture, height, scale, FOOTER_HEIGHT, SUPERSAMPLING)
    words = CAPTION if height >= picture.height else f"Top part only. {CAPTION}"
    caption = Text(LEFT, height + FOOTER_HEIGHT - 9, words, CAPTION_COLOR)
    _text(ImageDraw.Draw(image), caption, (0, 0), scale)
    return image


def _render(picture: Picture, height: float, scale: float, foot: int, smooth: int) -> Image:
    from PIL import Image, ImageDraw

    large = scale * smooth
    size = round(picture.width * scale) * smooth, round((height + foot) * scale) * smooth
    image = Image.new("RGB", size, PAGE.surface)
    draw = ImageDraw.Draw(image)
    texts: list[tuple[Text, Point]] = []
    for shape, origin in _positioned(picture, (0, 0)):
        match shape:
            case Rect():
                _rect(draw, shape, origin, large)
            case Path():
                _path(draw, shape, origin, large)
            case Text():
                texts.append((shape, origin))
    # nothing of what was cut off may stand below
    draw.rectangle((0, height * large, *image.size), fill=PAGE.surface)
    image = image.reduce(smooth)
    draw = ImageDraw.Draw(image)
    for text, origin in texts:
        if text.y + origin[1] <= height:
            _text(draw, text, origin, scale)
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


def _positioned(picture: Picture, origin: Point) -> Iterator[tuple[Rect | Path | Text, Point]]:
    """Yields every shape with the origin of the picture that it is in."""
    x, y = origin
    for shape in picture.shapes:
        if isinstance(shape, NestedPicture):
            yield from _positioned(shape.picture, (x + shape.x, y + shape.y))
        else:
            yield shape, origin


def _text(draw: ImageDraw, text: Text, origin: Point, scale: float) -> None:
    font = _font(text.is_bold, text.size * _FONT_SCALE * scale)
    at = (origin[0] + text.x) * scale, (origin[1] + text.y) * scale
    draw.text(at, text.content, text.fill, font, _ANCHORS[text.anchor])


@cache
def _font(is_bold: bool, size: float) -> FreeTypeFont | ImageFont:
    """Returns DejaVu Sans from matplotlib, without its font search, which takes seconds on a new machine."""
    from PIL import ImageFont

    found = find_spec("matplotlib")
    folders = (found and found.submodule_search_locations) or ["."]
    name = f"DejaVuSans{'-Bold' if is_bold else ''}.ttf"
    file = FilePath(folders[0]) / "mpl-data" / "fonts" / "ttf" / name
    try:
        # the other layout engine is not on every machine
        return ImageFont.truetype(file, size, layout_engine=ImageFont.Layout.BASIC)
    except OSError:  # distributions keep fonts elsewhere
        return ImageFont.load_default(size)


def _rect(draw: ImageDraw, rect: Rect, origin: Point, scale: float) -> None:
    x, y = (origin[0] + rect.x) * scale, (origin[1] + rect.y) * scale
    width, height = rect.width * scale, rect.height * scale
    if min(width, height) < 1:
        return
    box = (x, y, x + width - 1, y + height - 1)
    radius = min(rect.radius * scale, width / 2, height / 2)
    draw.rounded_rectangle(box, radius, rect.fill, rect.stroke, max(1, round(scale)))


def _path(draw: ImageDraw, path: Path, origin: Point, scale: float) -> None:
    width = max(1, round(path.width * scale))
    dashes = [length * scale for length in path.dashes]
    for points in polylines(path):
        line = [((x + origin[0]) * scale, (y + origin[1]) * scale) for x, y in points]
        if path.fill not in (None, "none") and len(line) > 2:
            draw.polygon(line, path.fill)
        if path.stroke is None:
            continue
        if len(set(line)) == 1:
            draw.circle(line[0], width / 2, path.stroke)
        for piece in _dashed(line, *dashes) if dashes else [line]:
            draw.line(piece, path.stroke, width, "curve")


def polylines(path: Path) -> Iterator[list[Point]]:
    """Yields the lines of a path."""
    line: list[Point] = []
    for command, numbers in path.commands:
        x, y = line[-1] if line else (0.0, 0.0)
        match command, numbers:
            case "M", (to_x, to_y):
                if line:
                    yield line
                line = [(to_x, to_y)]
            case "L", (to_x, to_y):
                line.append((to_x, to_y))
            case "l", (across, down):
                line.append((x + across, y + down))
            case "V", (to_y,):
                line.append((x, to_y))
            case "H", (to_x,):
                line.append((to_x, y))
            case "h", (across,):
                line.append((x + across, y))
            case "z", ():
                line.append(line[0])
            case _:
                raise ValueError(f"a static picture has no path command {command!r} with {len(numbers)} numbers")
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
