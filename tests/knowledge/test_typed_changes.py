"""Generation changes like by like, and keeps a front of two targets."""

from __future__ import annotations

import random
from copy import deepcopy

import pandas as pd
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models.zoo import zoo_model
from modulekg_widgets.engine.errors import PredictionError
from modulekg_widgets.engine.knowledge.suggestion.candidates import first_working_call, meta_call
from modulekg_widgets.engine.knowledge.suggestion.costs import domination_counts, pareto_front
from modulekg_widgets.engine.knowledge.suggestion.mutations import (
    BlockSwap,
    HeadCountChange,
    KernelChange,
    LayerSwap,
    block_swaps,
    donor_blocks,
    head_count_changes,
    kernel_changes,
)

IMAGE = meta_call([(1, 3, 64, 64)])


class NormAct(nn.BatchNorm2d):
    """A norm with modules in it, as timm's."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.drop, self.act = nn.Identity(), nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.drop(super().forward(x)))


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1), NormAct(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.norm(self.conv(x))


class Other(Block):
    pass


def net(kind: type[nn.Module], channels: int = 8) -> nn.Module:
    layers = [nn.Conv2d(3, channels, 3, padding=1), kind(channels), kind(channels), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels, 5))


def test_a_norm_is_no_block() -> None:
    model = net(Block)
    run = first_working_call(model, [IMAGE])
    assert run is not None
    assert {block.kind for block in donor_blocks("a", model, run)} == {"Block"}


def test_blocks_go_in_the_places_of_blocks_of_as_many_channels() -> None:
    one, other, wide = net(Block), net(Other), net(Other, 16)
    runs = [first_working_call(each, [IMAGE]) for each in (one, other, wide)]
    library = [block for name, each, run in zip("abc", (one, other, wide), runs, strict=True)
               for block in donor_blocks(name, each, run)]  # type: ignore[arg-type]  # fmt: skip
    assert {swap.donor for swap in block_swaps("a", one, runs[0], library)} == {"b"}  # type: ignore[arg-type]


def test_kernels_keep_what_a_convolution_gives() -> None:
    model = deepcopy(zoo_model("mobilenet_v3_small"))
    found = kernel_changes(model)
    assert {change.size for change in found} == {3, 5, 7}
    change = random.Random(0).choice(found)
    before = first_working_call(model, [IMAGE])
    change.apply(model, {})
    after = first_working_call(model, [IMAGE])
    assert before is not None
    assert after is not None
    assert after.output_shapes[""] == before.output_shapes[""]
    assert model.get_submodule(change.path).kernel_size == (change.size, change.size)
    strange = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=0), nn.Conv2d(4, 4, 3, padding=2, dilation=2), nn.Conv2d(4, 4, 1)
    )
    assert kernel_changes(strange) == []


def test_heads_follow_in_every_attention_of_a_kind() -> None:
    timm = pytest.importorskip("timm")
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False).eval()
    found = head_count_changes(model)
    assert [(change.old, change.new) for change in found] == [(3, 6)]
    found[0].apply(model, {})
    attention = model.blocks[0].attn
    assert (attention.num_heads, attention.head_dim) == (6, 32)
    assert attention.scale == pytest.approx(32**-0.5)
    assert model(torch.zeros(1, 3, 224, 224)).shape == (1, 1000)
    assert str(found[0]) == "3 heads → 6"


@pytest.mark.slow
def test_what_timm_generates_is_typed() -> None:
    pytest.importorskip("timm")
    names = ["resnet10t", "resnet14t", "convnextv2_atto", "vit_tiny_patch16_224", "mobilenetv3_small_050"]
    graph = mk.index_models(mk.timm_builders(names))
    rows = graph.generate("acc@1", budget=1e7, n=8, models=names, generations=3, population=8)
    assert len(rows) > 0
    for row in rows:
        model = row.build()
        for change in row.recipe:
            if isinstance(change, BlockSwap):
                assert not isinstance(model.get_submodule(change.path), nn.BatchNorm2d)
            assert isinstance(change, BlockSwap | KernelChange | HeadCountChange | LayerSwap) or str(change)
    assert {type(change).__name__ for row in rows for change in row.recipe}


# ------------------------------------------------------------------------ fronts


def test_who_is_better_than_whom() -> None:
    points = [(80.0, 5.0), (70.0, 1.0), (75.0, 6.0), (80.0, 5.0), (60.0, 1.0), (90.0, 20.0)]
    assert domination_counts(points) == [0, 0, 2, 0, 1, 0]
    assert pareto_front("abcdef", points, 9) == ["b", "a", "d", "f"]
    assert pareto_front("abcdef", points, 2) == ["b", "f"]
    assert pareto_front("", [], 3) == []


@pytest.mark.parametrize(
    "against", ["params", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("flops", "latency"))]
)
@pytest.mark.slow
def test_a_front_of_value_and_cost(against: str) -> None:
    names = ["squeezenet1_0", "squeezenet1_1", "mobilenet_v3_small", "shufflenet_v2_x0_5", "mnasnet0_5"]
    graph = mk.index_models({name: mk.torchvision_builders()[name] for name in names})
    if against == "latency":
        table = pd.DataFrame({"model": names, "value": [4.0, 2.0, 1.0, 0.8, 1.2]})
        graph.add_results(table, target="latency", unit="ms", device="cpu")
    device = {"device": "cpu"} if against == "latency" else {}
    rows = graph.generate("acc@1", against=against, n=4, models=names, generations=3, population=8, **device)
    assert 1 <= len(rows) <= 4
    costs = [row.cost for row in rows]
    cautious = [row.value - row.std for row in rows]
    assert costs == sorted(costs)
    assert cautious == sorted(cautious)  # whoever costs more is better
    assert "cost" in rows.frame()


def test_what_is_no_cost_is_named() -> None:
    with pytest.raises(mk.ModuleKGError, match="no values are known of 'latencies'"):
        mk.KnowledgeGraph().generate("acc@1", against="latencies", models=["squeezenet1_1"], generations=1)


# --------------------------------------------------------------- what a block is


class Inner(nn.Module):
    """What a block has in it, which gives what it takes, as the whole does."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one, self.other = nn.Conv2d(channels, channels, 1), nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.other(self.one(x))


