"""What is recorded of a call: the operator, its arguments and results, with a `Value` where a tensor stood."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch


class Value:
    """What stands for a tensor: it has a shape and a type, and need not have data."""

    __slots__ = ()
    shape: tuple[int, ...]
    dtype: torch.dtype

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


class RecordedCall(Protocol):
    """One call of an operator."""

    overload: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: list[Any]  # the values among the arguments, in order
    result: Any

    @property
    def where(self) -> str:
        """Operator, module path and source line in one line of text."""
        ...


@dataclass(frozen=True, slots=True)
class Unknown:
    """A call that no rule or formula knows, or that made shapes or Python values of data."""

    operator: str
    module: str
    source: str
    remedy: str = field(default="", repr=False)


def nodes_in(value: Any) -> list[Any]:
    """The values in a recorded structure, in order."""
    if isinstance(value, Value):
        return [value]
    return [node for part in value for node in nodes_in(part)] if isinstance(value, list | tuple) else []


def without_data(value: Value) -> torch.Tensor:
    """A tensor without data of a value's shape and type."""
    return torch.empty(value.shape, dtype=value.dtype, device="meta")
