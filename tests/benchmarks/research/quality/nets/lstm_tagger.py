"""(c) An LSTM that tags the symbols of sequences made here.

The tag of a letter follows from the letter, the kind of the letter before it, and the last mode symbol, however long
ago that was; one tag in twenty is drawn at random.
"""

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
LETTERS, MODES, KINDS, TAGS = 16, 4, 4, 8
LENGTH = 24
MODE_SHARE, WRONG = 0.1, 0.05
STEPS = 700


def sequences(count: int, seed: int) -> Batch:
    generator = torch.Generator().manual_seed(0)
    table = torch.randint(TAGS, (MODES, KINDS, LETTERS), generator=generator)  # the same for all sequences
    generator.manual_seed(seed)
    letters = torch.randint(LETTERS, (count, LENGTH), generator=generator)
    modes = torch.randint(MODES, (count, LENGTH), generator=generator)
    switches = torch.rand(count, LENGTH, generator=generator) < MODE_SHARE
    switches[:, 0] = True
    last = torch.where(switches, torch.arange(LENGTH), 0).cummax(1).values
    kinds = F.pad(letters[:, :-1], (1, 0)) % KINDS
    tags = table[modes.gather(1, last), kinds, letters]
    noise = torch.randint(TAGS, (count, LENGTH), generator=generator)
    tags = torch.where(torch.rand(count, LENGTH, generator=generator) < WRONG, noise, tags)
    return Batch(torch.where(switches, LETTERS + modes, letters), torch.where(switches, modes, tags))


@cache
def training_data() -> Batch:
    return sequences(8000, 1)


@cache
def test_data() -> Batch:
    return sequences(1000, 2)


class Tagger(nn.Module):
    """Two LSTM of one layer each: Torch-Pruning knows no deeper one."""

    def __init__(self, width: int = 32, hidden: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(LETTERS + MODES, width)
        self.lstm1 = nn.LSTM(width, hidden, batch_first=True)
        self.lstm2 = nn.LSTM(hidden, hidden, batch_first=True)
        self.hidden = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, TAGS)

    def forward(self, x: Tensor) -> Tensor:
        x = self.lstm1(self.embed(x))[0]
        x = self.lstm2(x)[0]
        return self.out(F.relu(self.hidden(x)))


class LSTMTagger(Task):
    name = "lstm-tagger"
    title = "LSTM tagger, sequences made by a rule"
    metric = "accuracy, %"
    tune_steps = 60
    tune_rate = 5e-3

    def untrained(self) -> nn.Module:
        return Tagger()

    def train(self, model: nn.Module, seed: int) -> None:
        fit(model, drawn(*training_data(), 64, STEPS, seed), self.loss, 1e-2, STEPS)

    @property
    def example(self) -> tuple[Any, ...]:
        return (training_data().inputs[:1],)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output.transpose(1, 2), target)

    def calibration(self, seed: int) -> list[Batch]:
        return list(drawn(*training_data(), 64, 16, 100 + seed))

    def tuning(self, seed: int) -> Iterable[Batch]:
        return drawn(*training_data(), 64, self.tune_steps, 200 + seed)

    def score(self, model: nn.Module) -> float:
        return accuracy(model, *test_data())

    def peer_setup(self, model: nn.Module) -> PeerSetup:
        assert isinstance(model, Tagger)
        return PeerSetup([model.out])
