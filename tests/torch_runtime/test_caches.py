"""What functions with a cache keep after a look is what a real pass would have made."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models.functional import Lambda


@lru_cache
def positions(size: int) -> torch.Tensor:
    return torch.arange(size, dtype=torch.float32) / size


@cache
def window(size: int) -> torch.Tensor:
    return torch.stack([torch.tensor([1.0] * size), torch.hann_window(size)]).sum(0)


class Tables:
    @staticmethod
    @lru_cache(maxsize=8)
    def table(size: int) -> torch.Tensor:
        return torch.ones(size).cumsum(0)


class PositionMLP(nn.Module):
    """On tensors without data only as far as `first` lets it."""

    def __init__(self, way: str, needs_data: bool) -> None:
        super().__init__()
        self.way, self.needs_data = way, needs_data
        self.first, self.middle, self.last = nn.Linear(4, 6), nn.Linear(6, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert not self.needs_data or x.device.type == "cpu"
        y = self.first(x).relu()
        return self.last(self.middle(y + WAYS[self.way](y.shape[1])).relu())


WAYS: dict[str, Callable[[int], torch.Tensor]] = {"function": positions, "constant": window, "method": Tables.table}


@pytest.mark.parametrize("needs_data", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_the_cache_holds_what_a_real_pass_makes(way: str, needs_data: bool) -> None:
    table = WAYS[way]
    table.cache_clear()  # type: ignore[attr-defined]
    expected = table(6)
    table.cache_clear()  # type: ignore[attr-defined]
    model, x = PositionMLP(way, needs_data), torch.randn(3, 4)
    graph = mk.trace(model, x)
    assert graph.traced_on == ("fake" if needs_data else "meta")
    assert mk.plan(graph, ratio=0.5).axes
    assert graph.axes.verify().ok
    kept = table(6)
    assert (kept.device.type, kept.dtype, type(kept)) == ("cpu", torch.float32, torch.Tensor)
    assert torch.equal(kept, expected)
    assert model(x).dtype is torch.float32


def test_a_cache_that_the_model_holds_stays_empty() -> None:
    held = lru_cache(lambda size: torch.ones(size))
    model, x = (
        Lambda(lambda module, x: module.linear(x) + module.held(2), linear=nn.Linear(4, 2), held=held),
        torch.randn(3, 4),
    )
    assert mk.trace(model, x).traced_on == "meta"
    assert held.cache_info().currsize == 0
