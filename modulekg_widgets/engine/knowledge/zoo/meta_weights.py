"""Weights on the meta device while models are built: no memory, no time for an initialisation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_FACTORIES = frozenset({torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.full})
_RANDOM = frozenset({torch.Tensor.normal_, torch.Tensor.uniform_})  # write nothing there, and take a millisecond each


class _FactoriesOnMeta(TorchFunctionMode):
    """Sends the functions that make weights to the meta device and leaves others (`arange`, `tolist`) alone.

    Random numbers for what is there are not drawn.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _FACTORIES:
            return func(*args, **{**(kwargs or {}), "device": "meta"})
        if func in _RANDOM and args and args[0].is_meta:
            return args[0]
        return func(*args, **(kwargs or {}))


@contextmanager
def meta_weights() -> Iterator[None]:
    """Within it modules are built with weights on the meta device, also those that compute while they are built."""
    with _FactoriesOnMeta():
        yield
