"""Buffers that hold indices of an axis follow it: a channel shuffle kept as a permutation is cut and written anew."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import modulekg_widgets as mk
from checks.axes import proved
from models import seeded

SHUFFLE = [3, 1, 0, 2, 7, 6, 5, 4]
SOME = [4, 2, 7]


def _by_gather(y: Tensor, order: Tensor) -> Tensor:
    return y.gather(1, order.view(1, -1, 1).expand(y.shape[0], -1, y.shape[2]))


PICKS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "brackets": lambda y, order: y[:, order],
    "ellipsis": lambda y, order: y.transpose(1, 2)[..., order].transpose(1, 2),
    "first": lambda y, order: y.transpose(0, 1)[order].transpose(0, 1),
    "index_select": lambda y, order: y.index_select(1, order),
    "gather": _by_gather,
    "two times": lambda y, order: y[:, order] * y.tanh()[:, order],
}


class Shuffled(nn.Module):
    """Channels in the order of a buffer, between two convolutions; another one reads them as they are."""

    def __init__(self, pick: Callable[[Tensor, Tensor], Tensor], order: list[int], groups: int = 1) -> None:
        super().__init__()
        self.pick = pick
        self.a, self.b = nn.Conv1d(3, 8, 1), nn.Conv1d(len(order), 6, 1, groups=groups)
        self.norm, self.plain, self.head = nn.BatchNorm1d(8), nn.Conv1d(8, 6, 1), nn.Linear(6, 2)
        self.register_buffer("order", torch.tensor(order))
        self.norm.running_mean.normal_()

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.a(x)).relu()
        return self.head((self.b(self.pick(y, self.order)) + self.plain(y)).mean(-1))


@pytest.mark.parametrize("order", [SHUFFLE, SOME], ids=["all", "some"])
@pytest.mark.parametrize("pick", PICKS.values(), ids=PICKS)
def test_the_axis_is_free_and_the_buffer_is_written_anew(
    pick: Callable[[Tensor, Tensor], Tensor], order: list[int], tmp_path: Path
) -> None:
    model = seeded(lambda: Shuffled(pick, order)).eval()
    x = torch.randn(4, 3, 5)
    graph = proved(model, x)
    gone = [0, 2, 7]
    plan = mk.plan(graph, cuts=[graph.cut_analysis("a.weight", index=gone)])
    masked = copy.deepcopy(model)
    with torch.no_grad():
        for layer in (masked.norm.weight, masked.norm.bias):
            layer[gone] = 0
    plan.save(tmp_path / "plan.json")
    state = {name: value.clone() for name, value in model.state_dict().items()}
    expected = masked(x)
    for each in (plan, mk.load_plan(tmp_path / "plan.json")):
        receipt = each.cut(model)
        torch.testing.assert_close(model(x), expected)
        stay = [index for index in range(8) if index not in gone]
        assert model.order.tolist() == [stay.index(index) for index in order if index in stay]
        assert model.order.dtype is torch.int64
        assert list(model.b.weight.shape) == [6, len(model.order), 1]
        receipt.undo()
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_what_was_cut_can_be_restored_and_masked() -> None:
    model = seeded(lambda: Shuffled(PICKS["brackets"], SHUFFLE)).eval()
    x = torch.randn(4, 3, 5)
    before = model(x)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    assert plan.params[1] < 0.6 * plan.params[0]
    receipt = plan.cut(model)
    assert sorted(model.order.tolist()) == [0, 1, 2, 3]
    model(x)
    receipt.restore()
    assert model.order.tolist() == SHUFFLE
    torch.testing.assert_close(model(x), before)
    masking = plan.mask(model)
    assert model.order.tolist() == SHUFFLE
    masking.undo()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_groups_after_a_shuffle_follow(dtype: torch.dtype) -> None:
    model = seeded(lambda: Shuffled(PICKS["brackets"], SHUFFLE, groups=2)).eval()
    model.order = model.order.to(dtype)
    x = torch.randn(4, 3, 5)
    graph = proved(model, x)
    plan = mk.plan(graph, ratio=0.5)
    assert plan.params[1] < 0.6 * plan.params[0]
    plan.cut(model)
    assert model.order.dtype is dtype
    assert model(x).shape == (4, 2)


class ShuffleUnit(nn.Module):
    """A grouped convolution, its channels dealt out among the groups of the next: by views, or by a buffer."""

    def __init__(self, by_buffer: bool) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv1d(4, 12, 1, groups=2), nn.Conv1d(12, 18, 1, groups=6), nn.Conv1d(18, 2, 1)
        self.register_buffer("order", torch.arange(12).view(2, 6).T.flatten() if by_buffer else None)

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x).relu()
        dealt = y.unflatten(1, (2, 6)).transpose(1, 2).flatten(1, 2) if self.order is None else y[:, self.order]
        return self.c(self.b(dealt).relu())


def test_a_shuffle_by_a_buffer_is_as_free_as_one_by_views() -> None:
    views, buffer = (proved(seeded(lambda by=by: ShuffleUnit(by)), torch.randn(3, 4, 5)) for by in (False, True))
    for name in ("a.weight", "b.weight", "c.weight"):
        assert buffer.axes.expression(name) == views.axes.expression(name)
    plans = [mk.plan(graph, ratio=0.5) for graph in (views, buffer)]
    assert plans[0].params == plans[1].params
    model = buffer.model
    plans[1].cut(model)
    assert sorted(model.order.tolist()) == list(range(len(model.order)))
    model(torch.randn(3, 4, 5))


def _used_as_number(y: Tensor, order: Tensor) -> Tensor:
    return y[:, order] + order.sum()


def _put(y: Tensor, order: Tensor) -> Tensor:
    out = y.new_zeros(y.shape)
    out[:, order] = y
    return out


WRITES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "brackets": _put,
    "index_copy": lambda y, order: y.new_zeros(y.shape).index_copy(1, order, y),
    "index_add": lambda y, order: y.new_ones(y.shape).index_add(1, order, y),
    "index_fill": lambda y, order: y.index_fill(1, order, 0.5),
}


class Written(nn.Module):
    """Two layers, and what the first gives written in the order of a buffer."""

    def __init__(self, write: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.write = write
        self.a, self.b = nn.Linear(3, 8), nn.Linear(8, 2)
        self.register_buffer("order", torch.tensor(SHUFFLE))

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.write(self.a(x), self.order))


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_writing_by_a_buffer_follows_as_well(write: Callable[[Tensor, Tensor], Tensor]) -> None:
    model = seeded(lambda: Written(write)).eval()
    x = torch.randn(4, 3)
    graph = proved(model, x)
    assert graph.axes["a.weight", 0].frozen is None
    gone = [1, 6]
    plan = mk.plan(graph, cuts=[graph.cut_analysis("a.weight", index=gone)])
    # the columns of what is left unwritten, or written elsewhere
    written_at = gone if write is WRITES["index_fill"] else [SHUFFLE[index] for index in gone]
    kept = [column for column in range(8) if column not in written_at]
    expected = model(x)
    hidden = write(model.a(x), model.order)[:, kept]
    cut_expected = hidden @ model.b.weight[:, kept].T + model.b.bias
    receipt = plan.cut(model)
    torch.testing.assert_close(model(x), cut_expected)
    assert sorted(model.order.tolist()) == list(range(6))
    receipt.undo()
    assert torch.equal(model(x), expected)


STAYS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], list[int]]] = {
    "picked twice": (PICKS["brackets"], [1, 1, 2, 3, 4, 5, 6, 7]),
    "from the end": (PICKS["brackets"], [-1, 0, 1, 2, 3, 4, 5, 6]),
    "a constant of the code": (lambda y, _: y[:, SHUFFLE], SHUFFLE),
    "numbers as well": (_used_as_number, SHUFFLE),
    "itself and its shuffle": (lambda y, order: y + y[:, order], SHUFFLE),
    "computed from": (lambda y, order: y[:, order.argsort()], SHUFFLE),
}


@pytest.mark.parametrize(("pick", "order"), STAYS.values(), ids=STAYS)
def test_where_the_buffer_cannot_follow_the_axis_stays(
    pick: Callable[[Tensor, Tensor], Tensor], order: list[int]
) -> None:
    graph = proved(seeded(lambda: Shuffled(pick, order)), torch.randn(4, 3, 5))
    reason = str(graph.axes["a.weight", 0].frozen)
    assert "index" in reason or "indices" in reason or "contain itself" in reason
    assert "a.out" not in [cut.name for cut in mk.plan(graph, ratio=0.5).axes]


def test_a_constant_of_the_code_is_named_as_the_reason() -> None:
    pick, order = STAYS["a constant of the code"]
    graph = mk.trace(seeded(lambda: Shuffled(pick, order)), torch.randn(4, 3, 5))
    reason = str(graph.axes["a.weight", 0].frozen)
    assert "indices that the code computes" in reason
    assert "test_index_buffers.py" in reason


def test_a_buffer_that_changed_since_is_refused() -> None:
    model = seeded(lambda: Shuffled(PICKS["brackets"], SOME)).eval()
    graph = mk.trace(model, torch.randn(4, 3, 5))
    plan = mk.plan(graph, cuts=[graph.cut_analysis("a.weight", index=[0])])
    model.order[0] = 0
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(mk.ModuleKGError, match="other indices"):
        plan.cut(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
