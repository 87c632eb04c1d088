"""Profiles: what the table has, that the model stays as it is, and what cannot be measured."""

import math
import random
from contextlib import suppress
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from cases.nasty_modules import NASTY
from checks.model_state import surroundings, unchanged
from models.functional import Lambda
from models.nasty import nasty_module
from modulekg_widgets.engine.errors import CutError, TraceError

COLUMNS = ["module", "time_ms", "memory", "flops", "flops_per_s"]


class ReusedConvNet(nn.Module):
    """A module that is called twice, one in two places, one that is not called, and code of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.act = nn.ReLU()
        self.inner = nn.Sequential(nn.Conv2d(8, 8, 1), self.act)
        self.spare = nn.Linear(2, 2)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.norm(self.conv(x)))
        x = self.inner(self.inner(x)) + x
        return self.head(x.mean((2, 3)))


def row(table: pd.DataFrame, path: str) -> Any:
    return table[table["module"] == path].iloc[0]


def traced(model: nn.Module) -> mk.DataflowGraph:
    return mk.trace(model, torch.randn(2, 3, 8, 8))


def test_the_table() -> None:
    graph = traced(ReusedConvNet())
    table = graph.profile()
    assert list(table) == COLUMNS
    assert list(table["module"]) == ["", "conv", "norm", "act", "inner", "inner.0", "spare", "head"]
    assert row(table, "")["flops"] == graph.flops().total
    for path in ("conv", "inner.0", "head"):
        assert row(table, path)["flops"] == graph.modules[path].flops().total
        assert row(table, path)["flops_per_s"] == pytest.approx(
            1e3 * row(table, path)["flops"] / row(table, path)["time_ms"]
        )
    assert row(table, "conv")["memory"] == 4 * 2 * 8 * 8 * 8
    assert row(table, "inner.0")["memory"] == 2 * 4 * 2 * 8 * 8 * 8  # two calls
    assert row(table, "")["memory"] >= sum(row(table, path)["memory"] for path in ("conv", "norm", "act", "inner"))
    assert math.isnan(row(table, "spare")["time_ms"])
    assert math.isnan(row(table, "spare")["flops_per_s"])
    assert (table["time_ms"].drop(6) > 0).all()


def test_a_container_takes_at_least_what_is_in_it() -> None:
    table = traced(ReusedConvNet()).profile()
    assert row(table, "inner")["time_ms"] >= row(table, "inner.0")["time_ms"]
    inside = sum(row(table, path)["time_ms"] for path in ("conv", "norm", "inner", "head"))
    assert row(table, "")["time_ms"] >= inside


def test_other_inputs_than_those_of_the_trace() -> None:
    graph = traced(ReusedConvNet())
    smaller, larger = graph.profile(), graph.profile(torch.randn(2, 3, 16, 16))
    assert row(larger, "conv")["flops"] == 4 * row(smaller, "conv")["flops"]
    assert row(larger, "conv")["memory"] == 4 * row(smaller, "conv")["memory"]
    by_name = graph.profile(kwargs={"x": torch.randn(2, 3, 16, 16)})
    assert row(by_name, "")["flops"] == row(larger, "")["flops"]


def test_before_and_after_a_plan() -> None:
    graph = traced(ReusedConvNet())
    plan = mk.plan(graph, ratio=0.5)
    with unchanged(graph.model):
        table = graph.profile(plan=plan)
    assert list(table) == [*COLUMNS, *(f"{name}_after" for name in COLUMNS[1:])]
    assert (row(table, "")["flops"], row(table, "")["flops_after"]) == plan.flops
    assert row(table, "conv")["memory_after"] == row(table, "conv")["memory"] / 2
    assert row(table, "conv")["time_ms_after"] > 0
    plan.cut(graph.model)
    now = traced(graph.model).profile()
    assert list(now["flops"]) == list(table["flops_after"])
    assert list(now["memory"]) == list(table["memory_after"])


def test_what_a_plan_removes_has_no_time_after_it() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.inner(x)

    graph = mk.trace(nn.Sequential(*(Residual() for _ in range(3))), torch.randn(2, 4))
    table = graph.profile(plan=mk.plan(graph, blocks=["1"]))
    assert list(table["module"]) == ["", "0", "0.inner", "1", "1.inner", "2", "2.inner"]
    assert list(table["time_ms_after"].isna()) == [False, False, False, True, True, False, False]
    assert list(table["flops_after"] == 0) == [False, False, False, True, True, False, False]


@pytest.mark.parametrize("name", sorted(set(NASTY) - {"wide_100k"}))
def test_every_nasty_module_stays_as_it_is(name: str) -> None:
    model = nasty_module(name)
    given = (NASTY[name]["inp"] or tuple)() or ()
    with suppress(mk.ModuleKGError):
        graph = mk.trace(model, given)
        with unchanged(model, given):
            graph.profile()


class Busy(nn.Module):
    """Writes into a buffer, its input, a list and an attribute, and draws random numbers of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout()
        self.register_buffer("seen", torch.zeros(()))
        self.count, self.kept = 0, []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.kept.append(x)
        self.seen += 1
        x += random.random() * torch.rand(4)
        return self.drop(self.norm(x))


def test_a_model_that_writes_and_draws_stays_as_it_is() -> None:
    model, x = Busy(), torch.randn(3, 4)
    graph = mk.trace(model, x)
    before = surroundings()
    with unchanged(model, x):
        graph.profile()
    assert surroundings() == before
    assert model.training
    assert model.norm.num_batches_tracked == 0


def test_a_forward_that_raises_while_it_is_measured() -> None:
    passes = []

    def forward(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        passes.append(x.device.type)
        if passes.count("cpu") > 3:  # behind the passes that do not count
            raise ValueError("worn out")
        return module.get_submodule("linear")(x)

    model, x = Lambda(forward, linear=nn.Linear(4, 4)), torch.randn(2, 4)
    graph = mk.trace(model, x)
    with unchanged(model, x), pytest.raises(TraceError, match=r"worn out.*pass inputs that it takes"):
        graph.profile()


def test_what_cannot_be_measured() -> None:
    graph = mk.trace(nn.Linear(3, 4).to("meta"), torch.zeros(1, 3))
    with pytest.raises(TraceError, match="'weight' is on the meta device: give the model weights first"):
        graph.profile()
    graph = mk.trace(nn.Linear(3, 4), torch.zeros(1, 3, device="meta"))
    with pytest.raises(TraceError, match=r"the input .* is on the meta device: pass a tensor with data"):
        graph.profile()
    assert len(graph.profile(torch.zeros(1, 3))) == 1
    with pytest.raises(TraceError, match="run model"):
        graph.profile(torch.zeros(1, 5))
    with pytest.raises(TraceError, match="do not fit forward"):
        graph.profile((torch.zeros(1, 3), torch.zeros(1, 3)))
    with pytest.raises(CutError, match=r"plan= is a dict: pass what mk.plan gave"):
        graph.profile(torch.zeros(1, 3), plan={"ratio": 0.5})


def test_a_plan_of_another_model() -> None:
    plan = mk.plan(traced(ReusedConvNet()), ratio=0.5)
    graph = mk.trace(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), torch.zeros(1, 3))
    with pytest.raises(CutError):
        graph.profile(plan=plan)
