"""Weights that live in buffers are scored and cut as parameters are; buffers that train mode alone reads follow."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import modulekg_widgets as mk


class Products(nn.Module):
    """Matrix products as a converter writes them, with nothing that can be learnt."""

    def __init__(self) -> None:
        super().__init__()
        sizes = {"w1": (8, 16), "b1": (16,), "w2": (16, 16), "b2": (16,), "w3": (16, 3)}
        for name, size in sizes.items():
            self.register_buffer(name, torch.randn(size))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.relu(x @ self.w1 + self.b1) @ self.w2 + self.b2) @ self.w3


class Frozen(nn.Module):
    """A backbone whose parameters were made buffers, below a head that learns."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 16)), nn.Linear(16, 3)
        for layer in (self.body[0], self.body[2]):
            for name in ("weight", "bias"):
                value = getattr(layer, name).detach()
                delattr(layer, name)
                layer.register_buffer(name, value)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.body(x)))


class Kernels(nn.Module):
    """Convolutions with kernels in buffers, one of which blurs each channel alone."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("k1", torch.randn(16, 3, 3, 3))
        self.register_buffer("k2", torch.randn(16, 16, 3, 3))
        self.register_buffer("blur", torch.rand(16, 1, 3, 3))
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(-1, 3, 8, 8)
        h = F.conv2d(x, self.k1, padding=1).relu()
        h = F.conv2d(h, self.blur, padding=1, groups=h.shape[1])
        return self.head(F.conv2d(h, self.k2).relu().mean((2, 3)))


def made(cls: type[nn.Module]) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return cls().eval(), torch.randn(4, 192 if cls is Kernels else 8)


each = pytest.mark.parametrize("cls", [Products, Frozen, Kernels])
BATCH = torch.tensor([0, 1, 2, 1])
CRITERIA: dict[str, Callable[[Tensor], Any]] = {
    "l1": lambda x: "l1",
    "l2": lambda x: "l2",
    "fpgm": lambda x: "fpgm",
    "taylor": lambda x: mk.pruning.Taylor([(x, BATCH)], F.cross_entropy),
    "activation": lambda x: mk.pruning.Activation([x]),
    "function": lambda x: lambda group: sum(member.tensor.abs().sum(1) for member in group.members),
}


@each
@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_ratio_takes_weights_in_buffers(cls: type[nn.Module], criterion: str) -> None:
    """The cut model gives what the masked one gives."""
    model, x = made(cls)
    plan = mk.plan(mk.trace(model, x), ratio=0.5, importance=CRITERIA[criterion](x))
    assert sorted(axis.left * 2 for axis in plan.axes) == sorted(axis.size for axis in plan.axes)
    assert len(plan.axes) == 2
    masked = copy.deepcopy(model)
    plan.cut(model)
    plan.mask(masked)
    assert torch.allclose(model(x), masked(x), atol=1e-4)


def test_the_least_of_a_buffer_goes_first() -> None:
    model, x = made(Products)
    model.w1[:, 3:7] *= 1e-3
    model.w2[3:7] *= 1e-3
    plan = mk.plan(mk.trace(model, x), ratio=0.25)
    assert {axis.name: axis.dropped for axis in plan.axes}["w1.dim1"] == (3, 4, 5, 6)


@each
@pytest.mark.parametrize("target", ["flops", "bytes"])
def test_a_target_takes_weights_in_buffers(cls: type[nn.Module], target: str) -> None:
    model, x = made(cls)
    plan = mk.plan(mk.trace(model, x), target={target: 0.6})
    before, after = getattr(plan, target)
    assert after / before == pytest.approx(0.6, abs=0.05)


def test_parameters_alone_count_as_parameters() -> None:
    model, x = made(Frozen)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    assert plan.params == (51, 27)


class Rotated(nn.Module):
    """A table of angles is no weight: what it is as long as stays."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("angles", torch.rand(6, 4))
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x.sum(-1, keepdim=True) + self.angles)


def test_a_table_that_is_added_is_no_weight() -> None:
    graph = mk.trace(Rotated(), torch.rand(6, 5))
    assert graph.axes.weight_buffers == frozenset()
    with pytest.raises(mk.ModuleKGError, match="removes no index of any axis"):
        mk.plan(graph, ratio=0.5)


# ---------------------------------------------------- what train mode reads


class Codebook(nn.Module):
    """A codebook with running averages, which train mode alone reads."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.enc, self.dec = nn.Linear(6, 16), nn.Linear(16, 6)
        self.register_buffer("codes", torch.randn(12, 16))
        average = torch.randn(12, 16)
        if how == "parameter":
            self.avg = nn.Parameter(average)
        else:
            self.register_buffer("avg", average)

    def forward(self, x: Tensor) -> Tensor:
        z = self.enc(x)
        index = torch.cdist(z, self.codes).argmin(1)
        if self.training:
            with torch.no_grad():
                new = F.one_hot(index, len(self.codes)).to(z.dtype).T @ z
                if self.how == "assigned":
                    self.avg = self.avg * 0.9 + new * 0.1
                else:
                    self.avg.mul_(0.9).add_(new, alpha=0.1)
        return self.dec(F.embedding(index, self.codes))


class Centered(nn.Module):
    """The mean of features is kept up in train mode; dropout makes that pass a random one."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.drop, self.b = nn.Linear(6, 16), nn.Dropout(0.2), nn.Linear(16, 6)
        self.register_buffer("center", torch.zeros(16))
        self.register_buffer("never", torch.zeros(5))

    def forward(self, x: Tensor) -> Tensor:
        h = self.drop(self.a(x).relu())
        if self.training:
            self.center.lerp_(h.detach().mean(0), 0.1)
        return self.b(h)


@pytest.mark.parametrize("how", ["parameter", "buffer", "assigned"])
def test_averages_of_train_mode_follow_a_cut_of_eval_mode(how: str) -> None:
    torch.manual_seed(0)
    model, x = Codebook(how).eval(), torch.randn(32, 6)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    plan.cut(model)
    assert model.enc.out_features == model.avg.shape[1] == model.codes.shape[1] == 8
    assert model(x).shape == (32, 6)
    model.train()(x)
    assert model(x).shape == (32, 6)


def test_a_mean_of_train_mode_follows_where_another_buffer_is_never_read() -> None:
    torch.manual_seed(0)
    model, x = Centered().eval(), torch.randn(32, 6)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    plan.cut(model)
    assert model.center.shape == (8,)
    assert model.never.shape == (5,)
    model.train()(x)
