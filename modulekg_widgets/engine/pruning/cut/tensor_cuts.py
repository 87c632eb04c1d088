"""Cuts and masks of single tensors, for the model-wide cut and for authors of adapters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from modulekg_widgets.engine.axes.cut_analysis import position_mask
from modulekg_widgets.engine.errors import CutError, a_type, printable
from modulekg_widgets.engine.pruning.cut.edits import TensorEdit, check_sliceable
from modulekg_widgets.engine.pruning.cut.transaction import Write, attribute_write, commit, describe_tensor

UNNAMED = "the tensor"


class TensorContent(NamedTuple):
    """The memory of a tensor, under an alias, and its gradient."""

    data: torch.Tensor
    grad: torch.Tensor | None

    @classmethod
    def of(cls, name: str, tensor: torch.Tensor) -> TensorContent:
        grad = tensor.grad if tensor.is_leaf else None
        if grad is not None and grad.layout is not torch.strided:
            raise CutError(f"{printable(name)} has a sparse gradient, which cannot follow: call zero_grad() first")
        return cls(tensor.data, grad)


def set_content(tensor: torch.Tensor, content: TensorContent) -> None:
    """Give a leaf new memory and gradient; it stays the same object, with hooks and ties."""
    tensor.grad = None
    if content.data.is_floating_point() or content.data.is_complex():
        # what collects the gradients is made anew for another dtype alone; for another shape it would refuse them
        other = torch.float16 if content.data.dtype is torch.float32 else torch.float32
        tensor.data = torch.empty(0, dtype=other, device=content.data.device)
    tensor.data = content.data
    tensor.grad = content.grad


@dataclass(frozen=True, slots=True)
class CutTensor:
    """A leaf that is cut in place, with its old content."""

    edit: TensorEdit
    before: TensorContent

    @classmethod
    def of(cls, tensor: torch.Tensor, edit: TensorEdit) -> CutTensor:
        return cls(edit, TensorContent.of(edit.names[0], tensor))

    def cut(self, tensor: torch.Tensor, data: torch.Tensor | None = None) -> Write:
        """The write that leaves the remaining slices, or `data`."""
        grad = self.before.grad
        data = self.edit.slice(self.before.data) if data is None else data
        after = TensorContent(data, None if grad is None else self.edit.slice(grad))
        return Write(partial(set_content, tensor), self.before, after)

    def undo(self, tensor: torch.Tensor) -> Write:
        """The write of the old memory; raises `CutError` for another dtype or device."""
        _check_kind(self.edit, tensor, self.before.data)
        return Write(partial(set_content, tensor), TensorContent.of(self.edit.names[0], tensor), self.before)

    def restore(self, tensor: torch.Tensor, part: torch.Tensor | None = None) -> Write:
        """The write that puts removed slices back with zero gradients; the others stay, or are `part`."""
        now = TensorContent.of(self.edit.names[0], tensor)
        grad = None if now.grad is None else self.edit.scatter(now.grad)
        data = self.edit.scatter(now.data if part is None else part, self.before.data)
        return Write(partial(set_content, tensor), now, TensorContent(data, grad))


@dataclass(frozen=True, slots=True)
class ZeroedTensor:
    """A tensor with slices that are set to zero in place, and a copy of its old values."""

    edit: TensorEdit
    before: torch.Tensor

    @classmethod
    def of(cls, tensor: torch.Tensor, edit: TensorEdit) -> ZeroedTensor:
        return cls(edit, tensor.detach().clone())

    def zero(self, tensor: torch.Tensor) -> Write:
        # the write goes by an alias that shares the version: a graph that still needs the values is told
        return Write(tensor.detach().copy_, self.before, self.edit.scatter(self.edit.slice(self.before)))

    def undo(self, tensor: torch.Tensor) -> Write:
        """The write of the old bytes; raises `CutError` for another dtype or device."""
        _check_kind(self.edit, tensor, self.before)
        return Write(tensor.detach().copy_, tensor.detach().clone(), self.before)

    def restore(self, tensor: torch.Tensor) -> Write:
        """The write that puts zeroed slices back; the others stay."""
        now = tensor.detach().clone()
        return Write(tensor.detach().copy_, now, self.edit.scatter(self.edit.slice(now), self.before))


def _check_kind(edit: TensorEdit, tensor: torch.Tensor, before: torch.Tensor) -> None:
    if (tensor.dtype, tensor.device) != (before.dtype, before.device):
        raise CutError(
            f"{printable(edit.names[0])} was {describe_tensor(before)} and is {describe_tensor(tensor)}: "
            "move the model back before you undo, or restore"
        )


# ------------------------------------------------------------ for adapters


class TensorReceipt:
    """Undoes one `cut_tensor` or `zero_tensor`; it can be used once."""

    def __init__(self, change: CutTensor | ZeroedTensor) -> None:
        self.change = change
        self.spent = False

    def __repr__(self) -> str:
        done = "cut" if isinstance(self.change, CutTensor) else "zeroed"
        removed = {at: self.change.edit.shape[at] - len(kept) for at, kept in self.change.edit.kept.items()}
        what = ", ".join(f"{count} of {self.change.edit.shape[at]} in dimension {at}" for at, count in removed.items())
        return f"<TensorReceipt: {done} {what}{', spent' if self.spent else ''}>"


def cut_tensor(tensor: torch.Tensor, index: Iterable[int], dim: int = 0) -> TensorReceipt:
    """Remove positions of a dimension from a tensor in place; a Parameter stays the same object.

    Its gradient is cut alike.

    Parameters
    ----------
    tensor : torch.Tensor
        A leaf, such as a Parameter.
    index : iterable of int
        Positions of the dimension.
    dim : int, default 0
        The dimension.

    Returns
    -------
    TensorReceipt
        The way back, for `mk.pruning.uncut_tensor`.

    Raises
    ------
    CutError
        For positions that do not exist, when none would be left, and for what is not a leaf.

    Examples
    --------
    >>> import torch
    >>> import modulekg_widgets as mk
    >>> weight = torch.nn.Parameter(torch.arange(6.0).reshape(3, 2))
    >>> receipt = mk.pruning.cut_tensor(weight, [1])
    >>> weight.tolist()
    [[0.0, 1.0], [4.0, 5.0]]
    """
    kept = CutTensor.of(tensor, _unnamed_edit(tensor, index, dim))
    return commit([kept.cut(tensor)], TensorReceipt(kept))


def uncut_tensor(tensor: torch.Tensor, receipt: TensorReceipt) -> None:
    """Put back the slices that `cut_tensor` removed, byte for byte; the others keep what was trained since.

    Parameters
    ----------
    tensor : torch.Tensor
        The tensor.
    receipt : TensorReceipt
        What `mk.pruning.cut_tensor` gave.

    Raises
    ------
    CutError
        When the receipt is spent or the tensor has not the shape that it was left with.

    Examples
    --------
    >>> import torch
    >>> import modulekg_widgets as mk
    >>> weight = torch.nn.Parameter(torch.arange(6.0).reshape(3, 2))
    >>> receipt = mk.pruning.cut_tensor(weight, [1])
    >>> mk.pruning.uncut_tensor(weight, receipt)
    >>> weight.tolist()
    [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    """
    commit(_restoring_writes(tensor, receipt, CutTensor), None)


def zero_tensor(tensor: torch.Tensor, index: Iterable[int], dim: int = 0) -> TensorReceipt:
    """Set positions of a dimension of a tensor to zero in place.

    Parameters
    ----------
    tensor : torch.Tensor
        A leaf, such as a Parameter.
    index : iterable of int
        Positions of the dimension.
    dim : int, default 0
        The dimension.

    Returns
    -------
    TensorReceipt
        The way back, for `mk.pruning.unzero_tensor`.

    Raises
    ------
    CutError
        For positions that do not exist, when none would be left, and for what is not a leaf.

    Examples
    --------
    >>> import torch
    >>> import modulekg_widgets as mk
    >>> weight = torch.nn.Parameter(torch.arange(6.0).reshape(3, 2))
    >>> receipt = mk.pruning.zero_tensor(weight, [1])
    >>> weight.tolist()
    [[0.0, 1.0], [0.0, 0.0], [4.0, 5.0]]
    """
    kept = ZeroedTensor.of(tensor, _unnamed_edit(tensor, index, dim))
    return commit([kept.zero(tensor)], TensorReceipt(kept))


def unzero_tensor(tensor: torch.Tensor, receipt: TensorReceipt) -> None:
    """Put back the slices that `zero_tensor` set to zero, byte for byte; the others keep what was trained since.

    Parameters
    ----------
    tensor : torch.Tensor
        The tensor.
    receipt : TensorReceipt
        What `mk.pruning.zero_tensor` gave.

    Raises
    ------
    CutError
        When the receipt is spent or the tensor has not the shape that it was left with.

    Examples
    --------
    >>> import torch
    >>> import modulekg_widgets as mk
    >>> weight = torch.nn.Parameter(torch.arange(6.0).reshape(3, 2))
    >>> receipt = mk.pruning.zero_tensor(weight, [1])
    >>> mk.pruning.unzero_tensor(weight, receipt)
    >>> weight.tolist()
    [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    """
    commit(_restoring_writes(tensor, receipt, ZeroedTensor), None)


def _restoring_writes(
    tensor: torch.Tensor, receipt: TensorReceipt, kind: type[CutTensor] | type[ZeroedTensor]
) -> list[Write]:
    kept = receipt.change
    if not isinstance(kept, kind):
        raise CutError(f"{receipt} is undone by {'un' + ('cut' if kind is ZeroedTensor else 'zero')}_tensor")
    shape = kept.edit.shape_after if kind is CutTensor else kept.edit.shape
    if receipt.spent or tuple(tensor.shape) != shape:
        raise CutError(f"{receipt} works once, for a tensor of shape {list(shape)}: got {describe_tensor(tensor)}")
    return [kept.restore(tensor), attribute_write(receipt, "spent", True)]


def _unnamed_edit(tensor: torch.Tensor, index: Iterable[int], dim: int) -> TensorEdit:
    """The edit of an unnamed tensor."""
    if not isinstance(tensor, torch.Tensor):
        raise CutError(f"got {a_type(tensor)}: pass a tensor")
    check_sliceable(UNNAMED, tensor)
    if tensor.grad_fn is not None:
        raise CutError("the tensor is the result of a computation, which knows its shape: pass tensor.detach()")
    if not -tensor.dim() <= dim < tensor.dim():
        raise CutError(f"the tensor has shape {list(tensor.shape)}: there is no dimension {dim}")
    at = dim % tensor.dim()
    kept = ~position_mask(index, tensor.shape[at], f"dimension {at} of the tensor")
    if not kept.any():
        raise CutError(f"dimension {at} of the tensor would lose all of its positions: keep at least one")
    return TensorEdit((UNNAMED,), tuple(tensor.shape), {at: np.flatnonzero(kept)})
