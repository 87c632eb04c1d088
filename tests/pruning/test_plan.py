"""Plans: what is chosen, how it prints, what it refuses; nothing is changed before the cut."""

from __future__ import annotations

import contextlib
import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import CutError
from pruning.battery import differs, state_of


class ResidualConvNet(nn.Module):
    """Two coupled convolutions, a norm, and a classifier behind a flattening."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.third = nn.Conv2d(8, 12, 3, padding=1)
        self.head = nn.Linear(12 * 4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.first(x)).relu()
        x = (x + self.second(x)).relu()
        return self.head(self.third(x).flatten(1))


X = torch.randn(4, 3, 2, 2)


@pytest.fixture
def graph() -> mk.DataflowGraph:
    torch.manual_seed(0)
    return mk.trace(ResidualConvNet().eval(), X)


def left(plan: mk.PruningPlan) -> dict[str, int]:
    return {axis.name: axis.left for axis in plan.axes}


def test_a_ratio_takes_the_same_share_of_each_axis_and_keeps_the_outputs(graph: mk.DataflowGraph) -> None:
    plan = mk.plan(graph, ratio=0.5)
    assert sorted(left(plan).values()) == [4, 6]
    assert {axis.size for axis in plan.axes} == {8, 12}
    total = sum(p.numel() for p in graph.model.parameters())
    assert plan.params == (total, 3 * 4 * 9 + 4 + 8 + 4 * 4 * 9 + 4 + 4 * 6 * 9 + 6 + 24 * 5 + 5)
    assert plan.flops[1] < plan.flops[0] == graph.flops()
    assert plan.changes == ()


def test_planning_changes_nothing() -> None:
    model = ResidualConvNet().train()
    before, rng = state_of(model), torch.get_rng_state()
    mk.plan(mk.trace(model, X), ratio=0.5, importance="random")
    assert not differs(before, state_of(model))
    assert torch.equal(rng, torch.get_rng_state())


def test_the_least_important_go(graph: mk.DataflowGraph) -> None:
    model = graph.model
    with torch.no_grad():
        for index in (1, 4, 6):
            for weight in (model.first.weight[index], model.norm.weight[index], model.second.weight[index],
                           model.second.weight[:, index], model.third.weight[:, index]):  # fmt: skip
                weight.mul_(1e-3)
    plan = mk.plan(graph, per_axis={"first": 3 / 8})
    assert [axis.dropped for axis in plan.axes] == [(1, 4, 6)]


@pytest.mark.parametrize(
    ("key", "wanted", "size", "gone"),
    [
        ("third", 0.25, 12, 3),
        ("third", [0, 5], 12, 2),
        ("third", [-1], 12, 1),
        (("third.weight", 0), 0.5, 12, 6),
        (("head.weight", 1), 0.5, 12, 6),
        ("th*d", 0.5, 12, 6),
        (nn.BatchNorm2d, 0.25, 8, 2),
        ("norm.weight", 0.25, 8, 2),
    ],
)
def test_axes_by_name(graph: mk.DataflowGraph, key: Any, wanted: Any, size: int, gone: int) -> None:
    plan = mk.plan(graph, per_axis={key: wanted})
    assert [(axis.size, len(axis.dropped)) for axis in plan.axes] == [(size, gone)]


def test_a_module_is_a_name_too(graph: mk.DataflowGraph) -> None:
    assert left(mk.plan(graph, ratio=0.5, only=[graph.model.third])) == left(mk.plan(graph, per_axis={"third": 0.5}))
    assert list(left(mk.plan(graph, ratio=0.5, keep=nn.BatchNorm2d)).values()) == [6]
    assert list(left(mk.plan(graph, ratio=0.5, keep="third")).values()) == [4]


def test_per_axis_goes_before_the_ratio(graph: mk.DataflowGraph) -> None:
    assert sorted(left(mk.plan(graph, ratio=0.5, per_axis={"third": 0.75})).values()) == [3, 4]


def test_cuts_are_merged(graph: mk.DataflowGraph) -> None:
    cuts = [graph.cut_analysis("third.weight", [1, 2]), graph.cut_analysis("third.bias", [2, 7]),
            graph.cut_analysis("norm.weight", [3])]  # fmt: skip
    plan = mk.plan(graph, cuts=cuts)
    assert sorted(axis.dropped for axis in plan.axes) == [(1, 2, 7), (3,)]
    again = mk.plan(mk.trace(graph.model, X), cuts=cuts)  # cuts of another trace of the model
    assert sorted(axis.dropped for axis in again.axes) == [(1, 2, 7), (3,)]


@pytest.mark.parametrize("unit", ["params", "flops", "macs"])
@pytest.mark.parametrize("share", [0.3, 0.6])
def test_targets(unit: str, share: float) -> None:
    model = torchvision.models.resnet18(weights=None).eval()
    plan = mk.plan(mk.trace(model, torch.randn(1, 3, 64, 64)), target={unit: share})
    before, after = getattr(plan, unit)
    assert share - 0.02 < after / before <= share


def test_a_target_in_numbers(graph: mk.DataflowGraph) -> None:
    plan = mk.plan(graph, target={"params": 1000})
    assert 600 < plan.params[1] <= 1000


@pytest.mark.parametrize("scope", ["global", "isomorphic"])
def test_a_common_ranking_takes_more_where_less_is_lost(scope: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
    with torch.no_grad():
        model[0].weight[4:] *= 1e-2
        model[0].bias[4:] *= 1e-2
        model[2].weight[:, 4:] *= 1e-2
    plan = mk.plan(mk.trace(model, torch.randn(1, 4)), ratio=0.25, scope=scope)
    assert left(plan) == {"0.out": 8}
    assert not set(plan.axes[0].dropped) & {0, 1, 2, 3}


def test_a_common_ranking_takes_no_axis_first_whose_indices_matter_alike() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 2))
    with torch.no_grad():
        for layer in (model[0], model[2], model[4]):
            layer.weight.fill_(1.0).mul_(1 + 0.1 * torch.rand_like(layer.weight))
    stays = left(mk.plan(mk.trace(model, torch.randn(1, 4)), ratio=0.5, scope="global"))
    assert sum(stays.values()) == 40
    assert all(10 <= count <= 30 for count in stays.values())  # of 40: half of all, so three quarters of one at most


def test_a_common_ranking_takes_no_axis_altogether() -> None:
    model = nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 2))
    nn.init.zeros_(model[0].weight)
    plan = mk.plan(mk.trace(model, torch.randn(1, 4)), ratio=0.6, scope="global")
    assert min(left(plan).values()) >= 2


def test_granularity_head() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32), nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), nn.Linear(32, 3))
    graph = mk.trace(model.eval(), torch.randn(2, 5, 6))
    heads = {axis.term for axis in graph.axes if axis.role == "heads"}
    by_index, by_head = mk.plan(graph, ratio=0.5), mk.plan(graph, ratio=0.5, granularity="head", keep="0")
    names = {graph.axes.of(term).name for term in heads}
    assert not names & {axis.name for axis in by_index.axes}
    assert names & {axis.name for axis in by_head.axes} or any("heads" in str(c) for c in by_head.changes)
    for plan in (by_index, by_head):
        twin = copy.deepcopy(model)
        plan.cut(twin)
        assert twin(torch.randn(2, 5, 6)).shape == (2, 5, 3)


def test_granularity_group() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 12, 1), nn.Conv2d(12, 12, 3, groups=4), nn.Conv2d(12, 5, 1)).eval()
    x = torch.randn(1, 3, 4, 4)
    inside = mk.plan(mk.trace(model, x), ratio=0.5)
    mk.plan(mk.trace(model, x), ratio=0.5, granularity="group").cut(whole := copy.deepcopy(model))
    inside.cut(model)
    assert model[1].groups == 4
    assert whole[1].groups == 2
    assert whole[1].weight.shape[1] == 3
    for each in (model, whole):
        assert each(x).shape == (1, 5, 2, 2)


@pytest.mark.parametrize("multiple", [2, 4, 8])
def test_round_to(multiple: int) -> None:
    model = torchvision.models.mobilenet_v3_small(weights=None).eval()
    plan = mk.plan(mk.trace(model, torch.randn(1, 3, 64, 64)), ratio=0.37, round_to=multiple)
    plan.cut(model)
    sizes = {module.out_channels for module in model.modules() if isinstance(module, nn.Conv2d)}
    assert all(size % multiple == 0 for size in sizes), sizes


def test_one_plan_serves_copies_train_mode_and_again_after_undo(graph: mk.DataflowGraph) -> None:
    plan = mk.plan(graph, ratio=0.5)
    twin = copy.deepcopy(graph.model).train()
    optimizer = torch.optim.Adam(twin.parameters())
    twin(X).sum().backward()
    optimizer.step()
    for _ in range(2):
        before = state_of(twin)
        receipt = plan.cut(twin, optimizer)
        assert sum(p.numel() for p in twin.parameters()) == plan.params[1]
        twin(X).sum().backward()
        optimizer.step()
        receipt.undo()
        assert not differs(before, state_of(twin))
    plan.cut(twin)
    with pytest.raises(mk.ModuleKGError, match="undo the cut"):
        plan.cut(twin)


def test_the_repr_is_python_that_makes_the_plan_again(graph: mk.DataflowGraph) -> None:
    for how in ({"ratio": 0.5}, {"ratio": 0.3, "scope": "global", "round_to": 2, "keep": ["third"]},
                {"per_axis": {"third": [1, 2]}}, {"importance": lambda group: range(group.size), "ratio": 0.5},
                {"cuts": [graph.cut_analysis("third.weight", [4])]}):  # fmt: skip
        plan = mk.plan(graph, **how)
        again = eval(repr(plan), {"mk": mk, "graph": graph})
        assert again.axes == plan.axes
        assert again.params == plan.params


def test_it_prints_well_and_escapes(graph: mk.DataflowGraph) -> None:
    plan = mk.plan(graph, ratio=0.5)
    text = str(plan)
    head, *totals = text.splitlines()
    assert head.split() == ["before", "→", "after", "left"]
    assert plan.bytes is not None
    for name, (before, after) in {"parameters": plan.params, "FLOPs": plan.flops, "bytes": plan.bytes}.items():
        assert f"{name} {before:,} → {after:,} {after / before:.1%}" in [" ".join(row.split()) for row in totals]
    assert "channel group (axis)  before → after  tensors [dimension]" in text
    assert "12 → 6" in text
    model = nn.Sequential()
    model.add_module("<img src=x>", nn.Linear(4, 6))
    model.add_module("out", nn.Linear(6, 2))
    html = mk.plan(mk.trace(model, torch.randn(1, 4)), ratio=0.5)._repr_html_()
    assert "&lt;img" in html
    assert "<img" not in html


def test_its_text_is_narrow_whatever_the_names() -> None:
    model = nn.ModuleDict()
    inner = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    model.add_module("a_long_name_of_a_container_" * 2, inner)
    model.forward = lambda x: inner(x)
    text = str(mk.plan(mk.trace(model, torch.randn(1, 4)), ratio=0.5))
    assert max(map(len, text.splitlines())) <= 100
    assert "3 tensors" in text


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({}, "nothing to cut"),
        ({"ratio": 1.0}, "ratio=1.0"),
        ({"ratio": -0.1}, "ratio=-0.1"),
        ({"ratio": "half"}, "ratio='half'"),
        ({"ratio": math.nan}, "ratio=nan"),
        ({"ratio": 0.01}, "removes no index"),
        ({"ratio": 0.5, "target": {"params": 0.5}}, "exclude each other"),
        ({"target": {"size": 3}}, "target="),
        ({"target": {"params": 10}}, "cannot be reached"),
        ({"target": {"params": 1}}, "target="),
        ({"ratio": 0.5, "scope": "gobal"}, "did you mean 'global'"),
        ({"ratio": 0.5, "granularity": "heads"}, "did you mean 'head'"),
        ({"ratio": 0.5, "importance": "L3"}, "L3"),
        ({"ratio": 0.5, "round_to": 0}, "round_to=0"),
        ({"ratio": 0.5, "only": "frist"}, "did you mean 'first"),
        ({"ratio": 0.5, "keep": ["first", "third"]}, "no axis that may be cut"),
        ({"per_axis": {"head": 0.5}}, "model output"),
        ({"per_axis": {"third": 1.5}}, "share of 0"),
        ({"per_axis": {"third": list(range(12))}}, "keep at least one"),
        ({"per_axis": {"third": [12]}}, "12 positions"),
        ({"cuts": ["third"]}, "graph.cut_analysis"),
    ],
)
def test_refusals(graph: mk.DataflowGraph, how: dict[str, Any], says: str) -> None:
    before = state_of(graph.model)
    with pytest.raises(mk.ModuleKGError, match=says):
        mk.plan(graph, **how)
    assert not differs(before, state_of(graph.model))


def test_only_a_block_leaves_the_stream_that_others_make() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlp = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.mlp(x)

    model = nn.Sequential(nn.Linear(4, 8), Block(), nn.Linear(8, 2))
    graph = mk.trace(model, torch.randn(3, 4))
    assert left(mk.plan(graph, ratio=0.5, only="1.mlp")) == {"1.mlp.0.out": 8}
    assert left(mk.plan(graph, ratio=0.5, only=["0.out"])) == {"0.out": 4}
    assert left(mk.plan(graph, ratio=0.5, only=["0", "1"])) == {"0.out": 4, "1.mlp.0.out": 8}


def test_names_are_printed_without_what_a_terminal_obeys() -> None:
    model = nn.Sequential()
    model.add_module("a\x1b[2Jb", nn.Linear(4, 6))
    model.add_module("out", nn.Linear(6, 2))
    text = str(mk.plan(mk.trace(model, torch.randn(1, 4)), ratio=0.5))
    assert "\x1b" not in text
    assert "a\\x1b[2Jb.out" in text


def test_a_model_is_no_graph() -> None:
    with pytest.raises(mk.ModuleKGError, match="trace it first"):
        mk.plan(ResidualConvNet(), ratio=0.5)  # type: ignore[arg-type]


def test_a_model_without_data_is_planned_by_chance_and_cut() -> None:
    with torch.device("meta"):
        model = ResidualConvNet().eval()
    graph = mk.trace(model, X.to("meta"))
    with pytest.raises(mk.ModuleKGError):
        mk.plan(graph, ratio=0.5)
    plan = mk.plan(graph, ratio=0.5, importance="random")
    plan.cut(model)
    assert model.first.weight.shape[0] == 4


def test_what_train_mode_alone_reads_is_cut_along() -> None:
    model = torchvision.models.googlenet(weights=None, aux_logits=True, init_weights=False).eval()
    x = torch.randn(2, 3, 96, 96)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    plan.cut(model)
    assert model(x).shape == (2, 1000)
    out = model.train()(x)
    assert [part.shape for part in out] == [(2, 1000)] * 3
    assert plan.params[1] / plan.params[0] < 0.6


class SecondOrder(nn.Module):
    """Features that multiply with themselves, as bilinear pooling and Gram matrices have them, beside a plain layer."""

    def __init__(self, way: str, degree: int = 2) -> None:
        super().__init__()
        self.way = way
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 12)
        self.c, self.d = nn.Linear(8**degree, 3), nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x)
        pooled = {
            "einsum": lambda: torch.einsum("bi,bj->bij", h, h),
            "broadcast": lambda: h[:, :, None] * h[:, None],
            "gram": lambda: h[:, :, None] @ h[:, None],
            "third order": lambda: torch.einsum("bi,bj,bk->bijk", h, h, h),
        }[self.way]()
        return self.c(pooled.flatten(1)) + self.d(self.b(h).relu())


@pytest.mark.parametrize("how", [{"ratio": 0.5}, {"ratio": 0.5, "scope": "global"}, {"target": {"params": 0.3}}])
@pytest.mark.parametrize(("way", "degree"), [("einsum", 2), ("broadcast", 2), ("gram", 2), ("third order", 3)])
def test_what_multiplies_with_itself_goes_by_ratio_and_target(way: str, degree: int, how: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model, x = SecondOrder(way, degree).eval(), torch.randn(4, 6)
    plan = mk.plan(mk.trace(model, x), **how)
    assert "a.out" in left(plan)
    if how == {"ratio": 0.5}:
        assert left(plan) == {"a.out": 4, "b.out": 6}
        assert plan.edits.tensors[-2].shape_after == (3, 4**degree)
    masked = copy.deepcopy(model)
    plan.mask(masked)
    plan.cut(model)
    torch.testing.assert_close(model(x), masked(x))


# ------------------------------------------------------------ a graph of before


def cut_channels(graph: mk.DataflowGraph, model: nn.Module) -> None:
    mk.plan(graph, cuts=[graph.cut_analysis("layer1.0.conv1.weight", [0, 1])]).cut(model)


def cut_block(graph: mk.DataflowGraph, model: nn.Module) -> None:
    mk.plan(graph, blocks=["layer3.1"]).cut(model)


def replace_layer(graph: mk.DataflowGraph, model: Any) -> None:
    model.fc = nn.Linear(512, 10)


def replace_pooling(graph: mk.DataflowGraph, model: Any) -> None:
    model.avgpool = nn.Identity()


@pytest.mark.parametrize("change", [cut_channels, cut_block, replace_layer, replace_pooling])
def test_a_graph_of_before_a_change_is_to_be_traced_again(change: Any) -> None:
    model = torchvision.models.resnet18().eval()
    graph = mk.trace(model, torch.zeros(1, 3, 64, 64))
    change(graph, model)
    for how in (
        {"ratio": 0.3},
        {"cuts": [graph.cut_analysis("layer4.1.conv1.weight", [0, 1])]},
        {"per_axis": {"layer2.0.conv1": [0]}},
        {"blocks": 1},
        {"target": {"flops": 0.5}},
    ):
        with pytest.raises(
            CutError, match=r"(layer1\.0\.conv1|layer3\.1|fc|avgpool).* at the trace it .* trace the model"
        ):
            mk.plan(graph, **how)


def test_a_graph_is_of_now_after_an_undo_and_with_other_weights() -> None:
    model = torchvision.models.resnet18().eval()
    graph = mk.trace(model, torch.zeros(1, 3, 64, 64))
    mk.plan(graph, ratio=0.3).cut(model).undo()
    model.load_state_dict(torchvision.models.resnet18().state_dict(), assign=True)
    assert mk.plan(graph, cuts=[graph.cut_analysis("layer4.1.conv1.weight", [0, 1])]).axes


# ------------------------------------------------------------- what is no request

NONSENSE: list[Any] = [
    True, -1, 10**30, math.nan, math.inf, "x", b"x", [], [None], (), (1, 2), {"x": 1}, {None: None}, {1}, object(), int,
    nn.ReLU(), torch.tensor([1, 2]), np.array([1, 2]), 1j, [("third", 0.5)], {("third.weight", "x"): 0.5},
    {(1, 2): 0.5}, {"third": 1j}, {"third": None}, {"third": [0.5]}, {("third.weight", 9): 0.5},
]  # fmt: skip
OPTIONS = [
    "target", "per_axis", "cuts", "importance", "scope", "only", "keep", "granularity", "round_to", "floor", "ceiling",
    "per", "blocks", "layers",
]  # fmt: skip


def raises_nothing_else(call: Any) -> None:
    """Whatever is wrong is an error of the package."""
    with contextlib.suppress(mk.ModuleKGError):
        call()


@pytest.mark.parametrize("option", OPTIONS)
def test_nonsense_is_refused_in_words(graph: mk.DataflowGraph, option: str) -> None:
    for value in NONSENSE:
        raises_nothing_else(lambda value=value: mk.plan(graph, **{option: value}))
        if option != "target":
            raises_nothing_else(lambda value=value: mk.plan(graph, **{"ratio": 0.5, option: value}))


def test_nonsense_is_refused_by_what_looks_at_a_graph(graph: mk.DataflowGraph) -> None:
    plan, axis, operator = mk.plan(graph, ratio=0.5), graph.axes.free[0], graph.operators[0]
    for value in NONSENSE:
        for call in (
            lambda value=value: graph.cut_analysis(value, [0]),
            lambda value=value: graph.cut_analysis("third.weight", value),
            lambda value=value: graph.cut_analysis("third.weight", [0], value),
            lambda value=value: graph.axes[value],
            lambda value=value: axis.indices(value),
            lambda value=value: axis.indices("third.weight", value),
            lambda value=value: graph.operator_analysis(value, operator.outputs[0], {0: [0]}),
            lambda value=value: graph.operator_analysis(operator, value, {0: [0]}),
            lambda value=value: graph.operator_analysis(operator, operator.outputs[0], value),
            lambda value=value: plan.flow(value),
        ):
            raises_nothing_else(call)
        assert value not in graph.axes


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"ratio": 0.5, "round_to": 10**30}, "give the multiple of sizes"),
        ({"per_axis": [("third", 0.5)]}, "give shares or indices by axis"),
        ({"cuts": 5}, "give results of graph.cut_analysis, in a list"),
        ({"blocks": object()}, "give a number, a share or paths, in a list"),
        ({"ratio": 0.5, "granularity": ["head"]}, "granularity="),
    ],
)
def test_nonsense_is_told_what_to_give(graph: mk.DataflowGraph, how: dict[str, Any], says: str) -> None:
    with pytest.raises(mk.ModuleKGError, match=says):
        mk.plan(graph, **how)


def test_a_graph_is_copied_and_not_pickled(graph: mk.DataflowGraph) -> None:
    cut = graph.cut_analysis("third.weight", [0])
    for held in (
        graph,
        graph.axes,
        graph.axes.free[0],
        cut,
        graph.operators[0],
        graph.values[0],
        graph.modules["third"],
    ):
        with pytest.raises(mk.ModuleKGError, match="cannot be pickled"):
            pickle.dumps(held)
    plan = mk.plan(graph, ratio=0.5)
    for again in (copy.copy(graph), copy.deepcopy(graph)):
        assert mk.plan(again, ratio=0.5).axes == plan.axes
    assert pickle.loads(pickle.dumps(plan.edits)) == plan.edits
