"""Pruning over a training: the curves, and cuts that bring the model to them and back."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, update_bn

import modulekg_widgets as mk
from models import seeded
from modulekg_widgets.engine.errors import CutError, UnknownKeywordError, UnknownNameError
from modulekg_widgets.engine.pruning.importance.loss_criteria import Taylor
from modulekg_widgets.engine.pruning.schedule import PruningSchedule

Tensor = torch.Tensor


class Small(nn.Module):
    """Axes of 20, 7 and 4·3 indices."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 20, 3, padding=1)
        self.norm = nn.BatchNorm2d(20)
        self.second = nn.Conv2d(20, 7, 1)
        self.third = nn.Linear(7, 12)
        self.last = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.second(F.relu(self.norm(self.first(x))))).mean((2, 3))
        return self.last(F.relu(self.third(x)))


def image() -> Tensor:
    return torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(1))


def sizes(model: Small) -> tuple[int, ...]:
    return tuple(layer.weight.shape[0] for layer in (model.first, model.second, model.third))


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    F.cross_entropy(model(image()), torch.arange(4) % 3).backward()
    optimizer.step()


# ------------------------------------------------------------------- curves


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("cubic", [0.1, 0.6 - 0.5 * 0.75**3, 0.6 - 0.5 * 0.5**3, 0.6 - 0.5 * 0.25**3, 0.6]),
        ("linear", [0.1, 0.225, 0.35, 0.475, 0.6]),
        ("constant", [0.6] * 5),
        ("exponential", [1 - 0.9 * (4 / 9) ** (way / 4) for way in range(5)]),
        (lambda way: way**2, [0.1, 0.1 + 0.5 / 16, 0.225, 0.1 + 0.5 * 9 / 16, 0.6]),
    ],
)
def test_the_ratio_goes_from_start_to_end(shape: Any, expected: list[float]) -> None:
    schedule = PruningSchedule(5, 0.1, 0.6, shape, first=10)
    assert [schedule.ratio(step) for step in range(10, 15)] == pytest.approx(expected)
    assert schedule.ratio(9) == 0
    assert schedule.ratio(15) == schedule.ratio(99) == pytest.approx(0.6)


def test_cuts_are_due_every_so_often_and_at_the_end() -> None:
    schedule = PruningSchedule(8, 0.1, 0.5, first=2, every=3)
    assert [step for step in range(12) if schedule.due(step)] == [2, 5, 8, 9, 10, 11]
    schedule.done = 0.5
    assert not any(schedule.due(step) for step in range(12))
    assert not PruningSchedule(4).due(0)  # a ratio of 0 takes nothing
    assert PruningSchedule(1).ratio(0) == 0.5


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"steps": 0}, CutError, "steps=0"),
        ({"steps": 2.5}, CutError, "steps=2.5: give a whole number"),
        ({"steps": 3, "first": -1}, CutError, "first=-1"),
        ({"steps": 3, "every": 0}, CutError, "every=0"),
        ({"steps": 3, "start": 0.6, "end": 0.5}, CutError, "0 ≤ start ≤ end < 1"),
        ({"steps": 3, "end": 1.0}, CutError, "0 ≤ start ≤ end < 1"),
        ({"steps": 3, "shape": "cubik"}, UnknownNameError, "did you mean 'cubic'"),
        ({"steps": 3, "shape": 3}, UnknownNameError, "or pass a function"),
        ({"steps": 3, "target": {"flop": 0.5}}, CutError, "give what to keep"),
        ({"steps": 3, "target": {"flops": 0.5, "params": 0.6}}, CutError, "follows one size"),
        ({"steps": 3, "end": 0.7, "target": {"flops": 0.5}}, CutError, "leave them out"),
    ],
)
def test_what_is_no_schedule_is_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        PruningSchedule(**arguments)


def test_a_function_that_leaves_the_range_is_named() -> None:
    with pytest.raises(CutError, match=r"the ratio 1.5 at step 2: it maps 0 … 1 to 0 … 1"):
        PruningSchedule(3, 0.0, 0.5, lambda way: 3 * way).ratio(2)


# --------------------------------------------------------------------- cuts


@pytest.mark.parametrize("shape", ["cubic", "linear"])
def test_a_training_loop_ends_at_the_end(shape: str) -> None:
    model = seeded(Small)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    schedule = PruningSchedule(6, 0.0, 0.5, shape)
    seen = []
    for step in range(6):
        train(model, optimizer)
        if schedule.due(step):
            schedule.cut(model, (image(),), step, optimizer=optimizer)
        wanted = schedule.ratio(step)
        assert sizes(model) == tuple(size - int(size * wanted + 1e-9) for size in (20, 7, 12))
        seen.append(sizes(model))
    assert seen[-1] == (10, 4, 6)
    assert len(set(seen)) > 3
    train(model, optimizer)
    assert model(image()).shape == (4, 3)
    assert [tuple(p.shape) for group in optimizer.param_groups for p in group["params"]] == [
        tuple(p.shape) for p in model.parameters()
    ]


