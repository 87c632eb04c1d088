"""From masks to a smaller model: it computes what the masked one does, on every way in which channels hang together."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import modulekg_widgets as mk
from models import seeded
from modulekg_widgets.engine.pruning.nni.conflicts import fix_conflicts
from modulekg_widgets.engine.pruning.nni.mask_inference import infer_masks
from modulekg_widgets.engine.pruning.nni.speedup import speedup
from modulekg_widgets.engine.pruning.plan.plan import plan
from pruning.mask_samples import (
    Dense,
    Depthwise,
    Grouped,
    Masks,
    Residual,
    channels,
    image,
    rows,
    silenced,
    trained,
    with_norms,
)


def same(a: torch.Tensor, b: torch.Tensor) -> None:
    assert a.shape == b.shape
    assert float((a - b).abs().max()) <= 1e-9 * float(b.abs().max())


Gone = Mapping[str, Iterable[int]]
# model, masked output channels, batch norm channels that are zero with them, sizes afterwards
EQUAL: list[tuple[type[nn.Module], Gone, Gone, dict[str, tuple[int, ...]]]] = [
    (Residual, {"conv3": [0, 5]}, {"bn3": [0, 5]}, {"conv3": (4, 8), "conv4": (8, 4)}),
    (
        Residual,
        {"conv1": [1, 2], "conv2": [1, 2], "conv4": [1, 2], "conv3": [3]},
        {"bn1": [1, 2], "bn2": [1, 2], "bn4": [1, 2], "bn3": [3]},
        {"conv1": (6, 3), "conv2": (6, 6), "conv3": (5, 6), "fc": (5, 6)},
    ),
    (Grouped, {"conv2": [1, 5, 3, 7]}, {"bn2": [1, 3, 5, 7]}, {"conv2": (4, 4), "conv3": (6, 4)}),
    (Grouped, {"conv1": [0, 4]}, {"bn1": [0, 4]}, {"conv1": (6, 3), "conv2": (8, 3)}),
    (
        Grouped,
        {"conv1": [0, 1, 2, 3], "conv2": [0, 1, 2, 3]},
        {"bn1": [0, 1, 2, 3], "bn2": [0, 1, 2, 3]},
        {"conv1": (4, 3), "conv2": (4, 4), "conv3": (6, 4)},
    ),
    (
        Depthwise,
        {"conv2": [0, 3, 4, 11], "conv3": [0, 3, 4, 11]},
        {"bn2": [0, 3, 4, 11], "bn3": [0, 3, 4, 11]},
        {"conv2": (8, 4), "conv3": (8, 1), "conv4": (4, 8)},
    ),
    (
        Dense,
        {"conv1": [2], "conv2": [0, 1], "conv3": [3]},
        {"bn2": [2], "bn3": [2, 6, 7], "bn4": [2, 6, 7, 13]},
        {"conv1": (5, 3), "conv2": (2, 5), "conv3": (3, 7), "fc": (5, 10)},
    ),
]


@pytest.mark.parametrize(("build", "gone", "norms", "sizes"), EQUAL)
def test_it_computes_what_the_masked_model_does(
    build: type[nn.Module], gone: Gone, norms: Gone, sizes: dict[str, tuple[int, ...]]
) -> None:
    masks = channels(trained(build), gone)
    model = silenced(trained(build), masks, norms)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    expected = model(image())
    receipt = speedup(model, masks, image())
    same(model(image()), expected)
    assert {name: tuple(model.get_parameter(f"{name}.weight").shape[:2]) for name in sizes} == sizes
    receipt.undo()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_masked_readers_need_no_silence() -> None:
    masks = channels(trained(Residual), {"conv4": [0, 3, 4]}, dim=1)
    masks |= channels(trained(Residual), {"conv2": [6], "conv3": [6], "fc": [6]}, dim=1)
    model = silenced(trained(Residual), masks)
    expected = model(image())
    speedup(model, masks, image(), conv_prune_dim=1)
    same(model(image()), expected)
    assert (model.conv3.out_channels, model.conv1.out_channels) == (3, 7)


def test_conflicts_are_resolved_and_told(caplog: pytest.LogCaptureFixture) -> None:
    model = trained(Residual)
    masks = channels(model, {"conv1": [0, 1, 2], "conv2": [1, 2, 3], "conv3": [4], "conv4": [1, 2]})
    fixed = fix_conflicts(mk.trace(model, image()), masks)
    model = silenced(model, fixed, {"bn1": [1, 2], "bn2": [1, 2], "bn3": [4], "bn4": [1, 2]})
    expected = model(image())
    with caplog.at_level(logging.WARNING, "modulekg_widgets"):
        speedup(model, masks, image())
    assert "channel conflict on conv1.out: conv1 asks for 0, 1, 2" in caplog.text
    same(model(image()), expected)
    assert (model.conv1.out_channels, model.conv3.out_channels) == (6, 5)


def test_what_a_masked_channel_carries_without_its_weights_is_dropped() -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.norm, self.b = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.norm(self.a(x)))

    model = seeded(Shifted).double().eval()
    model.norm.bias.data[2] = 0.7
    x = torch.randn(5, 3, dtype=torch.float64)
    masks = channels(model, {"a": [2]})
    masked = silenced(model, masks)
    speedup(model, masks, x)
    # the shift went through the next layer as a constant, and that is what is missing
    norm = masked.norm
    constant = norm.bias[2] - norm.running_mean[2] * norm.weight[2] / (norm.running_var[2] + norm.eps).sqrt()
    same(model(x) + constant * masked.b.weight[:, 2], masked(x))
    assert abs(float(constant)) > 0.5


def test_resnet18_with_masks_of_all_convolutions() -> None:
    from torchvision.models import resnet18

    model = with_norms(seeded(lambda: resnet18(num_classes=7))).double().eval()
    stream = {  # the first stage's residual stream, and the inside of each of its blocks
        **dict.fromkeys(("conv1", "layer1.0.conv2", "layer1.1.conv2"), range(0, 64, 2)),
        "layer1.0.conv1": range(10), "layer2.0.conv1": range(100), "layer4.1.conv1": range(3, 500),
    }  # fmt: skip
    masks = channels(model, stream)
    masks["layer3.0.conv2"] = channels(model, {"layer3.0.conv2": [0, 1]})[
        "layer3.0.conv2"
    ]  # what it is added to is kept
    norms = {name.replace("conv", "bn"): gone for name, gone in stream.items()}
    fixed = fix_conflicts(mk.trace(model, torch.zeros(1, 3, 32, 32, dtype=torch.float64)), masks)
    assert rows(fixed, "layer3.0.conv2") == []
    model = silenced(model, fixed, norms)
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    expected = model(x)
    receipt = speedup(model, masks, torch.zeros(1, 3, 32, 32, dtype=torch.float64))
    same(model(x), expected)
    assert model.conv1.out_channels == model.layer2[0].downsample[0].in_channels == 32
    assert (model.layer4[1].conv1.out_channels, model.layer3[0].conv2.out_channels) == (15, 256)
    receipt.undo()
    same(model(x), expected)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    [
        "resnet50", "resnext50_32x4d", "mobilenet_v2", "mobilenet_v3_small", "densenet121", "shufflenet_v2_x0_5",
        "googlenet", "efficientnet_b0", "regnet_y_400mf", "squeezenet1_0", "mnasnet0_5", "alexnet",
    ],
)  # fmt: skip
def test_models_of_torchvision_with_half_of_every_coupled_set_masked(name: str) -> None:
    import torchvision

    model = with_norms(seeded(lambda: getattr(torchvision.models, name)(weights=None))).double().eval()
    x = torch.randn(1, 3, 128, 128, dtype=torch.float64)
    graph = mk.trace(model, x)
    generator = torch.Generator().manual_seed(2)
    masks: Masks = {}
    for coupled in map(sorted, graph.channel_dependency().dependency_sets):
        size = model.get_submodule(coupled[0]).weight.shape[0]  # type: ignore[union-attr]
        gone = (torch.rand(size, generator=generator) < 0.5)[1:].nonzero().flatten().add(1).tolist()
        masks |= channels(model, {n: gone for n in coupled if model.get_submodule(n).weight.shape[0] == size})  # type: ignore[union-attr]
    with torch.no_grad():  # what is inferred is silent, norms and readers too
        for parameter, gone in infer_masks(graph, masks).parameters.items():
            for dim, positions in gone.items() if parameter in dict(model.named_parameters()) else ():
                model.get_parameter(parameter).index_fill_(dim, torch.tensor(positions), 0)
        expected = model(x)
        before = sum(p.numel() for p in model.parameters())
        speedup(model, masks, x)
        same(model(x), expected)
    assert sum(p.numel() for p in model.parameters()) < 0.7 * before


# ------------------------------------------------- what stopped other tools


class Joined(nn.Module):
    """Two parameters of nine entries, joined and seen as [1, 18, 1, 1], scale 18 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 18, 1), nn.Conv2d(18, 4, 1)
        self.left, self.right = nn.Parameter(torch.randn(9)), nn.Parameter(torch.randn(9))
        self.fc = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.cat([self.left, self.right])
        assert scale.shape[0] == self.left.shape[0] + self.right.shape[0]
        return self.fc(self.last(self.conv(x) * scale.view(1, -1, 1, 1)).mean((2, 3)))


