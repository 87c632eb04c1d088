"""What cannot be proved on this model: the wrong stays, and the doubtful goes only where a second witness holds."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import CutError

Tensor = torch.Tensor


class Routed(nn.Module):
    """A mixture of experts whose routing goes through Python, by the way that `rows` takes."""

    def __init__(self, rows: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.rows = rows
        self.gate, self.out = nn.Linear(16, 8), nn.Linear(16, 3)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(8))

    def forward(self, x: Tensor) -> Tensor:
        weight, index = self.gate(x).softmax(-1).topk(2, -1)
        y = torch.zeros_like(x)
        for row, chosen in enumerate(self.rows(index)):
            for place, expert in enumerate(chosen):
                y[row] += self.experts[int(expert)](x[row]) * weight[row, place]
        return self.out(y)


WAYS: dict[str, Callable[[Tensor], Any]] = {
    "tolist": lambda index: index.tolist(),
    "numpy": lambda index: index.numpy(),
    "cpu tolist": lambda index: [row.cpu().tolist() for row in index],
}


def without(model: Routed, gone: list[int], x: Tensor) -> Tensor:
    """What a model gives whose router cannot choose some experts."""
    with torch.no_grad():
        model.gate.bias[gone] = -1e9
        return model(x)


@pytest.mark.parametrize("way", WAYS)
def test_a_router_that_python_reads_is_cut_with_its_experts_or_not_at_all(way: str) -> None:
    torch.manual_seed(0)
    model, x = Routed(WAYS[way]).eval(), torch.randn(24, 16)
    whole = copy.deepcopy(model)
    try:
        plan = mk.plan(mk.trace(model, x), ratio=0.5)
    except CutError:
        return  # nothing else of it is free
    plan.cut(model)
    gone = [index for axis in plan.axes if axis.name.startswith("gate") for index in axis.dropped]
    with torch.no_grad():
        torch.testing.assert_close(model(x), without(whole, gone, x) if gone else whole(x))


MIXED: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "data =": lambda k, q: setattr(k, "data", k.data * 0.9 + q.data * 0.1),
    "lerp of data": lambda k, q: setattr(k, "data", torch.lerp(k.data, q.data, 0.1)),
    "set_": lambda k, q: k.set_(k * 0.9 + q * 0.1),
    "in place": lambda k, q: k.data.mul_(0.9).add_(q.data, alpha=0.1),
}


class Momentum(nn.Module):
    """Two encoders, of which one follows the other."""

    def __init__(self, mixed: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.mixed = mixed
        self.q = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 16))
        self.k = copy.deepcopy(self.q).requires_grad_(False)
        for parameter in self.k.parameters():
            parameter.data.add_(0.1 * torch.randn_like(parameter))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            for q, k in zip(self.q.parameters(), self.k.parameters(), strict=True):
                self.mixed(k, q)
        return self.q(x), self.k(x)


@pytest.mark.parametrize("way", MIXED)
def test_encoders_whose_weights_are_mixed_lose_the_same_indices_or_none(way: str) -> None:
    torch.manual_seed(0)
    model = Momentum(MIXED[way]).train()
    try:
        plan = mk.plan(mk.trace(model, torch.randn(8, 6)), ratio=0.5)
    except CutError:
        return
    kept = {edit.names[0]: edit.kept for edit in plan.edits.tensors}
    assert list(kept["q.0.weight"][0]) == list(kept["k.0.weight"][0])


class Exits(nn.Module):
    """Ends early where a head is sure, which the traced input is not."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.early = nn.Linear(8, 32), nn.Linear(32, 10)
        self.more, self.late = nn.Linear(32, 32), nn.Linear(32, 10)
        self.threshold = 0.9

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x).relu()
        logits = self.early(h)
        if logits.softmax(-1).amax() > self.threshold:
            return logits
        return self.late(self.more(h).relu())


def test_a_head_that_only_decides_stays_and_the_plan_says_so() -> None:
    torch.manual_seed(0)
    model, x = Exits().eval(), torch.randn(1, 8)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    assert {axis.name: axis.left for axis in plan.axes} == {"body.out": 16, "more.out": 16}
    assert any("early.out" in note and "is not cut" in note for note in plan.notes)
    plan.cut(model)
    model.threshold = 0.0
    assert model(x).shape == (1, 10)


def test_what_only_decides_is_refused_by_name() -> None:
    """It is what the model returns for others."""
    with pytest.raises(CutError, match=r"early\.out is frozen, only decides which branch"):
        mk.plan(mk.trace(Exits().eval(), torch.randn(1, 8)), per_axis={"early.out": 0.5})


class Zero(nn.Module):
    """A branch that reaches the output times zero, where a number decides the way."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = nn.Linear(6, 16), nn.Linear(16, 3), nn.Linear(6, 12), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x).relu()
        if h.mean() > 100:
            return self.b(h)
        return self.b(h) + 0.0 * self.d(self.c(x))


def test_a_branch_without_an_effect_stays_and_the_plan_says_so() -> None:
    torch.manual_seed(0)
    plan = mk.plan(mk.trace(Zero().eval(), torch.randn(4, 6)), ratio=0.5)
    assert [axis.name for axis in plan.axes] == ["a.out"]
    assert any("c.out" in note for note in plan.notes)


def test_what_is_asked_for_by_name_goes_with_a_note() -> None:
    torch.manual_seed(0)
    plan = mk.plan(mk.trace(Zero().eval(), torch.randn(4, 6)), per_axis={"c.out": 0.5})
    assert [(axis.name, axis.left) for axis in plan.axes] == [("c.out", 6)]
    assert any("c.out" in note and "as requested" in note for note in plan.notes)


def test_a_bias_that_a_normalisation_takes_away_keeps_no_axis_whole() -> None:
    """The control is blind to it, and the values of the cut and of the masked model are one."""

    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.norm, self.b = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.norm(self.a(x)).relu()
            return self.b(h) if h.sum() > 0 else -self.b(h)

    torch.manual_seed(0)
    model, x = Normed().train(), torch.randn(8, 6)
    graph = mk.trace(model, x)
    assert graph.axes.verify().not_proved == ["a.out"]
    plan = mk.plan(graph, ratio=0.5)
    assert [(axis.name, axis.left) for axis in plan.axes] == [("a.out", 8)]
    assert plan.notes == ()


def test_a_loop_that_does_not_end_on_other_weights_does_not_hang() -> None:
    """The proof rescales weights, with which a loop by a norm might go on for ever: it goes the traced way."""

    class Decays(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.c, self.b = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 3)
            with torch.no_grad():
                self.c.weight.mul_(0.2)
                self.c.bias.zero_()

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            while h.norm() > 0.1:
                h = self.c(h)
            return self.b(h)

    torch.manual_seed(0)
    graph = mk.trace(Decays().eval(), torch.randn(4, 6))
    plan = mk.plan(graph, ratio=0.5)
    assert [axis.left for axis in plan.axes] == [8]
    assert graph.axes.verify().ok


def test_a_model_that_gives_other_values_each_time_is_not_said_to_be_wrong() -> None:
    class Timed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x).relu()) * (1 + time.perf_counter() % 1)

    found = mk.trace(Timed().eval(), torch.randn(4, 6)).axes.verify()
    assert found.wrong == []
    assert "each time" in found["a.out"].note