class Nested(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner, self.project = Inner(channels), nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.project(self.inner(x))


class Plain(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + super().forward(x)


def staged(kind: type[nn.Module], channels: int = 8) -> nn.Module:
    stages = [nn.Sequential(*(kind(channels) for _ in range(3))) for _ in range(2)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5)]
    return nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), *stages, *head)


def test_neither_stages_nor_parts_of_blocks_are_blocks() -> None:
    known = {"nested": staged(Nested), "plain": staged(Plain)}
    passes = {name: first_working_call(model, [IMAGE]) for name, model in known.items()}
    found = {name: donor_blocks(name, model, passes[name]) for name, model in known.items()}  # type: ignore[arg-type]
    for each in found.values():
        assert {block.path for block in each} == {f"{stage}.{at}" for stage in (1, 2) for at in range(3)}
    library = [block for each in found.values() for block in each]
    changes = block_swaps("nested", known["nested"], passes["nested"], library)  # type: ignore[arg-type]
    assert {change.donor for change in changes} == {"plain"}
    assert all(change.path.count(".") == change.donor_path.count(".") == 1 for change in changes)


def test_objectives_without_a_number_are_named() -> None:
    with pytest.raises(PredictionError, match="gives no number for squeezenet1_1"):
        mk.KnowledgeGraph().generate(lambda record: float("nan"), models=["squeezenet1_1"], generations=1)


def test_where_nothing_is_known_of_such_models_the_reason_is_told() -> None:
    reader = nn.Sequential(nn.Embedding(50, 8), nn.Flatten(), nn.Linear(32, 5))

    def build() -> nn.Module:
        return nn.Sequential(*reader)

    build.example = lambda _: ((torch.zeros(1, 4, dtype=torch.long, device="meta"),), {})  # type: ignore[attr-defined]
    graph = mk.index_models({"reader": build})
    graph.add_dataset("reviews", task="text classification", classes=5)
    found = graph.generate("acc@1", dataset="reviews", generations=1, population=2)
    assert len(found) == 0
    assert "no value is known of models for text" in found.reason
    assert "kg.add_results" in repr(found)
