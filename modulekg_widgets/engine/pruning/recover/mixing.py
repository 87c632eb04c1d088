"""How a layer makes up for what it no longer reads: what went as a mixture of what stayed, and a shifted bias."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch

from modulekg_widgets.engine.pruning.cut.edits import NewValue, TensorEdit

Tensor = torch.Tensor
RIDGE = 1e-3  # of the mean square of what is read


class Mixture(NamedTuple):
    """What was read before is nearest to what is read now times (the choice of what stayed + `added`) + `constant`."""

    added: Tensor  # (now, before)
    constant: Tensor  # (before,)


class Pairs:
    """Sums over rows of what a layer reads now, what it read before, and their products; `edit` is of its weight."""

    def __init__(self, edit: TensorEdit, reads: int, like: Tensor) -> None:
        def zeros(*size: int) -> Tensor:
            return torch.zeros(*size, dtype=wide(like), device=like.device)

        self._kept = torch.from_numpy(edit.kept[reads]).to(like.device)
        stays, size = len(self._kept), edit.shape[reads]
        self._now, self._before = zeros(stays), zeros(size)
        self._products, self._across = zeros(stays, stays), zeros(stays, size)
        self._count = 0

    def add(self, now: Tensor, before: Tensor) -> None:
        now, before = now.to(self._now.dtype), before.to(self._now.dtype)
        self._now += now.sum(0)
        self._before += before.sum(0)
        self._products += now.T @ now
        self._across += now.T @ before
        self._count += len(now)

    def are_finite(self) -> bool:
        return bool(self._products.isfinite().all()) and bool(self._across.isfinite().all())

    def mixture(self, centred: bool) -> Mixture:
        """By least squares, with a ridge towards what stayed alone; `centred`: with a constant, which a bias takes."""
        count = max(self._count, 1)
        products, across = self._products, self._across
        if centred:
            products = products - torch.outer(self._now, self._now) / count
            across = across - torch.outer(self._now, self._before) / count
        lacking = across.clone()
        lacking[:, self._kept] -= products
        ridge = RIDGE * float(products.diagonal().mean()) or 1.0
        factor, failed = torch.linalg.cholesky_ex(
            products + ridge * torch.eye(len(products), dtype=products.dtype, device=products.device)
        )
        added = torch.zeros_like(lacking) if bool(failed) else torch.cholesky_solve(lacking, factor)
        constant = torch.zeros_like(self._before)
        if centred:
            constant = (self._before - self._now @ added) / count
            constant[self._kept] -= self._now / count
        return Mixture(added, constant)


def wide(tensor: Tensor) -> torch.dtype:
    """What sums are computed in, as far as the device has it."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


@dataclass(frozen=True, slots=True)
class Correction:
    """What one layer gets on top of the slices that stay."""

    edit: TensorEdit  # of its weight
    reads: int  # the dimension along which the weight reads
    added: Tensor | None  # of the mixture, None where the weight stays as it is cut
    bias: TensorEdit | None = None
    shift: Tensor | None = None

    def needs(self) -> set[str]:
        """The parameters that it is computed of."""
        return {self.edit.names[0], *(self.bias.names if self.bias is not None else ())}

    def values(self, full: Mapping[str, Tensor]) -> dict[str, NewValue]:
        """The weight and the bias of a model with these tensors, cut and corrected."""
        found = {}
        if self.added is not None:
            name = self.edit.names[0]
            found[name] = NewValue(mixed(self.edit, self.reads, full[name], self.added))
        if self.bias is not None and self.shift is not None:
            name = self.bias.names[0]
            cut = self.bias.of(full[name])
            found[name] = NewValue((cut.to(self.shift) + self.shift).to(cut))
        return found


def mixed(edit: TensorEdit, reads: int, full: Tensor, added: Tensor) -> Tensor:
    """The slices that stay of a weight, and what is added to them along the dimension that it reads."""
    part = edit.of(full)
    part = part.clone() if part.is_inference() else part  # which could not be written
    more = _read_in_full(edit, reads, full).to(added).movedim(reads, -1) @ added.T
    return part.copy_(part.to(added) + more.movedim(-1, reads))  # with the strides that the cut gives it


def shifted(edit: TensorEdit, reads: int, makes: int, full: Tensor, constant: Tensor) -> Tensor:
    """What a constant in what a layer reads adds to its outputs that stay, where no position is padded."""
    given = _read_in_full(edit, reads, full).to(constant).movedim(reads, -1) @ constant
    at = makes - (makes > reads)
    return given.movedim(at, 0).reshape(given.shape[at], -1).sum(1)


def _read_in_full(edit: TensorEdit, reads: int, full: Tensor) -> Tensor:
    """The slices for the outputs that stay, with all that was read."""
    return TensorEdit(edit.names, edit.shape, {at: kept for at, kept in edit.kept.items() if at != reads}).of(full)
