"""Tensors in plain attributes are state of the graph: they follow a cut, and come back."""

from __future__ import annotations

import copy
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import modulekg_widgets as mk
from checks.axes import proved
from models import seeded

Pair = namedtuple("Pair", ["table", "name"])
GONE = [0, 3, 4]


@dataclass
class Rope:
    table: Tensor
    base: int = 100


@dataclass(frozen=True)
class Frozen:
    table: Tensor


class AddedTable(nn.Module):
    """Adds a table that stands in an attribute to what one layer gives the next."""

    def __init__(self, hold: Callable[[Tensor], Any], take: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(3, 8), nn.LayerNorm(8), nn.Linear(8, 2)
        self.held = hold(torch.randn(5, 8))
        self.take = take

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x) + self.take(self.held)).relu())


Way = tuple[Callable[[Tensor], Any], Callable[[Any], Tensor], str]
WAYS: dict[str, Way] = {
    "alone": (lambda t: t, lambda h: h, "held"),
    "a list": (lambda t: ["a", t], lambda h: h[1], "held[1]"),
    "a tuple": (lambda t: (t, 3), lambda h: h[0], "held[0]"),
    "a named tuple": (lambda t: Pair(t, "n"), lambda h: h.table, "held[0]"),
    "a dictionary": (lambda t: {"a.b": t}, lambda h: h["a.b"], "held['a.b']"),
    "an ordered dictionary": (lambda t: OrderedDict(table=t), lambda h: h["table"], "held['table']"),
    "by sizes": (lambda t: {(5, 8): t}, lambda h: h[5, 8], "held[(5, 8)]"),
    "an object": (Rope, lambda h: h.table, "held.table"),
    "a frozen object": (Frozen, lambda h: h.table, "held.table"),
    "deep inside": (lambda t: [{"x": (Rope(t),)}], lambda h: h[0]["x"][0].table, "held[0]['x'][0].table"),
}


def expected_of(model: AddedTable, x: Tensor) -> Tensor:
    """What is left of the model's function by hand."""
    keep = [index for index in range(8) if index not in GONE]
    y = x @ model.first.weight[keep].T + model.first.bias[keep] + model.take(model.held)[:, keep]
    y = nn.functional.layer_norm(y, [len(keep)], model.norm.weight[keep], model.norm.bias[keep])
    return y.relu() @ model.last.weight[:, keep].T + model.last.bias


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_table_follows_the_cut_and_comes_back(way: Way, tmp_path: Path) -> None:
    hold, take, name = way
    model = seeded(lambda: AddedTable(hold, take)).eval()
    x = torch.randn(4, 5, 3)
    graph = proved(model, x)
    assert name in graph.state
    assert graph.state[name].kind == "attribute"
    assert graph.state[name].tensor is take(model.held)
    assert graph.axes.verify().not_proved == []
    cut = graph.cut_analysis("first.weight", index=GONE)
    assert cut.parameters[name] == {1: GONE}
    assert graph.cut_analysis(name, index=GONE, dim=1).parameters == cut.parameters
    plan = mk.plan(graph, cuts=[cut])
    plan.save(tmp_path / "plan.json")
    held, table, before, expected = model.held, take(model.held), model(x), expected_of(model, x)
    keys = list(model.state_dict())
    for each in (plan, mk.load_plan(tmp_path / "plan.json")):
        receipt = each.cut(model)
        assert "plain" in repr(receipt)
        torch.testing.assert_close(model(x), expected)
        assert take(model.held).shape == (5, 5)
        assert take(held) is table
        assert list(model.state_dict()) == keys
        receipt.undo()
        assert model.held is held
        assert take(held) is table
        assert torch.equal(model(x), before)
    twin = copy.deepcopy(model)
    mk.load_plan(tmp_path / "plan.json").cut(twin)
    torch.testing.assert_close(twin(x), expected)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_masks_leave_a_table_alone_and_restore_brings_it_back(way: Way) -> None:
    model = seeded(lambda: AddedTable(*way[:2])).eval()
    x, held, table = torch.randn(4, 5, 3), model.held, way[1](model.held)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    value = table.clone()
    plan.mask(model).undo()
    assert model.held is held
    assert torch.equal(table, value)
    receipt = plan.cut(model)
    model(x)
    with torch.no_grad():
        way[1](model.held).mul_(2)
    receipt.restore()
    now, stay = way[1](model.held), plan.edits.tensors
    (kept,) = [edit.kept[1] for edit in stay if way[2] in edit.names]
    assert torch.equal(now[:, kept], 2 * value[:, kept])
    rest = [index for index in range(8) if index not in kept.tolist()]
    assert torch.equal(now[:, rest], value[:, rest])
    assert torch.equal(table, value)
    model(x)


