"""Models that leave layers out by chance: what a smaller pass draws may not lead it another way."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.axes.proof.double_precision import ForceDtype
from modulekg_widgets.engine.pruning.plan.corrections.repair_loop import PlanCandidate
from modulekg_widgets.engine.pruning.plan.dry_run.masked_reference import output_error
from modulekg_widgets.engine.pruning.plan.planner import Planner
from modulekg_widgets.engine.pruning.plan.selection.fullest_trace import fullest_trace
from modulekg_widgets.engine.pruning.plan.selection.request import Request
from modulekg_widgets.engine.torch_runtime.rng import ReproducibleDraws

HEAD, HEADS, LAYERS, DROPPED = 8, 4, 4, 0.4


class Attention(nn.Module):
    """The count of heads follows from the size of one, which is written down: other heads have the same shape."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.head_dim = HEAD

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            layer(x).view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        seen = (query @ key.transpose(2, 3)).softmax(-1) @ value
        return x + self.out(seen.transpose(1, 2).reshape(*x.shape[:2], -1))


class Dropping(nn.Module):
    """As wav2vec2: `token` is read in train mode alone, where dropout draws before each choice of a layer."""

    def __init__(self) -> None:
        super().__init__()
        width = HEAD * HEADS
        self.into, self.out, self.dropout = nn.Linear(5, width), nn.Linear(width, 3), nn.Dropout(0.1)
        self.token = nn.Parameter(torch.rand(width))
        self.layers = nn.ModuleList(Attention(width) for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.into(x)
        if self.training:
            x = torch.cat([x[:, :-1], self.token.expand(len(x), 1, -1)], 1)
        for layer in self.layers:
            x = self.dropout(x)
            if self.training and torch.rand([]) < DROPPED:
                continue
            x = layer(x)
        return self.out(x)


@pytest.fixture(autouse=True)
def random_state() -> Iterator[None]:
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


def model_and_input() -> tuple[Dropping, torch.Tensor]:
    torch.manual_seed(0)
    return Dropping(), torch.randn(2, 6, 5)


def check_heads(model: Dropping, x: torch.Tensor, plan: mk.PruningPlan) -> None:
    """Each head of the cut model is one of the old ones, without what went of it."""
    kept = {name: edit.kept for edit in plan.edits.tensors for name in edit.names}
    model.eval()
    whole = {name: value.clone() for name, value in model.state_dict().items()}
    plan.cut(model)
    with torch.no_grad():
        for number, layer in enumerate(model.layers):
            assert isinstance(layer, Attention)
            rows = kept[f"layers.{number}.query.weight"][0]
            assert layer.head_dim == HEAD // 2
            heads = rows.reshape(-1, layer.head_dim) // HEAD
            assert (heads == heads[:, :1]).all()
            assert np.array_equal(whole[f"layers.{number}.query.bias"][rows], layer.query.bias)
        assert model(x).isfinite().all()


def test_a_plan_on_the_train_pass_is_tried_on_the_same_way() -> None:
    model, x = model_and_input()
    graph = mk.trace(model.eval(), x)
    before = torch.get_rng_state()
    planner = Planner(graph, Request(ratio=0.5))
    assert planner.graph.training
    assert planner.graph.seed is not None
    selection = planner.selection(0.5)
    attempt, rehearsal = planner.repair.fixed(PlanCandidate(selection, selection.counts))
    assert rehearsal.matches_trace  # the dry run went all of the way that was recorded
    edits = planner.repair.edits(attempt)
    assert {edits.attributes[f"layers.{number}.head_dim"] for number in range(LAYERS)} == {(HEAD, HEAD // 2)}
    assert output_error(planner.axes, attempt.selection.keep_masks(), edits, rehearsal.scales) < 1e-9
    assert torch.equal(torch.get_rng_state(), before)
    check_heads(model, x, mk.plan(graph, ratio=0.5))


def test_a_pass_that_was_traced_by_chance_is_traced_from_a_seed() -> None:
    model, x = model_and_input()
    for seed in range(200):
        torch.manual_seed(seed)
        graph = mk.trace(model.train(), x)
        assert graph.traced_on == "real"
        if sum(operator.name == "aten::_softmax" for operator in graph.operators) == LAYERS:
            break
    else:
        pytest.fail("no seed runs every layer")  # then nothing is left out that would call for another pass
    again = fullest_trace(graph)
    assert again.seed is not None
    assert fullest_trace(again) is again
    plan = mk.plan(graph, ratio=0.5)
    assert plan.flops[0] == int(again.flops())
    check_heads(model, x, plan)


def test_a_pass_without_chance_is_not_traced_again() -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    for training in (False, True):
        graph = mk.trace(model.train(training), torch.randn(4, 3))
        assert fullest_trace(graph) is graph


def test_draws_go_by_their_number_and_not_by_sizes_or_types() -> None:
    def drawn(size: int, dtype: torch.dtype) -> list[float]:
        found = []
        before = torch.get_rng_state()
        with ReproducibleDraws(5), ForceDtype(dtype):
            for _ in range(4):
                nn.functional.dropout(torch.ones(size), 0.5)
                found.append(torch.rand([]))
        assert all(value.dtype is dtype for value in found)
        assert torch.equal(torch.get_rng_state(), before)
        return [float(value) for value in found]

    expected = drawn(8, torch.float32)
    assert drawn(1000, torch.float32) == expected
    assert drawn(8, torch.float64) == expected
    assert len(set(expected)) == 4
