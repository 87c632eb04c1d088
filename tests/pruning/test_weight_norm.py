"""Weights that are normalised: the norm runs over what goes too, and what stays of the weight stays the same."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import modulekg_widgets as mk
from pruning.battery import differs, state_of


def old_weight_norm(module: nn.Module, name: str = "weight", dim: int | None = 0) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.utils.weight_norm(module, name, dim)


WRAPPERS = pytest.mark.parametrize("wrap", [parametrizations.weight_norm, old_weight_norm])


def net(wrap: Callable[[nn.Module], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    layers = [wrap(nn.Conv2d(3, 8, 3)), nn.ReLU(), wrap(nn.Conv2d(8, 8, 3)), nn.ReLU(), nn.Flatten(), nn.Linear(128, 3)]
    return nn.Sequential(*layers).double()


X = torch.randn(2, 3, 8, 8, dtype=torch.float64)


@WRAPPERS
def test_the_effective_weights_are_slices_of_the_old_ones(
    wrap: Callable[[nn.Module], nn.Module], tmp_path: Path
) -> None:
    model = net(wrap)
    with torch.no_grad():
        model(X)  # the old kind keeps what it computed
    plan = mk.plan(mk.trace(model, X), per_axis={"0": [1, 2, 5], "2": [0, 7]})
    before, whole = state_of(model), copy.deepcopy(model)
    first, second = [0, 3, 4, 6, 7], [1, 2, 3, 4, 5, 6]
    receipt = plan.cut(model)
    with torch.no_grad():
        model(X)
        whole(X)
    assert torch.allclose(model[0].weight, whole[0].weight[first], atol=1e-14)
    assert torch.allclose(model[2].weight, whole[2].weight[second][:, first], atol=1e-14)
    silent = copy.deepcopy(whole)
    hidden = silent[:2](X)
    hidden[:, [1, 2, 5]] = 0
    hidden = silent[2:4](hidden)
    hidden[:, [0, 7]] = 0
    assert (silent[4:](hidden) - model(X)).abs().max() < 1e-12
    plan.save(tmp_path / "plan.json")
    again = mk.load_plan(tmp_path / "plan.json")
    assert again == plan
    again.cut(whole)
    assert (whole(X) - model(X)).abs().max() < 1e-14
    receipt.undo()
    assert not differs(before, state_of(model))


@WRAPPERS
def test_restore_keeps_what_stayed_of_the_weight(wrap: Callable[[nn.Module], nn.Module]) -> None:
    model = net(wrap)
    model(X)
    before = state_of(model)
    plan = mk.plan(mk.trace(model, X), per_axis={"0": [1, 2, 5]})
    plan.cut(model).restore()
    model(X)
    assert not differs(before, state_of(model))
    receipt = plan.cut(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(X).square().sum().backward()
    optimizer.step()
    model(X)
    trained = model[2].weight.detach().clone()
    receipt.restore()
    model(X)
    assert torch.allclose(model[2].weight[:, [0, 3, 4, 6, 7]], trained, atol=1e-13)


class Positional(nn.Module):
    """A grouped convolution beside a residual path, as the positions of wav2vec2: channels and groups go."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.into, self.conv, self.out = nn.Conv1d(3, 16, 1), conv, nn.Conv1d(16, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.into(x)
        return self.out(x + self.conv(x))


@WRAPPERS
@pytest.mark.parametrize("dim", [0, 2])
@pytest.mark.parametrize("granularity", ["index", "group"])
def test_grouped_convolutions_normalised_along_the_first_or_the_last_dimension(
    wrap: Callable[..., nn.Module], dim: int, granularity: str
) -> None:
    torch.manual_seed(0)
    model = Positional(wrap(nn.Conv1d(16, 16, 5, padding=2, groups=4), "weight", dim)).double()
    x = torch.randn(2, 3, 9, dtype=torch.float64)
    with torch.no_grad():
        model(x)
        whole, weight = copy.deepcopy(model), model.conv.weight.detach().clone()
        plan = mk.plan(mk.trace(model, x), ratio=0.5, granularity=granularity)
        direction = next(edit for edit in plan.edits.tensors if edit.shape == (16, 4, 5))
        gains = [edit.gain_of for edit in plan.edits.tensors if edit.gain_of is not None]
        # whole groups leave the norm of a row as it is
        assert gains == ([] if (dim, granularity) == (0, "group") else [(direction.names[0], dim)])
        plan.cut(model)
        found = model(x)
        rows, columns = direction.kept[0], direction.kept.get(1, np.arange(4))
        assert len(rows) == 8
        assert torch.allclose(model.conv.weight, weight[rows][:, columns], atol=1e-14)
        hidden = whole.into(x)
        gone = np.setdiff1d(np.arange(16), rows)
        hidden[:, gone] = 0
        summed = hidden + whole.conv(hidden)
        summed[:, gone] = 0
        assert (whole.out(summed) - found).abs().max() < 1e-13


@WRAPPERS
@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("convolutional", [False, True])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_masked_model_computes_what_the_cut_one_does(wrap: Any, dim: int | None, convolutional: bool) -> None:
    torch.manual_seed(0)
    if convolutional:
        first, second, head = nn.Conv1d(6, 16, 3), nn.ConvTranspose1d(16, 12, 3), nn.Conv1d(12, 3, 1)
        x = torch.randn(5, 6, 9)
    else:
        first, second, head = nn.Linear(6, 16), nn.Linear(16, 12), nn.Linear(12, 3)
        x = torch.randn(5, 6)
    model = nn.Sequential(wrap(first, dim=dim), nn.ReLU(), wrap(second, dim=dim), nn.ReLU(), head).double().eval()
    x = x.double()
    with torch.no_grad():
        for parameter in model.parameters():  # so that gains are not the norms that they begin as
            parameter.add_(0.1 * torch.randn_like(parameter))
        model(x)
        plan, before = mk.plan(mk.trace(model, x), ratio=0.5), state_of(model)
        whole = [model[at].weight.clone() for at in (0, 2)]
        receipt = plan.mask(model)
        masked = model(x)
        receipt.undo()
        model(x)
        assert not differs(before, state_of(model))
        receipt = plan.mask(model)
        receipt.restore()
        model(x)
        assert not differs(before, state_of(model))
        plan.cut(model)
        assert torch.allclose(model(x), masked, atol=1e-12)
    names = {name: edit for edit in plan.edits.tensors for name in edit.names}
    for at, weight in zip((0, 2), whole, strict=True):
        edit = next(names[name] for name in names if name.startswith(f"{at}.") and name.endswith(("original1", "_v")))
        assert torch.allclose(model[at].weight, edit.slice(weight), atol=1e-12)


@WRAPPERS
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_gain_that_was_trained_under_a_mask_fits_the_restored_direction(wrap: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(wrap(nn.Linear(6, 16), dim=None), nn.ReLU(), nn.Linear(16, 3)).double()
    x = torch.randn(5, 6, dtype=torch.float64)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    receipt = plan.mask(model)
    model(x).square().sum().backward()
    torch.optim.SGD(model.parameters(), 0.01).step()
    model(x)
    trained = model[0].weight.detach().clone()
    receipt.restore()
    model(x)
    stay = next(axis for axis in plan.axes).dropped
    rows = [row for row in range(16) if row not in stay]
    assert torch.allclose(model[0].weight[rows], trained[rows], atol=1e-12)
    assert model[0].weight[list(stay)].abs().sum() > 0
