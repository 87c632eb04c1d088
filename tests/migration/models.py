"""The small models that the rows of all tables run on, and their traces."""

from __future__ import annotations

import copy
from functools import cache
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import nn

import modulekg_widgets as mk

Model = TypeVar("Model", bound=nn.Module)
Shapes = dict[str, tuple[int, ...]]


class Block(nn.Module):
    """A residual block: what it puts out has the channels of what it takes."""

    def __init__(self, width: int, inside: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, inside, 3, padding=1, bias=False), nn.BatchNorm2d(inside)
        self.conv2, self.bn2 = nn.Conv2d(inside, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


class ResNet(nn.Module):
    """A ResNet of two blocks: 8 channels on the residual stream, 6 and 4 inside."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(Block(8, 6), Block(8, 4))
        self.fc = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer1(F.relu(self.bn1(self.conv1(x))))
        return self.fc(x.mean((2, 3)))


class Grouped(nn.Module):
    """A convolution in two groups between two others, then a concatenation and a flattening."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 1)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.left, self.right = nn.Conv2d(8, 4, 1), nn.Conv2d(8, 6, 1)
        self.fc = nn.Linear(10 * 16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.fc(torch.cat([self.left(x), self.right(x)], 1).flatten(1))


class Attention(nn.Module):
    """Attention of 4 heads in four Linear layers, as transformers write it."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(16, 16) for _ in range(4))
        self.heads = 4

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, length, _ = x.shape
        q, k, v = (layer(x).view(n, length, self.heads, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        weights = (q @ k.transpose(2, 3) * 0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(n, length, -1))


class Encoder(nn.Module):
    """An embedding, one attention and a head, so that the attention has axes that may be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.attention, self.head = nn.Linear(3, 16), Attention(), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        return self.head(x + self.attention(x))


IMAGE = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(1))
WORDS = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(2))


@cache
def _made(cls: type[Model]) -> Model:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = cls()
        for parameter in model.parameters():
            nn.init.normal_(parameter, 0.0, 0.5)
        return model.eval()


def new(cls: type[Model]) -> Model:
    """A model of its own with the same random weights every time, in eval mode."""
    return copy.deepcopy(_made(cls))


@cache
def traced(cls: type[nn.Module]) -> mk.DataflowGraph:
    """The trace of a model that nobody changes, shared by all rows; a plan of it cuts `new(cls)` as well."""
    return mk.trace(_made(cls), WORDS if cls is Encoder else IMAGE)


def resnet() -> ResNet:
    return new(ResNet)


def shapes(model: nn.Module) -> Shapes:
    """The shapes of all parameters by name."""
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def state(model: nn.Module) -> dict[str, bytes]:
    """Every byte of the parameters and buffers."""
    return {name: tensor.detach().numpy().tobytes() for name, tensor in model.state_dict().items()}


def run(model: nn.Module, x: torch.Tensor = IMAGE) -> torch.Tensor:
    with torch.no_grad():
        return model(x)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 2) -> None:
    """Some steps of a training, which leave a state in the optimizer."""
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        model(IMAGE).square().mean().backward()
        optimizer.step()
