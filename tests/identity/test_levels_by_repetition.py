"""Stages and blocks as papers describe them, told by what repeats; wrappers shift nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models.transformers_models import CASES
from models.zoo import zoo_model
from modulekg_widgets.engine.errors import UnknownNameError
from modulekg_widgets.engine.knowledge.facts.records import model_record

Stages = dict[str, int]  # the blocks in each stage, by its path

TORCHVISION: dict[str, Stages] = {
    "resnet18": {"layer1": 2, "layer2": 2, "layer3": 2, "layer4": 2},
    "resnet50": {"layer1": 3, "layer2": 4, "layer3": 6, "layer4": 3},
    "densenet121": {f"features.denseblock{i}": n for i, n in enumerate((6, 12, 24, 16), 1)},
    "efficientnet_b0": {f"features.{i}": n for i, n in enumerate((1, 2, 2, 3, 3, 4, 1), 1)},
    "efficientnet_v2_s": {f"features.{i}": n for i, n in enumerate((2, 4, 4, 6, 9, 15), 1)},
    "mnasnet1_0": {f"layers.{i}": n for i, n in enumerate((3, 3, 3, 2, 4, 1), 8)},
    "vit_b_16": {"encoder.layers": 12},
    "swin_t": {"features.1": 2, "features.3": 2, "features.5": 6, "features.7": 2},
    "convnext_tiny": {"features.1": 3, "features.3": 3, "features.5": 9, "features.7": 3},
    "regnet_x_400mf": {f"trunk_output.block{i}": n for i, n in enumerate((1, 2, 7, 12), 1)},
    "maxvit_t": {f"blocks.{i}": n for i, n in enumerate((2, 2, 5, 2))},
    "r3d_18": {"layer1": 2, "layer2": 2, "layer3": 2, "layer4": 2},
    "shufflenet_v2_x1_0": {"stage2": 4, "stage3": 8, "stage4": 4},
    "deeplabv3_resnet50": {f"backbone.layer{i}": n for i, n in enumerate((3, 4, 6, 3), 1)},
    "fasterrcnn_resnet50_fpn": {f"backbone.body.layer{i}": n for i, n in enumerate((3, 4, 6, 3), 1)},
}
# blocks that stand in no module of their own that would be a stage, by class
WITHOUT_STAGES = {
    "googlenet": {"Inception": 9},
    "inception_v3": {"InceptionA": 3, "InceptionB": 1, "InceptionC": 4, "InceptionD": 1, "InceptionE": 2},
    "mobilenet_v2": {"InvertedResidual": 17},
    "mobilenet_v3_small": {"InvertedResidual": 11},
}
TIMM: dict[str, Stages] = {
    "resnet50": {"layer1": 3, "layer2": 4, "layer3": 6, "layer4": 3},
    "vit_small_patch16_224": {"blocks": 12},
    "swin_tiny_patch4_window7_224": {f"layers.{i}": n for i, n in enumerate((2, 2, 6, 2))},
    "convnext_tiny": {f"stages.{i}": n for i, n in enumerate((3, 3, 9, 3))},
    "efficientnet_b0": {f"blocks.{i}": n for i, n in enumerate((1, 2, 2, 3, 3, 4, 1))},
    "hrnet_w18": {"layer1": 4, "stage2": 1, "stage3": 4, "stage4": 3, "incre_modules": 4},
}
TRANSFORMERS: dict[str, tuple[dict[str, object], Stages]] = {
    "bert": ({"num_hidden_layers": 5}, {"bert.encoder.layer": 5}),
    "gpt2": ({"n_layer": 5}, {"transformer.h": 5}),
    "llama": ({"num_hidden_layers": 5}, {"model.layers": 5}),
    "mixtral": ({"num_hidden_layers": 3}, {"model.layers": 3}),
    "t5": ({"num_layers": 5}, {"encoder": 5, "decoder": 5}),
    "bart": ({"decoder_layers": 3}, {"model.encoder.layers": 2, "model.decoder.layers": 3}),
    "resnet": ({"depths": [3, 4, 6, 3]}, {f"resnet.encoder.stages.{i}": n for i, n in enumerate((3, 4, 6, 3))}),
    "swin": ({"depths": [2, 6]}, {"swin.encoder.layers.0": 2, "swin.encoder.layers.1": 6}),
    "funnel": ({"block_sizes": [1, 1]}, {"funnel.encoder.blocks.0": 1, "funnel.encoder.blocks.1": 1}),
}


class Parts(nn.Module):
    """A module of parts by name."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)


class TwoConvolutions(nn.Sequential):
    """What is a level of a U-Net."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(nn.Conv2d(before, after, 3), nn.ReLU(), nn.Conv2d(after, after, 3), nn.ReLU())


class Perceptron(nn.Module):
    """A block of two layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, width), nn.Linear(width, 4)


