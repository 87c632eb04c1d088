"""Models of torchvision and timm by name, and the smallest inputs that torchvision's take."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from modulekg_widgets.engine.knowledge.zoo.meta_weights import meta_weights
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders


def float_models() -> list[str]:
    """The names of the models that are not quantised."""
    return [name for name in torchvision_builders() if not name.startswith("quantized_")]


def family(name: str) -> str:
    """The part of torchvision that a model comes from: detection, video and so on, or classification."""
    from torchvision import models

    home = models.get_model_builder(name).__module__.removeprefix("torchvision.models.")
    part = home.partition(".")[0]
    return part if part in ("detection", "segmentation", "video", "optical_flow") else "classification"


def example_inputs(name: str, seed: int = 0) -> tuple[Any, ...]:
    """One example input of a model."""
    from torchvision import models

    generator = torch.Generator().manual_seed(seed)

    def image(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator)

    kind = family(name)
    if kind == "detection":
        return ([image(3, 320, 320)],)
    if kind == "segmentation":
        return (image(1, 3, 64, 64),)
    if kind == "video":
        size = 64 if name.startswith("swin3d") else 112 if "_" in name and not name.startswith("mvit") else 224
        return (image(1, 3, 16, size, size),)
    if kind == "optical_flow":
        return (image(1, 3, 128, 128), image(1, 3, 128, 128))
    weights = list(models.get_model_weights(name))
    smallest = weights[0].meta.get("min_size", (1, 1)) if weights else (1, 1)
    # a transformer with absolute positions takes the one size that it is built for
    size = 224 if name.startswith(("vit", "maxvit")) else max(64, *smallest)
    return (image(1, 3, size, size),)


def zoo_case(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """A model in eval mode with random weights, and its inputs."""
    torch.manual_seed(0)
    model = torchvision_builders()[name]().eval()
    resize = getattr(model, "transform", None)
    if resize is not None and not name.startswith("ssd"):
        resize.min_size, resize.max_size = (128,), 128  # detectors scale every image up to 800 before they look at it
    return model, example_inputs(name)


def timm_families() -> dict[str, str]:
    """The smallest-named model of each of timm's files."""
    timm = pytest.importorskip("timm")

    every: dict[str, list[str]] = {}
    for name in timm.list_models():
        every.setdefault(timm.models.model_entrypoint(name).__module__.rpartition(".")[2], []).append(name)
    hints = ("nano", "tiny", "_t", "small", "_s", "_18", "26", "b0", "")
    return {
        part: next(name for hint in hints for name in names if hint in name) for part, names in sorted(every.items())
    }


@cache
def zoo_model(name: str) -> nn.Module:
    """A torchvision model without memory for its weights; not to be changed, since tests share it."""
    with meta_weights():
        return torchvision_builders()[name]()
