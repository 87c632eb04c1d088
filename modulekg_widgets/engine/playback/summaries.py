"""Summaries of tensors: layout, statistics, the largest elements, and feature maps as bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn.functional import adaptive_avg_pool2d

from modulekg_widgets.engine.torch_runtime.pytree import nested_rows, tensors

Tensor = torch.Tensor
MAX_TENSORS = 12  # of one call's inputs or outputs that are listed
TOP_COUNT = 5
MAX_RANKED = 1 << 24  # elements of one item that are sorted


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Name, sizes and dtype of one tensor among the inputs or outputs of a call."""

    name: str  # such as "[0]" or ".logits"; empty when the tensor stands alone
    sizes: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Statistics:
    """Figures of the finite elements of a tensor; all four are NaN where there is none."""

    minimum: float
    maximum: float
    mean: float
    std: float  # of the population
    zeros: float  # share of all elements, 0 to 1
    non_finite: int  # NaNs and infinities
    count: int


@dataclass(frozen=True, slots=True)
class TopOutputs:
    """The largest outputs of one item: ((index, value, share), …), the largest first.

    `kind` is "class" (index, with its softmax share), "channel" (channel and the place in it) or "element".
    """

    kind: str
    entries: tuple[tuple[tuple[int, ...], float, float | None], ...]


def layouts(value: object) -> tuple[TensorLayout, ...]:
    """Returns the layouts of all tensors among the inputs or outputs of a call; a nested one is all of its rows."""
    found = []
    for name, tensor in tensors(value):
        found.append(TensorLayout(name, tuple(nested_rows(tensor).shape), str(tensor.dtype).removeprefix("torch.")))
        if len(found) == MAX_TENSORS:
            break
    return tuple(found)


def main_tensor(value: object) -> Tensor | None:
    """The tensor that statistics and pictures are of: the first one."""
    return next((nested_rows(tensor) for _, tensor in tensors(value)), None)


def real_elements(tensor: Tensor) -> Tensor:
    """The elements as real numbers without a graph: quantised ones decoded, of complex ones the absolute values."""
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.is_complex():
        tensor = tensor.abs()
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.to(_wide(tensor))


def _wide(tensor: Tensor) -> torch.dtype:
    is_small = tensor.dtype in (torch.float16, torch.bfloat16, torch.bool, torch.uint8, torch.int8, torch.int16)
    return torch.float32 if is_small or tensor.device.type == "mps" else torch.float64


def has_data(tensor: Tensor) -> bool:
    """True if the elements can be read: not for meta, sparse and nested tensors."""
    return tensor.layout is torch.strided and not tensor.is_meta and not tensor.is_nested


def statistics(tensor: Tensor) -> Statistics:
    """The statistics of a tensor that has data."""
    elements, count = real_elements(tensor).reshape(-1), tensor.numel()
    finite = torch.isfinite(elements)
    present = elements if bool(finite.all()) else elements[finite]
    broken = count - present.numel()
    if not present.numel():
        return Statistics(math.nan, math.nan, math.nan, math.nan, 0.0, broken, count)
    low, high = torch.aminmax(present)
    variance, mean = torch.var_mean(present, correction=0)
    zeros = count - int(torch.count_nonzero(elements))
    least, greatest, average, std = torch.stack([low, high, mean, variance.sqrt()]).tolist()
    return Statistics(least, greatest, average, std, zeros / count, broken, count)


# ------------------------------------------------------------ one of a batch


def item_count(sizes: tuple[int, ...], batch_dim: int) -> int:
    """Returns the number of samples in a tensor; a tensor of at most one dimension is one sample."""
    return sizes[batch_dim] if len(sizes) > max(1, batch_dim) else 1


def item(tensor: Tensor, number: int, batch_dim: int) -> Tensor:
    """Item `number` of the batch, or of what has no batch the whole."""
    return tensor.select(batch_dim, number) if tensor.dim() > max(1, batch_dim) else tensor


def first_not_finite(tensor: Tensor, batch_dim: int) -> int | None:
    """The first item of the batch with a NaN or an infinity, of a tensor that has data; None where there is none."""
    broken = ~torch.isfinite(real_elements(tensor))
    if tensor.dim() <= max(1, batch_dim):
        return 0 if bool(broken.any()) else None
    found = broken.movedim(batch_dim, 0).flatten(1).any(1).nonzero()
    return int(found[0]) if len(found) else None


def top_outputs(single: Tensor, are_classes: bool = False) -> TopOutputs:
    """Returns the largest outputs of one sample; NaNs are ignored."""
    elements = real_elements(single)
    if are_classes and elements.dim() == 1:
        return TopOutputs("class", _largest(elements, _shares(elements)))
    if elements.dim() >= 3:
        return TopOutputs("channel", _largest_channels(elements))
    return TopOutputs("element", _largest(elements, None))


def _largest(elements: Tensor, shares: Tensor | None) -> tuple[tuple[tuple[int, ...], float, float | None], ...]:
    flat = elements.reshape(-1)[:MAX_RANKED]
    values, places = torch.topk(_without_nan(flat), min(TOP_COUNT, flat.numel()))
    found = []
    for value, place in zip(values.tolist(), places.tolist(), strict=True):
        if value != -math.inf:
            share = None if shares is None else float(shares[place])
            found.append((_unravelled(place, tuple(elements.shape)), value, share))
    return tuple(found)


def _largest_channels(elements: Tensor) -> tuple[tuple[tuple[int, ...], float, float | None], ...]:
    if not elements.numel():
        return ()
    peaks, places = _without_nan(elements.reshape(elements.shape[0], -1)).max(1)
    values, channels = torch.topk(peaks, min(TOP_COUNT, len(peaks)))
    inside = tuple(elements.shape[1:])
    return tuple(
        ((channel, *_unravelled(int(places[channel]), inside)), value, None)
        for value, channel in zip(values.tolist(), channels.tolist(), strict=True)
        if value != -math.inf
    )


def _without_nan(elements: Tensor) -> Tensor:
    return torch.where(elements.isnan(), -math.inf, elements)


def _shares(logits: Tensor) -> Tensor:
    """Returns probabilities: the outputs if they are a distribution, else their softmax."""
    is_distribution = bool((logits >= 0).all()) and abs(float(logits.sum()) - 1) < 1e-3
    return logits if is_distribution else torch.softmax(logits, 0)


def _unravelled(place: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    found: list[int] = []
    for size in reversed(sizes):
        place, rest = divmod(place, size)
        found.append(rest)
    return tuple(reversed(found))


# -------------------- Feature maps: 0 to 254 from minimum to maximum, 255 for NaN and infinity


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