class ManyExperts(nn.Module):
    """A layer of attention and experts."""

    def __init__(self, experts: int) -> None:
        super().__init__()
        self.attention = Parts(query=nn.Linear(4, 4), key=nn.Linear(4, 4), value=nn.Linear(4, 4))
        self.experts = nn.ModuleList(Perceptron(8) for _ in range(experts))


def found(model: nn.Module) -> tuple[Stages, Counter[str]]:
    """The stages with their numbers of blocks, and the classes of the blocks that are in none."""
    modules = mk.hierarchy(model)
    stages = {record.path: 0 for record in modules if record.level == "stage"}
    outside: Counter[str] = Counter()
    for record in modules:
        if record.level == "block":
            above = record.parent
            while above is not None and above.level != "stage":
                above = above.parent
            if above is None:
                outside[record.class_name] += 1
            else:
                stages[above.path] += 1
    return stages, outside


def at(model: nn.Module, level: str) -> list[str]:
    return [record.path for record in mk.hierarchy(model) if record.level == level]


@pytest.mark.parametrize("name", TORCHVISION)
def test_of_torchvision(name: str) -> None:
    assert found(zoo_model(name)) == (TORCHVISION[name], {})


@pytest.mark.parametrize("name", WITHOUT_STAGES)
def test_blocks_in_no_stage(name: str) -> None:
    assert found(zoo_model(name)) == ({}, WITHOUT_STAGES[name])


@pytest.mark.parametrize("name", TIMM)
def test_of_timm(name: str, require: Callable[..., None]) -> None:
    require("timm")
    assert found(mk.timm_builders([name])[name]()) == (TIMM[name], {})


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_of_transformers(name: str, require: Callable[..., None]) -> None:
    require("transformers")
    import transformers

    kind, sizes, _ = CASES[name]
    made = getattr(transformers, kind)
    more, stages = TRANSFORMERS[name]
    assert found(made(made.config_class(**{**sizes, **more}))) == (stages, {})


def test_transitions_stems_and_heads_are_no_blocks() -> None:
    levels = {record.path: record.level for record in mk.hierarchy(zoo_model("densenet121"))}
    assert levels["features"] == levels[""] == "model"
    assert [levels[f"features.transition{i}"] for i in (1, 2, 3)] == ["op"] * 3
    assert {record.level for record in mk.hierarchy(zoo_model("densenet121")) if not record.children} == {"op"}


@pytest.mark.parametrize("name", ["resnet18", "googlenet", "vit_b_16", "maxvit_t", "vgg16"])
def test_wrappers_change_nothing(name: str) -> None:
    model = zoo_model(name)
    wrapped = Parts(loss=nn.CrossEntropyLoss(), model=nn.Sequential(nn.Identity(), model))
    for level in ("stage", "block"):
        assert at(wrapped, level) == [f"model.1.{path}" for path in at(model, level)]
    assert at(wrapped, "model") == ["", "model", *(f"model.1.{path}".rstrip(".") for path in at(model, "model"))]


def test_nothing_repeats_in_vgg() -> None:
    assert found(zoo_model("vgg16")) == ({"features": 0, "classifier": 0}, {})


@pytest.mark.parametrize("copies", [2, 3])
def test_of_several_networks_each_has_its_own(copies: int) -> None:
    stages, outside = found(nn.ModuleList([Parts(net=zoo_model("resnet50")), Parts(net=nn.Linear(1, 1))]))
    assert (sum(stages.values()), outside) == (16, {})
    transformer = [nn.Transformer(8, 2, 5, 5, 16) for _ in range(copies)]
    stages, outside = found(nn.ModuleList(transformer))
    assert stages == {f"{i}.{part}.layers": 5 for i in range(copies) for part in ("encoder", "decoder")}
    assert not outside


def test_a_network_beside_its_average() -> None:
    with torch.device("meta"):
        twins = Parts(model=mk.torchvision_builders()["resnet18"](), average=mk.torchvision_builders()["resnet18"]())
    assert found(twins)[0] == {f"{twin}.layer{i}": 2 for twin in ("model", "average") for i in (1, 2, 3, 4)}


def test_a_u_net() -> None:
    wide = [4, 8, 16]
    down = {f"down{i}": TwoConvolutions(a, b) for i, (a, b) in enumerate(zip([3, *wide], wide, strict=False))}
    up = {}
    for i in (1, 0):
        up[f"up{i}"] = nn.ConvTranspose2d(wide[i + 1], wide[i], 2, 2)
        up[f"join{i}"] = TwoConvolutions(2 * wide[i], wide[i])
    assert found(Parts(**down, **up, head=nn.Conv2d(4, 1, 1))) == ({}, {"TwoConvolutions": 5})


