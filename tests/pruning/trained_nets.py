"""Four small nets trained within seconds, and what the loss truly rises by when each index is cut alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.axes.axis import Axis

Tensor = torch.Tensor
Batch = tuple[Tensor, Tensor]
COUNT = 800  # images that are learnt, and on which losses are compared


class ResidualBlock(nn.Module):
    def __init__(self, outer: int, inner: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(outer, inner, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(inner)
        self.second = nn.Conv2d(inner, outer, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outer)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first_norm(self.first(x)))
        return F.relu(x + self.second_norm(self.second(y)))


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 10, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(10)
        self.one = ResidualBlock(10, 12)
        self.down = nn.Conv2d(10, 16, 3, stride=2, padding=1, bias=False)
        self.down_norm = nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.one(F.relu(self.norm(self.stem(x.view(-1, 1, 8, 8)))))
        return self.head(F.relu(self.down_norm(self.down(x))).mean((2, 3)))


class TransformerBlock(nn.Module):
    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.inner_norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, inner)
        self.back = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        qkv = self.qkv(self.norm(x)).reshape(batch, length, 3, self.heads, self.head_dim)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2)
        x = x + self.project(mixed.reshape(batch, length, self.heads * self.head_dim))
        return x + self.back(F.gelu(self.inner(self.inner_norm(x))))


class Transformer(nn.Module):
    """Rows of an image as tokens, with a class token and a table of positions."""

    def __init__(self, width: int = 20) -> None:
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, 9, width))
        self.block = TransformerBlock(width, 4, 28)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x.reshape(-1, 8, 8))
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.block(x))[:, 0])


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 14)
        self.rnn = nn.GRU(14, 18, batch_first=True)
        self.head = nn.Linear(18, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(torch.tanh(self.embed(x.reshape(-1, 8, 8))))[0][:, -1])


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 20), nn.GELU(), nn.Linear(20, 10))


NETS: dict[str, tuple[Callable[[], nn.Module], int]] = {  # with the steps of training
    "perceptron": (perceptron, 250),
    "convolutional": (Convolutional, 120),
    "transformer": (Transformer, 400),
    "recurrent": (Recurrent, 300),
}


@dataclass
class Trained:
    """A trained net with its data, and per axis what the loss rises by without each of the indices."""

    model: nn.Module
    graph: mk.DataflowGraph
    images: Tensor
    labels: Tensor
    rises: dict[str, np.ndarray]

    def batches(self, count: int, size: int) -> list[Batch]:
        starts = range(0, count * size, size)
        return [(self.images[at : at + size], self.labels[at : at + size]) for at in starts]


def trained(name: str) -> Trained:
    """The net of that name, the same on every machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            build, steps = NETS[name]
            model = build()
            images, labels = noisy_digits()
            _train(model, images, labels, steps)
        graph = mk.trace(model.eval(), (images[:2],))
        rises = {axis.name: _rises(model, graph, axis, images, labels) for axis in graph.axes.free}
        return Trained(model, graph, images, labels, rises)
    finally:
        torch.set_num_threads(threads)


def noisy_digits() -> Batch:
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels))[:COUNT]
    clean = torch.from_numpy(images).float()[order] / 16
    return clean + 0.35 * torch.randn(clean.shape), torch.from_numpy(labels)[order]


def _train(model: nn.Module, images: Tensor, labels: Tensor, steps: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 8e-3, total_steps=steps)
    for _ in range(steps):
        some = torch.randint(len(images), (64,))
        optimizer.zero_grad()
        F.cross_entropy(model(images[some]), labels[some]).backward()
        optimizer.step()
        schedule.step()


def _rises(model: nn.Module, graph: mk.DataflowGraph, axis: Axis, images: Tensor, labels: Tensor) -> np.ndarray:
    before = _loss(model, images, labels)
    found = np.zeros(axis.size)
    for index in range(axis.size):
        cut = copy.deepcopy(model)
        mk.plan(graph, per_axis={axis: [index]}).cut(cut)
        found[index] = _loss(cut, images, labels) - before
    return found


@torch.no_grad()
def _loss(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    return float(F.cross_entropy(model(images), labels))
