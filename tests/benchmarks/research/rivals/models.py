"""The models that each tool is shown, by name: each function gives a model in eval mode and what its forward takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import nn

from browser import legibility_models

Made: TypeAlias = tuple[nn.Module, tuple[Any, ...]]
STAGE = 20  # blocks
BLOCK = 5  # operators


def detector() -> Made:
    """Faster R-CNN on one picture of 224 × 224."""
    from torchvision import models

    made = models.detection.fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, min_size=224, max_size=224)
    return made, ([torch.zeros(3, 224, 224)],)


def experts() -> Made:
    """Mixtral: four layers, eight experts of which two are taken."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=100,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        num_local_experts=8,
        use_cache=False,
    )
    return MixtralForCausalLM(config), (legibility_models.tokens(16),)


class Block(nn.Module):
    """Five operators: two linear layers, two functions and a residual addition."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(8, wide), nn.Tanh(), nn.Linear(wide, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.relu(self.down(self.act(self.up(x))))


def operators(count: int) -> Made:
    """So many operators in stages of twenty blocks, no two neighbours alike."""
    blocks = [Block(8 + place % 7) for place in range(count // BLOCK)]
    stages = [nn.Sequential(*blocks[place : place + STAGE]) for place in range(0, len(blocks), STAGE)]
    return nn.Sequential(*stages), (torch.zeros(2, 8),)


class Shared(nn.Module):
    """One layer called twice, and two functions that no module stands for."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.last = nn.Linear(8, 8), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        once = self.one(x)
        return self.last(torch.cat([once, F.relu(self.one(once))], 1))


class Deciding(nn.Module):
    """Takes one way or the other, by the numbers that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.high, self.low = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.high(x) if x.sum() > 0 else self.low(x)


class Failing(nn.Module):
    """Stops in its second layer, whose input has another size."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(9, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu())


def ready_made(name: str) -> Callable[[], Made]:
    return lambda: legibility_models.build(name)


# what is timed
MODELS: dict[str, Callable[[], Made]] = {
    "resnet18": ready_made("resnet18"),
    "resnet152": ready_made("resnet152"),
    "densenet201": ready_made("densenet201"),
    "vit_b_16": ready_made("vit"),
    "swin_t": ready_made("swin"),
    "U-Net": ready_made("unet"),
    "Faster R-CNN": detector,
    "Llama, 8 layers": ready_made("llama"),
    "Mixtral, 4 layers": experts,
    "2,000 operators": lambda: operators(2_000),
    "10,000 operators": lambda: operators(10_000),
}
# what asks a tool for one thing
PROBES: dict[str, Callable[[], Made]] = {
    "shared": lambda: (Shared(), (torch.randn(2, 8),)),
    "deciding": lambda: (Deciding(), (torch.ones(2, 8),)),
    "failing": lambda: (Failing(), (torch.ones(2, 8),)),
}


def build(name: str) -> Made:
    """The model of a name, in eval mode, always the same."""
    torch.manual_seed(0)
    made, args = {**MODELS, **PROBES}[name]()
    return made.eval(), args