class JoinedVectors(nn.Module):
    """Two vectors of nine without a batch, joined to 18 and seen as an image of one pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(5, 9), nn.Linear(5, 9)
        self.last = nn.Conv2d(18, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.cat([self.left(x), self.right(x)]).view(1, -1, 1, 1))


class WrittenOut(JoinedVectors):
    """The same with the size written into the code."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.cat([self.left(x), self.right(x)]).view(1, 18, 1, 1))


def test_cat_of_one_dimensional_parameters_seen_as_an_image() -> None:
    model = seeded(Joined).double()
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    graph = mk.trace(model, x)
    (cat,) = [operator for operator in graph.operators if operator.name == "aten::cat"]
    assert ([node.shape for node in cat.inputs], cat.outputs[0].shape) == ([(9,), (9,)], (18,))
    masks = channels(model, {"conv": [0, 8, 9, 17]})
    found = infer_masks(graph, masks)
    assert found.parameters["left"] == found.parameters["right"] == {0: [0, 8]}
    model = silenced(model, masks)
    expected = model(x)
    speedup(model, masks, x)
    same(model(x), expected)
    assert (model.left.shape, model.right.shape, model.last.in_channels) == ((7,), (7,), 14)


def test_cat_and_view_of_vectors() -> None:
    model = seeded(JoinedVectors).double()
    x = torch.randn(5, dtype=torch.float64)
    masks = channels(model, {"left": [1, 2], "right": [4]})
    model = silenced(model, masks)
    expected = model(x)
    speedup(model, masks, x)
    same(model(x), expected)
    assert (model.left.out_features, model.right.out_features, model.last.in_channels) == (7, 8, 15)


