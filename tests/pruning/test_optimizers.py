"""The state of every optimizer follows the cut, and what cannot follow is refused before anything changes."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import (
    ASGD,
    LBFGS,
    SGD,
    Adadelta,
    Adafactor,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    Muon,
    NAdam,
    RAdam,
    RMSprop,
    Rprop,
)

import modulekg_widgets as mk
from models.residual import ResidualLinear
from modulekg_widgets.engine.pruning.cut.cut import cut
from pruning.edits_of_cut import small_edits, state_of, step, trained

GONE, KEPT = [0, 3], [1, 2, 4, 5]
OPTIMIZERS = [
    (SGD, {}),
    (SGD, {"momentum": 0.9, "nesterov": True}),
    (SGD, {"momentum": 0.9, "foreach": True}),
    (SGD, {"momentum": 0.9, "fused": True}),
    (Adam, {}),
    (Adam, {"amsgrad": True, "foreach": True}),
    (Adam, {"fused": True}),
    (Adam, {"lr": torch.tensor(0.01), "fused": True}),
    (AdamW, {}),
    (AdamW, {"fused": True}),
    (RMSprop, {"momentum": 0.9, "centered": True}),
    (Adagrad, {}),
    (Adagrad, {"fused": True}),
    (Adafactor, {}),
    (Adadelta, {}),
    (Adamax, {}),
    (NAdam, {}),
    (RAdam, {}),
    (Rprop, {}),
    (ASGD, {}),
]


def entries(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """A copy of the state of each parameter, in the order of the groups."""
    return [
        {key: value.clone() for key, value in optimizer.state[parameter].items() if isinstance(value, torch.Tensor)}
        for group in optimizer.param_groups
        for parameter in group["params"]
    ]


@pytest.mark.parametrize(
    ("kind", "options"), OPTIMIZERS, ids=[f"{kind.__name__} {', '.join(options)}" for kind, options in OPTIMIZERS]
)
def test_training_goes_on_with_the_slices_of_the_state(kind: Any, options: dict[str, Any]) -> None:
    model, optimizer = trained(kind, **options)
    edits = small_edits(model, GONE)
    whole, before = entries(optimizer), state_of(model, optimizer)
    receipt = cut(model, edits, optimizer)
    for old, new, parameter in zip(whole, entries(optimizer), model.parameters(), strict=True):
        assert old.keys() == new.keys()
        for key, value in new.items():
            rows, columns = (KEPT, slice(None)) if parameter is not model.head.weight else (slice(None), KEPT)
            if value.shape == old[key].shape:
                assert torch.equal(value, old[key])
            else:
                assert torch.equal(value, old[key][rows][:, columns] if value.dim() > 1 else old[key][rows])
            full = value.dim() == parameter.dim() and all(size > 1 for size in value.shape)
            assert not full or value.shape == parameter.shape
    assert all(math.isfinite(step(model, optimizer, seed)) for seed in range(3))
    receipt.undo()
    assert state_of(model, optimizer) == before
    receipt = cut(model, edits, optimizer)
    step(model, optimizer)
    trained_on = entries(optimizer)
    receipt.restore()
    for old, now, after in zip(whole, trained_on, entries(optimizer), strict=True):
        for key, value in after.items():
            assert value.shape == old[key].shape
            if value.shape == now[key].shape:
                assert torch.equal(value, now[key])
            elif value.shape[0] == 6:
                assert torch.equal(value[GONE], old[key][GONE])
                assert torch.equal(value[KEPT], now[key])
            else:
                assert torch.equal(value[:, GONE], old[key][:, GONE])
                assert torch.equal(value[:, KEPT], now[key])
    assert math.isfinite(step(model, optimizer))


def test_the_factors_of_adafactor_follow_where_they_are_full() -> None:
    model, optimizer = trained(Adafactor)
    receipt = cut(model, small_edits(model, [0, 1, 2, 3, 4]), optimizer)  # one position stays, as in a factor
    shapes = {key: value.shape for key, value in optimizer.state[model.head.weight].items()}
    assert shapes == {"step": (), "row_var": (3, 1), "col_var": (1, 1)}
    step(model, optimizer)
    receipt.restore()
    shapes = {key: value.shape for key, value in optimizer.state[model.head.weight].items()}
    assert shapes == {"step": (), "row_var": (3, 1), "col_var": (1, 6)}
    assert optimizer.state[model.conv.weight]["row_var"].shape == (6, 2, 3, 1)
    step(model, optimizer)


def test_entries_that_came_since_go_with_undo_and_grow_with_restore() -> None:
    for way in ("undo", "restore"):
        model, _ = trained()
        optimizer = Adam(model.parameters(), lr=0.01)
        before = state_of(model, optimizer)
        receipt = cut(model, small_edits(model, GONE), optimizer)
        step(model, optimizer)
        moment = optimizer.state[model.conv.weight]["exp_avg"].clone()
        getattr(receipt, way)()
        if way == "undo":
            assert state_of(model, optimizer) == before
            assert not optimizer.state
        else:
            restored = optimizer.state[model.conv.weight]["exp_avg"]
            assert torch.equal(restored[KEPT], moment)
            assert not restored[GONE].any()
        step(model, optimizer)


def test_undo_takes_back_hyperparameters_groups_and_a_loaded_state() -> None:
    model, optimizer = trained(Adam, lr=torch.tensor(0.01))
    before = state_of(model, optimizer)
    receipt = cut(model, small_edits(model), optimizer)
    step(model, optimizer)
    optimizer.param_groups[0]["lr"].fill_(1.0)
    optimizer.param_groups[0]["weight_decay"] = 3.0
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})
    receipt.undo()
    assert state_of(model, optimizer) == before


def test_a_loaded_state_is_restored_as_well() -> None:
    model, optimizer = trained(AdamW)
    receipt = cut(model, small_edits(model, GONE), optimizer)
    step(model, optimizer)
    optimizer.load_state_dict(optimizer.state_dict())
    moment = optimizer.state[model.conv.weight]["exp_avg"].clone()
    receipt.restore()
    assert torch.equal(optimizer.state[model.conv.weight]["exp_avg"][KEPT], moment)
    step(model, optimizer)


def test_schedulers_go_on() -> None:
    model, optimizer = trained(SGD, momentum=0.9, lr=0.8)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    receipt = cut(model, small_edits(model), optimizer)
    step(model, optimizer)
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.4
    receipt.undo()
    assert optimizer.param_groups[0]["lr"] == 0.8
    step(model, optimizer)
    scheduler.step()


class Blocked(torch.optim.Optimizer):
    """Keeps what has another shape than the parameter, or stands in a list."""

    def __init__(self, parameters: Any, lr: float, entry: Any) -> None:
        super().__init__(parameters, {"lr": lr})
        self.entry = entry

    def step(self, closure: Any = None) -> Any:
        loss = closure()
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["kept"] = self.entry(parameter)
        return loss


@pytest.mark.parametrize(
    ("entry", "refused"),
    [
        (lambda parameter: torch.zeros(parameter.numel()) if parameter.dim() > 1 else torch.zeros(()), True),
        (lambda parameter: [torch.zeros_like(parameter)], True),
        (lambda parameter: {"scale": torch.ones(1), "name": "x"}, False),
        (lambda parameter: torch.zeros(1, 1), False),
        (lambda parameter: torch.zeros_like(parameter, dtype=torch.uint8), False),
    ],
    ids=["flat", "in a list", "one number", "one number of two dimensions", "another dtype"],
)
def test_what_is_kept_in_another_shape_is_refused_by_name(entry: Any, refused: bool) -> None:
    model, optimizer = trained(Blocked, entry=entry)
    before = state_of(model, optimizer)
    if refused:
        with pytest.raises(mk.ModuleKGError, match=r"keeps kept of (conv|norm|head).weight"):
            cut(model, small_edits(model), optimizer)
    else:
        receipt = cut(model, small_edits(model), optimizer)
        step(model, optimizer)
        receipt.undo()
    assert state_of(model, optimizer) == before


def test_a_state_that_no_longer_fits_is_not_restored() -> None:
    model, optimizer = trained(Blocked, entry=torch.zeros_like)
    receipt = cut(model, small_edits(model), optimizer)
    optimizer.entry = lambda parameter: torch.zeros(7, 7)  # type: ignore[attr-defined]
    step(model, optimizer)
    before = state_of(model, optimizer)
    with pytest.raises(mk.ModuleKGError, match=r"of shape \[7, 7\]"):
        receipt.restore()
    assert state_of(model, optimizer) == before


def test_lbfgs_and_things_that_are_no_optimizer_are_refused() -> None:
    model, optimizer = trained(LBFGS, lr=0.1, max_iter=2)
    before = state_of(model, optimizer)
    with pytest.raises(mk.ModuleKGError, match="LBFGS lays all parameters end to end"):
        cut(model, small_edits(model), optimizer)
    with pytest.raises(mk.ModuleKGError, match="optimizer= is a Small"):
        cut(model, small_edits(model), model)  # type: ignore[arg-type]
    with pytest.raises(mk.ModuleKGError, match="optimizer= is SGD, which trains no parameter of this model"):
        cut(model, small_edits(model), torch.optim.SGD(trained(LBFGS)[0].parameters()))
    assert state_of(model, optimizer) == before
    # one that trains what is not cut is no hindrance
    other = LBFGS([model.head.bias])
    cut(model, small_edits(model), other)
    assert math.isfinite(step(model, other))


# ------------------------------------------------------------ several optimizers


class Pair:
    """Two optimizers that step together."""

    def __init__(self, model: nn.Module, first: list[nn.Parameter], second: list[nn.Parameter]) -> None:
        self.model = model
        self.each = [Muon(first, lr=0.01), AdamW(second, lr=0.01)]

    def step(self) -> None:
        loss = self.model(torch.randn(8, 6, generator=torch.Generator().manual_seed(1))).square().mean()
        self.model.zero_grad()
        loss.backward()
        for optimizer in self.each:
            optimizer.step()

    def state(self) -> Any:
        return [copy.deepcopy(each.state_dict()) for each in self.each], copy.deepcopy(self.model.state_dict())


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    return one == other


def two_layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 3), nn.Linear(3, 2))


def matrices_and_others(model: nn.Module) -> Pair:
    parameters = list(model.parameters())
    return Pair(model, [p for p in parameters if p.ndim == 2], [p for p in parameters if p.ndim < 2])


def one_without_a_cut(model: nn.Module) -> Pair:
    """The first trains nothing that is cut."""
    last = model[4].weight
    return Pair(model, [last], [p for p in model.parameters() if p is not last])


def overlapping(model: nn.Module) -> Pair:
    """A parameter is in both."""
    parameters = list(model.parameters())
    return Pair(model, [p for p in parameters if p.ndim == 2], parameters)


@pytest.mark.parametrize("share", [matrices_and_others, one_without_a_cut, overlapping])
@pytest.mark.parametrize("container", [list, tuple])
def test_the_states_of_several_optimizers_are_cut_and_come_back(share: Any, container: Any) -> None:
    model = two_layers()
    pair = share(model)
    pair.step()
    before = pair.state()
    plan = mk.plan(mk.trace(model, torch.randn(8, 6)), ratio=0.5)
    receipt = plan.cut(model, container(pair.each))
    for optimizer in pair.each:
        for parameter, own in optimizer.state.items():
            shapes = {value.shape for value in own.values() if isinstance(value, torch.Tensor) and value.dim()}
            assert shapes == {parameter.shape}
    pair.step()
    receipt.undo()
    assert alike(pair.state(), before)
    pair.step()
    receipt = plan.cut(model, pair.each)
    pair.step()
    receipt.restore()
    pair.step()
    for optimizer in pair.each:
        for parameter, own in optimizer.state.items():
            assert all(
                value.shape in (parameter.shape, ()) for value in own.values() if isinstance(value, torch.Tensor)
            )


def test_what_does_not_fit_in_a_list_of_optimizers_is_named_and_nothing_changes() -> None:
    model = two_layers()
    pair = matrices_and_others(model)
    pair.step()
    before = pair.state()
    plan = mk.plan(mk.trace(model, torch.randn(8, 6)), ratio=0.5)
    others = torch.optim.SGD(two_layers().parameters(), lr=0.1)
    for second, text in (
        (others, r"optimizer\[1\] is SGD, which trains no parameter"),
        (3, r"optimizer\[1\] is an int"),
    ):
        with pytest.raises(mk.ModuleKGError, match=text):
            plan.cut(model, [pair.each[0], second])
    flat = LBFGS([model[0].weight])
    with pytest.raises(mk.ModuleKGError, match="LBFGS lays"):
        plan.cut(model, [*pair.each, flat])
    assert alike(pair.state(), before)
    plan.cut(model, [pair.each[0], pair.each[0], pair.each[1]])  # one that is named twice is cut once
    pair.step()


def test_a_removed_block_goes_from_all_optimizers() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), ResidualLinear(16), ResidualLinear(16), nn.Linear(16, 3))
    pair = matrices_and_others(model)
    pair.step()
    before = pair.state()
    receipt = mk.plan(mk.trace(model, torch.randn(8, 6)), blocks=["1"]).cut(model, pair.each)
    assert [sum(len(group["params"]) for group in each.param_groups) for each in pair.each] == [3, 3]
    pair.step()
    receipt.undo()
    assert alike(pair.state(), before)
