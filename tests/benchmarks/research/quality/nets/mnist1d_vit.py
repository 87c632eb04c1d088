"""(b) A vision transformer on mnist1d: digits as signals of 40 values, by the generator in the wheel of that name."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.research.quality.nets.attention import Block, heads_of, write_heads
from benchmarks.research.quality.task import Batch, PeerSetup, Task
from benchmarks.research.quality.training import accuracy, drawn, fit

Tensor = torch.Tensor
SAMPLES = 8000  # as many for training as in the published set, and more for the test
TEST = 4000
STEPS = 1000


class ViT(nn.Module):
    def __init__(self, width: int = 64, depth: int = 4, heads: int = 4, hidden: int = 128) -> None:
        super().__init__()
        self.patches = nn.Conv1d(1, width, 4, 4)
        self.cls_token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.pos_embed = nn.Parameter(torch.randn(1, 11, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, hidden) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


@cache
def signals() -> tuple[Batch, Batch]:
    """Training and test data; the generator seeds the global draws, so those are put back."""
    from mnist1d.data import get_dataset_args, make_dataset

    arguments: Any = get_dataset_args()
    arguments.num_samples = SAMPLES
    states = random.getstate(), np.random.get_state()
    try:
        found = make_dataset(arguments)
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
    inputs = torch.tensor(np.concatenate([found["x"], found["x_test"]]), dtype=torch.float32).unsqueeze(1)
    targets = torch.tensor(np.concatenate([found["y"], found["y_test"]]))
    return Batch(inputs[:-TEST], targets[:-TEST]), Batch(inputs[-TEST:], targets[-TEST:])


class Mnist1dViT(Task):
    name = "mnist1d-vit"
    title = "ViT, mnist1d"
    metric = "accuracy, %"
    seeds = 8
    tune_steps = 60
    tune_rate = 1e-3

    def untrained(self) -> nn.Module:
        return ViT()

    def train(self, model: nn.Module, seed: int) -> None:
        fit(model, drawn(*signals()[0], 128, STEPS, seed), self.loss, 3e-3, STEPS)

    @property
    def example(self) -> tuple[Any, ...]:
        return (signals()[0].inputs[:1],)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output, target)

    def calibration(self, seed: int) -> list[Batch]:
        return list(drawn(*signals()[0], 64, 16, 100 + seed))

    def tuning(self, seed: int) -> Iterable[Batch]:
        return drawn(*signals()[0], 64, self.tune_steps, 200 + seed)

    def score(self, model: nn.Module) -> float:
        return accuracy(model, *signals()[1])

    def peer_setup(self, model: nn.Module) -> PeerSetup:
        assert isinstance(model, ViT)
        return PeerSetup([model.head], heads_of(model))

    def after_peer(self, model: nn.Module, heads: Mapping[nn.Module, int]) -> None:
        write_heads(model, heads)