def test_a_ratio_that_takes_no_whole_index_waits() -> None:
    model = seeded(Small)
    schedule = PruningSchedule(101, 0.0, 0.5, "linear")
    assert schedule.due(1)
    assert schedule.cut(model, (image(),), 1) is None
    assert sizes(model) == (20, 7, 12)
    assert not schedule.due(1)
    assert schedule.cut(model, (image(),), 10) is not None  # 0.05 of 20
    assert sizes(model) == (19, 7, 12)
    for step in range(11, 101):
        if schedule.due(step) and schedule.ratio(step) * 20 % 1 < 1e-9:
            schedule.cut(model, (image(),), step)
    assert sizes(model) == (10, 4, 6)


@pytest.mark.parametrize("scope", ["global", "isomorphic"])
def test_a_common_ranking_reaches_the_total(scope: str) -> None:
    model = seeded(Small)
    schedule = PruningSchedule(4, 0.0, 0.5)
    for step in range(4):
        if schedule.due(step):
            schedule.cut(model, (image(),), step, scope=scope, importance="l2")
    assert sum(sizes(model)) in ([39 - 19] if scope == "global" else range(19, 23))
    assert len(schedule.receipts) == 3


def test_options_of_the_plan_are_passed_on() -> None:
    model, y = seeded(Small), torch.arange(4) % 3
    schedule = PruningSchedule(2, 0.0, 0.5)
    schedule.cut(
        model, (image(),), 1, kwargs=None, only="first", round_to=8, importance=Taylor([(image(), y)], F.cross_entropy)
    )
    assert sizes(model) == (16, 7, 12)
    assert schedule.cut(model, (image(),), 1, keep=["first", "second", "third"]) is None
    with pytest.raises(UnknownKeywordError, match="ratio is what the schedule sets"):
        schedule.cut(model, (image(),), 1, ratio=0.5)
    with pytest.raises(CutError, match="which step"):
        schedule.cut(model, (image(),))


def test_what_a_cut_can_be_given_is_passed_on() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).eval()
    average, batches = AveragedModel(model), [torch.randn(16, 4) + 3, torch.randn(16, 4)]
    schedule = mk.PruningSchedule(steps=2, end=0.5, shape="linear")
    receipt = schedule.cut(model, batches[0], 1, recalibrate=batches, copies=[average])
    assert receipt is not None
    assert average.module.get_parameter("0.weight").shape == (4, 4)
    renewed = copy.deepcopy(model)
    update_bn(batches, renewed)
    assert torch.allclose(model.get_buffer("1.running_mean"), renewed.get_buffer("1.running_mean"), atol=1e-6)
    schedule.undo()
    assert model.get_parameter("0.weight").shape == average.module.get_parameter("0.weight").shape == (8, 4)


def test_a_common_ranking_that_rounds_to_nothing_waits() -> None:
    model = seeded(Small)
    schedule = PruningSchedule(11, 0.0, 0.5, "linear")
    assert schedule.cut(model, (image(),), 2, scope="global", round_to=8) is None
    assert sizes(model) == (20, 7, 12)
    with pytest.raises(UnknownNameError, match="scope"):
        schedule.cut(model, (image(),), 5, scope="globl")


def test_the_least_important_go() -> None:
    model = seeded(Small)
    with torch.no_grad():
        for at in (3, 5, 8, 13):
            model.first.weight[at] *= 1e-3
            model.first.bias[at] *= 1e-3
            model.second.weight[:, at] *= 1e-3
    kept = [at for at in range(20) if at not in (3, 5, 8, 13)]
    expected = model.first.weight.detach()[kept].clone()
    PruningSchedule(1, 0.0, 0.2).cut(model, (image(),), 0, only="first")
    assert torch.equal(model.first.weight, expected)


# ------------------------------------------------------------------ targets


@pytest.mark.parametrize("shape", ["cubic", "linear", "constant", "exponential", lambda way: way**2])
@pytest.mark.parametrize("scope", ["local", "global"])
def test_a_target_is_reached_step_by_step(shape: Any, scope: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 90), nn.ReLU(), nn.Linear(90, 70), nn.ReLU(), nn.Linear(70, 3))
    x = torch.randn(2, 6)
    whole = int(mk.trace(model, x).flops())
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    schedule = PruningSchedule(6, shape=shape, target={"flops": 0.3})
    shares = []
    for step in range(6):
        if schedule.due(step):
            schedule.cut(model, x, step, optimizer=optimizer, scope=scope)
        shares.append(int(mk.trace(model, x).flops()) / whole)
        assert shares[-1] == pytest.approx(schedule.left(step)["flops"], abs=0.01)
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == pytest.approx(0.3, abs=0.01)
    schedule.undo()
    assert int(mk.trace(model, x).flops()) == whole


