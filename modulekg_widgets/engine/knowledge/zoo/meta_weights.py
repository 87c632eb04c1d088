"""Context manager that builds models with weights on the meta device, without memory or initialisation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode

_FACTORIES = frozenset({torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.full})
_RANDOM = frozenset({torch.Tensor.normal_, torch.Tensor.uniform_})  # write nothing there, and take a millisecond each


class _FactoriesOnMeta(TorchFunctionMode):
    """Sends factory functions of weights to the meta device, and leaves others (`arange`, `tolist`) unchanged.

    Random numbers for what is there are not drawn.
    """

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[torch.Tensor, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if func in _FACTORIES:
            return func(*args, **{**(kwargs or {}), "device": "meta"})
        if func in _RANDOM and args and args[0].is_meta:
            return args[0]
        return func(*args, **(kwargs or {}))


@contextmanager
def meta_weights() -> Iterator[None]:
    """Builds modules with weights on the meta device, also those that compute in their constructor."""
    with _FactoriesOnMeta():
        yield
