"""Names: what stands at one, what is put there, and all of a class."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any

import pytest
import torch
import torchvision
from torch import nn
from torch.nn.utils import parametrizations

import modulekg_widgets as mk
from checks.model_state import unchanged
from models.zoo import zoo_model
from rewriting.samples import Block, Net, net

get, set_, find = mk.rewrite.get, mk.rewrite.set, mk.rewrite.find


@pytest.mark.parametrize("prefix", ["", "self."])
def test_get_by_name(prefix: str) -> None:
    model, _ = net()
    assert get(model, f"{prefix}blocks.1.conv") is model.blocks[1].conv
    assert get(model, f"{prefix}again.conv.weight") is model.blocks[0].conv.weight
    assert get(model, f"{prefix}stem.1.running_mean") is model.stem[1].running_mean
    assert get(model, f"{prefix}head.out_features") == 5
    assert get(model, "") is get(model, "self") is model


def test_every_name_that_torch_gives() -> None:
    model = zoo_model("googlenet")
    with unchanged(model):
        for pairs in (model.named_modules(), model.named_parameters(), model.named_buffers()):
            assert all(get(model, name) is value for name, value in pairs)


def test_a_child_that_is_called_self() -> None:
    model = nn.Sequential(OrderedDict(self=nn.Linear(2, 2)))
    assert get(model, "self") is model[0]
    assert get(model, "self.weight") is model[0].weight


def test_names_with_dots() -> None:
    model = nn.Module()
    model._modules["a.b"] = nn.Sequential(nn.ReLU())
    model._modules["a"] = nn.Sequential(OrderedDict(b=nn.Sequential(nn.Tanh(), nn.ELU())))
    assert type(get(model, "a.b.0")) is nn.ReLU
    assert type(get(model, "a.b.1")) is nn.ELU


def test_set_in_place_and_in_order() -> None:
    model, _ = net()
    names = list(model._modules)
    new = nn.Linear(4, 9)
    set_(model, "self.head", new)
    assert model.head is new
    assert list(model._modules) == names
    weight = nn.Parameter(torch.zeros(9, 4))
    set_(model, "head.weight", weight)
    assert model.head.weight is weight
    set_(model, "stem.1.running_var", torch.ones(4))
    set_(model, "head.bias", None)
    set_(model, "head.out_features", 7)
    assert model.head.bias is None
    assert model.head.out_features == 7
    assert dict(model.named_parameters())["head.weight"] is weight


def test_set_changes_one_slot_of_a_shared_module() -> None:
    model, _ = net()
    old = model.again
    set_(model, "again", Block())
    assert model.blocks[0] is old
    assert model.again is not old


def test_a_parametrised_weight_is_read_and_written() -> None:
    model = nn.Sequential(parametrizations.orthogonal(nn.Linear(3, 3)))
    assert torch.equal(get(model, "0.weight"), model[0].weight)
    set_(model, "0.weight", torch.eye(3))
    torch.testing.assert_close(model[0].weight, torch.eye(3))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("", nn.ReLU(), "the model itself cannot be set"),
        ("haed", nn.ReLU(), "did you mean 'head'"),
        ("head.wieght", nn.Parameter(torch.ones(1)), "there is no 'head.wieght'"),
        ("head", 3, "'head' is a module, got an int"),
        ("head", nn.Linear, "'head' is a module, got a type"),
        ("head.weight", torch.ones(5, 4), "is a parameter, got a Tensor: pass an nn.Parameter"),
        ("stem.1.running_mean", [0.0], "is a buffer, got a list"),
        (3, nn.ReLU(), "names are text"),
    ],
)
def test_what_cannot_be_set(name: Any, value: Any, message: str) -> None:
    model, x = net()
    with unchanged(model, x), pytest.raises(mk.ModuleKGError, match=message):
        set_(model, name, value)


def test_a_module_for_an_attribute_that_was_none_is_registered() -> None:
    model = torchvision.models.resnet18(weights=None)
    set_(model, "layer1.1.downsample", nn.Conv2d(64, 64, 1))
    assert "layer1.1.downsample.weight" in model.state_dict()
    assert "layer1.1.downsample" in find(model, nn.Conv2d)


def test_what_the_class_computes() -> None:
    class Computed(nn.Module):
        @property
        def width(self) -> int:
            return 3

        @property
        def broken(self) -> int:
            raise AttributeError("not here")

    model = nn.Sequential(Computed())
    assert get(model, "0.width") == 3
    with pytest.raises(mk.ModuleKGError, match=r"'0\.width' cannot be set"):
        set_(model, "0.width", 4)
    with pytest.raises(mk.ModuleKGError, match=r"'0\.broken' has no value"):
        get(model, "0.broken")


def test_deep_names_take_no_time() -> None:
    model = inner = nn.Sequential()
    for _ in range(3000):
        deeper = nn.Sequential()
        inner.add_module("a", deeper)
        inner = deeper
    start = time.process_time()
    assert get(model, ".".join("a" * 3000)) is inner
    assert time.process_time() - start < 2


def test_a_module_cannot_hold_itself() -> None:
    model, _ = net()
    with pytest.raises(mk.ModuleKGError, match="holds the module"):
        set_(model, "blocks.0.conv", nn.Sequential(model))


def test_find_agrees_with_a_plain_loop() -> None:
    for name in ("resnet18", "efficientnet_b0", "vit_b_16", "fasterrcnn_resnet50_fpn"):
        model = zoo_model(name)
        with unchanged(model):
            for cls in (nn.Conv2d, nn.BatchNorm2d, nn.Linear, nn.Sequential):
                exact = [path for path, module in model.named_modules() if type(module) is cls]
                assert find(model, cls, include_super_class=False) == exact
            leaf = [path for path, module in model.named_modules() if isinstance(module, nn.modules.conv._ConvNd)]
            assert find(model, nn.modules.conv._ConvNd) == leaf


def test_subclasses_match_and_what_is_inside_a_match_is_passed_over() -> None:
    model, _ = net()
    assert find(model, nn.Module) == [""]
    assert find(model, nn.Module, include_super_class=False) == []
    assert find(model, nn.Sequential) == ["stem", "tail"]
    assert find(model.blocks, Block) == ["0", "1"]
    assert find(model, (Block, nn.Linear)) == ["blocks.0", "blocks.1", "tail.0", "head"]
    misc = torchvision.ops.misc.Conv2dNormActivation(3, 4)
    assert find(misc, nn.Sequential) == [""]
    assert find(misc, nn.Sequential, include_super_class=False) == []


def test_a_parametrised_layer_is_of_the_class_that_the_user_wrote() -> None:
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 3)))
    assert find(model, nn.Linear, include_super_class=False) == find(model, nn.Linear) == ["0"]


def test_a_compiled_model_has_the_names_of_the_plain_one() -> None:
    model, _ = net()
    assert find(torch.compile(model), nn.Linear) == ["head"]
    assert get(torch.compile(model), "head") is model.head


class Marked:
    """Stands beside nn.Module among the bases of some modules."""


class MarkedLinear(Marked, nn.Linear):
    pass


def test_a_shared_module_inside_a_match_and_outside_of_it() -> None:
    class Holding(nn.Linear):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__(2, 2)
            self.inner = inner

    shared = nn.Linear(2, 2)
    model = nn.ModuleList([Holding(shared), shared])
    assert find(model, nn.Linear) == ["0", "1"]
    assert find(model, nn.Linear | nn.ReLU) == ["0", "1"]
    assert find(model, nn.Linear, include_super_class=False) == ["0.inner"]


def test_a_class_beside_module() -> None:
    assert find(nn.Sequential(nn.ReLU(), MarkedLinear(1, 1)), Marked) == ["1"]


@pytest.mark.parametrize("what", [int, "Conv2d", print, None, [], lambda x: x, nn.Conv2d(1, 1, 1)])
def test_what_cannot_be_looked_for(what: Any) -> None:
    with pytest.raises(mk.ModuleKGError, match=r"nn\.Conv2d|subclass of torch\.nn\.Module|empty list"):
        find(Net(), what)


def test_no_module_is_an_error() -> None:
    for call in (lambda: find("x", nn.Linear), lambda: get(nn.Linear, "weight"), lambda: set_(3, "a", None)):  # type: ignore[arg-type]
        with pytest.raises(mk.ModuleKGError, match=r"torch\.nn\.Module"):
            call()
