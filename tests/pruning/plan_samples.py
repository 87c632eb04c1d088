"""Small models of many kinds with a plan for each."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations

import modulekg_widgets as mk
from models import seeded


class Settings:
    """A plain object, as the configurations of transformers are."""

    def __init__(self) -> None:
        self.width = 8


class Mixed(nn.Module):
    """Sizes in attributes of every kind: a number, a tuple, a list, and those of a plain object."""

    def __init__(self) -> None:
        super().__init__()
        self.config = Settings()
        self.shape, self.split = (-1, 8), [12, 12]
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 24)
        self.third = nn.Linear(12, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x).view(*self.shape)
        left, right = self.second(y).split(self.split, dim=-1)
        return self.out(self.third(left * right).view(-1, self.config.width))


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.attend, self.out = nn.Linear(6, 16), nn.MultiheadAttention(16, 4), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.into(x)
        return self.out(self.attend(y, y, y)[0])


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.mix, self.out = nn.Embedding(7, 8), nn.Linear(8, 8), nn.Linear(8, 7, bias=False)
        self.again, self.out.weight = self.mix, self.table.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.again(self.mix(self.table(x)).relu()))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, groups=4), nn.GroupNorm(4, 16),
        nn.Conv2d(16, 16, 1, groups=16), parametrizations.weight_norm(nn.Conv2d(16, 3, 1)),
    )  # fmt: skip


IMAGES, ROWS = torch.randn(2, 3, 6, 6), torch.randn(4, 2, 6)
PLANS: dict[str, tuple[Callable[[], nn.Module], torch.Tensor, dict[str, Any]]] = {
    "ratio": (convolutions, IMAGES, {"ratio": 0.5}),
    "groups": (convolutions, IMAGES, {"ratio": 0.5, "granularity": "group"}),
    "global": (convolutions, IMAGES, {"ratio": 0.3, "scope": "global"}),
    "per_axis": (convolutions, IMAGES, {"per_axis": {"0": 0.5}}),
    "cuts": (convolutions, IMAGES, {"cuts": [("0.weight", [1, 3], 0), ("3.weight", [2], 0)]}),
    "attention": (Attends, ROWS, {"ratio": 0.5}),
    "heads": (Attends, ROWS, {"ratio": 0.5, "granularity": "head"}),
    "attributes": (Mixed, ROWS, {"ratio": 0.5}),
    "ties": (Tied, torch.tensor([[1, 5, 2]]), {"ratio": 0.5}),
}


@lru_cache
def planned(name: str) -> tuple[nn.Module, mk.PruningPlan]:
    """A model, which no test may change, and a plan for it."""
    build, x, how = PLANS[name]
    model = seeded(build).eval()
    graph = mk.trace(model, x)
    cuts = [graph.cut_analysis(tensor, index, dim) for tensor, index, dim in how.get("cuts", ())]
    return model, mk.plan(graph, **{**how, "cuts": cuts or None})


def content(model: nn.Module) -> dict[str, Any]:
    """What a model holds, by value."""
    found: dict[str, Any] = {name: value.numpy().tobytes() for name, value in model.state_dict().items()}
    found |= {f"shape of {name}": value.shape for name, value in model.state_dict().items()}
    for path, module in model.named_modules():
        held = {**vars(module), **vars(getattr(module, "config", Settings()))}
        found |= {f"{path}:{name}": str(v) for name, v in held.items() if isinstance(v, int | str | tuple | list)}
    return found
