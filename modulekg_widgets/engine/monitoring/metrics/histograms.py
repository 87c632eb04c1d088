"""Histograms of weights, activations and gradients."""

from __future__ import annotations

import math
from typing import TypeAlias

import torch

from modulekg_widgets.engine.monitoring.measures import moments
from modulekg_widgets.engine.monitoring.metric import NoValueError, metric
from modulekg_widgets.engine.monitoring.metrics.statistics import values

HistogramParts: TypeAlias = "dict[str, torch.Tensor | int]"

BINS = 64
MAX_SAMPLED = 1_000_000  # elements that are looked at
SAFE_RANGES = (1e-30, 1e30)  # ranges in which float32 can tell the bins


@metric("WeightHistogram", needs="Weight", ranks="histogram")
def weight_histogram(w: torch.Tensor) -> HistogramParts:
    """64 counts over the range of the weight; see `histogram`."""
    return histogram(moments.Moments(w, -1))


@metric("OutputHistogram", needs="ForwardOutputMoments", ranks="histogram")
def output_histogram(y: moments.Moments) -> HistogramParts:
    """64 counts over the range of the output; see `histogram`."""
    return histogram(y)


@metric("InputHistogram", needs="ForwardInputMoments", ranks="histogram")
def input_histogram(x: moments.Moments) -> HistogramParts:
    """64 counts over the range of the input; see `histogram`."""
    return histogram(x)


@metric("OutputGradHistogram", needs="BackwardOutputMoments", ranks="histogram")
def output_gradient_histogram(g: moments.Moments) -> HistogramParts:
    """64 counts over the range of the gradient at the output; see `histogram`."""
    return histogram(g)


@metric("WeightGradHistogram", needs="WeightGrad", ranks="histogram")
def weight_gradient_histogram(g: torch.Tensor) -> HistogramParts:
    """64 counts over the range of the weight's gradient, of a sparse one over its values; see `histogram`."""
    return histogram(moments.Moments(values(g), -1))


def histogram(own: moments.Moments) -> HistogramParts:
    """`low` and `high` of all finite elements, and `counts` of 64 bins of one width between them, the last one closed.

    Of `total` elements `sampled` were looked at: all up to 1,000,000, else every k-th with k prime to the count, so
    that no row or channel is preferred. NaN and infinity are not counted. Where all elements are the same, they are in
    the first bin. Raises `NoValueError` where nothing is finite.
    """
    sample = own.flat[:: sampling_stride(own.count)]
    found = _on_host(own, sample) if own.tensor.device.type == "cpu" else _on_device(own, sample)
    low, high, counts = found
    return {"low": low, "high": high, "total": own.count, "sampled": sample.numel(), "counts": counts}


def sampling_stride(count: int) -> int:
    """Returns the sampling stride, coprime to the count."""
    found = max(1, -(-count // MAX_SAMPLED))
    while math.gcd(found, count) > 1 and found > 1:
        found += 1
    return found


HistogramTensors: TypeAlias = "tuple[torch.Tensor, torch.Tensor, torch.Tensor]"


def _on_host(own: moments.Moments, sample: torch.Tensor) -> HistogramTensors:
    if bool(own.finite):
        low, high = own.least, own.greatest
    else:
        finite = own.flat[torch.isfinite(own.flat)]
        if finite.numel() == 0:
            raise NoValueError("no element is finite")
        low, high = torch.aminmax(finite)
        sample = sample[torch.isfinite(sample)]
    counts = torch.zeros(BINS, dtype=torch.int64, device="cpu")
    width = float(high) - float(low)
    if width == 0.0:
        counts[0] = sample.numel()
        return low, high, counts
    dtype = own.sum_dtype if SAFE_RANGES[0] < width < SAFE_RANGES[1] else torch.float64
    for piece in sample.split(moments.PIECE_ELEMENTS):
        counts += _bin_counts(((piece.to(dtype) - float(low)) * (BINS / width)).to(torch.int16))
    return low, high, counts


def _bin_counts(bins: torch.Tensor) -> torch.Tensor:
    """Counts of the bin numbers 0 to 63, with 64 counted as 63; two per lookup, for speed."""
    size = BINS + 1
    half = bins.numel() // 2
    pairs = torch.bincount(torch.add(bins[half : 2 * half], bins[:half], alpha=size), minlength=size * size)
    both = pairs.view(size, size)
    found = both.sum(0) + both.sum(1)
    if bins.numel() % 2:
        found[int(bins[-1])] += 1
    found[BINS - 1] += found[BINS]
    return found[:BINS]


def _on_device(own: moments.Moments, sample: torch.Tensor) -> HistogramTensors:
    """The histogram without synchronising the device."""
    everything = own.flat.to(own.sum_dtype)
    low = torch.nan_to_num(everything, math.inf, math.inf, math.inf).amin()
    high = torch.nan_to_num(everything, -math.inf, -math.inf, -math.inf).amax()
    width = torch.where(high > low, high - low, 1.0)
    places = (sample.to(low.dtype) - low) / width * BINS
    if torch.are_deterministic_algorithms_enabled():  # then torch counts whole numbers alone
        places = torch.where(torch.isfinite(sample), places, -1.0).to(torch.int32)
    return low, high, torch.histc(places, BINS, 0, BINS)
