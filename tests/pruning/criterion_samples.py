"""Small models whose scores can be worked out, and the scores of all free axes by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.pruning.importance.scoring import score

Tensor = torch.Tensor


def scores(graph: mk.DataflowGraph, importance: Any) -> dict[str, np.ndarray]:
    """The scores of all free axes by name."""
    axes = graph.axes
    found = score(axes, [axis.term for axis in axes.free], importance)
    return {axis.name: found[axis.term] for axis in axes.free}


class Pair(nn.Module):
    """Two 1×1 convolutions and a batch normalisation between them: one axis of two indices."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 2, 1)
        self.bn = nn.BatchNorm2d(2)
        self.conv2 = nn.Conv2d(2, 2, 1, bias=False)
        with torch.no_grad():
            self.conv1.weight.copy_(torch.tensor([1.0, -3.0]).view(2, 1, 1, 1))
            self.conv1.bias.copy_(torch.tensor([1.0, -1.0]))
            self.bn.weight.copy_(torch.tensor([2.0, -0.5]))
            self.bn.bias.zero_()
            self.conv2.weight.copy_(torch.tensor([[4.0, -2.0], [0.0, 2.0]]).view(2, 2, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.conv2(F.relu(self.bn(self.conv1(x))))


def traced_pair() -> tuple[Pair, mk.DataflowGraph, Tensor]:
    model = Pair().eval()
    x = torch.tensor([2.0, -4.0]).view(1, 1, 1, 2)
    return model, mk.trace(model, (x,)), x


class Grouped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.grouped = nn.Conv2d(8, 12, 3, groups=4, padding=1)
        self.norm = nn.GroupNorm(4, 12)
        self.head = nn.Conv2d(12, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.norm(self.grouped(self.stem(x)))))


class Heads(nn.Module):
    """Attention with a fused projection, four heads, on a residual stream that a layer normalisation reads."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(5, 24)
        self.norm = nn.LayerNorm(24)
        self.attention = nn.MultiheadAttention(24, 4, batch_first=True)
        self.head = nn.Linear(24, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        y = self.norm(x)
        return self.head(x + self.attention(y, y, y, need_weights=False)[0])


class Concatenated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.right = nn.Conv2d(3, 6, 1)
        self.norm = nn.BatchNorm2d(10)
        self.inner = nn.Conv2d(10, 4, 1)
        self.head = nn.Linear(14, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(torch.cat([self.left(x), self.right(x)], 1)))
        return self.head(torch.cat([x, F.relu(self.inner(x))], 1).mean((2, 3)))


def image(batch: int = 2) -> Tensor:
    return torch.randn(batch, 3, 6, 6, generator=torch.Generator().manual_seed(1))


def tokens(batch: int = 2) -> Tensor:
    return torch.randn(batch, 4, 5, generator=torch.Generator().manual_seed(1))


def randomised(model: nn.Module) -> nn.Module:
    """The model in float64 with weights none of which are constant, in evaluation mode."""
    generator = torch.Generator().manual_seed(0)
    for tensor in model.parameters():
        tensor.data = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
    return model.double().eval()