class Shared(nn.Module):
    """One table under several names: in two children, and in a list that both have."""

    def __init__(self, in_a_list: bool) -> None:
        super().__init__()
        self.body = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)
        self.table: Any = [torch.randn(8)] if in_a_list else torch.randn(8)
        for each in self.body:
            each.table = self.table

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        for each in self.body:
            y = y + each(y) * (each.table[0] if isinstance(each.table, list) else each.table)
        return self.last(y)


@pytest.mark.parametrize("in_a_list", [False, True])
def test_a_shared_table_is_cut_once_everywhere(in_a_list: bool) -> None:
    model = seeded(lambda: Shared(in_a_list)).eval()
    x, table = torch.randn(4, 3), model.table
    graph = proved(model, x)
    end = "[0]" if in_a_list else ""
    (node,) = {graph.state[f"{path}table{end}"] for path in ("", "body.0.", "body.1.")}
    assert len(node.names) == 3
    receipt = mk.plan(graph, ratio=0.5).cut(model)
    model(x)
    assert model.table is model.body[0].table is model.body[1].table is not table
    receipt.undo()
    assert model.table is model.body[0].table is model.body[1].table is table


def test_a_container_that_others_hold_keeps_its_tensors() -> None:
    tables = [torch.randn(5, 8)]
    one, other = (seeded(lambda: AddedTable(lambda _: tables, lambda h: h[0])).eval() for _ in range(2))
    x, table = torch.randn(4, 5, 3), tables[0]
    mk.plan(mk.trace(one, x), ratio=0.5).cut(one)
    one(x), other(x)
    assert other.held is tables
    assert tables[0] is table


def test_an_object_of_sizes_and_a_table_is_copied_once() -> None:
    class Config:
        def __init__(self) -> None:
            self.width, self.table = 8, torch.randn(8)

    class Sized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = Config()
            self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last((self.first(x) * self.config.table).view(-1, self.config.width))

    model = seeded(Sized).eval()
    x, config = torch.randn(4, 3), model.config
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    for undo in ("undo", "restore"):
        receipt = plan.cut(model)
        assert (model.config.width, model.config.table.shape, model(x).shape) == (4, (4,), (4, 2))
        getattr(receipt, undo)()
        assert model.config is config
        assert config.width == 8
        assert model(x).shape == (4, 2)


def test_what_only_a_closure_or_a_class_holds_stays() -> None:
    table = torch.randn(8)

    class Closed(nn.Module):
        of_the_class = torch.randn(8)

        def __init__(self, hold: bool) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)
            self.held = table if hold else None  # the same tensor at a place that can be written, too

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.first(x) + table * self.of_the_class)

    for hold in (False, True):
        model = seeded(lambda hold=hold: Closed(hold)).eval()
        graph = proved(model, torch.randn(4, 3))
        assert "neither parameter nor buffer" in str(graph.axes["first.weight", 0].frozen)


@dataclass
class OfClass:
    name: str
    table: ClassVar[Tensor] = torch.randn(8)
    tables: ClassVar[dict[str, Tensor]] = {"a": torch.randn(8)}


@pytest.mark.parametrize("take", [lambda m: m.table, lambda m: m.tables["a"], lambda m: m.held.table,
                                  lambda m: m.held.tables["a"]])  # fmt: skip