def test_a_number_as_target_goes_on_after_a_load() -> None:
    model = seeded(Small)
    whole = float(mk.trace(model, (image(),)).flops())
    target = {"flops": 0.5 * whole}
    schedule = PruningSchedule(5, shape="linear", target=target)
    assert schedule.cut(model, (image(),), 2) is not None
    assert schedule.left(2)["flops"] == pytest.approx(0.75)
    resumed = PruningSchedule(5, shape="linear", target=target)
    resumed.load_state_dict(json.loads(json.dumps(schedule.state_dict())))
    assert not resumed.due(2)
    resumed.cut(model, (image(),), 4)
    assert float(mk.trace(model, (image(),)).flops()) == pytest.approx(0.5 * whole, abs=0.04 * whole)  # an index is 3 %


def test_a_target_has_no_ratios() -> None:
    schedule = PruningSchedule(5, shape="linear", first=2, target={"flops": 0.5})
    assert [schedule.left(step) for step in (0, 2, 4, 9)] == [{"flops": share} for share in (1.0, 1.0, 0.75, 0.5)]
    assert PruningSchedule(5).left(3) == {}
    with pytest.raises(CutError, match=r"schedule.left\(3\)"):
        schedule.ratio(3)
    model = seeded(Small)
    assert schedule.cut(model, (image(),), 2) is None  # nothing goes yet
    assert not schedule.due(2)
    assert vars(eval(repr(schedule)))["target"] == {"flops": 0.5}


# ---------------------------------------------------------------- the way back


def state(model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    return copy.deepcopy((model.state_dict(), optimizer.state_dict()["state"]))


def same(a: Any, b: Any) -> bool:
    entries = [(a[1][key][name], b[1][key][name]) for key in a[1] for name in a[1][key]]
    pairs = [*zip(a[0].values(), b[0].values(), strict=True), *entries]
    return all(torch.equal(torch.as_tensor(x), torch.as_tensor(y)) for x, y in pairs)


def test_undo_goes_back_to_before_the_first_cut() -> None:
    model = seeded(Small)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    schedule = PruningSchedule(5, 0.0, 0.5)
    train(model, optimizer)
    before = state(model, optimizer)
    for step in range(5):
        if schedule.due(step):
            schedule.cut(model, (image(),), step, optimizer=optimizer)
            train(model, optimizer)
    assert len(schedule.receipts) > 2
    schedule.undo()
    assert schedule.receipts == []
    assert schedule.done == 0
    assert sizes(model) == (20, 7, 12)
    assert same(state(model, optimizer), before)
    schedule.cut(model, (image(),), 4)  # and again
    assert sizes(model) == (10, 4, 6)


def test_an_error_leaves_the_schedule_where_it_was() -> None:
    model = seeded(Small)
    schedule = PruningSchedule(3, 0.0, 0.5)
    schedule.cut(model, (image(),), 1)
    before, now = schedule.state_dict(), sizes(model)

    def broken(group: Any) -> Any:
        raise ValueError("no")

    with pytest.raises(CutError, match="'broken' stopped on axis"):
        schedule.cut(model, (image(),), 2, importance=broken)
    with pytest.raises(mk.ModuleKGError, match="stopped"):
        schedule.cut(model, (torch.ones(1),), 2)
    assert schedule.state_dict() == before
    assert sizes(model) == now
    assert len(schedule.receipts) == 1


def test_progress_is_saved_and_loaded() -> None:
    model = seeded(Small)
    schedule = PruningSchedule(5, 0.0, 0.5, "linear")
    for step in (1, 2):
        schedule.cut(model, (image(),), step)
    saved = json.loads(json.dumps(schedule.state_dict()))
    resumed = PruningSchedule(5, 0.0, 0.5, "linear")
    resumed.load_state_dict(saved)
    assert not resumed.due(2)
    assert resumed.due(3)
    resumed.cut(model, (image(),), 4)
    assert sizes(model) == (10, 4, 6)  # of the original sizes, not of those that it found
    resumed.undo()
    assert sizes(model) == (15, 6, 9)
    assert resumed.done == schedule.done
    for wrong in ({}, None, {"version": 2, "done": 0.1, "sizes": {}}):
        with pytest.raises(CutError, match="not a state of a PruningSchedule"):
            resumed.load_state_dict(wrong)  # type: ignore[arg-type]


def test_repr_is_runnable() -> None:
    schedule = PruningSchedule(7, 0.1, 0.4, "linear", first=2, every=3)
    assert vars(eval(repr(schedule))) == vars(schedule)
    assert repr(PruningSchedule(7)) == "PruningSchedule(7, 0.0, 0.5, 'cubic')"