def test_a_size_that_the_code_fixes_is_refused_and_the_model_as_it_was() -> None:
    model = seeded(WrittenOut).double()
    x = torch.randn(5, dtype=torch.float64)
    expected = model(x)
    with pytest.raises(mk.ModuleKGError):
        speedup(model, channels(model, {"left": [1, 2], "right": [4]}), x)
    assert torch.equal(model(x), expected)
    assert model.left.out_features == 9


# --------------------------------------------------------------- ways to ask


def test_masks_of_torch_stay_on_the_model_and_are_cut_with_it() -> None:
    model = trained(Grouped)
    prune.custom_from_mask(model.conv1, "weight", channels(model, {"conv1": [1, 3, 5]})["conv1"]["weight"])
    prune.l1_unstructured(model.conv3, "weight", 10)  # type: ignore[arg-type]
    for tensor in (model.conv1.bias, model.bn1.weight, model.bn1.bias):
        tensor.data[[1, 5]] = 0  # type: ignore[union-attr]
    expected = model(image())
    receipt = speedup(model, args=image())
    assert model.conv1.weight_mask.shape == model.conv1.weight_orig.shape == (6, 3, 1, 1)  # type: ignore[union-attr]
    assert int((model.conv3.weight_mask == 0).sum()) == 10  # type: ignore[union-attr]
    same(model(image()), expected)
    prune.remove(model.conv1, "weight")  # type: ignore[arg-type]
    prune.remove(model.conv3, "weight")  # type: ignore[arg-type]
    same(model(image()), expected)
    with pytest.raises(mk.ModuleKGError):
        receipt.undo()  # the model is not what the cut left


def test_the_optimizer_goes_along() -> None:
    model = trained(Depthwise).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    model(image()).square().sum().backward()
    optimizer.step()
    momentum = optimizer.state[model.conv2.weight]["momentum_buffer"].clone()
    speedup(model, channels(model, {"conv2": [0, 2]}), image(), optimizer=optimizer)
    rest = [1, *range(3, 12)]
    assert torch.equal(optimizer.state[model.conv2.weight]["momentum_buffer"], momentum[rest])
    model(image()).square().sum().backward()
    optimizer.step()


def test_a_file_and_a_dict_do_the_same(tmp_path: Path) -> None:
    masks = channels(trained(Dense), {"conv2": [1, 3]})
    torch.save(masks, tmp_path / "masks.pth")
    model = trained(Dense)
    speedup(model, tmp_path / "masks.pth", (image(),))
    other = trained(Dense)
    speedup(other, masks, kwargs={"x": image()})
    same(model(image()), other(image()))


def test_inference_and_plan_do_what_speedup_does() -> None:
    masks = channels(trained(Residual), {"conv3": [1, 3]})
    model, other = trained(Residual), trained(Residual)
    speedup(model, masks, image())
    graph = mk.trace(other, image())
    plan(graph, cuts=[infer_masks(graph, masks).cut]).cut(other)
    assert {n: t.shape for n, t in model.state_dict().items()} == {n: t.shape for n, t in other.state_dict().items()}
    same(model(image()), other(image()))


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ({"conv3": {"weight": torch.ones(6, 8, 3, 3)}}, "they have no zeros"),
        ({"conv3": {"weight": torch.ones(6, 8, 3, 3).index_fill(3, torch.tensor([1]), 0)}}, "cannot be cut"),
        ({"conv2": {"weight": torch.ones(8).index_fill(0, torch.tensor([1]), 0)}}, "channel conflict on conv1.out"),
        ({"fc": {"weight": torch.ones(5).index_fill(0, torch.tensor([1]), 0)}}, "model output"),
    ],
)
def test_masks_of_which_nothing_can_be_cut_are_refused(masks: Masks, message: str) -> None:
    model = trained(Residual)
    with pytest.raises(mk.ModuleKGError, match=message):
        speedup(model, masks, image())
    assert model.conv3.out_channels == 6