def test_what_a_class_alone_holds_is_no_state(take: Callable[[Any], Tensor]) -> None:
    class Classed(nn.Module):
        table = torch.randn(8)
        tables = {"a": torch.randn(8)}  # noqa: RUF012

        def __init__(self) -> None:
            super().__init__()
            self.first, self.last, self.other = nn.Linear(3, 8), nn.Linear(8, 6), nn.Linear(6, 2)
            self.held = OfClass("n")

        def forward(self, x: Tensor) -> Tensor:
            return self.other(self.last(self.first(x) * take(self)))

    model, x = seeded(Classed).eval(), torch.randn(4, 3)
    graph = proved(model, x)
    assert set(graph.state) == set(model.state_dict())
    assert "neither parameter nor buffer" in str(graph.axes["first.weight", 0].frozen)
    mk.plan(graph, ratio=0.5).cut(model)
    assert (model.first.out_features, model.last.out_features, model(x).shape) == (8, 3, (4, 2))


def test_a_table_that_a_closure_reads_as_well_stays() -> None:
    table = torch.randn(5, 8)
    model = seeded(lambda: AddedTable(lambda _: table, lambda _: table)).eval()
    x = torch.randn(4, 5, 3)
    graph = proved(model, x)
    assert "held" not in graph.state
    assert "neither parameter nor buffer" in str(graph.axes["first.weight", 0].frozen)


# ------------------------------------------------------------ other parts


def test_indices_in_a_plain_attribute_are_written_anew() -> None:
    class Shuffled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)
            self.order = torch.tensor([3, 1, 0, 2, 7, 6, 5, 4])

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.first(x)[:, self.order])

    model = seeded(Shuffled).eval()
    x, order = torch.randn(4, 3), model.order
    plan = mk.plan(proved(model, x), ratio=0.5)
    twin = copy.deepcopy(model)
    (gone,) = [axis.dropped for axis in plan.axes]
    with torch.no_grad():
        twin.first.weight[list(gone)], twin.first.bias[list(gone)] = 0, 0
    receipt = plan.cut(model)
    torch.testing.assert_close(model(x), twin(x))
    assert sorted(model.order.tolist()) == [0, 1, 2, 3]
    receipt.undo()
    assert model.order is order


def test_a_mask_of_heads_is_cut_by_heads() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)
            self.mask = torch.arange(8) % 3 == 0

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.first(x).masked_fill(self.mask, 0.5))

    model = seeded(Masked).eval()
    graph = proved(model, torch.randn(4, 3))
    mk.plan(graph, ratio=0.5).cut(model)
    assert model.mask.shape == (4,)
    assert model.mask.dtype is torch.bool


def test_a_table_that_forward_writes_in_place_follows_too() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)
            self.mean = torch.zeros(8)

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            self.mean.mul_(0.9).add_(y.mean(0), alpha=0.1)
            return self.last(y - self.mean)

    model = seeded(Counting).eval()
    x = torch.randn(4, 3)
    graph = mk.trace(model, x)
    assert torch.equal(model.mean, torch.zeros(8))
    assert graph.axes["first.weight", 0] is graph.axes["mean", 0]
    mk.plan(graph, ratio=0.5).cut(model)
    with torch.no_grad():
        model(x)
    assert model.mean.shape == (4,)


def test_the_graph_runs_and_is_drawn_with_a_table() -> None:
    model = seeded(lambda: AddedTable(*WAYS["a list"][:2])).eval()
    x = torch.randn(4, 5, 3)
    graph = mk.trace(model, x)
    torch.testing.assert_close(graph.forward(x), model(x))
    assert graph.axes.unread == []
    flow = mk.ModelGraph(model, x).get_state()
    assert flow
    for importance in ("l1", "fpgm", mk.pruning.Activation([x])):
        assert mk.plan(graph, ratio=0.5, importance=importance).axes


def test_a_model_without_data_is_planned_too() -> None:
    with torch.device("meta"):
        model = AddedTable(*WAYS["alone"][:2])
    plan = mk.plan(mk.trace(model, torch.randn(4, 5, 3, device="meta")), ratio=0.5, importance="random")
    real = seeded(lambda: AddedTable(*WAYS["alone"][:2])).eval()
    plan.cut(real)
    assert real.held.shape == (5, 4)
    assert real(torch.randn(4, 5, 3)).shape == (4, 5, 2)


def test_a_number_in_an_attribute_stays_a_number() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)
            self.scale = torch.tensor(3.0)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.first(x) * self.scale)

    graph = proved(seeded(Scaled), torch.randn(4, 3))
    assert "scale" not in graph.state
    assert graph.axes["first.weight", 0].frozen is None
