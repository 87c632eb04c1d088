"""Small models for the tests of rewriting."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """conv → norm → F.relu, and what came in added."""

    def __init__(self, channels: int = 4) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.norm(self.conv(x)), inplace=True) + x


class Net(nn.Module):
    """Blocks in a list and in a sequence, one of them used twice, a pool and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.blocks = nn.ModuleList([Block(), Block()])
        self.again = self.blocks[0]
        self.tail = nn.Sequential(Block(), nn.MaxPool2d(2))
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        x = self.tail(self.again(x))
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


def net() -> tuple[Net, torch.Tensor]:
    """The model in eval mode with weights and statistics that are no defaults, and an input."""
    torch.manual_seed(0)
    model = Net().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.normal_(module.weight)
    return model, torch.randn(2, 3, 12, 12)
