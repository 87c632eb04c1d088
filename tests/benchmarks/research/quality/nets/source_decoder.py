"""(f) A small decoder on the bytes of Python's own sources: perplexity on files that it has not seen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.research.quality.nets.attention import Block, heads_of, write_heads
from benchmarks.research.quality.nets.library import source_files
from benchmarks.research.quality.task import Batch, PeerSetup, Task
from benchmarks.research.quality.training import fit

Tensor = torch.Tensor
SYMBOLS = 128  # bytes above are one symbol
LENGTH = 128
SIZE = 16
STEPS = 1500
HELD_OUT = 10  # one file in so many
TEST = 100  # pieces, a multiple of the 20 of a pass


@cache
def texts() -> tuple[Tensor, Tensor]:
    """All bytes for training, and those of the files that are held out."""
    files = source_files()
    parts = [[file for number, file in enumerate(files) if (number % HELD_OUT == 0) == held] for held in (False, True)]
    joined = [np.frombuffer(b"\n".join(file.read_bytes() for file in part), dtype=np.uint8) for part in parts]
    training, held_out = (torch.tensor(np.where(text < SYMBOLS, text, 0)) for text in joined)
    return training, held_out


def pieces(text: Tensor, starts: Tensor) -> Batch:
    """What stands from each start on, and for each byte the next."""
    found = text[starts[:, None] + torch.arange(LENGTH + 1)].long()
    return Batch(found[:, :-1], found[:, 1:])


def drawn_pieces(steps: int, seed: int) -> Iterator[Batch]:
    text = texts()[0]
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        yield pieces(text, torch.randint(len(text) - LENGTH, (SIZE,), generator=generator))


class Decoder(nn.Module):
    def __init__(self, width: int = 96, depth: int = 4, heads: int = 4, hidden: int = 384) -> None:
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, width)
        self.position = nn.Parameter(torch.randn(1, LENGTH, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, hidden, causal=True) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, SYMBOLS)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embed(x) + self.position)))


class SourceDecoder(Task):
    name = "source-decoder"
    title = "Decoder, bytes of Python's sources"
    metric = "perplexity of a byte"
    less_is_better = True
    digits = 2
    tune_steps = 50
    tune_rate = 1e-3

    def untrained(self) -> nn.Module:
        return Decoder()

    def train(self, model: nn.Module, seed: int) -> None:
        fit(model, drawn_pieces(STEPS, seed), self.loss, 3e-3, STEPS)

    @property
    def example(self) -> tuple[Any, ...]:
        return (pieces(texts()[0], torch.zeros(1, dtype=torch.long)).inputs,)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output.flatten(0, 1), target.flatten())

    def calibration(self, seed: int) -> list[Batch]:
        return list(drawn_pieces(8, 1000 + seed))

    def tuning(self, seed: int) -> Iterable[Batch]:
        return drawn_pieces(self.tune_steps, 2000 + seed)

    @torch.no_grad()
    def score(self, model: nn.Module) -> float:
        text = texts()[1]
        starts = torch.randint(len(text) - LENGTH, (TEST,), generator=torch.Generator().manual_seed(0))
        inputs, target = pieces(text, starts)
        losses = [
            self.loss(model(part), wanted) for part, wanted in zip(inputs.split(20), target.split(20), strict=True)
        ]
        return math.exp(min(torch.stack(losses).mean().item(), 100.0))

    def peer_setup(self, model: nn.Module) -> PeerSetup:
        assert isinstance(model, Decoder)
        return PeerSetup([model.head], heads_of(model))

    def after_peer(self, model: nn.Module, heads: Mapping[nn.Module, int]) -> None:
        write_heads(model, heads)
