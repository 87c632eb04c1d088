"""Feature maps of an output as bytes: 0 to 254 from minimum to maximum, 255 for NaN and infinity."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn.functional import adaptive_avg_pool2d

from modulekg_widgets.engine.playback.summaries import real_elements

Tensor = torch.Tensor
MAX_MAPS_PER_PAGE = 64  # of one page
MAX_MAP_SIDE = 64  # pixels of a channel's longer side
SINGLE_MAP_SCALE = 4  # a picture that stands alone may be so much larger
STRIP = 64  # values in a row of a strip
NOT_FINITE = 255


@dataclass(frozen=True, slots=True)
class FeatureMaps:
    """One page of the pictures of one item's output.

    `form` is "channels" (one map each), "heat" (one map, rows × columns), "strip" (one map of single values, row after
    row) or "none". `ranges` has the least and greatest value drawn in each map.
    """

    form: str
    width: int = 0
    height: int = 0
    first: int = 0  # the first channel or value of the page
    total: int = 0  # channels or values of all pages
    sizes: tuple[int, ...] = ()  # of one map, before it was averaged
    slice_at: int | None = None  # the slice of a volume that is drawn
    ranges: tuple[tuple[float, float], ...] = ()
    pixels: bytes = b""


def feature_maps(single: Tensor, page: int, side: int = MAX_MAP_SIDE) -> FeatureMaps:
    """The pictures of one item (its tensor without the batch dimension); a page that is too high is the last one.

    What is larger than `side` pixels is averaged.
    """
    dimensions = single.dim()
    if not single.numel() or dimensions > 4:
        return FeatureMaps("none")
    if dimensions <= 1:
        return _strip(single.reshape(-1), page)
    if dimensions == 2:
        return _heat(single, SINGLE_MAP_SCALE * side)
    depth = single.shape[1] // 2 if dimensions == 4 else None
    return _channels(single if depth is None else single[:, depth], page, depth, side)


def page_count(total: int, on_a_page: int) -> int:
    return max(1, math.ceil(total / on_a_page))


def _channels(single: Tensor, page: int, depth: int | None, side: int) -> FeatureMaps:
    total, *sizes = single.shape
    first = _first(page, total, MAX_MAPS_PER_PAGE)
    averaged = _averaged(real_elements(single[first : first + MAX_MAPS_PER_PAGE]), side)
    ranges, pixels = _pixels(averaged.flatten(1))
    height, width = averaged.shape[1:]
    return FeatureMaps("channels", width, height, first, total, tuple(sizes), depth, ranges, pixels)


def _heat(single: Tensor, side: int) -> FeatureMaps:
    averaged = _averaged(real_elements(single)[None], side)
    ranges, pixels = _pixels(averaged.flatten(1))
    height, width = averaged.shape[1:]
    return FeatureMaps("heat", width, height, 0, 1, tuple(single.shape), None, ranges, pixels)


def _strip(values: Tensor, page: int) -> FeatureMaps:
    total, on_a_page = values.numel(), STRIP * STRIP
    first = _first(page, total, on_a_page)
    shown = real_elements(values[first : first + on_a_page])
    width = min(STRIP, shown.numel())
    ranges, pixels = _pixels(shown[None])
    height = math.ceil(shown.numel() / width)
    padding = bytes(width * height - shown.numel())
    return FeatureMaps("strip", width, height, first, total, (shown.numel(),), None, ranges, pixels + padding)


def _first(page: int, total: int, on_a_page: int) -> int:
    return min(page, page_count(total, on_a_page) - 1) * on_a_page


def _averaged(maps: Tensor, largest: int) -> Tensor:
    """The maps with a longer side of at most `largest` pixels, each the mean of what it covers."""
    scale = largest / max(maps.shape[-2:])
    if scale >= 1:
        return maps
    height, width = (max(1, round(size * scale)) for size in maps.shape[-2:])
    return adaptive_avg_pool2d(maps, (height, width))


def _pixels(maps: Tensor) -> tuple[tuple[tuple[float, float], ...], bytes]:
    """Returns value ranges and pixel bytes of the maps; each map is scaled on its own."""
    maps = maps.double()
    finite = maps.isfinite()
    low = torch.where(finite, maps, math.inf).amin(1, keepdim=True)
    high = torch.where(finite, maps, -math.inf).amax(1, keepdim=True)
    # halves: the difference of the largest numbers would not be finite
    span = high / 2 - low / 2
    share = torch.where(span > 0, (maps / 2 - low / 2) / span, 0.0)
    codes = torch.where(finite, (share * (NOT_FINITE - 1)).round(), NOT_FINITE).to(torch.uint8)
    ranges = [(a, b) if a <= b else (math.nan, math.nan) for a, b in torch.cat([low, high], 1).tolist()]
    return tuple(ranges), codes.cpu().numpy().tobytes()
