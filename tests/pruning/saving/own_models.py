"""Models of plain torch as users write them, that another process can import."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn


class Plain(nn.Module):
    """Needs no arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.first(x))).mean((2, 3)))


class Sized(nn.Module):
    """Keeps its arguments in attributes of their names, one of which a cut changes."""

    def __init__(self, width: int, depth: int = 2, *, bias: bool = True) -> None:
        super().__init__()
        self.width, self.depth, self.bias = width, depth, bias
        self.start = nn.Linear(4, width, bias=bias)
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=bias) for _ in range(depth))
        self.head = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.start(x).reshape(-1, self.width)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)


class Forgetful(nn.Module):
    """Keeps nothing of its arguments."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.stack = nn.Sequential(*(nn.Linear(*pair) for pair in itertools.pairwise(sizes)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.stack(x)


class Tied(nn.Module):
    """Two names for one weight, and tables that no state_dict has."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.inner = nn.Linear(8, 12)
        self.outer = nn.Linear(12, 8)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 8), persistent=False)
        self.table = torch.arange(8.0) / 8

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids) * self.scale + self.table
        return self.head(x + self.outer(torch.relu(self.inner(x))))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(6, 8, num_layers=2, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[0])


def tower(width: int, *, act: str = "relu") -> nn.Sequential:
    """A function that builds a model of layers that only it knows."""
    return nn.Sequential(
        nn.Linear(4, width), Activation(torch.relu if act == "relu" else torch.tanh), nn.Linear(width, 2)
    )


class Activation(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


class Residual(nn.Module):
    """A list of residual blocks, one of which is there twice, under two names."""

    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        self.start = nn.Linear(4, 8)
        self.blocks = nn.ModuleList(Feed() for _ in range(depth))
        self.last = self.blocks[depth - 1]
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.start(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class Feed(nn.Module):
    """A branch that a number scales, which users set once it is built."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0
        self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * self.down(torch.relu(self.up(x)))
