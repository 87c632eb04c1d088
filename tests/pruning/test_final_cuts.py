"""`undo=False`: the same cut, of which nothing is kept."""

from __future__ import annotations

import copy
import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import CutError
from modulekg_widgets.engine.pruning.cut.edits import TensorEdit


def net() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), nn.utils.parametrizations.weight_norm(nn.Conv1d(8, 6, 3))]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(24, 2))


X = torch.randn(4, 3, 8, generator=torch.Generator().manual_seed(1))


def test_the_model_is_cut_as_with_a_way_back() -> None:
    model, other = net(), net()
    plan = mk.plan(mk.trace(model, X), ratio=0.5)
    optimizers = []
    for each in (model, other):
        optimizer = torch.optim.Adam(each.parameters())
        each(X).sum().backward()
        optimizer.step()
        optimizers.append(optimizer)
    average = copy.deepcopy(other)
    plan.cut(model, optimizers[0])
    parameters = list(other.parameters())
    receipt = plan.cut(other, optimizers[1], copies=[average], undo=False)
    assert all(one is two for one, two in zip(parameters, other.parameters(), strict=True))
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])
        assert average.state_dict()[name].shape == value.shape
    states = [[entry["exp_avg"] for entry in each.state.values()] for each in optimizers]
    assert all(torch.equal(one, two) for one, two in zip(*states, strict=True))
    assert receipt.edits == plan.edits
    assert "for good" in repr(receipt)
    for way in (receipt.undo, receipt.restore):
        with pytest.raises(CutError, match="undo=False"):
            way()


@pytest.mark.slow
def test_nothing_is_kept_of_what_was_there() -> None:
    model = net()
    memory: dict[str, weakref.ref[np.ndarray]] = {}
    for name, each in model.named_parameters():
        array = each.detach().numpy().copy()
        each.data = torch.from_numpy(array)
        memory[name] = weakref.ref(array)
        del array
    plan = mk.plan(mk.trace(model, X), ratio=0.5)
    cut = {name for edit in plan.edits.tensors for name in edit.names} & memory.keys()
    receipt = plan.cut(model, undo=False)
    gc.collect()
    assert {name for name, array in memory.items() if array() is None} == cut
    assert receipt.edits.tensors


def test_statistics_are_renewed_without_a_way_back_too() -> None:
    model = net().eval()
    plan = mk.plan(mk.trace(model, X), ratio=0.5)
    receipt = plan.cut(model, recalibrate=[X], undo=False)
    assert "1.running_mean" in receipt.renewed


def test_what_does_not_fit_changes_nothing() -> None:
    model = net()
    plan = mk.plan(mk.trace(model, X), ratio=0.5)
    model[4] = nn.Linear(24, 3)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(CutError, match="shape"):
        plan.cut(model, undo=False)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_what_stops_midway_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    model = net()
    plan = mk.plan(mk.trace(model, X), ratio=0.5)
    whole, calls = TensorEdit.slice, []

    def of(edit: TensorEdit, tensor: torch.Tensor) -> torch.Tensor:
        calls.append(edit)
        if len(calls) > 4:
            raise MemoryError("no more")
        return whole(edit, tensor)

    monkeypatch.setattr(TensorEdit, "slice", of)
    with pytest.raises(CutError, match=r"midway.*MemoryError.*load the model again"):
        plan.cut(model, undo=False)
