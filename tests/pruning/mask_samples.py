"""Small models for masks, one for each way in which channels hang together, and masks for them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping

import torch
from torch import nn

Masks = dict[str, dict[str, torch.Tensor | None]]


class Residual(nn.Module):
    """Two blocks whose outputs are added to what went in; the second block's inside is free."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv3, self.bn3 = nn.Conv2d(8, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.conv4, self.bn4 = nn.Conv2d(6, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bn1(self.conv1(x)).relu()
        x = (x + self.bn2(self.conv2(x))).relu()
        x = x + self.bn4(self.conv4(self.bn3(self.conv3(x)).relu()))
        return self.fc(x.mean((2, 3)))


class Grouped(nn.Module):
    """The block of a ResNeXt: (2 groups · 4) between two pointwise convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8)
        self.conv3, self.bn3 = nn.Conv2d(8, 6, 1), nn.BatchNorm2d(6)
        self.fc = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu())).relu()
        return self.fc(self.bn3(self.conv3(x)).relu().mean((2, 3)))


class Depthwise(nn.Module):
    """The inverted residual of a MobileNet: expand, depthwise, project, add."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 12, 1), nn.BatchNorm2d(12)
        self.conv3, self.bn3 = nn.Conv2d(12, 12, 3, padding=1, groups=12), nn.BatchNorm2d(12)
        self.conv4, self.bn4 = nn.Conv2d(12, 4, 1), nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bn1(self.conv1(x)).relu()
        y = self.bn3(self.conv3(self.bn2(self.conv2(x)).relu())).clamp(0, 6)
        return self.fc((x + self.bn4(self.conv4(y))).mean((2, 3)))


class Dense(nn.Module):
    """The block of a DenseNet: every layer reads what all before it made, laid end to end."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1)
        self.bn2, self.conv2 = nn.BatchNorm2d(6), nn.Conv2d(6, 4, 3, padding=1)
        self.bn3, self.conv3 = nn.BatchNorm2d(10), nn.Conv2d(10, 4, 3, padding=1)
        self.bn4 = nn.BatchNorm2d(14)
        self.fc = nn.Linear(14, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = [self.conv1(x)]
        found.append(self.conv2(self.bn2(found[0]).relu()))
        found.append(self.conv3(self.bn3(torch.cat(found, 1)).relu()))
        return self.fc(self.bn4(torch.cat(found, 1)).relu().mean((2, 3)))


def trained(build: type[nn.Module]) -> nn.Module:
    """A model in float64 and eval mode whose norms are not neutral, under a fixed seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return with_norms(build()).double().eval()


def with_norms(model: nn.Module) -> nn.Module:
    """Gains, shifts and statistics of all batch norms are drawn, so that none is neutral."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight.data, module.bias.data, module.running_mean, module.running_var):
                tensor.uniform_(0.5, 1.5)  # type: ignore[union-attr]
    return model


def image(size: int = 6) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, 3, size, size, generator=generator, dtype=torch.float64)


def channels(model: nn.Module, gone: Mapping[str, Iterable[int]], dim: int = 0) -> Masks:
    """NNI's dict for layers by name: a mask with zeros in these channels, and the bias's where outputs go."""
    masks: Masks = {}
    for name, positions in gone.items():
        layer = model.get_submodule(name)
        weight = torch.ones_like(layer.weight, dtype=torch.float32)  # type: ignore[arg-type]
        weight.index_fill_(dim, torch.tensor(list(positions), dtype=torch.int64), 0)
        bias = None
        if dim == 0 and layer.bias is not None:
            bias = torch.ones(len(weight)).index_fill(0, torch.tensor(list(positions), dtype=torch.int64), 0)
        masks[name] = {"weight": weight, "bias": bias}
    return masks


@torch.no_grad()
def silenced(model: nn.Module, masks: Masks, norms: Mapping[str, Iterable[int]] | None = None) -> nn.Module:
    """A copy in which the masks are applied, and these channels of these batch norms are zero."""
    copied = copy.deepcopy(model)
    for name, targets in masks.items():
        for target, mask in targets.items():
            if mask is not None:
                getattr(copied.get_submodule(name), target).mul_(mask)
    for name, positions in (norms or {}).items():
        for tensor in copied.get_submodule(name).parameters():
            tensor[list(positions)] = 0
    return copied


def rows(masks: Mapping[str, Mapping[str, torch.Tensor | None]], name: str, dim: int = 0) -> list[int]:
    """The positions along a dimension at which the mask of a layer's weight is zero all over."""
    weight = masks[name]["weight"]
    assert weight is not None
    return (~weight.movedim(dim, 0).reshape(weight.shape[dim], -1).bool().any(1)).nonzero().flatten().tolist()
