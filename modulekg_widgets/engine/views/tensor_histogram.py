"""How the numbers of one tensor of a model file are spread: what the viewer of model files asks a kernel for."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import torch

from modulekg_widgets.engine.errors import ModelFileError, shown
from modulekg_widgets.engine.files.model_file import open_file
from modulekg_widgets.engine.views.payload import number

BINS = 64
MOST_NUMBERS = 10_000_000  # of one tensor that are looked at
PIECE = 1 << 18  # numbers in memory at once, and next to each other in a sample


def histogram_line(path: str, name: str) -> str:
    """The histogram as one line of JSON in ASCII."""
    return json.dumps(tensor_histogram(path, name), allow_nan=False)


def tensor_histogram(path: str, name: str) -> dict[str, Any]:
    """Counts between edges, and the least, the most and the mean of the finite numbers of one tensor.

    `zeros` and `nan` (with the infinities) are counts; of a large tensor `sampled` of its `elements` are looked at, in
    pieces that are evenly spaced.
    """
    flat = _flat(open_file(path).tensor(name), name)
    least, most, total, finite, zeros, sampled = math.inf, -math.inf, 0.0, 0, 0, 0
    for piece in _pieces(flat):
        values = _finite(piece)
        sampled += piece.numel()
        finite += values.numel()
        zeros += int((values == 0).sum())
        if values.numel():
            least, most = min(least, float(values.min())), max(most, float(values.max()))
            total += float(values.sum())
    edges = _edges(least, most) if finite else []
    return {
        "counts": _counts(flat, edges) if finite else [],
        "edges": edges,
        "min": number(least) if finite else None,
        "max": number(most) if finite else None,
        "mean": number(total / finite) if finite else None,
        "zeros": zeros,
        "nan": sampled - finite,
        "elements": number(flat.numel()),
        "sampled": sampled,
    }


def _flat(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """All its numbers in the order in which they lie in the file, without a copy."""
    if tensor.is_complex() or tensor.is_quantized:
        raise ModelFileError(f"tensor {shown(name)!r} is of {tensor.dtype}: histograms are of real numbers")
    for axis in range(tensor.ndim):
        if tensor.stride(axis) == 0 and tensor.shape[axis] > 1:
            tensor = tensor.narrow(axis, 0, 1)  # the same numbers over and over
    tensor = tensor.permute(sorted(range(tensor.ndim), key=lambda axis: -tensor.stride(axis)))
    if not tensor.is_contiguous() and tensor.numel() > MOST_NUMBERS:
        raise ModelFileError(f"tensor {shown(name)!r} does not lie in one piece in the file: look at a part of it")
    return tensor.reshape(-1)


def _pieces(flat: torch.Tensor) -> Iterator[torch.Tensor]:
    """All, or evenly spaced pieces of it."""
    count = flat.numel()
    if count <= MOST_NUMBERS:
        yield from (flat[at : at + PIECE] for at in range(0, count, PIECE))
        return
    pieces = MOST_NUMBERS // PIECE
    for at in range(pieces):
        start = at * (count - PIECE) // (pieces - 1)
        yield flat[start : start + PIECE]


def _finite(piece: torch.Tensor) -> torch.Tensor:
    values = piece.to(torch.float64)
    return values[values.isfinite()]


def _edges(least: float, most: float) -> list[float]:
    """Of equal bins; around a single number as wide as one."""
    if least == most:
        half = max(0.5, abs(least) * 1e-6)
        least, most = max(least - half, -1.79e308), min(most + half, 1.79e308)
    # their difference may be too large for a float
    return [least * (1 - at / BINS) + most * (at / BINS) for at in range(BINS)] + [most]


def _counts(flat: torch.Tensor, edges: list[float]) -> list[int]:
    inner = torch.tensor(edges[1:-1], dtype=torch.float64)
    counts = torch.zeros(BINS, dtype=torch.int64)
    for piece in _pieces(flat):
        counts += torch.bincount(torch.bucketize(_finite(piece), inner, right=True), minlength=BINS)
    return counts.tolist()
