"""A small net of layers of different widths, for targets and their limits."""

from __future__ import annotations

import torch
from torch import nn

import modulekg_widgets as mk


class ConvClassifier(nn.Module):
    """Three layers of different widths, of which the middle one is normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 24, 3, padding=1)
        self.head = nn.Linear(24 * 16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.second(self.norm(self.first(x)).relu()).relu().flatten(1))


def three_layers() -> mk.DataflowGraph:
    torch.manual_seed(0)
    return mk.trace(ConvClassifier().eval(), torch.randn(1, 3, 4, 4))


def left(plan: mk.PruningPlan) -> dict[str, int]:
    return {axis.name: axis.left for axis in plan.axes}
