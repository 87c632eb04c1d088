"""Folding batch norms: the same numbers with fewer modules, and what is left alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrizations, prune

import modulekg_widgets as mk
from checks.model_state import unchanged
from models.functional import Lambda
from models.zoo import float_models
from modulekg_widgets.engine.errors import RewritingError
from modulekg_widgets.engine.knowledge.zoo.meta_weights import meta_weights
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders
from modulekg_widgets.engine.rewriting.recipes.folding import fold_conv_bn
from modulekg_widgets.engine.torch_runtime.pytree import tensors
from rewriting.recipes.samples import (
    ResidualConvNet,
    copies,
    error,
    images,
    net,
    outputs,
    recorded_blocks,
    with_statistics,
    zoo_model,
)

EXACT = 1e-5
SAMPLE = ["resnet18", "mobilenet_v2", "efficientnet_b0", "densenet121", "googlenet", "inception_v3", "r3d_18",
          "lraspp_mobilenet_v3_large", "ssdlite320_mobilenet_v3_large"]  # fmt: skip
QUANTISABLE = ["quantized_mobilenet_v3_large", "quantized_inception_v3", "quantized_shufflenet_v2_x0_5"]
SKIPPED = {"maxvit_t": ["stem.1.0"]}  # its shortcut pools what the convolution gives
PAIRS = {"resnet18": 20, "mobilenet_v2": 52, "efficientnet_b0": 49, "googlenet": 57, "r3d_18": 20}


def check_zoo_model(name: str) -> float:
    model, args = zoo_model(name)
    norms = sum(isinstance(module, _BatchNorm) for module in model.modules())
    if not norms:
        return 0.0
    seen = recorded_blocks(model, args)
    folding = fold_conv_bn(model, args)
    assert [layer for layer, _, _ in folding.skipped if layer] == SKIPPED.get(name, [])
    left = {path for path, module in model.named_modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)}
    assert {norm for _, norm, _ in folding.skipped} == left
    assert len(folding.skipped) == len(left)
    assert len(folding.pairs) == PAIRS.get(name, len(folding.pairs)) > 0
    assert sum(isinstance(module, _BatchNorm) for module in model.modules()) == norms - len(folding.pairs)
    with torch.inference_mode():
        found = {part: outputs(model.get_submodule(part), *given) for part, (given, _) in seen.items()}
    return max(error(found[part], expected) for part, (_, expected) in seen.items())


@pytest.mark.parametrize("name", SAMPLE)
@pytest.mark.slow
def test_a_sample_of_the_zoo(name: str) -> None:
    assert check_zoo_model(name) <= EXACT


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*float_models(), *QUANTISABLE])
def test_the_zoo(name: str) -> None:
    assert check_zoo_model(name) <= EXACT


CONV = {"kernel_size": 3, "stride": 2, "padding": 1, "padding_mode": "reflect"}
LAYERS: dict[str, tuple[Callable[[], nn.Module], type[nn.Module], tuple[int, ...]]] = {
    "conv1d": (lambda: nn.Conv1d(4, 6, dilation=2, bias=False, **CONV), nn.BatchNorm1d, (2, 4, 9)),
    "conv2d": (lambda: nn.Conv2d(4, 6, groups=2, **CONV), nn.BatchNorm2d, (2, 4, 9, 9)),
    "conv3d": (lambda: nn.Conv3d(4, 6, 3, bias=False), nn.BatchNorm3d, (2, 4, 5, 5, 5)),
    "transposed1d": (lambda: nn.ConvTranspose1d(4, 6, 3, stride=2), nn.BatchNorm1d, (2, 4, 7)),
    "transposed2d": (lambda: nn.ConvTranspose2d(4, 6, 3, groups=2, output_padding=1, stride=2, bias=False),
                     nn.BatchNorm2d, (2, 4, 5, 6)),
    "transposed3d": (lambda: nn.ConvTranspose3d(4, 4, 2, groups=4), nn.BatchNorm3d, (2, 4, 3, 3, 3)),
    "linear": (lambda: nn.Linear(4, 6, bias=False), nn.BatchNorm1d, (5, 4)),
    "sync": (lambda: nn.Conv2d(4, 6, 3), nn.SyncBatchNorm, (2, 4, 5, 5)),
}  # fmt: skip


def pair_of(kind: str, **norm_options: Any) -> tuple[nn.Sequential, torch.Tensor]:
    make, norm, shape = LAYERS[kind]
    torch.manual_seed(0)
    layer = make()
    channels = layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels
    return with_statistics(nn.Sequential(layer, norm(channels, **norm_options))).eval(), torch.randn(shape)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("kind", LAYERS)
def test_every_kind_of_layer(kind: str, affine: bool) -> None:
    model, x = pair_of(kind, affine=affine, eps=1e-3)
    model, x = model.double(), x.double()
    expected, old = outputs(model, x), model[0]
    folding = fold_conv_bn(model, x)
    assert folding.pairs == (("0", "1"),)
    assert type(model[0]) is type(old)
    assert type(model[1]) is nn.Identity
    assert error(outputs(model, x), expected) < 1e-14


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dtype_layout_and_flags_stay(dtype: torch.dtype) -> None:
    model, x = pair_of("conv2d")
    model = model.to(dtype).to(memory_format=torch.channels_last)
    model[0].weight.requires_grad_(False)
    before, exact = model[0], copy.deepcopy(model).double()(x.double())
    fold_conv_bn(model, x.to(dtype))
    new = model[0]
    assert new is not before
    assert (new.weight.dtype, new.bias.dtype) == (dtype, dtype)
    assert new.weight.stride() == before.weight.stride()
    assert (new.weight.requires_grad, new.bias.requires_grad) == (False, True)
    assert not any(module.training for module in model.modules())
    # one rounding of each weight: not worse than the dtype
    assert error([model.double()(x.double())], [exact]) < 4 * torch.finfo(dtype).eps


def test_a_weight_is_as_near_as_two_roundings_can_be() -> None:
    model, x = pair_of("conv2d")
    exact = copy.deepcopy(model).double()
    fold_conv_bn(model, x)
    fold_conv_bn(exact, x.double())
    assert torch.allclose(model[0].weight.double(), exact[0].weight, rtol=torch.finfo(torch.float32).eps, atol=0)
    assert torch.equal(model[0].bias, exact[0].bias.float())


# ------------------------------------------------------------- left alone


def tied() -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1))
    model[2].weight = model[0].weight
    return model


def called_twice() -> nn.Module:
    return Lambda(lambda self, x: self.bn(self.conv(self.conv(x))), conv=nn.Conv2d(3, 3, 1), bn=nn.BatchNorm2d(3))


def norm_called_twice() -> nn.Module:
    return Lambda(lambda self, x: self.bn(self.bn(self.conv(x))), conv=nn.Conv2d(3, 3, 1), bn=nn.BatchNorm2d(3))


def read_elsewhere() -> nn.Module:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return self.bn(y) + y

    return Lambda(forward, conv=nn.Conv2d(3, 3, 1), bn=nn.BatchNorm2d(3))


def returned() -> nn.Module:
    def forward(self: Any, x: torch.Tensor) -> Any:
        y = self.conv(x)
        return self.bn(y), y

    return Lambda(forward, conv=nn.Conv2d(3, 3, 1), bn=nn.BatchNorm2d(3))


def weight_read() -> nn.Module:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.bn(self.conv(x)) + self.conv.weight.sum()

    return Lambda(forward, conv=nn.Conv2d(3, 3, 1), bn=nn.BatchNorm2d(3))


def statistics_read() -> nn.Module:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.bn(self.conv(x)) + self.bn.running_mean.sum()

    return Lambda(forward, conv=nn.Conv2d(3, 3, 1), bn=nn.BatchNorm2d(3))


class StandardConv(nn.Conv2d):
    """Weight standardisation."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return F.conv2d(x, weight, self.bias)


