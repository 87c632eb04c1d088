"""One function call of a forward, as a module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.rewriting.function_modules.functions import Function, function_name
from modulekg_widgets.engine.tracing.source import Source


@dataclass(frozen=True)
class Layout:
    """What stands for a tensor in the record of a call."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    held: bool = False  # a parameter or buffer of the module that calls

    def empty(self) -> torch.Tensor:
        """A tensor of this layout that has no data."""
        return torch.empty(self.shape, dtype=self.dtype, device="meta")


@dataclass(frozen=True, eq=False)
class CallSite:
    """Where a forward calls a function: the source line, and how many calls of it that line has made before."""

    name: str  # among the function modules of its owner
    function: Function
    source: Source
    index: int
    args: tuple[Any, ...]  # of the recorded call, with layouts for tensors
    kwargs: Mapping[str, Any]
    result: Any
    by_writing: bool = False  # what it returns is not used, what it writes is

    def __deepcopy__(self, memo: Any) -> CallSite:
        return self  # it says where code stands, which copies share

    def __str__(self) -> str:
        again = f", call {self.index + 1}" if self.index else ""
        return f"{function_name(self.function)} at {self.source}{again}"


class FunctionModule(nn.Module):
    """A function that a forward calls, as a module: it takes what the function takes and gives what it gives."""

    def __init__(self, site: CallSite) -> None:
        super().__init__()
        self.site = site

    @property
    def function(self) -> Function:
        """The function that is called."""
        return self.site.function

    @property
    def source(self) -> Source:
        """The line that calls it."""
        return self.site.source

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.site.function(*args, **kwargs)

    def extra_repr(self) -> str:
        return str(self.site)
