"""Running statistics are renewed as update_bn renews them, with the cut or not at all, and come back byte for byte."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import update_bn
from torch.utils._python_dispatch import TorchDispatchMode

import modulekg_widgets as mk
from models import seeded
from modulekg_widgets.engine.errors import CutError
from pruning.edits_of_cut import Small, state_of, step, trained

Tensor = torch.Tensor


def data(*shape: int, count: int = 3, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator) * (1 + number) + number for number in range(count)]


class Twice(nn.Module):
    """One norm that runs twice in a pass, beside one over single features and one with a cumulative average."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 8, 3, padding=1)
        self.again = nn.Conv2d(8, 8, 1)
        self.norm = nn.BatchNorm2d(8)
        self.hidden = nn.Linear(8, 6)
        self.flat = nn.BatchNorm1d(6, momentum=None, affine=False)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x)).relu()
        x = self.norm(self.again(x)).relu()
        return self.head(self.flat(self.hidden(x.mean((2, 3)))))


class OwnNorm(nn.Module):
    """Batch normalisation by the function, with buffers of other names and dropout beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 8, 3)
        self.register_buffer("centre", torch.zeros(8))
        self.register_buffer("spread", torch.ones(8))
        self.head = nn.Conv1d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.batch_norm(self.conv(x), self.centre, self.spread, training=self.training)  # type: ignore[arg-type]
        return self.head(F.dropout(x, 0.5, self.training))


class Several(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(3, 8)
        self.right = nn.Linear(5, 8)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 2)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.head(self.norm(self.left(a) + self.right(b)))


def plan_of(model: nn.Module, *args: Any) -> mk.PruningPlan:
    return mk.plan(mk.trace(model, args), ratio=0.5)


def statistics(model: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


@pytest.mark.parametrize("make", [Small, Twice], ids=lambda each: each.__name__)
@pytest.mark.parametrize("training", [False, True])
def test_the_statistics_are_those_of_update_bn(make: Any, training: bool) -> None:
    model = seeded(make).train(training)
    batches = data(8, 2, 6, 6)
    plan = plan_of(model, batches[0])
    theirs = copy.deepcopy(model)
    plan.cut(theirs)
    update_bn(batches, theirs)
    receipt = plan.cut(model, recalibrate=batches)
    for name, wanted in statistics(theirs).items():
        torch.testing.assert_close(dict(model.named_buffers())[name], wanted, rtol=1e-5, atol=1e-6)
    assert set(receipt.renewed) == set(statistics(model))
    assert all(module.training is training for module in model.modules())
    assert "statistics renewed" in str(receipt)


def test_batches_count_by_their_sizes() -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)))
    x = torch.randn(14, 3, generator=torch.Generator().manual_seed(0))
    batches = [x[:8], x[8:12], x[12:]]
    plan_of(model, x).cut(model, recalibrate=batches)
    linear, norm = model[0], model[1]
    assert isinstance(linear, nn.Linear)
    seen = [linear(part).detach().double() for part in batches]
    mean = sum(part.sum(0) for part in seen) / 14
    var = sum(part.var(0) * len(part) for part in seen) / 14
    torch.testing.assert_close(norm.running_mean.double(), mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(norm.running_var.double(), var, rtol=1e-5, atol=1e-6)
    assert norm.num_batches_tracked == 3


def test_instance_norms_that_track_statistics_are_renewed_as_training_would() -> None:
    def make() -> nn.Module:
        norm = nn.InstanceNorm2d(8, affine=True, track_running_stats=True, momentum=1.0)
        return nn.Sequential(nn.Conv2d(2, 8, 3), norm, nn.Conv2d(8, 2, 1))

    model, (batch,) = seeded(make).eval(), data(4, 2, 6, 6, count=1)
    plan = plan_of(model, batch)
    theirs = copy.deepcopy(model)
    plan.cut(theirs)
    theirs.train()(batch)  # with a momentum of 1 nothing of before is left
    plan.cut(model, recalibrate=[batch])
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(getattr(model[1], name), getattr(theirs[1], name), rtol=1e-5, atol=1e-6)


def test_norms_of_several_devices_need_none() -> None:
    model = seeded(lambda: nn.Sequential(nn.Conv2d(2, 8, 3), nn.SyncBatchNorm(8), nn.Conv2d(8, 2, 1))).eval()
    batches = data(4, 2, 6, 6)
    plan = plan_of(model, batches[0])
    plain = copy.deepcopy(model)
    plain[1] = copy.deepcopy(nn.BatchNorm2d(8))
    plain[1].load_state_dict(model[1].state_dict())
    plan.cut(plain)
    update_bn(batches, plain)
    plan.cut(model, recalibrate=batches)
    torch.testing.assert_close(model[1].running_var, plain[1].running_var)


def test_a_norm_by_the_function_counts_and_nothing_else_is_in_batch_mode() -> None:
    model, batches = seeded(OwnNorm).train(), data(4, 2, 9)
    plan = plan_of(model, batches[0])
    before = torch.get_rng_state()
    receipt = plan.cut(model, recalibrate=batches)
    assert torch.equal(torch.get_rng_state(), before)
    assert receipt.renewed == ("centre", "spread")
    expected = torch.stack([model.conv(x).transpose(0, 1).flatten(1).mean(1) for x in batches]).mean(0)
    torch.testing.assert_close(model.centre, expected.detach(), rtol=1e-5, atol=1e-6)


def test_what_the_batches_do_not_reach_stays() -> None:
    class Aside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(2, 8, 3)
            self.norm = nn.BatchNorm2d(8)
            self.aside = nn.BatchNorm2d(8)
            self.head = nn.Conv2d(8, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x)
            return self.head(self.aside(x) if self.training else self.norm(x))

    model, batches = seeded(Aside).eval(), data(4, 2, 6, 6)
    assert isinstance(model.aside.running_mean, Tensor)
    model.aside.running_mean.copy_(torch.arange(8.0))
    plan = mk.plan(mk.trace(model, batches[0]), ratio=0.5)
    receipt = plan.cut(model, recalibrate=batches)
    assert not any(name.startswith("aside") for name in receipt.renewed)
    assert set(model.aside.running_mean.tolist()) <= set(map(float, range(8)))


# ------------------------------------------------------------- the way back


def test_undo_is_exact_after_training() -> None:
    model, optimizer = trained()
    plan = plan_of(model, *data(4, 2, 6, 6, count=1))
    before = state_of(model, optimizer)
    for _ in range(2):
        receipt = plan.cut(model, optimizer, recalibrate=data(8, 2, 6, 6))
        step(model, optimizer)
        receipt.undo()
        assert state_of(model, optimizer) == before


def test_restore_takes_the_statistics_of_before_unless_training_went_on() -> None:
    model, optimizer = trained()
    plan, before = plan_of(model, *data(4, 2, 6, 6, count=1)), statistics(model)
    plan.cut(model, optimizer, recalibrate=data(8, 2, 6, 6)).restore()
    for name, value in statistics(model).items():
        assert torch.equal(value, before[name]), name

    receipt = plan.cut(model, optimizer, recalibrate=data(8, 2, 6, 6))
    step(model, optimizer)
    now = statistics(model)["norm.running_mean"]
    receipt.restore()
    restored = statistics(model)["norm.running_mean"]
    assert set(now.tolist()) <= set(restored.tolist())
    assert set(restored.tolist()) - set(now.tolist()) <= set(before["norm.running_mean"].tolist())


# ------------------------------------------------------------ what is passed


@pytest.mark.parametrize(
    "batches",
    [
        [(torch.ones(4, 3) * i, torch.ones(4, 5)) for i in range(2)],
        [{"a": torch.ones(4, 3) * i, "b": torch.ones(4, 5)} for i in range(2)],
        [((torch.ones(4, 3) * i, torch.ones(4, 5)), torch.zeros(4)) for i in range(2)],
        [(torch.ones(4, 3) * i, torch.ones(4, 5), torch.zeros(4)) for i in range(2)],
    ],
    ids=["tuple", "dict", "pair", "with a target"],
)
def test_batches_come_in_every_form(batches: Any, tmp_path: Path) -> None:
    model = seeded(Several).eval()
    plan = plan_of(model, torch.randn(4, 3), torch.randn(4, 5))
    plan.save(tmp_path / "plan.json")
    loaded = copy.deepcopy(model)
    plan.cut(model, recalibrate=batches)
    mk.load_plan(tmp_path / "plan.json").cut(loaded, recalibrate=iter(batches))
    assert model.norm.num_batches_tracked == 2
    assert torch.equal(model.norm.running_mean, loaded.norm.running_mean)  # type: ignore[arg-type]


def test_a_pair_may_hold_the_arguments_of_a_call_with_one() -> None:
    model, batches = seeded(Small).eval(), data(8, 2, 6, 6)
    plan = plan_of(model, batches[0])
    other = copy.deepcopy(model)
    plan.cut(model, recalibrate=[((batch,), torch.zeros(8)) for batch in batches])
    plan.cut(other, recalibrate=batches)
    assert torch.equal(model.norm.running_mean, other.norm.running_mean)


@pytest.mark.parametrize("how", [{}, {"compensate": True}])
def test_a_loader_may_fill_the_same_memory_anew(how: dict[str, Any]) -> None:
    batches = data(8, 2, 6, 6)
    memory = torch.empty_like(batches[0])
    expected, found = trained()[0], trained()[0]
    plan = plan_of(expected, batches[0])
    plan.cut(expected, recalibrate=batches, **how)
    plan.cut(found, recalibrate=(memory.copy_(batch) for batch in batches), **how)
    for name, value in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], value), name


def test_the_model_is_untouched_while_the_batches_run() -> None:
    model, optimizer = trained()
    plan = plan_of(model, *data(4, 2, 6, 6, count=1))
    before = state_of(model, optimizer)
    seen = []

    class Watched:
        def __iter__(self) -> Iterator[Tensor]:
            for batch in data(8, 2, 6, 6):
                yield batch
                seen.append(state_of(model, optimizer) == before)

    plan.cut(model, optimizer, recalibrate=Watched())
    assert seen == [True] * 3


class Scaled(nn.Module):
    """What it puts out is scaled by a parameter that no cut touches, and that the forward may write."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Conv2d(8, 2, 1)
        self.scale = nn.Parameter(torch.ones(2, 1, 1))
        self.writes = False

    def forward(self, x: Tensor) -> Tensor:
        if self.writes:
            self.scale.data.mul_(2.0)
        return self.head(self.norm(self.conv(x))) * self.scale


