"""The five classic views, against facts that are worked out by hand."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch
from torch import Tensor, nn

import modulekg_widgets as mk
from models.functional import Lambda
from models.shared_weights import TiedEmbedding

VIEWS = ["channel_dependency", "input_channel_dependency", "group_dependency", "reshape_dependency",
         "attention_dependency"]  # fmt: skip


def torchvision_graph(name: str, size: int = 64) -> mk.DataflowGraph:
    from torchvision import models

    with torch.device("meta"):
        return mk.trace(models.get_model(name).eval(), torch.zeros(1, 3, size, size))


@pytest.fixture(scope="module")
def resnet18() -> mk.DataflowGraph:
    return torchvision_graph("resnet18")


def graph_of(run: Callable[..., Tensor], *shape: int, **parts: nn.Module) -> mk.DataflowGraph:
    return mk.trace(Lambda(run, **parts).eval(), torch.zeros(*shape))


def sets(view: mk.DataflowGraph) -> list[list[str]]:
    return sorted(sorted(layers) for layers in view.dependency_sets)  # type: ignore[attr-defined]


# ------------------------------------------------------------------- channels

STREAMS = {
    1: ["conv1", "layer1.0.conv2", "layer1.1.conv2"],
    2: ["layer2.0.conv2", "layer2.0.downsample.0", "layer2.1.conv2"],
    3: ["layer3.0.conv2", "layer3.0.downsample.0", "layer3.1.conv2"],
    4: ["layer4.0.conv2", "layer4.0.downsample.0", "layer4.1.conv2"],
}


def test_in_a_resnet_the_layers_that_write_to_one_stream_are_a_set_and_all_others_stand_alone(
    resnet18: mk.DataflowGraph,
) -> None:
    alone = [["fc"], *([f"layer{stage}.{block}.conv1"] for stage in range(1, 5) for block in range(2))]
    assert sets(resnet18.channel_dependency()) == sorted([*STREAMS.values(), *alone])


def test_batch_normalisations_are_in_sets_as_their_convolutions_are(resnet18: mk.DataflowGraph) -> None:
    alone = [[f"layer{stage}.{block}.bn1"] for stage in range(1, 5) for block in range(2)]
    streams = [
        [name.replace("conv", "bn").replace("downsample.0", "downsample.1") for name in stream]
        for stream in STREAMS.values()
    ]
    assert sets(resnet18.channel_dependency("batchnorm")) == sorted([*streams, *alone])
    assert sets(resnet18.channel_dependency("Batchnorm")) == sorted([*streams, *alone])


def test_what_reads_one_stream_has_common_input_channels(resnet18: mk.DataflowGraph) -> None:
    reading = [
        ["layer1.0.conv1", "layer1.1.conv1", "layer2.0.conv1", "layer2.0.downsample.0"],
        ["layer2.1.conv1", "layer3.0.conv1", "layer3.0.downsample.0"],
        ["layer3.1.conv1", "layer4.0.conv1", "layer4.0.downsample.0"],
        ["fc", "layer4.1.conv1"],
    ]
    alone = [["conv1"], *([f"layer{stage}.{block}.conv2"] for stage in range(1, 5) for block in range(2))]
    assert sets(resnet18.input_channel_dependency()) == sorted([*reading, *alone])


def test_sets_come_in_the_order_in_which_the_layers_ran(resnet18: mk.DataflowGraph) -> None:
    found = resnet18.channel_dependency()
    assert found.sets[0] == ("conv1", "layer1.0.conv2", "layer1.1.conv2")
    assert found.sets[1] == ("layer1.0.conv1",)
    assert found.sets[-1] == ("fc",)


@pytest.mark.parametrize("name", ["resnet18", "shufflenet_v2_x0_5", "mobilenet_v2", "densenet121", "convnext_tiny"])
def test_every_layer_is_in_exactly_one_set_and_its_channels_run_through_no_layer_of_another(name: str) -> None:
    graph = torchvision_graph(name)
    prunable = {path for path, node in graph.modules.items() if isinstance(node.module, nn.Conv2d | nn.Linear)}
    found = graph.channel_dependency().dependency_sets
    assert sorted(layer for layers in found for layer in layers) == sorted(prunable)
    coupled = 0
    for layers in found:
        for layer in layers:
            axes = graph.axes[f"{layer}.weight", 0].axes
            if len(axes) == 1 and axes[0].frozen is None:
                cut = {member.name.removesuffix(".weight") for member in axes[0].members if member.dim == 0} & prunable
                assert cut <= layers, layer
                coupled += len(cut)
    assert coupled >= len(prunable) / 2


def test_a_depthwise_convolution_is_pruned_with_the_layer_that_feeds_it() -> None:
    graph = torchvision_graph("mobilenet_v2")
    found = graph.channel_dependency().dependency_sets
    for block in range(2, 18):
        assert any({f"features.{block}.conv.0.0", f"features.{block}.conv.1.0"} <= layers for layers in found)
    residual = {"features.7.conv.2", "features.8.conv.2", "features.9.conv.2", "features.10.conv.2"}
    assert residual in found
    assert {"features.18.0"} in found
    assert {"classifier.1"} in found


def test_what_is_added_to_a_concatenation_hangs_together_with_all_its_parts() -> None:
    graph = graph_of(
        lambda m, x: m.head(torch.cat([m.a(x), m.b(x)], 1) + m.c(x)), 1, 3, 8, 8,
        a=nn.Conv2d(3, 4, 1), b=nn.Conv2d(3, 4, 1), c=nn.Conv2d(3, 8, 1), head=nn.Conv2d(8, 5, 1),
    )  # fmt: skip
    assert sets(graph.channel_dependency()) == [["a", "b", "c"], ["head"]]


def test_a_concatenation_alone_couples_nothing() -> None:
    graph = graph_of(
        lambda m, x: m.head(torch.cat([m.a(x), m.b(x)], 1)), 1, 3, 8, 8,
        a=nn.Conv2d(3, 4, 1), b=nn.Conv2d(3, 4, 1), head=nn.Conv2d(8, 5, 1),
    )  # fmt: skip
    assert sets(graph.channel_dependency()) == [["a"], ["b"], ["head"]]


def test_layers_with_only_groups_in_common_can_be_pruned_apart() -> None:
    graph = graph_of(
        lambda m, x: m.head(m.grouped(m.a(x))), 1, 3, 8, 8,
        a=nn.Conv2d(3, 8, 1), grouped=nn.Conv2d(8, 12, 1, groups=4), head=nn.Conv2d(12, 5, 1),
    )  # fmt: skip
    assert sets(graph.channel_dependency()) == [["a"], ["grouped"], ["head"]]


def test_embeddings_transposed_convolutions_and_raw_parameters_are_layers_too() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(10, 6)
            self.up = nn.ConvTranspose1d(6, 8, 2)
            self.matrix = nn.Parameter(torch.zeros(8, 6))

        def forward(self, ids: Tensor) -> Tensor:
            x = self.embed(ids)
            return x[:, :3] + (self.up(x.transpose(1, 2)).transpose(1, 2) @ self.matrix)[:, :3]

    found = mk.trace(Mixed().eval(), torch.zeros(1, 5, dtype=torch.long)).channel_dependency()
    assert found.sets == (("embed", "matrix"), ("up",))


def test_a_tied_weight_is_a_layer_in_each_of_its_modules() -> None:
    found = mk.trace(TiedEmbedding(10, 6).eval(), torch.zeros(1, 5, dtype=torch.long)).channel_dependency()
    assert found.sets == (("embed",), ("head",))


def test_a_layer_that_runs_twice_is_listed_once() -> None:
    graph = graph_of(lambda m, x: m.head(m.a(m.a(x))), 2, 6, a=nn.Linear(6, 6), head=nn.Linear(6, 3))
    assert graph.channel_dependency().sets == (("a",), ("head",))


def test_another_prune_type_is_refused_with_what_there_is(resnet18: mk.DataflowGraph) -> None:
    with pytest.raises(mk.ModuleKGError, match="batchnorm"):
        resnet18.channel_dependency("batch_norm")


# --------------------------------------------------------------------- groups


def test_groups_are_asked_of_a_grouped_convolution_and_of_what_feeds_it() -> None:
    graph = graph_of(
        lambda m, x: m.second(m.first(m.a(x)).relu()), 1, 3, 8, 8,
        a=nn.Conv2d(3, 8, 1), first=nn.Conv2d(8, 16, 1, groups=2), second=nn.Conv2d(16, 8, 1, groups=4),
    )  # fmt: skip
    found = graph.group_dependency()
    assert found.dependency_sets == {"a": 2, "first": 4, "second": 4}
    assert found.min_groups == {"a": 1, "first": 2, "second": 4}


def test_groups_that_do_not_fit_each_other_give_their_least_common_multiple() -> None:
    graph = graph_of(
        lambda m, x: m.grouped(m.norm(m.a(x))), 1, 3, 8, 8,
        a=nn.Conv2d(3, 24, 1), norm=nn.GroupNorm(4, 24), grouped=nn.Conv2d(24, 12, 1, groups=6),
    )  # fmt: skip
    found = graph.group_dependency()
    assert found.dependency_sets == {"a": 12, "norm": 12, "grouped": 6}
    assert found.min_groups == {"a": 1, "norm": 1, "grouped": 6}


def test_a_norm_behind_a_grouped_convolution_has_its_own_groups() -> None:
    graph = graph_of(
        lambda m, x: m.norm(m.grouped(m.a(x))), 1, 3, 8, 8,
        a=nn.Conv2d(3, 16, 1), grouped=nn.Conv2d(16, 32, 1, groups=4), norm=nn.GroupNorm(8, 32),
    )  # fmt: skip
    found = graph.group_dependency()
    assert found.dependency == found.dependency_sets == {"a": 4, "grouped": 8, "norm": 8}
    assert found.min_groups == {"a": 1, "grouped": 4, "norm": 8}


def test_depthwise_convolutions_ask_for_nothing_but_their_multiplier() -> None:
    graph = graph_of(
        lambda m, x: m.twice(m.depthwise(m.a(x))), 1, 3, 8, 8,
        a=nn.Conv2d(3, 8, 1), depthwise=nn.Conv2d(8, 8, 3, groups=8), twice=nn.Conv2d(8, 16, 3, groups=8),
    )  # fmt: skip
    assert graph.group_dependency().dependency_sets == {"a": 1, "depthwise": 1, "twice": 2}


def test_of_two_layers_that_are_concatenated_each_has_its_share_of_the_groups() -> None:
    graph = graph_of(
        lambda m, x: m.grouped(torch.cat([m.a(x), m.b(x)], 1)), 1, 3, 8, 8,
        a=nn.Conv2d(3, 12, 1), b=nn.Conv2d(3, 4, 1), grouped=nn.Conv2d(16, 8, 1, groups=4),
    )  # fmt: skip
    assert graph.group_dependency().dependency_sets == {"a": 3, "b": 1, "grouped": 4}


def test_a_linear_layer_is_listed_where_groups_are_asked_of_it_and_norms_with_their_own() -> None:
    graph = graph_of(
        lambda m, x: m.head(m.up(m.norm(m.a(x).unflatten(1, (8, 1))))), 2, 6,
        a=nn.Linear(6, 8), norm=nn.GroupNorm(2, 8), up=nn.ConvTranspose1d(8, 12, 3, groups=4), head=nn.Linear(3, 4),
    )  # fmt: skip
    assert graph.group_dependency().dependency_sets == {"a": 4, "norm": 4, "up": 4}


def test_groups_of_all_channels_or_of_none_ask_for_nothing() -> None:
    graph = graph_of(
        lambda m, x: m.all(m.one(m.a(x))), 1, 3, 8, 8,
        a=nn.Conv2d(3, 8, 1), one=nn.GroupNorm(1, 8), all=nn.GroupNorm(8, 8),
    )  # fmt: skip
    assert set(graph.group_dependency().dependency_sets.values()) == {1}


def test_what_a_pixel_shuffle_spreads_comes_in_fours() -> None:
    graph = graph_of(
        lambda m, x: m.head(m.shuffle(m.a(x))), 1, 3, 8, 8,
        a=nn.Conv2d(3, 16, 1), shuffle=nn.PixelShuffle(2), head=nn.Conv2d(4, 3, 1),
    )  # fmt: skip
    assert graph.group_dependency().dependency_sets == {"a": 4, "head": 1}


def test_resnext_has_32_groups_before_and_in_its_grouped_convolutions() -> None:
    found = torchvision_graph("resnext50_32x4d").group_dependency()
    inner = {name: number for name, number in found.dependency_sets.items() if number > 1}
    assert set(inner.values()) == {32}
    assert len(inner) == 32
    assert all(name.endswith(("conv1", "conv2")) for name in inner)
    assert {found.min_groups[name] for name in inner if name.endswith("conv2")} == {32}


# -------------------------------------------------------------------- reshape


def test_a_flatten_that_merges_channels_with_positions_names_the_layer_before_it() -> None:
    graph = torchvision_graph("vgg11")
    assert list(graph.reshape_dependency().dependency.values()) == [["features.18"]]


def test_a_view_that_only_adds_dimensions_merges_nothing(resnet18: mk.DataflowGraph) -> None:
    graph = graph_of(lambda m, x: m.head(m.a(x).view(1, -1, 1, 1)), 1, 7, a=nn.Linear(7, 18), head=nn.Conv2d(18, 3, 1))
    assert graph.reshape_dependency().dependency_sets == []
    assert resnet18.reshape_dependency().dependency_sets == []


def test_a_view_that_has_the_number_of_channels_in_its_code_is_listed() -> None:
    graph = graph_of(lambda m, x: m.head(m.a(x).view(1, 18, 1, 1)), 1, 7, a=nn.Linear(7, 18), head=nn.Conv2d(18, 3, 1))
    assert graph.reshape_dependency().dependency_sets == [{"a"}]


def test_a_channel_shuffle_runs_through_the_layers_on_both_sides_of_the_concatenation() -> None:
    def shuffled(m: nn.Module, x: Tensor) -> Tensor:
        y = torch.cat([m.a(x), m.b(x)], 1)
        return m.head(y.view(1, 2, 4, 8, 8).transpose(1, 2).reshape(1, 8, 8, 8))

    graph = graph_of(
        shuffled, 1, 3, 8, 8, a=nn.Conv2d(3, 4, 1), b=nn.Conv2d(3, 4, 1), head=nn.Conv2d(8, 2, 1)
    )  # fmt: skip
    found = graph.reshape_dependency().dependency_sets
    assert found
    assert all(layers == {"a", "b"} for layers in found)


def test_heads_are_split_and_merged_through_the_projection_that_makes_them() -> None:
    def attended(m: nn.Module, x: Tensor) -> Tensor:
        q, k, v = (part(x).view(1, 5, 2, 4).transpose(1, 2) for part in (m.q, m.k, m.v))
        y = (q @ k.transpose(2, 3)).softmax(-1) @ v
        return m.out(y.transpose(1, 2).reshape(1, 5, 8))

    parts = {name: nn.Linear(8, 8) for name in ("q", "k", "v", "out")}
    found = graph_of(attended, 1, 5, 8, **parts).reshape_dependency()
    assert found.dependency_sets == [{"q"}, {"k"}, {"v"}, {"v"}]


# ----------------------------------------------------------- files and pictures


def lines(view: object, tmp_path: Path) -> list[str]:
    path = tmp_path / "view.csv"
    view.to_csv(path)  # type: ignore[attr-defined]
    return path.read_text().splitlines()


@pytest.fixture(scope="module")
def small() -> mk.DataflowGraph:
    return graph_of(
        lambda m, x: m.head((m.b(m.a(x)) + m.a(x)).flatten(1)), 1, 3, 4, 4,
        a=nn.Conv2d(3, 8, 1), b=nn.Conv2d(8, 8, 1, groups=2), head=nn.Linear(128, 2),
    )  # fmt: skip


def test_files_have_the_layouts_of_the_originals(small: mk.DataflowGraph, tmp_path: Path) -> None:
    assert lines(small.channel_dependency(), tmp_path) == ["Dependency Set,Layers", "Set 1,a,b", "Set 2,head"]
    assert lines(small.input_channel_dependency(), tmp_path) == [
        "Dependency Set,Layers", "Set 1,a", "Set 2,b,head"
    ]  # fmt: skip
    assert lines(small.group_dependency(), tmp_path) == ["Conv Layer Name,Group", "a,2", "b,2"]
    (operator,) = small.reshape_dependency().dependency
    assert lines(small.reshape_dependency(), tmp_path) == ["Reshape OP,Dependent Layers", f"{operator},b,a"]
    assert lines(small.attention_dependency(), tmp_path) == ["Attention layer matmul op,Group"]


def test_the_file_of_attentions_has_the_projections_as_a_list(tmp_path: Path) -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    graph = graph_of(lambda m, x: m.attn(x, x, x, need_weights=False)[0], 1, 5, 8, attn=attention)
    view = graph.attention_dependency()
    path = tmp_path / "attention.csv"
    view.to_csv(path)
    header, row = csv.reader(path.open())
    assert header == ["Attention layer matmul op", "Group"]
    assert row == [view.attentions[0].name, "['attn', 'attn.out_proj']"]


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_prints_escaped_and_draws_itself_without_pyplot(view: str, tmp_path: Path) -> None:
    part = nn.Sequential(nn.Conv2d(3, 8, 1), nn.GroupNorm(2, 8), nn.Flatten())
    model = nn.Sequential()
    model.add_module("<b>$x$</b>", part)
    found = getattr(mk.trace(model.eval(), torch.zeros(1, 3, 4, 4)), view)()
    assert repr(found).startswith(f"<{type(found).__name__}: ")
    assert "<b>" not in found._repr_html_()
    before = plt.get_fignums()
    figure = found.plot()
    figure.savefig(tmp_path / "view.png")
    assert plt.get_fignums() == before
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_picture_shows_the_sets_of_several_layers_and_counts_the_others(resnet18: mk.DataflowGraph) -> None:
    (axes,) = resnet18.channel_dependency().plot().axes
    texts = [text.get_text() for text in axes.texts]
    assert {"Set 1", "conv1", "layer1.0.conv2", "layer4.0.downsample.0", "9 more of one layer each"} <= set(texts)
    assert "fc" not in texts


def test_a_view_cannot_be_changed(resnet18: mk.DataflowGraph) -> None:
    with pytest.raises(AttributeError):
        resnet18.channel_dependency().sets = ()  # type: ignore[misc]
    assert len(resnet18.channel_dependency()) == 13


def test_a_graph_that_ends_where_forward_raised_has_views() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(5, 6, 1))
    with pytest.raises(mk.ModuleKGError) as caught:
        mk.trace(model, torch.zeros(1, 3, 8, 8))
    assert caught.value.graph.channel_dependency().sets == (("0",),)  # type: ignore[attr-defined]
