"""How corrections are found: what changes nothing is ruled out together, what helped once goes first for its likes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.pruning.plan.corrections import repair_loop
from pruning.attempts import attempt_of


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[nn.Module, torch.Tensor], tuple[int, mk.PruningPlan]]:
    """A plan of a model at half of its size, and how many dry runs it took."""
    count = [0]
    rehearse = repair_loop.dry_run

    def counted(*args: object, **how: object) -> object:
        count[0] += 1
        return rehearse(*args, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(repair_loop, "dry_run", counted)

    def plan_of(model: nn.Module, x: torch.Tensor) -> tuple[int, mk.PruningPlan]:
        count[0] = 0
        torch.manual_seed(0)
        plan = mk.plan(mk.trace(model.eval(), x), ratio=0.5)
        plan.cut(model)
        model(x)
        return count[0], plan

    return plan_of


class Numbers(nn.Module):
    """Holds its number of features once, among many others of the same size that nothing reads."""

    def __init__(self, others: int) -> None:
        super().__init__()
        for at in range(others):
            setattr(self, f"other_{at}", 8)
        self.width = 8
        self.into, self.out = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.into(x).view(-1, self.width))


def test_attributes_that_nothing_reads_are_ruled_out_together(runs: Callable[..., tuple[int, mk.PruningPlan]]) -> None:
    counts = {}
    for others in (2, 64):
        counts[others], plan = runs(Numbers(others), torch.randn(3, 4))
        assert "width" in plan.edits.attributes
        assert not any("other" in name for name in plan.edits.attributes)
    assert counts[64] <= counts[2]  # the line of code names the one that it reads


def guessed(plan: mk.PruningPlan) -> list[str]:
    """The attributes that follow a size and are none of torch's layers'."""
    return [name for name in plan.edits.attributes if not name.endswith("_features")]


class Hidden(Numbers):
    """The same, where the line of code names nothing."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.into(x).view(-1, vars(self)["width"]))


def test_attributes_that_no_line_names_are_ruled_out_together(runs: Callable[..., tuple[int, mk.PruningPlan]]) -> None:
    counts = {}
    for others in (2, 64):
        counts[others], plan = runs(Hidden(others), torch.randn(3, 4))
        assert guessed(plan) == ["width"]
    assert counts[64] <= counts[2] + 12  # two for each halving of 64, not one for each attribute


class Fixed(nn.Module):
    """Has a size written into its code, beside axes that are free."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.mid, self.out = nn.Linear(6, 8), nn.Linear(8, 6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.out(self.mid(self.into(x).view(-1, 4, 2).flatten(1)).relu())


def test_what_helped_once_helps_the_likes_of_it(runs: Callable[..., tuple[int, mk.PruningPlan]]) -> None:
    counts = {}
    for layers in (2, 12):
        model = nn.Sequential(nn.Linear(4, 6), *(Fixed() for _ in range(layers)), nn.Linear(6, 2))
        counts[layers], plan = runs(model, torch.randn(3, 4))
        names = {axis.name for axis in plan.axes}
        assert {f"{at}.mid.out" for at in range(1, layers + 1)} <= names
    assert counts[12] <= counts[2] + 10  # one look at each layer more


def test_a_call_that_raises_is_listened_to_in_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from modulekg_widgets.engine.pruning.plan.dry_run import dry_run as dryrun

    passes = []
    rehearsed = dryrun._dry_run
    monkeypatch.setattr(dryrun, "_dry_run", lambda *args: passes.append(args[3]) or rehearsed(*args))
    model = nn.Sequential(*(Fixed() for _ in range(4)), nn.Linear(6, 2)).eval()
    mk.plan(mk.trace(model, torch.randn(3, 6)), ratio=0.5)
    assert passes.count(None) == 1  # the first run alone is made twice


class Long(nn.Module):
    """Runs long before it comes to a view that asks for a number."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 6), *(nn.ReLU() for _ in range(80)), nn.Linear(6, 4))
        self.last = Hidden(30)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x))


def test_what_ran_before_a_mismatch_does_not_run_for_each_trial(
    runs: Callable[..., tuple[int, mk.PruningPlan]], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [0]
    forward = nn.ReLU.forward

    def counted(self: nn.ReLU, x: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return forward(self, x)

    monkeypatch.setattr(nn.ReLU, "forward", counted)
    trials, plan = runs(Long(), torch.randn(3, 4))
    assert guessed(plan) == ["last.width"]
    whole = calls[0] // 80  # of trace, dry runs, the comparison of values, and the pass behind the cut
    assert trials >= 10
    assert whole <= 8


class Writes(nn.Module):
    def __init__(self, owner: list[object]) -> None:
        super().__init__()
        self.owner = owner
        self.layers = nn.Sequential(nn.Linear(4, 6), *(nn.ReLU() for _ in range(80)), nn.Linear(6, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.owner[0].seen = x.shape[-1]  # type: ignore[attr-defined]
        return self.layers(x)


class Reads(nn.Module):
    """Its second part reads what the first has left in a plain object."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[object] = [type("Note", (), {})()]
        self.first, self.last = Writes(self.notes), Hidden(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        seen = self.notes[0].seen  # type: ignore[attr-defined]
        del self.notes[0].seen  # type: ignore[attr-defined]
        return self.last(x.view(-1, seen))


def test_where_a_part_alone_does_not_show_it_the_whole_pass_runs(
    runs: Callable[..., tuple[int, mk.PruningPlan]],
) -> None:
    _, plan = runs(Reads(), torch.randn(3, 4))
    assert guessed(plan) == ["last.width"]
    assert {cut.name for cut in plan.axes} >= {"last.into.out"}


class Blocks(nn.Module):
    """Takes the middle block of a bias, as some attention layers do."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.width = nn.Linear(4, 3 * width), width
        self.out = nn.Linear(width, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        third = self.qkv.bias.numel() // 3
        bias = self.qkv.bias[third : 2 * third]
        q, k, v = nn.functional.linear(x, self.qkv.weight, self.qkv.bias).chunk(3, -1)
        return self.out(q * k + v + bias)


def test_a_slice_at_the_border_of_a_block_is_explained() -> None:
    torch.manual_seed(0)
    graph = mk.trace(Blocks(8).eval(), torch.randn(3, 4))
    plan = mk.plan(graph, ratio=0.5)
    fixing = repair_loop.Repair(graph.axes, repair_loop.EditCompiler(graph.axes))
    found = fixing.dry_run(attempt_of(graph.axes.free[0], plan))
    assert found.mismatch is None
    assert found.matches_trace
