"""Weights on the meta device while models are built: no memory, no time for an initialisation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_FACTORIES = frozenset({torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.full})


class _FactoriesOnMeta(TorchFunctionMode):
    """Sends the functions that make weights to the meta device and leaves all others (`arange`, `tolist`) alone."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _FACTORIES:
            return func(*args, **{**(kwargs or {}), "device": "meta"})
        return func(*args, **(kwargs or {}))


@contextmanager
def meta_weights() -> Iterator[None]:
    """Within it modules are built with weights on the meta device, also those that compute while they are built."""
    with _FactoriesOnMeta():
        yield
