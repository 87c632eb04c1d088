"""How corrections are found: what changes nothing is ruled out together, what helped once goes first for its likes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.pruning import repair


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[nn.Module, torch.Tensor], tuple[int, mk.PruningPlan]]:
    """A plan of a model at half of its size, and how many dry runs it took."""
    count = [0]
    rehearse = repair.rehearse

    def counted(*args: object, **how: object) -> object:
        count[0] += 1
        return rehearse(*args, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(repair, "rehearse", counted)

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
    assert counts[12] <= counts[2] + 10  # one for each layer more


def test_a_call_that_raises_is_listened_to_in_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from modulekg_widgets.engine.pruning import dryrun

    passes = []
    rehearsed = dryrun._rehearsed
    monkeypatch.setattr(dryrun, "_rehearsed", lambda *args: passes.append(args[-1]) or rehearsed(*args))
    model = nn.Sequential(*(Fixed() for _ in range(4)), nn.Linear(6, 2)).eval()
    mk.plan(mk.trace(model, torch.randn(3, 6)), ratio=0.5)
    assert passes.count(None) == 1  # the first run alone is made twice