class ActivatedNorm(nn.BatchNorm2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).relu()


def hooked(place: int) -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3))
    model[place].register_forward_hook(lambda module, args, output: None)
    return model


def watched() -> nn.Module:
    model = nn.Sequential(nn.Sequential(nn.Conv2d(3, 3, 1)), nn.BatchNorm2d(3))
    model[0].register_forward_hook(lambda module, args, output: None)
    return model


def parametrised() -> nn.Module:
    return nn.Sequential(parametrizations.weight_norm(nn.Conv2d(3, 3, 1)), nn.BatchNorm2d(3))


def pruned() -> nn.Module:
    return nn.Sequential(prune.random_unstructured(nn.Conv2d(3, 3, 1), "weight", 0.5), nn.BatchNorm2d(3))


def listed() -> nn.Module:
    conv = nn.Conv2d(3, 3, 1)
    norm = nn.BatchNorm2d(3)
    return Lambda(lambda self, x: self.plain[0](self.conv(x)), conv=conv, bn=norm, plain=[norm])


def sequence_norm() -> nn.Module:
    return Lambda(lambda self, x: self.bn(self.linear(x)), linear=nn.Linear(5, 5), bn=nn.BatchNorm1d(3))


LEFT_ALONE: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "tied": (tied, r"its weight is tied to 2\.weight"),
    "called_twice": (called_twice, "conv is called 2 times"),
    "norm_called_twice": (norm_called_twice, "bn is called 2 times"),
    "read_elsewhere": (read_elsewhere, r"its output is read by aten::add.*, too"),
    "returned": (returned, "the model gives its output, too"),
    "weight_read": (weight_read, "its weight is read outside it"),
    "statistics_read": (statistics_read, "its running_mean is read outside it"),
    "own_forward": (lambda: nn.Sequential(StandardConv(3, 3, 3), nn.BatchNorm2d(3)), "StandardConv overrides forward"),
    "own_norm": (lambda: nn.Sequential(nn.Conv2d(3, 3, 3), ActivatedNorm(3)), "ActivatedNorm overrides forward"),
    "hooked_layer": (lambda: hooked(0), "it has hooks"),
    "hooked_norm": (lambda: hooked(1), "the batch norm has hooks"),
    "watched": (watched, "a hook of 0 sees its output"),
    "parametrised": (parametrised, "it is parametrised"),
    "pruned": (pruned, "its weight is not a parameter"),
    "no_statistics": (
        lambda: nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3, track_running_stats=False)), "no running statistics"
    ),
    "listed": (listed, "a plain attribute holds"),
    "sequence": (sequence_norm, r"\[2, 3, 5\]"),
}  # fmt: skip


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_what_is_left_alone(case: str) -> None:
    make, why = LEFT_ALONE[case]
    torch.manual_seed(0)
    model = with_statistics(make()).eval()
    x = torch.randn(2, 3, 5) if case == "sequence" else images()
    expected = outputs(model, x)
    with unchanged(model, x):
        folding = fold_conv_bn(model, x)
    assert folding.pairs == ()
    assert folding.skipped
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(folding.skipped[0].why)
    assert folding.skipped[0].why in repr(folding)
    assert all(map(torch.equal, outputs(model, x), expected))


