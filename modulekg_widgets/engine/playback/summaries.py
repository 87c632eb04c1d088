"""Summaries of tensors: layout, statistics, and the largest elements."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

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
