"""Residual blocks, as small as they may be."""

from __future__ import annotations

from torch import Tensor, nn


class ResidualLinear(nn.Module):
    """x + relu(linear(x))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.part = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.part(x).relu()


class ResidualMLP(nn.Module):
    """x + down(relu(up(x)))."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(x).relu())
