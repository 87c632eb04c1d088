"""Models of torchvision without memory for their weights."""

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from identity.samples import zoo_model
from modulekg_widgets.engine.knowledge.zoo import meta_weights, torchvision_builders


@pytest.mark.parametrize("name", ["resnet18", "regnet_y_400mf", "swin_t"])
def test_weights_take_no_memory(name: str) -> None:
    assert all(parameter.is_meta for parameter in zoo_model(name).parameters())


def test_the_fingerprint_is_that_of_a_model_with_weights() -> None:
    assert mk.fingerprint(torchvision_builders()["squeezenet1_1"]()) == mk.fingerprint(zoo_model("squeezenet1_1"))


def test_outside_of_it_weights_are_made_as_ever() -> None:
    with meta_weights():
        inside = nn.Linear(2, 2)
    assert inside.weight.is_meta
    assert not nn.Linear(2, 2).weight.is_meta
    assert torch.zeros(1).device.type == "cpu"


def test_what_is_computed_while_building_is_computed() -> None:
    with meta_weights():
        assert torch.arange(3).tolist() == [0, 1, 2]
        assert torch.linspace(0, 1, 3).tolist() == [0, 0.5, 1]


def test_every_model_that_torchvision_lists_has_a_builder() -> None:
    builders = torchvision_builders()
    assert len(builders) >= 121
    assert all(builder.__name__ == name for name, builder in builders.items())
