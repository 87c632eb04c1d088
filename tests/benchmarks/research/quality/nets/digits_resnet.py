"""(a) A ResNet on scikit-learn's 8×8 digits with noise."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.research.quality.task import Batch, PeerSetup, Task
from benchmarks.research.quality.training import accuracy, drawn, fit

Tensor = torch.Tensor
NOISE = 0.25  # of the range of a pixel
TRAINING = 1297  # of 1797 images; the others are the test
COPIES = 4  # of each image, with other noise


class ResidualBlock(nn.Module):
    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(into, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.shortcut = nn.Sequential()
        if stride != 1 or into != out:
            self.shortcut = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, widths: tuple[int, ...] = (16, 32, 64)) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, widths[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        blocks = []
        into = widths[0]
        for stage, out in enumerate(widths):
            blocks += [ResidualBlock(into, out, 2 if stage else 1), ResidualBlock(out, out, 1)]
            into = out
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(into, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(F.relu(self.bn1(self.conv1(x))))
        return self.fc(x.mean((2, 3)))


@cache
def digits() -> tuple[Batch, Batch]:
    """Training and test data."""
    from sklearn.datasets import load_digits

    images, targets = load_digits(return_X_y=True)
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(images), generator=generator)
    clean = (torch.tensor(images, dtype=torch.float32) / 16).reshape(-1, 1, 8, 8)[order].repeat(COPIES, 1, 1, 1)
    noisy = (clean + NOISE * torch.randn(clean.shape, generator=generator)).unflatten(0, (COPIES, -1))
    labels = torch.tensor(targets)[order].repeat(COPIES).unflatten(0, (COPIES, -1))
    parts = (slice(None, TRAINING), slice(TRAINING, None))
    first, second = (Batch(noisy[:, part].flatten(0, 1), labels[:, part].flatten(0, 1)) for part in parts)
    return first, second


class DigitsResNet(Task):
    name = "digits-resnet"
    title = "ResNet, 8×8 digits with noise"
    metric = "accuracy, %"
    has_batch_norm = True
    seeds = 8
    tune_steps = 60
    tune_rate = 1e-3

    def untrained(self) -> nn.Module:
        return ResNet()

    def train(self, model: nn.Module, seed: int) -> None:
        fit(model, drawn(*digits()[0], 64, 600, seed), self.loss, 5e-3, 600)

    @property
    def example(self) -> tuple[Any, ...]:
        return (digits()[0].inputs[:1],)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output, target)

    def calibration(self, seed: int) -> list[Batch]:
        return list(drawn(*digits()[0], 64, 16, 100 + seed))

    def tuning(self, seed: int) -> Iterable[Batch]:
        return drawn(*digits()[0], 64, self.tune_steps, 200 + seed)

    def score(self, model: nn.Module) -> float:
        return accuracy(model, *digits()[1])

    def peer_setup(self, model: nn.Module) -> PeerSetup:
        assert isinstance(model, ResNet)
        return PeerSetup([model.fc])
