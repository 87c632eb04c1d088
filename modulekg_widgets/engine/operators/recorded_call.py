"""A recorded operator call: operator, arguments and results, with a `Value` in place of each tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from modulekg_widgets.engine.torch_runtime.private import FakeTensor, Overload, sparse_entry_count
from modulekg_widgets.engine.torch_runtime.pytree import SEQUENCES, Args, Kwargs

SPARSE_LAYOUTS = {torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}


class Value:
    """A placeholder for a tensor: shape and dtype, with or without data."""

    __slots__ = ()
    shape: tuple[int, ...]
    dtype: torch.dtype
    stored: int | None = None  # of a sparse tensor how many elements it stores, -1 where that is not known
    is_ragged: bool = False  # whether it has rows of several lengths, one after the other in its one dimension

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


class RecordedCall(Protocol):
    """One call of an operator."""

    overload: Overload
    args: Args
    kwargs: Kwargs
    inputs: list[Any]  # the values among the arguments, in order
    result: object

    @property
    def where(self) -> str:
        """Operator, module path and source line in one line of text."""
        ...


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call that no rule or formula knows, or that made shapes or Python values of data."""

    operator: str
    module: str
    source: str
    remedy: str = field(default="", repr=False)


def nodes_in(value: Any) -> list[Any]:
    """The values in a recorded structure, in order."""
    if isinstance(value, Value):
        return [value]
    return [node for part in value for node in nodes_in(part)] if isinstance(value, SEQUENCES) else []


def meta_tensor(value: Value) -> torch.Tensor:
    """Returns a meta tensor with the shape and dtype of a value."""
    return torch.empty(value.shape, dtype=value.dtype, device="meta")


def recorded_shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """The shape that a value has for a tensor: of a nested one that of its memory, in which all rows lie."""
    return (tensor.numel(),) if tensor.is_nested and tensor.layout is torch.strided else tuple(tensor.shape)


def sparse_element_count(tensor: torch.Tensor) -> int | None:
    """Returns the number of stored elements of a sparse tensor, -1 without data, None for a dense tensor."""
    if tensor.layout is torch.strided or tensor.layout not in SPARSE_LAYOUTS:
        return None
    if tensor.is_meta or isinstance(tensor, FakeTensor):
        return -1
    if tensor.layout is not torch.sparse_coo:
        return tensor.detach().values().numel()
    return sparse_entry_count(tensor) * math.prod(tensor.shape[tensor.sparse_dim() :])