@pytest.mark.parametrize("place", ["", "stem.1"])
def test_training_mode_is_refused(place: str) -> None:
    model = net()
    model.get_submodule(place).training = True
    with unchanged(model), pytest.raises(RewritingError, match=r"call model\.eval\(\)"):
        fold_conv_bn(model, images())


def test_inputs_that_do_not_fit() -> None:
    model, x = net(), torch.randn(2, 5, 8, 8)
    with unchanged(model), pytest.raises(mk.ModuleKGError, match="expected input"):
        fold_conv_bn(model, x)


# ------------------------------------------------------------- afterwards


def test_the_record_and_the_way_back() -> None:
    model, x = net(), images()
    model.head.register_forward_hook(lambda module, args, output: None)
    with unchanged(model, x):
        folding = fold_conv_bn(model, x)
        assert folding.pairs == (("stem.0", "stem.1"), ("block.conv1", "block.bn1"), ("block.conv2", "block.bn2"))
        assert folding.names == ["stem.0", "stem.1", "block.conv1", "block.bn1", "block.conv2", "block.bn2"]
        assert "3 batch norms folded" in repr(folding)
        folding.undo()
    assert "undone" in repr(folding)


def test_life_after_folding() -> None:
    model, x = net(), images()
    expected = model(x)
    fold_conv_bn(model, x)

    def fresh() -> nn.Module:
        other = ResidualConvNet().eval()
        fold_conv_bn(other, x)
        return other

    for way, other in copies(model, fresh, x):
        assert error([other(x)], [expected]) < EXACT, way
    model.train()(x).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert len(list(model.parameters())) == 8


def test_a_pair_in_two_places() -> None:
    pair = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3))
    model = with_statistics(Lambda(lambda self, x: self.a(x), a=pair, b=pair)).eval()
    expected = outputs(model, images())
    assert fold_conv_bn(model, images()).pairs == (("a.0", "a.1"),)
    assert model.a is model.b
    assert error(outputs(model, images()), expected) < EXACT


def test_a_model_without_data() -> None:
    with meta_weights():
        model = torchvision_builders()["resnet18"]().eval()
    folding = fold_conv_bn(model, torch.empty(1, 3, 64, 64, device="meta"))
    assert len(folding.pairs) == 20
    assert all(parameter.is_meta for parameter in model.parameters())


def test_a_compiled_model() -> None:
    model, x = net(), images()
    expected = outputs(model, x)
    model.block.conv1.compile(backend="eager")  # in place, which leaves a call of this very object in it
    compiled = torch.compile(model, backend="eager")
    assert len(fold_conv_bn(compiled, x).pairs) == 3
    assert error(outputs(compiled, x), expected) < EXACT


def test_a_model_of_one_layer_has_nothing_to_fold() -> None:
    model = nn.Conv2d(3, 3, 1).eval()
    with unchanged(model):
        folding = fold_conv_bn(model, images())
    assert (folding.pairs, folding.skipped) == ((), ())
    assert next(tensors(model(images())), None) is not None
