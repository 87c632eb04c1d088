"""Builders of torchvision's models by name, and the metadata of its weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import nn

from modulekg_widgets.engine.knowledge.facts.traced import CallArguments, image_call

DEFAULT_IMAGE_SIZE = 224  # pixels
WeightsMetadata: TypeAlias = dict[str, Any]  # as torchvision publishes it


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


def torchvision_weights(entry: str = "IMAGENET1K_V1") -> dict[str, tuple[str, WeightsMetadata]]:
    """For each model with weights called `entry`: the module that defines it, and what is published of the
    weights.

    Nothing is downloaded.
    """
    from torchvision import models

    found: dict[str, tuple[str, WeightsMetadata]] = {}
    for name in models.list_models():
        weights = models.get_model_weights(name).__members__.get(entry)
        if weights is not None:
            found[name] = (models.get_model_builder(name).__module__, weights.value.meta)
    return found


def image_sizes(entry: str = "IMAGENET1K_V1") -> dict[str, int]:
    """For each model with weights called `entry` the pixels of a side of the pictures that these were measured "
    "on."""
    from torchvision import models

    found: dict[str, int] = {}
    for name in models.list_models():
        weights = models.get_model_weights(name).__members__.get(entry)
        if weights is not None:
            size = getattr(weights.value.transforms, "keywords", {}).get("crop_size", DEFAULT_IMAGE_SIZE)
            found[name] = int(size[0] if isinstance(size, list | tuple) else size)
    return found


@dataclass(frozen=True, slots=True)
class TorchvisionBuilder:
    """Builds the model of a name without pretrained weights; takes the keywords of torchvision's own builder."""

    name: str

    @property
    def __name__(self) -> str:
        return self.name

    def example(self, model: nn.Module) -> CallArguments | None:
        """Returns an image of the size of the published weights; None for models that take more than an image."""
        from torchvision import models

        if models.get_model_builder(self.name).__module__.count(".") > 2:
            return None  # of detection, segmentation, video and optical flow
        weights = list(models.get_model_weights(self.name))
        size = weights[0].transforms.keywords.get("crop_size", DEFAULT_IMAGE_SIZE) if weights else DEFAULT_IMAGE_SIZE
        return image_call(3, size, size)

    def __call__(self, **changes: object) -> nn.Module:
        from torchvision import models

        return models.get_model(self.name, **{**_options(models.get_model_builder(self.name)), **changes})


def _options(builder: Callable[..., nn.Module]) -> dict[str, object]:
    """Returns arguments that prevent downloads and slow initialisation."""
    signature = inspect.signature(builder)
    options: dict[str, object] = {key: None for key in ("weights", "weights_backbone") if key in signature.parameters}
    kind = signature.return_annotation
    bases = kind.__mro__ if isinstance(kind, type) else ()
    if any(_has_undecided_default(base, "init_weights") for base in bases if base is not object):
        options["init_weights"] = False
    return options


def _has_undecided_default(cls: type, keyword: str) -> bool:
    """True if the constructor has this keyword with a default of None."""
    parameter = inspect.signature(cls.__init__).parameters.get(keyword)
    return parameter is not None and parameter.default is None
