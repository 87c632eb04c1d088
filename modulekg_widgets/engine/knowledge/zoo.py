"""torchvision's models by name, built without memory for their weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
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


def torchvision_builders() -> dict[str, Callable[[], nn.Module]]:
    """A builder for each model that torchvision lists, by its name, without pretrained weights."""
    from torchvision import models

    return {name: _builder(name) for name in models.list_models()}


def _builder(name: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from torchvision import models

        options: dict[str, Any] = {"weights": None}
        if name.endswith(("googlenet", "inception_v3")):
            options["init_weights"] = False  # their initialisation draws from scipy for minutes, and is announced to go
        if "rcnn" in name or name.startswith(("fcos", "retinanet", "ssd", "deeplab", "fcn", "lraspp")):
            options["weights_backbone"] = None
        return models.get_model(name, **options)

    build.__name__ = name
    return build
