"""Averages of the weights are cut with the model, all or nothing; schedulers and scalers go on as if nothing was."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import modulekg_widgets as mk
from models import seeded
from modulekg_widgets.engine.errors import CutError
from pruning.edits_of_cut import Small, bytes_of, state_of, step, trained
from pruning.test_recalibrate import data, plan_of

Tensor = torch.Tensor
X = data(8, 2, 6, 6)


def average(model: nn.Module) -> AveragedModel:
    """An average that differs from the model."""
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5), use_buffers=True)
    with torch.no_grad():
        for tensor in (*ema.module.parameters(), ema.get_buffer("module.norm.running_mean")):
            tensor.add_(0.25)
    return ema


def moved(model: nn.Module) -> nn.Module:
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5)
    return other


def state_dict(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in moved(model).state_dict().items()}


def prefixed(model: nn.Module) -> dict[str, Tensor]:
    return {f"module.{name}": value for name, value in state_dict(model).items()}


def parameters_alone(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in moved(model).named_parameters()}


def tensors_of(target: Any) -> dict[str, Tensor]:
    if isinstance(target, nn.Module):
        target = target.state_dict()
    return {name.removeprefix("module."): value for name, value in target.items()}


def seen(target: Any) -> Any:
    if isinstance(target, nn.Module):
        return state_of(target)
    return [(name, id(value), value.shape, bytes_of(value)) for name, value in target.items()]


COPIES: list[Callable[[nn.Module], Any]] = [average, moved, state_dict, prefixed, parameters_alone]


@pytest.mark.parametrize("make", COPIES)
def test_a_copy_is_cut_alike_and_undone_with_the_model(make: Callable[[nn.Module], Any]) -> None:
    model, optimizer = trained()
    target, plan = make(model), plan_of(model, X[0])
    alone = seeded(Small)
    own = tensors_of(target)
    alone.load_state_dict({**model.state_dict(), **{name: own[name] for name in own if name != "n_averaged"}})
    plan.cut(alone)
    before = state_of(model, optimizer), seen(target)
    for _ in range(2):
        receipt = plan.cut(model, optimizer, copies=[target])
        assert "also in 1 copy" in repr(receipt)
        for name, value in tensors_of(target).items():
            if name != "n_averaged":
                assert torch.equal(value, alone.state_dict()[name]), name
        step(model, optimizer)
        for value in tensors_of(target).values():
            with torch.no_grad():
                value.add_(1)
        receipt.undo()
        assert (state_of(model, optimizer), seen(target)) == before


@pytest.mark.parametrize("make", COPIES)
def test_restore_puts_back_what_went_of_a_copy(make: Callable[[nn.Module], Any]) -> None:
    model, _ = trained()
    target, plan = make(model), plan_of(model, X[0])
    before = {name: value.clone() for name, value in tensors_of(target).items()}
    receipt = plan.cut(model, recalibrate=X, compensate=True, copies=[target])
    assert any(row.kept for row in receipt.compensation)
    receipt.restore()
    for name, value in tensors_of(target).items():
        assert torch.equal(value, before[name]), name


def test_an_average_is_recalibrated_by_its_own_passes_and_a_dictionary_has_the_statistics_of_the_model() -> None:
    model, _ = trained()
    ema, state = average(model), state_dict(model)
    plan = plan_of(model, X[0])
    expected = copy.deepcopy(ema.module)
    plan.cut(expected)
    torch.optim.swa_utils.update_bn(X, expected)
    plan.cut(model, recalibrate=iter(X), copies=[ema, state])
    torch.testing.assert_close(ema.module.norm.running_var, expected.norm.running_var, rtol=1e-5, atol=1e-6)  # type: ignore[union-attr]
    assert torch.equal(state["norm.running_var"], model.norm.running_var)  # type: ignore[arg-type]
    ema(X[0])


def test_compensation_reaches_the_copies_too() -> None:
    model, _ = trained()
    ema, state, plan = AveragedModel(model), state_dict(model), plan_of(model, X[0])
    bias = model.head.bias.detach().clone()  # type: ignore[operator, union-attr]
    receipt = plan.cut(model, recalibrate=X, compensate=True, copies=[ema, state])
    assert receipt.compensation[0].kept
    assert torch.equal(ema.module.head.weight, model.head.weight)  # type: ignore[union-attr]
    assert receipt.compensation[0].way == "means"  # of outputs: added to the bias, whatever the copy's weights are
    added = model.head.bias.detach() - bias  # type: ignore[operator, union-attr]
    torch.testing.assert_close(state["head.weight"], model.head.weight.detach() * 1.5)  # type: ignore[operator, union-attr]
    torch.testing.assert_close(state["head.bias"], bias * 1.5 + added)


class RepeatedLayer(nn.Module):
    """A layer under two names, which a dictionary has both."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.first = nn.Linear(4, 12), nn.Linear(12, 6)
        self.again = self.first

    def forward(self, x: Tensor) -> Tensor:
        return self.first(self.into(x).relu())


