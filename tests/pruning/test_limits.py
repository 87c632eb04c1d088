"""Limits of what a plan leaves: a floor and a ceiling for every axis or by axis."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import UnknownAxisError
from pruning.target_samples import left, three_layers


@pytest.fixture
def net() -> mk.DataflowGraph:
    return three_layers()


@pytest.mark.parametrize("how", [{"ratio": 0.7}, {"target": {"params": 0.45}}, {"ratio": 0.7, "scope": "global"}])
def test_floor_and_ceiling_hold(net: mk.DataflowGraph, how: dict[str, Any]) -> None:
    plan = mk.plan(net, floor={"second": 0.5}, ceiling={"first": 6}, **how)
    assert left(plan)["second.out"] >= 12
    assert left(plan)["first.out"] <= 6
    every = mk.plan(net, floor=5, ceiling=0.75, **how)
    assert all(5 <= axis.left <= 0.75 * axis.size for axis in every.axes)
    assert len(every.axes) == 2


def test_a_floor_takes_the_place_of_the_usual_tenth() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 2))
    with torch.no_grad():
        for tensor in (model[0].weight, model[0].bias):
            tensor[1:] *= 1e-4
        model[2].weight[:, 1:] *= 1e-4
    graph = mk.trace(model, torch.randn(1, 4))
    assert left(mk.plan(graph, ratio=0.48, scope="global"))["0.out"] == 4
    assert left(mk.plan(graph, ratio=0.48, scope="global", floor=1))["0.out"] < 4
    assert left(mk.plan(graph, ratio=0.48, scope="global", floor=0.5))["0.out"] == 20


def test_floor_and_ceiling_keep_multiples(net: mk.DataflowGraph) -> None:
    plan = mk.plan(net, ratio=0.9, floor=5, round_to=4)
    assert left(plan) == {"first.out": 8, "second.out": 8}
    assert left(mk.plan(net, ratio=0.1, ceiling=11, round_to=4)) == {"first.out": 8, "second.out": 8}


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"ratio": 0.5, "floor": 0.6, "ceiling": 0.5}, "floor asks for 10 at least, and ceiling for 8 at most"),
        ({"ratio": 0.5, "floor": 7, "ceiling": 7, "round_to": 4}, "multiples of 4"),
        ({"ratio": 0.5, "floor": 1.5}, "floor=1.5"),
        ({"ratio": 0.5, "floor": True}, "floor=True"),
        ({"ratio": 0.5, "ceiling": 0}, "ceiling=0"),
        ({"ratio": 0.5, "ceiling": {"first": -1}}, r"ceiling\['first'\]=-1"),
        ({"ratio": 0.5, "ceiling": {"head": 0.5}}, "cuts no axis of 'head'"),
        ({"ratio": 0.5, "ceiling": {"first": 4}, "keep": "first"}, "cuts no axis of 'first'"),
        ({"per_axis": {"first": 0.75}, "floor": 0.5}, "per_axis or cuts leaves 4 of the 16"),
        ({"ratio": 0.5, "per": "flops"}, "scope='global'"),
        ({"ratio": 0.5, "per": "flop", "scope": "global"}, "did you mean 'flops'"),
    ],
)
def test_limits_that_make_no_sense(net: mk.DataflowGraph, how: dict[str, Any], says: str) -> None:
    with pytest.raises(mk.ModuleKGError, match=says):
        mk.plan(net, **how)


@pytest.mark.parametrize("limit", ["floor", "ceiling"])
def test_a_limit_of_an_axis_that_does_not_exist(net: mk.DataflowGraph, limit: str) -> None:
    with pytest.raises(UnknownAxisError, match="did you mean 'first"):
        mk.plan(net, ratio=0.5, **{limit: {"frist": 0.5}})
