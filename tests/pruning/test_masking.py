"""A mask writes zeros where a cut would take, and takes them back."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from torch import nn

import modulekg_widgets as mk
from models import seeded, transformers_models
from modulekg_widgets.engine.errors import CutError
from modulekg_widgets.engine.pruning.cut.cut import cut
from modulekg_widgets.engine.pruning.cut.masking import mask
from pruning.edits_of_cut import bytes_of, edits_by_hand, small_edits, state_of, step, trained, values_of
from pruning.named_models import Tied

GONE, KEPT = [0, 3], [1, 2, 4, 5]
MADE = ("conv.weight", "conv.bias", "norm.weight", "norm.bias")


def test_what_goes_is_zero_where_it_is_made_and_nowhere_else() -> None:
    model, _ = trained()
    before, objects = values_of(model), {name: id(tensor) for name, tensor in model.named_parameters()}
    gradient = model.conv.weight.grad
    receipt = mask(model, small_edits(model, GONE))
    assert repr(receipt) == "<MaskReceipt: 4 parameters masked>"
    for name, now in values_of(model).items():
        if name in MADE:
            assert not now[GONE].any()
            assert torch.equal(now[KEPT], before[name][KEPT])
        else:
            assert torch.equal(now, before[name])
    assert {name: id(tensor) for name, tensor in model.named_parameters()} == objects
    assert model.conv.weight.grad is gradient
    assert (model.conv.out_channels, model.conv.weight.requires_grad) == (6, True)


def test_a_masked_model_computes_what_the_cut_one_does() -> None:
    model, _ = trained()
    edits, x = small_edits(model, GONE), torch.randn(2, 2, 4, 4)
    model.eval().double()
    mask(model, edits)
    masked = model(x.double())
    cut(model, edits)
    torch.testing.assert_close(model(x.double()), masked, rtol=1e-12, atol=1e-12)


def test_undo_is_exact_for_what_was_masked() -> None:
    model, optimizer = trained()
    before = values_of(model)
    receipt = mask(model, small_edits(model, GONE))
    step(model, optimizer)
    now = values_of(model)
    receipt.undo()
    for name, value in values_of(model).items():
        assert bytes_of(value) == bytes_of(before[name] if name in MADE else now[name])
    assert bytes_of(now["conv.weight"]) != bytes_of(before["conv.weight"])


def test_restore_keeps_what_was_trained() -> None:
    model, optimizer = trained()
    before = values_of(model)
    receipt = mask(model, small_edits(model, GONE))
    step(model, optimizer)
    now = values_of(model)
    receipt.restore()
    for name, value in values_of(model).items():
        if name in MADE:
            assert bytes_of(value[GONE]) == bytes_of(before[name][GONE])
            assert bytes_of(value[KEPT]) == bytes_of(now[name][KEPT])
        else:
            assert bytes_of(value) == bytes_of(now[name])
    with pytest.raises(mk.ModuleKGError, match="undoes its mask once"):
        receipt.undo()


def test_minus_zero_and_nan_come_back() -> None:
    model, _ = trained()
    model.conv.bias.data = torch.tensor([-0.0, 1.0, float("nan"), float("nan"), -0.0, 2.0])
    before = bytes_of(model.conv.bias)
    receipt = mask(model, small_edits(model, GONE))
    assert bytes_of(model.conv.bias[GONE]) == bytes_of(torch.zeros(2))
    receipt.restore()
    assert bytes_of(model.conv.bias) == before


def test_tied_parameters_are_masked_once() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.Linear(3, 6))
    model[1].weight = model[0].weight
    edits = edits_by_hand(model, {"0.weight": {0: KEPT}})
    before = state_of(model)
    receipt = mask(model, edits)
    assert not model[1].weight[GONE].any()
    receipt.undo()
    assert state_of(model) == before


def test_a_table_that_another_layer_reads_is_zero_where_it_produces() -> None:
    model = seeded(Tied).eval().double()
    words = torch.randint(50, (2, 5))
    plan = mk.plan(mk.trace(model, words), ratio=0.5)
    assert {"table.weight", "out.weight"} <= plan.masks().keys()
    smaller = copy.deepcopy(model)
    plan.cut(smaller)
    plan.mask(model)
    torch.testing.assert_close(smaller(words), model(words), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("moved", [False, True])
def test_a_buffer_that_is_added_is_zero_where_indices_go(moved: bool) -> None:
    class Positioned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.up, self.out = nn.Embedding(20, 16), nn.Linear(16, 32), nn.Linear(32, 3)
            self.register_buffer("places", torch.randn(1, 9 if moved else 5, 16))

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            places = self.places[:, : words.shape[1]] if moved else self.places
            return self.out(self.up(self.words(words) + places).relu())

    model = seeded(Positioned).eval().double()
    words = torch.randint(20, (2, 5))
    plan = mk.plan(mk.trace(model, words), ratio=0.5)
    assert "places" in plan.masks()
    smaller = copy.deepcopy(model)
    plan.cut(smaller)
    plan.mask(model)
    torch.testing.assert_close(smaller(words), model(words), rtol=1e-12, atol=1e-12)


def test_a_graph_that_still_needs_the_values_is_told() -> None:
    model, _ = trained()
    loss = model(torch.ones(2, 2, 4, 4, requires_grad=True)).sum()
    mask(model, small_edits(model))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_model_that_was_cut_or_moved_since_is_refused() -> None:
    model, _ = trained()
    edits = small_edits(model, GONE)
    receipt = mask(model, edits)
    other = cut(model, edits)
    before = state_of(model)
    for way in (receipt.undo, receipt.restore):
        with pytest.raises(mk.ModuleKGError, match="undo the cut that changed it"):
            way()
    assert state_of(model) == before
    other.undo()
    model.double()
    with pytest.raises(mk.ModuleKGError, match="move the model back"):
        receipt.undo()
    receipt.restore()
    assert model.conv.weight.dtype is torch.float64
    with pytest.raises(mk.ModuleKGError, match="no tensor"):
        mask(torch.nn.Linear(2, 2), edits)


# --------------------------------------------------------- masks of a plan


def traced(name: str) -> tuple[nn.Module, mk.DataflowGraph]:
    torch.manual_seed(0)
    if name == "resnet18":
        model = torchvision.models.resnet18().eval()
        return model, mk.trace(model, torch.zeros(1, 3, 64, 64))
    if name == "normed":
        layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 8))
        normed = nn.Sequential(layer, nn.ReLU(), nn.Linear(8, 3)).eval()
        return normed, mk.trace(normed, torch.zeros(2, 4))
    model, kwargs = transformers_models.build(name)
    return model.eval(), mk.trace(model, (), kwargs)


@pytest.mark.parametrize("name", ["resnet18", "llama", "bert", "normed"])
def test_the_masks_of_a_plan_are_what_it_sets_to_zero(name: str, tmp_path: Path) -> None:
    model, graph = traced(name)
    plan = mk.plan(graph, ratio=0.5)
    masks = plan.masks()
    parameters = dict(model.named_parameters(remove_duplicate=False))
    masked = copy.deepcopy(model)
    plan.mask(masked)
    for path, now in masked.named_parameters(remove_duplicate=False):
        mask = masks.get(path, torch.ones(()))
        assert torch.equal(now, parameters[path] * mask), path
        assert path not in masks or (mask.shape == now.shape and set(mask.unique().tolist()) == {0.0, 1.0})
    plan.save(tmp_path / "plan.json")
    again = mk.load_plan(tmp_path / "plan.json").masks()
    assert again.keys() == masks.keys() <= parameters.keys()
    assert all(torch.equal(again[path], mask) for path, mask in masks.items())


def test_masks_of_a_plan_lead_back_to_it(tmp_path: Path) -> None:
    model, graph = traced("resnet18")
    plan = mk.plan(graph, ratio=0.5)
    torch.save(plan.masks(), tmp_path / "masks.pth")
    given: tuple[Any, ...] = (plan.masks(), tmp_path / "masks.pth")
    for masks in given:
        found = mk.plan(graph, cuts=[mk.pruning.infer_masks(graph, masks).cut])
        assert [(axis.name, axis.dropped) for axis in found.axes] == [(axis.name, axis.dropped) for axis in plan.axes]
    mk.speedup(model, plan.masks(), torch.zeros(1, 3, 64, 64))
    assert sum(each.numel() for each in model.parameters()) == plan.params[1]


def test_whole_modules_have_no_masks() -> None:
    _, graph = traced("resnet18")
    with pytest.raises(CutError, match=r"layer1\.0 are removed as a whole: cut instead"):
        mk.plan(graph, blocks=["layer1.0"]).masks()
