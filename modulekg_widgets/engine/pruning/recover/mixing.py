"""How a layer makes up for what it no longer reads: what went as a mixture of what stayed, and a shift of its output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from modulekg_widgets.engine.pruning.cut.edits import Ints, NewValue, TensorEdit

Tensor = torch.Tensor
RIDGE = 1e-3  # of the mean square of what stayed


class Moments:
    """Sums over rows of values, of their products, and how many there were."""

    def __init__(self, size: int, like: Tensor) -> None:
        self.sums = torch.zeros(size, dtype=wide(like), device=like.device)
        self.products = torch.zeros(size, size, dtype=wide(like), device=like.device)
        self.count = 0

    def add(self, values: Tensor) -> None:
        values = values.to(self.sums.dtype)
        self.sums += values.sum(0)
        self.products += values.T @ values
        self.count += len(values)

    def mixing(self, kept: Ints, dropped: Ints, centred: bool) -> Tensor:
        """(kept, dropped): M such that what was dropped is nearest to what was kept times M, over the rows.

        `centred`: but for a constant, which a bias takes.
        """
        products = self.products
        if centred:
            products = products - torch.outer(self.sums, self.sums) / max(self.count, 1)
        stay, go = (torch.from_numpy(each).to(products.device) for each in (kept, dropped))
        own, across = products[stay][:, stay], products[stay][:, go]
        ridge = RIDGE * float(own.diagonal().mean()) or 1.0
        factor, failed = torch.linalg.cholesky_ex(own + ridge * torch.eye(len(own), dtype=own.dtype, device=own.device))
        return torch.zeros_like(across) if bool(failed) else torch.cholesky_solve(across, factor)


def wide(tensor: Tensor) -> torch.dtype:
    """What sums are computed in, as far as the device has it."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


@dataclass(frozen=True, slots=True)
class Correction:
    """What one layer gets on top of the slices that stay."""

    edit: TensorEdit  # of its weight
    reads: int  # the dimension along which the weight reads
    mixing: Tensor | None  # (kept, dropped), None where the weight stays as it is cut
    bias: TensorEdit | None = None
    shift: Tensor | None = None

    def needs(self) -> set[str]:
        """The parameters that it is computed of."""
        return {self.edit.names[0], *(self.bias.names if self.bias is not None else ())}

    def values(self, full: Mapping[str, Tensor]) -> dict[str, NewValue]:
        """The weight and the bias of a model with these tensors, cut and corrected."""
        found = {}
        if self.mixing is not None:
            name = self.edit.names[0]
            found[name] = NewValue(mixed(self.edit, self.reads, full[name], self.mixing))
        if self.bias is not None and self.shift is not None:
            name = self.bias.names[0]
            cut = self.bias.of(full[name])
            found[name] = NewValue((cut.to(self.shift) + self.shift).to(cut))
        return found


def mixed(edit: TensorEdit, reads: int, full: Tensor, mixing: Tensor) -> Tensor:
    """The slices that stay of a weight, with those that go added to them along the dimension that it reads."""
    others = {at: kept for at, kept in edit.kept.items() if at != reads}
    went = TensorEdit(edit.names, edit.shape, {**others, reads: dropped_by(edit, reads)}).of(full)
    part = edit.of(full)
    added = torch.tensordot(went.to(mixing), mixing, dims=([reads], [1])).movedim(-1, reads)
    return part.copy_(part.to(mixing) + added)  # with the strides that the cut gives it


def dropped_by(edit: TensorEdit, at: int) -> Ints:
    """The positions of a dimension that go."""
    return np.setdiff1d(np.arange(edit.shape[at]), edit.kept[at])
