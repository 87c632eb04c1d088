"""Depthwise-separable convolutions: what stays, how near the weights come, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from checks.model_state import unchanged
from models.functional import Lambda
from modulekg_widgets.engine.errors import RewritingError, UnknownPathError
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders
from modulekg_widgets.engine.rewriting.recipes.separable import depthwise_separable
from rewriting.recipes.samples import ResidualConvNet, copies, error, images, net, outputs

SETTINGS: dict[str, tuple[Callable[..., nn.Module], dict[str, Any], tuple[int, ...]]] = {
    "plain": (nn.Conv2d, {}, (2, 5, 9, 9)),
    "all": (nn.Conv2d, {"stride": 2, "padding": 2, "dilation": 2, "padding_mode": "reflect"}, (2, 5, 9, 8)),
    "same": (nn.Conv2d, {"padding": "same", "bias": False, "padding_mode": "circular"}, (2, 5, 9, 9)),
    "1d": (nn.Conv1d, {"stride": 3, "dilation": 2}, (2, 5, 17)),
    "3d": (nn.Conv3d, {"padding": (1, 0, 2), "bias": False}, (2, 5, 4, 5, 6)),
}


def conv_of(kind: str, **options: Any) -> tuple[nn.Sequential, torch.Tensor]:
    torch.manual_seed(0)
    cls, settings, shape = SETTINGS[kind]
    return nn.Sequential(cls(5, 7, 3, **settings, **options)), torch.randn(shape).to(options.get("dtype"))


@pytest.mark.parametrize("kind", SETTINGS)
def test_all_singular_values_are_the_layer(kind: str) -> None:
    model, x = conv_of(kind, dtype=torch.float64)
    expected, size = outputs(model, x), model[0].weight[0, 0].numel()
    separation = depthwise_separable(model, "0", multiplier=size, args=x)
    assert error(outputs(model, x), expected) < 1e-13
    assert separation.layers[0].error < 1e-13


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", SETTINGS)
def test_settings_stay(kind: str, dtype: torch.dtype) -> None:
    model, x = conv_of(kind, dtype=dtype)
    old = model.eval()[0].requires_grad_(False)
    (expected,) = outputs(model, x)
    depthwise_separable(model, args=x)
    depthwise, pointwise = model[0].depthwise, model[0].pointwise
    for name in ("kernel_size", "stride", "padding", "dilation", "padding_mode", "in_channels"):
        assert getattr(depthwise, name) == getattr(old, name)
    assert (depthwise.groups, pointwise.out_channels, pointwise.kernel_size) == (5, 7, (1,) * len(old.kernel_size))
    assert depthwise.bias is None
    assert (pointwise.bias is None) == (old.bias is None)
    assert old.bias is None or (torch.equal(pointwise.bias, old.bias) and pointwise.bias is not old.bias)
    assert [p.dtype for p in model.parameters()] == [dtype] * len(list(model.parameters()))
    assert not any(p.requires_grad for p in model.parameters())
    assert not any(module.training for module in model.modules())
    assert outputs(model, x)[0].shape == expected.shape


def test_no_other_rank_one_weights_are_nearer() -> None:
    model, _ = conv_of("plain", dtype=torch.float64)
    matrices = model[0].weight.detach().flatten(2).transpose(0, 1)
    values = torch.linalg.svdvals(matrices)
    separation = depthwise_separable(model)
    lost = values[:, 1:].square().sum() / values.square().sum()  # Eckart and Young
    assert separation.layers[0].error == pytest.approx(lost.sqrt().item(), rel=1e-12)
    twice = depthwise_separable(conv_of("plain", dtype=torch.float64)[0], "0", multiplier=2)
    assert twice.layers[0].error < separation.layers[0].error


def test_a_separable_weight_is_found_again() -> None:
    model, x = conv_of("plain", dtype=torch.float64)
    with torch.no_grad():
        model[0].weight.copy_(torch.randn(7, 5, 1, 1).double() * torch.randn(1, 5, 3, 3).double())
        model[0].weight[:, 2] = 0  # an input channel that nothing reads
    expected = outputs(model, x)
    depthwise_separable(model)
    assert error(outputs(model, x), expected) < 1e-14


def test_a_model_of_torchvision_and_the_way_back() -> None:
    model = torchvision_builders()["resnet18"]().eval()
    x = images(64, 1)
    dense = [name for name, module in model.named_modules() if getattr(module, "kernel_size", 1) in ((3, 3), (7, 7))]
    before = sum(parameter.numel() for parameter in model.parameters())
    with unchanged(model, x):
        separation = depthwise_separable(model, args=x)
        assert sorted(separation.names) == sorted(dense)
        old, new = separation.parameters
        assert before - old + new == sum(parameter.numel() for parameter in model.parameters())
        assert "17 convolutions, 10,994,880 → 1,251,475 parameters" in repr(separation)
        assert all(0 < layer.error < 1 for layer in separation.layers)
        separation.undo()


def test_only_what_gets_smaller_unless_named() -> None:
    model = nn.Sequential(nn.Conv2d(4, 1, 3), nn.Conv2d(4, 4, 3))
    assert depthwise_separable(model).names == ["1"]
    assert depthwise_separable(model, ["self.0"]).parameters == (37, 41)


def tied() -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3))
    model[1].weight = model[0].weight
    return model


REFUSED: dict[str, tuple[Callable[[], nn.Module], dict[str, Any], type[Exception], str]] = {
    "groups": (lambda: nn.Sequential(nn.Conv2d(4, 4, 3, groups=2)), {"names": "0"}, RewritingError, "2 groups already"),
    "pointwise": (lambda: nn.Sequential(nn.Conv2d(4, 4, 1)), {"names": "0"}, RewritingError, "kernel has the size 1"),
    "one": (lambda: nn.Sequential(nn.Conv2d(1, 4, 3)), {"names": "0"}, RewritingError, "one input channel"),
    "class": (lambda: nn.Sequential(nn.Linear(1, 4)), {"names": "0"}, RewritingError, "it is a Linear"),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(4, 4, 3)), {"names": "0"}, RewritingError, "ConvTranspose"),
    "tied": (tied, {"names": ["0"]}, RewritingError, r"tied to 1\.weight"),
    "unknown": (net, {"names": "stem.9"}, UnknownPathError, "did you mean"),
    "second": (net, {"names": ["block.conv1", "head"]}, RewritingError, "'?head'? cannot"),
    "multiplier": (net, {"multiplier": 0}, RewritingError, "at least 1"),
    "too many": (net, {"names": "block.conv1", "multiplier": 10}, RewritingError, "9 entries"),
    "root": (lambda: nn.Conv2d(3, 4, 3), {}, RewritingError, "model itself"),
    "inputs": (net, {"args": torch.zeros(1, 5, 8, 8)}, mk.ModuleKGError, "expected input"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    make, options, kind, why = REFUSED[case]
    model = make()
    with unchanged(model), pytest.raises(kind, match=why):
        depthwise_separable(model, **options)


def test_life_afterwards() -> None:
    def fresh() -> nn.Module:
        other = ResidualConvNet().eval()
        depthwise_separable(other)
        return other

    model, x = net(), images()
    state = torch.get_rng_state()
    assert depthwise_separable(model, args=x).names == ["stem.0", "block.conv1", "block.conv2"]
    assert torch.equal(torch.get_rng_state(), state)
    expected = outputs(model, x)
    for way, other in copies(model, fresh, x):
        assert error([other(x)], expected) < 1e-5, way
    model.train()(x).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_layer_in_two_places_and_one_without_data() -> None:
    conv = nn.Conv2d(3, 3, 3, padding=1)
    model = Lambda(lambda self, x: self.b(self.a(x)), a=conv, b=conv)
    assert depthwise_separable(model, ["b"]).names == ["a"]
    assert model.a is model.b
    meta = nn.Sequential(nn.Conv2d(3, 5, 3, device="meta"))
    assert depthwise_separable(meta).layers[0].error is None
    assert all(parameter.is_meta for parameter in meta.parameters())