def test_a_dictionary_has_what_is_compensated_under_every_name() -> None:
    torch.manual_seed(0)
    model, batches = RepeatedLayer(), [torch.randn(64, 4) for _ in range(4)]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    plan = mk.plan(mk.trace(model, batches[0]), ratio=0.5)
    receipt = plan.cut(model, recalibrate=batches, compensate=True, copies=[state])
    assert receipt.compensation[0].way == "least squares with bias"
    assert receipt.compensation[0].kept
    for name, value in model.state_dict().items():
        assert torch.equal(state[name], value), name


# ------------------------------------------------------------------ refused


class Other(Small):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 7, 3, padding=1)


def without_the_weight(model: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in state_dict(model).items() if name != "conv.weight"}


def with_text(model: nn.Module) -> dict[str, Any]:
    return {**state_dict(model), "conv.weight": "text"}


REFUSED: dict[str, tuple[Callable[[nn.Module], Any], str]] = {
    "another model": (lambda model: [nn.Linear(3, 3)], "copies.0. does not fit: the model has no tensor"),
    "other sizes": (lambda model: [average(model), Other()], "copies.1. does not fit: conv.weight has shape"),
    "other sizes in a dictionary": (lambda model: [Other().state_dict()], "copies.0. does not fit: conv.weight is"),
    "a part of a dictionary": (lambda model: [without_the_weight(model)], "it has no tensor 'conv.weight'"),
    "an empty dictionary": (lambda model: [{}], "copies.0. does not fit: it has no tensor"),
    "no tensor": (lambda model: [with_text(model)], "conv.weight is a str, not a tensor"),
    "the model itself": (lambda model: [model], "in common with the model"),
    "its parameters": (lambda model: [dict(model.named_parameters())], "in common with the model"),
    "one twice": (lambda model: [ema := average(model), ema], "in common with copies.0."),
    "not a list": (lambda model: average(model), "pass a list of them"),
    "a number": (lambda model: [3], "copies.0. is an int"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("batches", [None, X], ids=["cut", "recalibrated"])
def test_what_is_no_copy_of_the_model_is_refused_before_anything_changes(case: str, batches: Any) -> None:
    model, optimizer = trained()
    make, message = REFUSED[case]
    copies, plan = make(model), plan_of(model, X[0])
    good = average(model)
    given = [good, *copies] if isinstance(copies, list) and "0" not in message else copies
    before = state_of(model, optimizer), state_of(good)
    with pytest.raises(CutError, match=message if given is copies else message.replace("copies.1.", "copies.2.")):
        plan.cut(model, optimizer, recalibrate=batches, copies=given)
    assert (state_of(model, optimizer), state_of(good)) == before


# ------------------------------------------------------------ training goes on


class Training:
    """A model in training with all that goes with it."""

    def __init__(self, model: nn.Module, schedule: str) -> None:
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        self.scheduler: Any = {
            "one cycle": lambda: lr_scheduler.OneCycleLR(self.optimizer, 0.02, total_steps=12),
            "cosine": lambda: lr_scheduler.CosineAnnealingLR(self.optimizer, 12),
        }[schedule]()
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
        self.ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)

    def steps(self, seeds: range) -> list[float]:
        losses = []
        for seed in seeds:
            x = torch.randn(8, 2, 6, 6, generator=torch.Generator().manual_seed(seed))
            self.optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = self.model(x).float().square().mean()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.scheduler.step()
            self.ema.update_parameters(self.model)
            losses.append(loss.item())
        return losses

    def states(self) -> list[Any]:
        parts = (self.model, self.optimizer, self.scheduler, self.scaler, self.ema)
        return [copy.deepcopy(part.state_dict()) for part in parts]

    def load(self, states: list[Any]) -> None:
        parts = (self.model, self.optimizer, self.scheduler, self.scaler, self.ema)
        for part, state in zip(parts, states, strict=True):
            part.load_state_dict(state)


@pytest.mark.parametrize("schedule", ["one cycle", "cosine"])
@pytest.mark.parametrize("options", [{}, {"recalibrate": X, "compensate": True}], ids=["cut", "recovered"])
def test_training_goes_on_as_that_of_a_model_made_in_these_sizes(schedule: str, options: Any) -> None:
    mine = Training(seeded(Small), schedule)
    mine.steps(range(4))
    plan = plan_of(mine.model, X[0])
    plan.cut(mine.model, mine.optimizer, copies=[mine.ema], **options)

    fresh = seeded(Small)
    plan.cut(fresh)
    theirs = Training(fresh, schedule)
    theirs.load(mine.states())
    assert mine.scaler.get_scale() == theirs.scaler.get_scale() > 1024.0
    assert mine.steps(range(4, 9)) == theirs.steps(range(4, 9))
    assert mine.optimizer.param_groups[0]["lr"] == theirs.optimizer.param_groups[0]["lr"]
    for a, b in zip((mine.model, mine.ema), (theirs.model, theirs.ema), strict=True):
        for name, value in a.state_dict().items():
            assert torch.equal(value, b.state_dict()[name]), name


def test_the_moments_of_channels_that_stay_are_theirs() -> None:
    mine = Training(seeded(Small), "cosine")
    mine.steps(range(4))
    plan = mk.plan(mk.trace(mine.model, X[0]), per_axis={"conv.out": [0, 3]})
    moments = mine.optimizer.state[mine.model.conv.weight]["exp_avg"].clone()  # type: ignore[index]
    plan.cut(mine.model, mine.optimizer, recalibrate=X, copies=[mine.ema])
    assert torch.equal(mine.optimizer.state[mine.model.conv.weight]["exp_avg"], moments[[1, 2, 4, 5]])  # type: ignore[index]


def test_a_copy_without_data_is_named_where_weights_are_fitted() -> None:
    model, optimizer = trained()
    plan, before = plan_of(model, X[0]), state_of(model, optimizer)
    with pytest.raises(CutError, match="on the meta device"):
        plan.cut(model, optimizer, recalibrate=X, compensate=True, copies=[copy.deepcopy(model).to("meta")])
    assert state_of(model, optimizer) == before


def test_undo_of_everything_at_once_is_exact() -> None:
    mine = Training(seeded(Small), "one cycle")
    mine.steps(range(3))
    state = state_dict(mine.model)
    plan = plan_of(mine.model, X[0])
    kept = {name: tensor.clone() for name, tensor in state.items()}
    before = state_of(mine.model, mine.optimizer), state_of(mine.ema)
    receipt = plan.cut(mine.model, mine.optimizer, recalibrate=X, compensate=True, copies=[mine.ema, state])
    assert any(row.kept for row in receipt.compensation)
    assert receipt.renewed
    mine.steps(range(3, 5))
    receipt.undo()
    assert (state_of(mine.model, mine.optimizer), state_of(mine.ema)) == before
    assert state.keys() == kept.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in kept.items())


@pytest.mark.parametrize(
    "given",
    [
        {"copies": np.zeros(3)}, {"copies": np.zeros(0)}, {"copies": torch.zeros(3)}, {"copies": 3},
        {"compensate": torch.ones(2)}, {"compensate": [torch.ones(1, 2, 6, 6)]}, {"compensate": np.ones(2)},
        {"undo": np.ones(2)}, {"undo": None},
    ],
    ids=str,
)  # fmt: skip
def test_arrays_in_the_place_of_lists_and_of_yes_and_no_are_refused(given: dict[str, Any]) -> None:
    model = seeded(Small).eval()
    plan, before = plan_of(model, X[0]), state_of(model)
    with pytest.raises(CutError, match=next(iter(given))):
        plan.cut(model, **given)
    assert state_of(model) == before
