"""Costs that models of libraries get while they are indexed, without a trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.knowledge.prediction.published import published

BATCH = ((torch.empty(2, 4, device="meta"),), {})


class Builder:
    """Builds a layer, and says how it is called."""

    __name__ = "layer"

    def __init__(self, example: Any = BATCH) -> None:
        self._example = example

    def __call__(self) -> nn.Module:
        return nn.Linear(4, 3)

    def example(self, model: nn.Module) -> Any:
        assert isinstance(model, nn.Linear)
        return self._example


def of(builder: Any) -> Any:
    return mk.index_models({"layer": builder}).contents().models["layer"]


def test_products_count_and_inputs_are_known() -> None:
    found = of(Builder())
    assert found.flops == 2 * 2 * 4 * 3
    assert found.inputs == ((2, 4),)


@pytest.mark.parametrize("builder", [Builder(None), Builder(((torch.empty(2, 5, device="meta"),), {})), nn.Identity])
def test_what_does_not_say_or_does_not_run_has_no_cost(builder: Any) -> None:
    found = of(builder)
    assert (found.flops, found.inputs) == (None, None)


@pytest.mark.parametrize("name", ["resnet18", "squeezenet1_1", "mobilenet_v3_small", "vit_b_16"])
def test_the_cost_of_torchvision_is_near_what_it_publishes(name: str) -> None:
    kg = mk.index_models({name: mk.torchvision_builders()[name]})
    assert kg.contents().models[name].flops == pytest.approx(published()[name].flops, rel=0.03)


def test_timm_and_transformers() -> None:
    pytest.importorskip("timm")
    pytest.importorskip("transformers")
    builders = {**mk.timm_builders(["resnet18"]), **mk.transformers_builders(["bert", "t5", "vit"])}
    models = mk.index_models(builders).contents().models
    assert models["resnet18"].inputs == ((1, 3, 224, 224),)
    assert models["bert"].inputs == ((1, 128),)
    assert models["t5"].inputs == ((1, 128), (1, 128))
    assert all(model.flops and model.flops > 1e8 for model in models.values())
