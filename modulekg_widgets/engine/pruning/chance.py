"""The same chances in every pass: a number drawn goes by how many draws came before it, not by their sizes.

A model that leaves layers out by chance would else go another way once its tensors are smaller.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from modulekg_widgets.engine.axes.precision import cast
from modulekg_widgets.engine.tracing.dataflow import OperatorNode

APART = 1_000_003  # between the seeds of one pass and those of the next


class Chances:
    """Seeds the process's generator after each operator that draws; begins anew with each pass that is traced."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.draws = 0

    def follow(self, operator: OperatorNode) -> None:
        """To be told of each operator of a trace."""
        if operator.index == 0:
            self.draws = 0
        self.ran(operator.overload)

    def ran(self, overload: Any) -> None:
        if is_drawn(overload):
            self.draws += 1
            torch.default_generator.manual_seed(self.seed * APART + self.draws)


class SameChances(TorchDispatchMode):
    """`Chances` for a pass in another `dtype` than that of the trace, where the same seed gives other numbers."""

    def __init__(self, seed: int, traced_in: torch.dtype, dtype: torch.dtype) -> None:
        super().__init__()
        self.chances = Chances(seed)
        self.traced_in = traced_in  # the default type of the trace
        self.dtype = dtype

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_drawn(func) and not any(isinstance(argument, torch.Tensor) for argument in args):
            result = self._drawn(func, args, kwargs or {})
        else:
            result = func(*args, **(kwargs or {}))
        self.chances.ran(func)
        return result

    def _drawn(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        default = torch.get_default_dtype()
        torch.set_default_dtype(self.traced_in)
        try:
            with _disable_current_modes():
                return cast(func(*args, **kwargs), self.dtype)
        finally:
            torch.set_default_dtype(default)


def is_drawn(overload: Any) -> bool:
    """Whether an operator gives random numbers."""
    return torch.Tag.nondeterministic_seeded in overload.tags
