"""What the code of a model keeps in attributes and may make anew is a cache: no state, and a cut breaks none."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import modulekg_widgets as mk
from checks.axes import proved
from models import seeded


def _by_size(module: Any, y: Tensor) -> Tensor:
    if module.cache is None or len(module.cache) < y.shape[1]:
        module.cache = torch.arange(y.shape[1] * 8.0).view(-1, 8) * module.gain
    return module.cache[: y.shape[1]]


def _by_key(module: Any, y: Tensor) -> Tensor:
    if module.cache is None:
        module.cache = {}
    if y.shape[1] not in module.cache:
        module.cache[y.shape[1]] = torch.ones(y.shape[1], 8) * module.gain
    return module.cache[y.shape[1]]


def _by_setdefault(module: Any, y: Tensor) -> Tensor:
    module.cache = module.cache or {}
    return module.cache.setdefault(y.shape[1], torch.ones(y.shape[1], 8))


def _by_setattr(module: Any, y: Tensor) -> Tensor:
    if getattr(module, "cache", None) is None:
        setattr(module, "ca" + "che", torch.ones(8) * module.gain)
    return module.cache


def _by_helper(module: Any, y: Tensor) -> Tensor:
    module.fill()
    return module.cache


class Caching(nn.Module):
    """Keeps what it has made of a parameter, so that later passes do not read that."""

    def __init__(self, table: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)
        self.gain = nn.Parameter(torch.rand(8))
        self.cache: Any = None
        self.table = table

    def fill(self) -> None:
        if self.cache is None:
            self.cache = torch.ones(8) * self.gain

    def train(self, mode: bool = True) -> Caching:
        self.cache = None
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return self.last(y + self.table(self, y))


CACHES = {"size": _by_size, "key": _by_key, "setdefault": _by_setdefault, "setattr": _by_setattr, "helper": _by_helper}


@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize("table", CACHES.values(), ids=CACHES)
def test_a_cache_is_no_state_and_breaks_nothing(table: Callable[[Any, Tensor], Tensor], filled: bool) -> None:
    model = seeded(lambda: Caching(table)).eval()
    x, longer = torch.randn(4, 5, 3), torch.randn(4, 7, 3)
    if filled:
        with torch.no_grad():
            model(x)
    graph = mk.trace(model, x)
    assert not any("cache" in name for name in graph.state)
    if filled:
        assert "cache" in str(graph.axes["first.weight", 0].frozen)
    with pytest.raises(mk.ModuleKGError):
        mk.plan(graph, per_axis={("first.weight", 0): 0.5}).cut(model)
    with torch.no_grad():
        model(longer)
        model.train().eval()(x)


def test_a_property_that_remembers_is_a_cache() -> None:
    class Remembering(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)

        @cached_property
        def table(self) -> Tensor:
            return torch.linspace(0, 1, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.first(x) + self.table)

    model = seeded(Remembering).eval()
    x = torch.randn(4, 3)
    model(x)
    assert "table" not in mk.trace(model, x).state


def test_a_table_that_its_constructor_makes_in_a_method_is_state() -> None:
    class Made(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)
            self.make(8)

        def make(self, size: int) -> None:
            self.table = torch.linspace(0, 1, size)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.first(x) + self.table.to(x.device))

    model = seeded(Made).eval()
    graph = proved(model, torch.randn(4, 3))
    mk.plan(graph, ratio=0.5).cut(model)
    assert model.table.shape == (4,)
    assert model(torch.randn(4, 3)).shape == (4, 2)


def test_a_table_that_a_hook_makes_is_a_cache() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)
            self.table = torch.ones(8)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.first(x) + self.table)

    def renew(module: nn.Module, args: Any) -> None:
        if len(module.table) != 8:
            module.table = torch.ones(8)

    model = seeded(Plain).eval()
    assert "table" in mk.trace(model, torch.randn(4, 3)).state
    model.register_forward_pre_hook(renew)
    assert "table" not in mk.trace(model, torch.randn(4, 3)).state


def test_a_view_of_a_parameter_stays_a_view() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)
            self.again = self.last.weight.data[0]

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.first(x) * self.again)

    model = seeded(Tied).eval()
    graph = proved(model, torch.randn(4, 3))
    assert "again" not in graph.state
    assert "neither parameter nor buffer" in str(graph.axes["first.weight", 0].frozen)