class Scales(TorchDispatchMode):
    """Where the scales lie that are multiplied by."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.mul.Tensor and getattr(args[1], "shape", None) == (2, 1, 1):
            self.addresses.add(args[1].data_ptr())
        return func(*args, **(kwargs or {}))


def test_parameters_that_stay_are_not_copied_unless_forward_writes_into_one() -> None:
    model, batches = seeded(Scaled).eval(), data(4, 2, 6, 6)
    plan = plan_of(model, batches[0])
    with Scales() as scales:
        plan.cut(model, recalibrate=batches).undo()
    assert scales.addresses == {model.scale.data_ptr()}
    model.writes = True
    plan.cut(model, recalibrate=iter(batches))  # begins anew, with a copy
    assert model.scale.flatten().tolist() == [1.0, 1.0]
    assert model.norm.num_batches_tracked == 3


# ------------------------------------------------------------------ refused

GOOD = data(8, 2, 6, 6)
REFUSED = {
    "empty": ([], "the batches are empty"),
    "another shape": ([GOOD[0], torch.randn(8, 3, 6, 6)], "batch 1 does not go through Small: RuntimeError"),
    "not a number": ([GOOD[0], GOOD[1] * float("nan")], "'?norm.running_mean'? is not finite"),
    "infinite": ([GOOD[1] / 0.0], "is not finite"),
    "meta": ([GOOD[0].to("meta")], "on the meta device"),
    "no samples": ([GOOD[0], GOOD[1][:0]], "batch 1 has no samples"),
    "one batch": (GOOD[0], "batches is a tensor"),
    "a number": (3, "recalibrate= is an int"),
    "too small": ([torch.randn(1, 2, 1, 1)], "one value per channel"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("compensate", [False, True])
def test_bad_batches_are_refused_before_anything_changes(case: str, compensate: bool) -> None:
    model, optimizer = trained()
    plan, before = plan_of(model, GOOD[0]), state_of(model, optimizer)
    batches, message = REFUSED[case]
    if compensate:  # what meets them first
        message = {"too small": "one batch of one sample", "not a number": "is not finite"}.get(case, message)
    with pytest.raises(CutError, match=message):
        plan.cut(model, optimizer, recalibrate=batches, compensate=compensate)
    assert state_of(model, optimizer) == before


def test_a_spent_generator_and_compensation_without_batches_are_refused() -> None:
    model, optimizer = trained()
    plan, before = plan_of(model, GOOD[0]), state_of(model, optimizer)
    spent = iter(GOOD)
    list(spent)
    with pytest.raises(mk.ModuleKGError, match="a generator yields its items once"):
        plan.cut(model, optimizer, recalibrate=spent)
    with pytest.raises(mk.ModuleKGError, match="pass them as recalibrate=batches"):
        plan.cut(model, optimizer, compensate=True)
    assert state_of(model, optimizer) == before


def test_a_loader_that_fails_changes_nothing() -> None:
    def failing() -> Iterator[Tensor]:
        yield GOOD[0]
        raise OSError("the disk is gone")

    model, optimizer = trained()
    plan, before = plan_of(model, GOOD[0]), state_of(model, optimizer)
    with pytest.raises(OSError, match="the disk is gone"):
        plan.cut(model, optimizer, recalibrate=failing())
    assert state_of(model, optimizer) == before


def test_what_was_renewed_in_inference_mode_trains_on() -> None:
    model, optimizer = trained()
    plan = plan_of(model, GOOD[0])
    with torch.inference_mode():
        plan.cut(model, optimizer, recalibrate=GOOD, compensate=True)
    assert not any(tensor.is_inference() for tensor in (*model.parameters(), *model.buffers()))
    model.train()(GOOD[0]).sum().backward()
    optimizer.step()
