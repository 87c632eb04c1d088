"""Operators and modules of a user's own, as rows about registration need them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


@torch.library.custom_op("mylib::my_op", mutates_args=())
def my_op(x: torch.Tensor) -> torch.Tensor:
    return x.clone() * 2


my_op.register_fake(torch.empty_like)


@torch.library.custom_op("mylib::pool", mutates_args=())
def pool(x: torch.Tensor) -> torch.Tensor:
    """It has no fake, so that only a rule that tells its shape lets a trace go without data."""
    return F.avg_pool2d(x, 2)


class Uses(nn.Sequential):
    """Two layers with an operator between them."""

    def __init__(self, operator: str, first: nn.Module | None = None) -> None:
        super().__init__(first or nn.Conv2d(3, 8, 1), nn.Conv2d(8, 2, 1))
        self.operator = operator

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self[1](getattr(torch.ops.mylib, self.operator)(self[0](input)))


class Scaled(nn.Module):
    """A module with a number that follows its weight, which forward does not read."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.weight = nn.Parameter(torch.ones(channels, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


class Depthwise(nn.Module):
    """A module with a number that follows its weight, which forward reads."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.weight = nn.Parameter(torch.randn(channels, 1, 3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, self.weight, groups=self.channels)


def between(module: nn.Module) -> nn.Sequential:
    """The module between two convolutions with 8 channels."""
    return nn.Sequential(nn.Conv2d(3, 8, 1), module, nn.Conv2d(8, 2, 1))
