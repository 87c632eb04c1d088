"""Limits of what a plan leaves: a floor and a ceiling for every axis or by axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import CutError, UnknownAxisError
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
        ({"ratio": 0.5, "floor": 0.6, "ceiling": 0.5}, "floor is 10, and ceiling is 8"),
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


def cut_of(net: mk.DataflowGraph, name: str, index: list[int]) -> list[Any]:
    return [net.cut_analysis(name, index)]


@pytest.mark.parametrize(
    "how",
    [
        {"per_axis": {"first": 0.5}, "keep": ["first"]},
        {"per_axis": {"first.out": 0.5}, "keep": nn.Conv2d},
        {"per_axis": {("second.weight", 1): [0, 3]}, "keep": "first.out"},
        {"per_axis": {"first": 0.5}, "only": ["second.out"]},
        {"per_axis": {"*": 0.5}, "keep": "second", "ratio": 0.5},
        {"ratio": 0.5, "per_axis": {"first": 0.25}, "only": "second"},
        {"target": {"params": 0.7}, "per_axis": {"second": 0.25}, "keep": "second"},
        {"per_axis": {"first": 0.25}, "only": "second", "layers": "uniform"},
    ],
)
def test_what_is_kept_cannot_be_named_to_go(net: mk.DataflowGraph, how: dict[str, Any]) -> None:
    with pytest.raises(CutError, match=r"per_axis or cuts remove from (first|second).out.*(only|keep)=… protects"):
        mk.plan(net, **how)


def test_what_is_kept_cannot_be_cut_by_an_analysis(net: mk.DataflowGraph) -> None:
    for how in ({"keep": "first"}, {"only": "second"}):
        with pytest.raises(CutError, match=r"first\.out, which"):
            mk.plan(net, cuts=cut_of(net, "first.weight", [1, 2]), **how)
    assert left(mk.plan(net, cuts=cut_of(net, "first.weight", [1, 2]), keep="second")) == {"first.out": 14}


def test_what_takes_nothing_contradicts_nothing(net: mk.DataflowGraph) -> None:
    plan = mk.plan(net, ratio=0.5, per_axis={"first": 0.0}, keep="first")
    assert left(plan) == {"second.out": 12}


def test_two_requests_for_one_axis_agree_or_are_refused(net: mk.DataflowGraph) -> None:
    cuts = cut_of(net, "first.weight", [1, 2])
    assert mk.plan(net, cuts=cuts, per_axis={"first": [2, 5]}).axes[0].dropped == (1, 2, 5)
    assert mk.plan(net, cuts=cuts, per_axis={"first": 2 / 16}).axes[0].dropped == (1, 2)
    for share in (0.0, 0.5):
        with pytest.raises(CutError, match=r"cuts remove 2 of the 16 indices of first\.out, and per_axis"):
            mk.plan(net, cuts=cuts, per_axis={"first": share})
    with pytest.raises(CutError, match=r"both name first\.out"):
        mk.plan(net, per_axis={"first": 0.5, ("second.weight", 1): 0.25})
    assert left(mk.plan(net, per_axis={"first": 0.5, ("second.weight", 1): 0.5})) == {"first.out": 8}


def test_of_two_names_for_an_axis_the_narrower_one_holds(net: mk.DataflowGraph) -> None:
    for per_axis in ({"*.out": 0.5, "first": 0.25}, {"first": 0.25, "*.out": 0.5}):
        assert left(mk.plan(net, per_axis=per_axis)) == {"first.out": 12, "second.out": 12}


# ------------------------------------------------- statistics over few elements


class Measured(nn.Module):
    def __init__(self, statistic: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 16), nn.Linear(16, 3)
        self.statistic = statistic

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.statistic(self.first(x)))


def standardised(h: Tensor) -> Tensor:
    return (h - h.mean(1, keepdim=True)) / (h.std(1, keepdim=True) + 1e-5)


@pytest.mark.parametrize(
    ("statistic", "count"),
    [
        (standardised, 2),
        (lambda h: h / h.std(1, keepdim=True), 2),
        (lambda h: h / torch.var_mean(h, 1, keepdim=True)[0], 2),
        (lambda h: h / (h.var(1, keepdim=True, correction=5) + 1e-5), 6),
        (lambda h: h * torch.var(h, 1, unbiased=False, keepdim=True), 2),
        (lambda h: h - h.mean(1).unsqueeze(1), 2),
        (lambda h: h.log_softmax(1), 2),
        (nn.LayerNorm(16), 2),
        (nn.LayerNorm(16, elementwise_affine=False), 2),
        (nn.GroupNorm(1, 16), 2),
        (lambda h: nn.functional.group_norm(h[:, :, None].expand(-1, -1, 7), 1).mean(2), 2),  # seven times the same
        (lambda h: nn.functional.group_norm((h[:, :, None] * torch.arange(7)).sin(), 1).amax(2), 1),  # seven others
        (lambda h: h / h.std((0, 1), keepdim=True), 1),  # with the samples there are several
        (lambda h: h / h.norm(dim=1, keepdim=True), 1),
    ],
)
def test_as_many_elements_stay_as_a_statistic_needs(statistic: Any, count: int) -> None:
    torch.manual_seed(0)
    model, x = Measured(statistic).eval(), torch.randn(4, 6)
    graph = mk.trace(model, x)
    plan = mk.plan(graph, ratio=0.95)
    assert left(plan) == {"first.out": count}
    if count > 1:
        with pytest.raises(mk.ModuleKGError, match=f"at least {count} must be kept: .*test_limits.py"):
            mk.plan(graph, per_axis={"first.out": list(range(16 - count + 1))})
    plan.cut(model)
    output = model(x)
    assert output.isfinite().all()
    assert (output - output[:1]).abs().max() > 1e-3  # it still depends on the input


class Outer(nn.Module):
    """Two axes under one statistic."""

    def __init__(self, dims: tuple[int, ...]) -> None:
        super().__init__()
        self.made, self.read = nn.Parameter(torch.randn(6, 4, 7)), nn.Parameter(torch.randn(4, 7, 3))
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        h = torch.einsum("bi,ihd->bhd", x, self.made)
        return torch.einsum("bhd,hdo->bo", h / h.std(self.dims, keepdim=True), self.read)


@pytest.mark.parametrize("dims", [(1,), (2,), (1, 2)])
def test_two_axes_under_one_statistic_leave_two_elements(dims: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model, x = Outer(dims), torch.randn(4, 6)
    plan = mk.plan(mk.trace(model, x), ratio=0.95)
    plan.cut(model)
    assert model(x).isfinite().all()
    assert sum(axis.left for axis in plan.axes) <= 4


def test_groups_of_channels_keep_two_elements_each() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.GroupNorm(4, 16), nn.Linear(16, 3))
    x = torch.randn(4, 6)
    plan = mk.plan(mk.trace(model, x), ratio=0.7)
    plan.cut(model)
    assert model[1].num_channels // model[1].num_groups >= 2
    image = nn.Sequential(nn.Conv2d(3, 16, 3), nn.GroupNorm(8, 16), nn.Conv2d(16, 3, 1))
    plan = mk.plan(mk.trace(image, torch.randn(2, 3, 8, 8)), ratio=0.7)
    assert image[1].num_channels == 16
    assert plan.axes[0].left == 1  # a channel of many pixels
