"""Models of other libraries without memory for their weights."""

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models.zoo import zoo_model
from modulekg_widgets.engine.errors import IndexingError, UnknownNameError
from modulekg_widgets.engine.knowledge.zoo.meta_weights import meta_weights
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders


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


def test_random_numbers_are_drawn_for_what_takes_memory_alone() -> None:
    torch.manual_seed(0)
    expected = torch.empty(3).normal_(), torch.empty(3).uniform_()
    weight, kept = torch.empty(2, 3, device="meta"), [torch.tensor([0.0] * 3), torch.tensor([0.0] * 3)]
    torch.manual_seed(0)
    with meta_weights():
        assert weight.normal_() is weight
        assert nn.init.uniform_(weight) is weight
        kept[0].normal_()
        kept[1].uniform_()
    assert all(torch.equal(one, other) for one, other in zip(kept, expected, strict=True))


def test_every_model_that_torchvision_lists_has_a_builder() -> None:
    builders = torchvision_builders()
    assert len(builders) >= 121
    assert all(builder.__name__ == name for name, builder in builders.items())


def test_architectures_of_timm_by_name_with_or_without_a_tag() -> None:
    pytest.importorskip("timm")
    builders = mk.timm_builders(["resnet10t", "vit_tiny_patch16_224.augreg_in21k"])
    assert list(builders) == ["resnet10t", "vit_tiny_patch16_224"]
    with meta_weights():
        assert builders["resnet10t"](num_classes=7).num_classes == 7
    assert len(mk.timm_builders()) > 1000
    with pytest.raises(UnknownNameError, match="resnet10t"):
        mk.timm_builders(["resnet10tt"])


def test_types_of_transformers_are_built_with_few_layers_and_configurations_as_they_are() -> None:
    transformers = pytest.importorskip("transformers")
    own = {
        "tiny": {"model_type": "bert", "hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 6},
        "object": transformers.GPT2Config(n_embd=8, n_head=2, n_layer=3),
    }
    builders = mk.transformers_builders(["llama", "mixtral"], configs=own)
    assert list(builders) == ["llama", "mixtral", "tiny", "object"]
    with meta_weights():
        models = {name: builder() for name, builder in builders.items()}
        assert builders["tiny"](hidden_size=48).config.hidden_size == 48
    assert [models[name].config.num_hidden_layers for name in builders] == [4, 4, 6, 3]
    assert models["mixtral"].config.num_local_experts == 4
    assert own["object"].n_layer == 3
    assert len(mk.transformers_builders()) > 300
    for wrong in ({"names": ["lama"]}, {"configs": {"x": {"hidden_size": 8}}}, {"configs": {"x": 3}}):
        with pytest.raises(UnknownNameError):
            mk.transformers_builders(**wrong)


def test_a_type_that_needs_real_numbers_is_not_built_with_real_weights() -> None:
    built: list[bool] = []

    class Large:
        only_without_memory = True

        def __call__(self) -> nn.Module:
            layer = nn.Linear(2, 2)
            built.append(layer.weight.is_meta)
            layer.weight.tolist()
            return layer

    with pytest.raises(IndexingError) as caught:
        mk.index_models({"large": Large()})
    assert built == [True]
    assert list(caught.value.failures) == ["large"]