def test_experts_are_no_blocks() -> None:
    stages, outside = found(nn.Sequential(nn.Linear(4, 4), Parts(layers=nn.ModuleList(map(ManyExperts, (8, 8, 8))))))
    assert (stages, outside) == ({"1.layers": 3}, {})


def test_names_widths_and_extra_parts_do_not_count() -> None:
    widths = [Perceptron(width) for width in (2, 4, 8)]
    widths[0].add_module("downsample", nn.Sequential(nn.Linear(4, 4)))
    assert found(Parts(**{"a b": nn.Sequential(*widths)})) == ({"a b": 3}, {})


def test_where_nothing_large_repeats_single_layers_are_blocks() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3)))
    assert found(model) == ({}, {"Sequential": 3})


def test_the_root_is_the_model_whatever_it_is() -> None:
    for model in (nn.Linear(1, 1), nn.Sequential(), nn.ReLU(), nn.Sequential(nn.Linear(1, 1))):
        assert mk.hierarchy(model).root.level == "model"


def test_a_reused_block_is_one() -> None:
    block = Perceptron(4)
    assert at(Parts(layers=nn.Sequential(block, Perceptron(4), block)), "block") == ["layers.0", "layers.1"]


def test_a_cycle() -> None:
    first = Perceptron(2)
    model = Parts(layers=nn.Sequential(first, Perceptron(2)))
    first.add_module("up", model)
    assert at(model, "block") == ["layers.0", "layers.1"]


@pytest.mark.parametrize("blocks", [0, 3])
@pytest.mark.slow
def test_five_thousand_deep(blocks: int) -> None:
    model: nn.Module = nn.Sequential(*(Perceptron(2) for _ in range(blocks)), nn.Linear(2, 2))
    for _ in range(5_000):
        model = nn.Sequential(model)
    levels = Counter(record.level for record in mk.hierarchy(model))
    assert levels == Counter({"model": 5_000, "stage": 1, "block": blocks, "op": 1 + 2 * blocks})


def test_the_table_has_both() -> None:
    table = mk.levels(Parts(wrapped=zoo_model("resnet18")))
    assert list(table.columns) == ["path", "class", "repetition", "depth"]
    rows = {path: tuple(rest) for path, *rest in table.itertuples(index=False)}
    assert rows["wrapped"] == ("ResNet", "model", "stage")
    assert rows["wrapped.layer1"] == ("Sequential", "stage", "block")
    assert rows["wrapped.layer1.0"] == ("BasicBlock", "block", "block")
    assert rows["wrapped.layer2.0.downsample"] == ("Sequential", "op", "block")
    assert mk.levels(Parts(**{"\ud800": nn.ReLU()}))["path"].tolist() == ["", "\ud800"]


def test_a_graph_has_levels_by_repetition_or_by_depth() -> None:
    used = {}
    for levels in ("repetition", "depth"):
        graph = mk.KnowledgeGraph(levels=levels)
        graph.add_model(Parts(wrapped=zoo_model("resnet18")), "one")
        mk.index_models({"two": lambda: zoo_model("resnet18")}, graph)
        used[levels] = {level: graph.most_used(99, level)["count"].sum() for level in ("model", "stage", "block", "op")}
        assert sum(used[levels].values()) == graph.module_count
    assert used["repetition"] == {"model": 3, "stage": 8, "block": 16, "op": 110}
    assert used["depth"] == {"model": 2, "stage": 5, "block": 26, "op": 104}


@pytest.mark.parametrize("levels", ["size", "Depth", 5, None, ["depth"]])
def test_other_levels_are_refused(levels: str) -> None:
    for asked in (
        lambda: mk.hierarchy(nn.ReLU()).level(0, levels),
        lambda: mk.KnowledgeGraph(levels=levels),
        lambda: model_record(nn.ReLU(), levels=levels),
    ):
        with pytest.raises(UnknownNameError, match="there are no levels by"):
            asked()


class Twice(nn.Module):
    """Two convolutions, as a U-Net has them at each resolution."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(inside, outside, 3, padding=1), nn.Conv2d(outside, outside, 3, padding=1)
        self.act = nn.ReLU()


class UNet(nn.Module):
    def __init__(self, *widths: int) -> None:
        super().__init__()
        pairs = list(pairwise(widths))
        self.down = nn.ModuleList(Twice(*pair) for pair in pairs)
        self.middle = Twice(widths[-1], widths[-1])
        self.up = nn.ModuleList(Twice(b, a) for a, b in reversed(pairs))
        self.head = nn.Conv2d(widths[0], 1, 1)


def test_the_middle_of_a_u_net_is_a_block_as_those_around_it() -> None:
    levels = mk.levels(UNet(4, 8, 16, 32))
    assert {path for path, level in zip(levels["path"], levels["repetition"], strict=True) if level == "block"} == {
        *(f"down.{i}" for i in range(3)),
        "middle",
        *(f"up.{i}" for i in range(3)),
    }
