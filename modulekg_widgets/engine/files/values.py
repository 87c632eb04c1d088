"""The values of two tensors compared a part at a time, so that neither need be in memory as a whole."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

PART = 1 << 22  # elements compared at a time
MOST_REPEATED = 16  # times that a view may be larger than what it is stored in


def largest_difference(one: torch.Tensor, other: torch.Tensor) -> float | None:
    """The largest difference of two tensors of the same shape and dtype; None where all bytes are the same.

    NaN where one has a number and the other none, 0 where the same numbers are written in other bits, as -0.
    """
    one, other = _without_repeats(one, other)
    largest = None
    for ours, theirs in _parts(one, other):
        if not torch.equal(ours.view(torch.uint8), theirs.view(torch.uint8)):
            found = _difference(ours, theirs)
            if largest is None or found > largest or math.isnan(found):
                largest = found
            if math.isnan(found):
                break
    return largest


def are_mostly_repeats(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether views repeat what they are stored in so often that to compare them would take for ever."""
    one, other = _without_repeats(one, other)
    stored = one.untyped_storage().nbytes() + other.untyped_storage().nbytes()
    return one.numel() > PART and one.numel() * one.element_size() > MOST_REPEATED * stored


def _without_repeats(one: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of dimensions that repeat the same numbers on both sides, the first: a view may be larger than any memory."""
    for dim in range(one.dim()):
        if one.shape[dim] > 1 and one.stride(dim) == other.stride(dim) == 0:
            one, other = one.narrow(dim, 0, 1), other.narrow(dim, 0, 1)
    return one, other


def _difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    wide = torch.complex128 if ours.is_complex() else torch.float64
    ours, theirs = ours.to(wide), theirs.to(wide)
    differ = (ours - theirs).abs()
    differ[(ours == theirs) | (ours.isnan() & theirs.isnan())] = 0  # infinities of one sign, and no numbers at all
    return differ.max().item()


def _parts(one: torch.Tensor, other: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The same parts of both, flat; along the first dimension where one is not stored in one piece."""
    if one.is_contiguous() and other.is_contiguous():
        one, other = one.reshape(-1), other.reshape(-1)
    if not one.dim() or not one.numel():
        yield _flat(one), _flat(other)
        return
    rows = max(1, PART * one.shape[0] // one.numel())
    for start in range(0, one.shape[0], rows):
        yield _flat(one[start : start + rows]), _flat(other[start : start + rows])


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.resolve_conj().resolve_neg()
    flat = (plain.int_repr() if plain.is_quantized else plain).reshape(-1).cpu()
    return flat if flat.stride() == (1,) else flat.clone(memory_format=torch.contiguous_format)
