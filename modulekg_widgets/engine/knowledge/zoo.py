"""torchvision's models by name, built without memory for their weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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


def torchvision_builders() -> dict[str, Callable[..., nn.Module]]:
    """A builder for each model that torchvision lists, without pretrained weights.

    Returns
    -------
    dict
        Functions by the names of their models; each takes the keywords of torchvision's own, such as `num_classes`.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> mk.torchvision_builders()["squeezenet1_1"](num_classes=7).num_classes
    7
    """
    from torchvision import models

    return {name: TorchvisionBuilder(name) for name in models.list_models()}


def torchvision_weights(entry: str = "IMAGENET1K_V1") -> dict[str, tuple[str, dict[str, Any]]]:
    """For each model with weights called `entry`: the module that defines it, and what is published of the weights.

    Nothing is downloaded.
    """
    from torchvision import models

    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for name in models.list_models():
        weights = models.get_model_weights(name).__members__.get(entry)
        if weights is not None:
            found[name] = (models.get_model_builder(name).__module__, weights.value.meta)
    return found


@dataclass(frozen=True, slots=True)
class TorchvisionBuilder:
    """Builds the model of a name without pretrained weights; takes the keywords of torchvision's own builder."""

    name: str

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, **changes: Any) -> nn.Module:
        from torchvision import models

        return models.get_model(self.name, **{**_options(models.get_model_builder(self.name)), **changes})


def _options(builder: Callable[..., nn.Module]) -> dict[str, Any]:
    """What keeps a builder from downloading, and from an initialisation of minutes that is announced to go."""
    signature = inspect.signature(builder)
    options: dict[str, Any] = {key: None for key in ("weights", "weights_backbone") if key in signature.parameters}
    kind = signature.return_annotation
    bases = kind.__mro__ if isinstance(kind, type) else ()
    if any(_takes_undecided(base, "init_weights") for base in bases if base is not object):
        options["init_weights"] = False
    return options


def _takes_undecided(cls: type, keyword: str) -> bool:
    """Whether the constructor has a keyword whose default is neither yes nor no."""
    parameter = inspect.signature(cls.__init__).parameters.get(keyword)
    return parameter is not None and parameter.default is None
