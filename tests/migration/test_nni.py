"""Every row of "Coming from NNI": the dependency views, masks and what became of them, and the speedup."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import modulekg_widgets as mk
from migration.models import IMAGE, WORDS, Encoder, Grouped, ResNet, new, run, shapes, state, traced
from migration.operators import Depthwise, Uses, between
from migration.operators import Scaled as MyModule
from migration.tables import Row, Table

nni = Table("Coming from NNI")
Masks = dict[str, dict[str, torch.Tensor | None]]
STREAM = {"conv1", "layer1.0.conv2", "layer1.1.conv2"}  # what is added to one another


def masks_of(model: nn.Module, gone: dict[str, list[int]], dim: int = 0) -> Masks:
    """NNI's dict, with zeros in these channels of the layers' weights."""
    found: Masks = {}
    for path, index in gone.items():
        mask = torch.ones_like(model.get_submodule(path).get_parameter("weight"))
        found[path] = {"weight": mask.index_fill_(dim, torch.tensor(index), 0.0), "bias": None}
    return found


def inner(model: nn.Module) -> Masks:
    """Two channels inside the first block, which concern nobody else."""
    return masks_of(model, {"layer1.0.conv1": [1, 4]})


# ---------------------------------------------------------------- dependencies


@nni("`TorchModuleGraph(model, dummy_input)` · `graph.trace()`")
def _trace() -> None:
    model, args, kwargs = new(ResNet), (), {"x": IMAGE}
    before = state(model)
    graph = mk.trace(model, args, kwargs)
    assert [operator.name for operator in graph.operators].count("aten::convolution") == 5
    assert list(graph.modules) == [name for name, _ in model.named_modules()]
    assert state(model) == before


@nni("`find_predecessors(name)` · `find_successors(name)`")
def _neighbours() -> None:
    graph = traced(ResNet)
    value = graph.modules["layer1.0.conv1"].outputs[0]
    assert value.producer is not None
    assert (value.producer.name, value.producer.module) == ("aten::convolution", "layer1.0.conv1")
    assert {operator.module for operator in value.consumers} == {"layer1.0.bn1"}


@nni("`count_flops_params(model, dummy_input)`")
def _flops() -> None:
    graph = mk.trace(nn.Conv2d(3, 8, 3, padding=1, bias=False), IMAGE)
    products = 2 * 8 * 4 * 4 * 3 * 3 * 3
    assert graph.flops() == 2 * products
    assert graph.flops().macs == products
    assert graph.matmul_flops() == 2 * products


@nni("`ChannelDependency(model, dummy_input).dependency_sets`")
def _channels() -> None:
    graph = traced(ResNet)
    sets = graph.channel_dependency("filter").dependency_sets
    assert sets == [STREAM, {"layer1.0.conv1"}, {"layer1.1.conv1"}, {"fc"}]


@nni('`ChannelDependency(…, prune_type="Batchnorm")`')
def _channels_of_norms() -> None:
    graph = traced(ResNet)
    sets = graph.channel_dependency("batchnorm").dependency_sets
    assert sets == [{"bn1", "layer1.0.bn2", "layer1.1.bn2"}, {"layer1.0.bn1"}, {"layer1.1.bn1"}]


@nni("`InputChannelDependency`")
def _input_channels() -> None:
    graph = traced(ResNet)
    assert {"layer1.0.conv1", "layer1.1.conv1", "fc"} in graph.input_channel_dependency().dependency_sets


@nni("`GroupDependency`")
def _groups() -> None:
    found = traced(Grouped).group_dependency()
    # two groups read what conv1 makes, so its channels must divide by two as well
    assert found.dependency_sets == {"conv1": 2, "conv2": 2, "left": 1, "right": 1}
    assert found.dependency == found.dependency_sets
    assert found.min_groups["conv2"] == 2


@nni("`CatPaddingDependency` · `CatMaskPadding`")
def _concatenation() -> None:
    model = new(Grouped)
    mk.speedup(model, masks_of(model, {"left": [0, 3]}), IMAGE)
    assert shapes(model)["left.weight"] == (2, 8, 1, 1)
    assert shapes(model)["right.weight"] == (6, 8, 1, 1)  # it needed no mask of ones
    assert shapes(model)["fc.weight"] == (5, 8 * 16)
    assert run(model).shape == (2, 5)


@nni("`ReshapeDependency`")
def _reshapes() -> None:
    graph = traced(Grouped)
    found = graph.reshape_dependency()
    assert found.dependency_sets == [{"left", "right"}]
    assert list(found.dependency.values()) == [["left", "right"]]


@nni("`AttentionWeightDependency`")
def _attention() -> None:
    graph = traced(Encoder)
    written_out = graph.attention_dependency().dependency_sets
    assert written_out == [["attention.q", "attention.k", "attention.v", "attention.out"]]
    fused = mk.trace(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.randn(2, 5, 8), training=True)
    assert len(fused.attention_dependency().dependency_sets) == 1


@nni("`.export(path)`")
def _export(tmp_path: Path) -> None:
    path = tmp_path / "channels.csv"
    traced(ResNet).channel_dependency().to_csv(path)
    lines = path.read_text("utf-8").splitlines()
    assert lines[:2] == ["Dependency Set,Layers", "Set 1,conv1,layer1.0.conv2,layer1.1.conv2"]


@nni("`L1NormPruner(model, config_list).compress()`")
def _pruner() -> None:
    model, graph = new(ResNet), traced(ResNet)
    mk.plan(graph, ratio=0.5, importance="l1").mask(model)
    assert shapes(model) == shapes(new(ResNet))
    weight = model.layer1[0].get_parameter("conv1.weight")
    assert int((weight.flatten(1).abs().sum(1) == 0).sum()) == 3


@nni("`_, masks = pruner.compress()` · `pruner.export_model(model_path, mask_path)`")
def _masks_of_a_plan(tmp_path: Path) -> None:
    mask_path = tmp_path / "masks.pth"
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    plan = mk.plan(mk.trace(model, IMAGE), ratio=0.5)
    masks = plan.masks()
    torch.save(masks, mask_path)
    assert {name: (int(mask.sum()), mask.numel()) for name, mask in masks.items()} == {
        "0.weight": (108, 216), "0.bias": (4, 8),
    }  # fmt: skip
    mk.speedup(model, mask_path, IMAGE)
    assert model[0].out_channels == 4


# --------------------------------------------------------------------- speedup


@nni("`ModelSpeedup(model, dummy_input, masks).speedup_model()`")
def _speedup() -> None:
    model, dummy_input = new(ResNet), IMAGE
    before = state(model)
    masks = inner(model)
    receipt = mk.speedup(model, masks, dummy_input)
    assert shapes(model)["layer1.0.conv1.weight"] == (4, 8, 3, 3)
    assert shapes(model)["layer1.0.bn1.weight"] == (4,)
    assert shapes(model)["layer1.0.conv2.weight"] == (8, 4, 3, 3)
    assert model.layer1[0].get_submodule("conv1").out_channels == 4
    receipt.undo()
    assert state(model) == before


@nni('`apply_compression_results(model, "masks.pth")`')
def _applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, whole = new(ResNet), new(ResNet)
    masks = inner(model)
    torch.save(masks, "masks.pth")
    graph = mk.trace(model, IMAGE)
    receipt = mk.plan(graph, cuts=[mk.pruning.infer_masks(graph, "masks.pth").cut]).mask(model)
    assert shapes(model) == shapes(whole)
    with torch.no_grad():  # what NNI does
        whole.layer1[0].conv1.weight *= masks["layer1.0.conv1"]["weight"]
    assert torch.equal(model.layer1[0].conv1.weight, whole.layer1[0].conv1.weight)
    receipt.undo()
    assert state(model) == state(new(ResNet))


@nni("the same with fine-grained masks")
def _applied_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = new(ResNet)
    before = model.conv1.weight.detach().clone()
    mask = (torch.rand(before.shape, generator=torch.Generator().manual_seed(0)) > 0.5).float()
    torch.save({"conv1": {"weight": mask, "bias": None}}, "masks.pth")
    masks = mk.pruning.load_masks("masks.pth")
    prune.custom_from_mask(model.conv1, "weight", masks["conv1"]["weight"])
    assert torch.equal(model.conv1.weight, before * mask)
    assert mk.pruning.read_masks(mk.trace(model, IMAGE)).fine_grained


@nni("`masks_file` · `map_location`")
def _masks_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, dummy_input = new(ResNet), IMAGE
    monkeypatch.chdir(tmp_path)
    torch.save(inner(model), "masks.pth")
    mk.speedup(model, "masks.pth", dummy_input)
    assert shapes(model)["layer1.0.conv1.weight"] == (4, 8, 3, 3)
    torch.save({"layer1.0.conv1": Path()}, "other.pth")
    with pytest.raises(mk.ModuleKGError, match="cannot be loaded as masks"):
        mk.speedup(model, "other.pth", dummy_input)


@nni("`batch_dim` · `confidence` · `batch_size`")
def _batch() -> None:
    for sizes in ((1, 3, 4, 4), (7, 3, 4, 4)):
        model = new(ResNet)
        mk.speedup(model, inner(model), torch.zeros(sizes))  # no batch of random numbers, and zeros serve as well
        assert shapes(model)["layer1.0.conv1.weight"] == (4, 8, 3, 3)
    steps_first = nn.Sequential(nn.LSTM(3, 8), _First(), nn.Linear(8, 2))
    graph = mk.trace(steps_first, torch.zeros(5, 1, 3))  # (steps, batch, features)
    assert graph.axes["2.weight", 1].frozen is None


class _First(nn.Module):
    def forward(self, x: tuple[torch.Tensor, object]) -> torch.Tensor:
        return x[0]


@nni("`customized_replace_func` · `customized_replacers`")
def _replacers() -> None:
    @mk.adapter(MyModule)
    def sizes_of(sizes):  # type: ignore[no-untyped-def]
        return {"channels": sizes.parameter("weight", 0)}

    model = between(MyModule(8))
    mk.speedup(model, masks_of(model, {"0": [2, 5]}), IMAGE)
    assert model[1].channels == 6
    assert shapes(model)["1.weight"] == (6, 1, 1)

    grouped = between(Depthwise(8))
    mk.speedup(grouped, masks_of(grouped, {"0": [2, 5]}), IMAGE)
    assert grouped[1].channels == 6  # forward reads it, so the dry run finds it


@nni("`customized_mask_updaters`")
def _updaters() -> None:
    model = Uses("my_op")
    with pytest.raises(mk.ModuleKGError, match="mylib::my_op"):
        mk.speedup(model, masks_of(model, {"0": [2, 5]}), IMAGE)

    @mk.axis_rule("mylib::my_op")
    def as_it_came(call):  # type: ignore[no-untyped-def]
        return call.axes(call.inputs[0])

    mk.speedup(model, masks_of(model, {"0": [2, 5]}), IMAGE)
    assert shapes(model)["1.weight"] == (2, 6, 1, 1)


@nni("`logger`")
def _log() -> None:
    messages: list[str] = []
    log = logging.getLogger("modulekg_widgets")
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(handler)
    model = new(ResNet)
    masks = {**inner(model), **masks_of(model, {"conv1": [0]})}  # nobody else on the stream lets 0 go
    try:
        mk.speedup(model, masks, IMAGE)
    finally:
        log.removeHandler(handler)
    assert len(messages) == 1
    assert messages[0].startswith("channel conflict on conv1.out")


# ----------------------------------------------------------------------- masks


@nni("`_input_0` · `_output_0` in the masks of NNI 3")
def _values() -> None:
    model, dummy_input = new(Grouped), IMAGE
    mask = torch.ones(1, 8, 1, 1)
    mask[:, [1, 5]] = 0
    mk.speedup(model, {"conv1": {"_output_0": mask}}, dummy_input)
    assert shapes(model)["conv1.weight"] == (6, 3, 1, 1)
    model = new(Grouped)
    mk.speedup(model, {"conv2": {"_input_0": mask}}, dummy_input)
    assert shapes(model)["conv2.weight"] == (8, 3, 3, 3)


@nni("`infer_modules_masks()`")
def _inference() -> None:
    model, graph = new(ResNet), traced(ResNet)
    masks = inner(model)
    inferred = mk.pruning.infer_masks(graph, masks)
    assert set(inferred.modules) == {"layer1.0.conv1", "layer1.0.bn1", "layer1.0.conv2"}
    assert inferred.modules["layer1.0.conv2"].keys() == {"weight", "bias"}
    assert inferred.parameters["layer1.0.conv2.weight"] == {1: [1, 4]}
    assert inferred.values[graph.modules["layer1.0.bn1"].outputs[0].name] == {1: [1, 4]}


@nni("`replace_compressed_modules()`")
def _replacement() -> None:
    model, graph = new(ResNet), traced(ResNet)
    conv = model.layer1[0].get_submodule("conv1")
    inferred = mk.pruning.infer_masks(graph, inner(model))
    mk.plan(graph, cuts=[inferred.cut]).cut(model)
    assert model.layer1[0].get_submodule("conv1") is conv
    assert conv.get_parameter("weight").shape == (4, 8, 3, 3)


@nni("`fix_mask_conflict(masks, model, dummy_input)`")
def _fixed() -> None:
    model, graph = new(ResNet), traced(ResNet)
    masks = masks_of(model, {"conv1": [0, 3], "layer1.0.conv2": [0, 3], "layer1.1.conv2": [3, 6]})
    fixed = mk.pruning.fix_conflicts(graph, masks)
    assert fixed.conflicts[0].given_up == {"conv1": [0], "layer1.0.conv2": [0], "layer1.1.conv2": [6]}
    for path in masks:
        weight = fixed[path]["weight"]
        assert weight is not None
        assert (weight.flatten(1).sum(1) == 0).nonzero().flatten().tolist() == [3]  # what all of them ask for


@nni("`ChannelMaskConflict` · `GroupMaskConflict`")
def _conflicts() -> None:
    found = {}
    for cls, gone in (
        (ResNet, {"conv1": [0]}),
        (Grouped, {"conv2": [0, 1, 4]}),
        (ResNet, {"fc": [1]}),
        (ResNet, {"layer1.0.conv1": list(range(6))}),
    ):
        graph, masks = traced(cls), masks_of(new(cls), gone)
        for conflict in mk.pruning.conflicts(graph, masks):
            found[conflict.kind] = next(iter(conflict.asked))
    assert found == {"channel": "conv1", "group": "conv2", "frozen": "fc", "empty": "layer1.0.conv1"}


@nni("`MaskFix.export(path)`")
def _saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph, masks = traced(ResNet), inner(new(ResNet))
    mk.pruning.infer_masks(graph, masks).save("masks.pth")
    loaded = torch.load("masks.pth", weights_only=True)
    assert int(loaded["layer1.0.conv2"]["weight"].sum()) == 8 * 4 * 9


@nni("`detect_mask_prune_dim` · `conv_prune_dim`")
def _sides() -> None:
    by_input = masks_of(new(ResNet), {"layer1.0.conv2": [2]}, dim=1)
    by_output = inner(new(ResNet))
    model = new(ResNet)
    mk.speedup(model, by_output, IMAGE, conv_prune_dim=0)
    assert shapes(model)["layer1.0.conv2.weight"] == (8, 4, 3, 3)
    model = new(ResNet)
    mk.speedup(model, by_input, IMAGE, conv_prune_dim=1)
    assert shapes(model)["layer1.0.conv1.weight"] == (5, 8, 3, 3)
    model = new(ResNet)
    mk.speedup(model, {**by_output, **by_input}, IMAGE, conv_prune_dim=None)
    assert shapes(model)["layer1.0.conv1.weight"] == (3, 8, 3, 3)


@nni("masks of `torch.nn.utils.prune`")
def _torch_prune() -> None:
    model, dummy_input = new(ResNet), IMAGE
    conv = model.layer1[0].get_submodule("conv1")
    prune.ln_structured(conv, "weight", amount=2, n=2, dim=0)
    nn.init.zeros_(model.layer1[0].get_parameter("bn1.bias"))
    model.layer1[0].get_buffer("bn1.running_mean").zero_()
    masked = run(model)
    mk.speedup(model, args=dummy_input)
    assert shapes(model)["layer1.0.conv1.weight_orig"] == (4, 8, 3, 3)
    assert conv.get_buffer("weight_mask").shape == (4, 8, 3, 3)
    torch.testing.assert_close(run(model), masked)


@nni("fine-grained masks")
def _fine_grained() -> None:
    graph, masks = traced(ResNet), inner(new(ResNet))
    weight = masks["layer1.0.conv1"]["weight"]
    assert weight is not None
    weight[0, :2] = 0.0
    assert mk.pruning.read_masks(graph, masks).fine_grained == {"layer1.0.conv1.weight": 2 * 9}


@pytest.mark.parametrize("row", nni.rows, ids=[row.old for row in nni.rows])
def test_row(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nni.run(row, tmp_path=tmp_path, monkeypatch=monkeypatch)


def test_every_function_has_its_row() -> None:
    assert nni.without_row() == []


def test_a_model_with_several_inputs_by_name() -> None:
    """NNI took a dict as dummy input; here these are the keyword arguments."""
    model = new(Encoder)
    masks = masks_of(model, {"embed": [3], "attention.out": [3]})
    mk.speedup(model, masks, kwargs={"x": WORDS})
    assert shapes(model)["head.weight"] == (2, 15)
