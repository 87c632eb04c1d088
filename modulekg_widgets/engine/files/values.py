"""The values of two tensors compared a part at a time, so that neither need be in memory as a whole."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

PART = 1 << 22  # elements compared at a time


def largest_difference(one: torch.Tensor, other: torch.Tensor) -> float | None:
    """The largest difference of two tensors of the same shape and dtype; None where all bytes are the same.

    NaN where one has a number and the other none, 0 where the same numbers are written in other bits, as -0.
    """
    largest = None
    for ours, theirs in zip(_parts(one), _parts(other), strict=True):
        if not torch.equal(ours.view(torch.uint8), theirs.view(torch.uint8)):
            found = _difference(ours, theirs)
            if largest is None or found > largest or math.isnan(found):
                largest = found
            if math.isnan(found):
                break
    return largest


def _difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    wide = torch.complex128 if ours.is_complex() else torch.float64
    ours, theirs = ours.to(wide), theirs.to(wide)
    differ = (ours - theirs).abs()
    differ[(ours == theirs) | (ours.isnan() & theirs.isnan())] = 0  # infinities of one sign, and no numbers at all
    return differ.max().item()


def _parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    plain = tensor.resolve_conj().resolve_neg()
    flat = plain.int_repr().reshape(-1) if plain.is_quantized else plain.reshape(-1)
    for start in range(0, max(flat.numel(), 1), PART):
        yield flat[start : start + PART].cpu().contiguous()
