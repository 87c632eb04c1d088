"""Writing into a slice couples what is written, and nothing else: the rest of the dimension is cut for itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import modulekg_widgets as mk
from checks.axes import proved
from models import seeded


def _first(y: Tensor, h: Tensor) -> Tensor:
    out = y.clone()
    out[:, : h.shape[1]] = h
    return out


def _in_place(y: Tensor, h: Tensor) -> Tensor:
    y[:, : h.shape[1]] = h
    return y


def _last(y: Tensor, h: Tensor) -> Tensor:
    out = y.clone()
    out[:, -h.shape[1] :] = h
    return out


def _added(y: Tensor, h: Tensor) -> Tensor:
    y[:, : h.shape[1]] += h
    return y


def _narrow(y: Tensor, h: Tensor) -> Tensor:
    y.narrow(1, 0, h.shape[1]).copy_(h)
    return y


def _put_together(y: Tensor, h: Tensor) -> Tensor:
    out = torch.empty_like(y)
    count = h.shape[1]
    out[:, :count], out[:, count:] = h, y[:, count:].tanh()
    return out


WRITES = [_first, _in_place, _last, _added, _narrow, _put_together,
          lambda y, h: torch.slice_scatter(y, h, 1, 0, h.shape[1])]  # fmt: skip


class Writes(nn.Module):
    """A part of what one layer gives is written over by another one."""

    def __init__(self, write: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.write = write
        self.a, self.f, self.head = nn.Linear(4, 16), nn.Linear(4, 6), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.write(self.a(x), self.f(x).relu()).tanh())


@pytest.mark.parametrize("write", WRITES)
def test_only_the_written_part_is_coupled(write: Callable[[Tensor, Tensor], Tensor]) -> None:
    model = seeded(lambda: Writes(write)).eval()
    x = torch.randn(5, 4)
    graph = proved(model, x)
    written = graph.axes["f.weight", 0]
    assert written.frozen is None
    parts = graph.axes["head.weight", 1].axes
    assert sorted(axis.size for axis in parts) == [6, 10]
    assert written in parts
    assert all(axis.frozen is None for axis in parts)
    before = model(x)
    plan = mk.plan(graph, ratio=0.5)
    assert plan.params[1] <= 0.55 * plan.params[0]
    receipt = plan.cut(model)
    assert list(model.head.weight.shape) == [3, 8]
    assert model(x).shape == (5, 3)
    receipt.undo()
    assert torch.equal(model(x), before)


class BySize(nn.Module):
    """The code says how much is written."""

    def __init__(self, by_attribute: bool) -> None:
        super().__init__()
        self.count = 6
        self.by_attribute = by_attribute
        self.a, self.f, self.head = nn.Linear(4, 16), nn.Linear(4, 6), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        end = self.count if self.by_attribute else 6
        return self.head(torch.slice_scatter(self.a(x), self.f(x), 1, 0, end).tanh())


@pytest.mark.parametrize("by_attribute", [True, False])
def test_a_write_that_kernels_without_data_do_not_look_at(by_attribute: bool) -> None:
    model, x = seeded(lambda: BySize(by_attribute)).eval(), torch.randn(5, 4)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    plan.cut(model)
    assert model(x).shape == (5, 3)
    assert (model.count, model.f.out_features) == ((3, 3) if by_attribute else (6, 6))
    assert model.a.out_features == (8 if by_attribute else 11)
