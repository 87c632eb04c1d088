"""One number that serves several modules, as in a configuration: it is tied, cut once, and told once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from pruning.test_dry_run import planned


class Layer(nn.Module):
    """Views its own features by a number of the common configuration."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        self.into, self.out = nn.Linear(6, 3 * config.width), nn.Linear(3 * config.width, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.into(x).view(len(x), 3, self.config.width)
        return x + self.out(heads.relu().flatten(1))


class Other(Layer):
    """Another class that reads the same number."""


def model(*layers: type[Layer]) -> nn.Module:
    config = SimpleNamespace(width=8)
    return nn.Sequential(nn.Linear(4, 6), *(layer(config) for layer in layers), nn.Linear(6, 2))


HEADS = ["1.into.out.1", "2.into.out.1", "3.into.out.1"]


@pytest.mark.parametrize("layers", [(Layer, Layer, Layer), (Layer, Other, Layer)])
@pytest.mark.parametrize("scope", ["local", "global"])
def test_one_number_of_several_layers_is_tied(layers: tuple[type[Layer], ...], scope: str) -> None:
    net, x = model(*layers), torch.randn(3, 4)
    with torch.no_grad():
        for at in (1, 2, 3):  # so that a common ranking would take another number of each
            net[at].into.weight.mul_(at)
    how = {"ratio": 0.5, "scope": scope, "only": HEADS}
    plan = planned(net, x, **how)
    left = {axis.left for axis in plan.axes}
    assert len(plan.axes) == 3
    assert len(left) == 1
    assert left < {*range(1, 8)}
    values = {name: pair for name, pair in plan.edits.attributes.items() if name.endswith("config.width")}
    assert {after for _, after in values.values()} == left
    plan.cut(net)
    assert {id(layer.config) for layer in list(net)[1:-1]} == {id(net[1].config)}
    assert net[1].config.width == next(iter(left))


def test_axes_that_were_not_asked_for_are_not_cut_along() -> None:
    """The number serves all layers, so one layer alone cannot follow another size."""
    with pytest.raises(mk.ModuleKGError, match="could be cut"):
        planned(model(Layer, Layer), torch.randn(3, 4), per_axis={"1.into.out.1": 0.5})


def test_ratios_that_differ_come_together() -> None:
    plan = planned(model(Layer, Layer), torch.randn(3, 4), per_axis={"1.into.out.1": 0.5, "2.into.out.1": 0.25})
    assert len({axis.left for axis in plan.axes}) == 1


class Splits(nn.Module):
    """Takes its features apart by a list of sizes; serves two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes = [8, 6]

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return torch.cat([part.relu() for part in torch.cat([left, right], 1).split(self.sizes, 1)], 1)


class SplitBlock(nn.Module):
    def __init__(self, splits: Splits) -> None:
        super().__init__()
        self.splits = splits
        self.left, self.right, self.out = nn.Linear(4, 8), nn.Linear(4, 6), nn.Linear(14, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.out(self.splits(self.left(x), self.right(x)))


def test_a_list_of_a_module_under_several_names_is_one() -> None:
    splits = Splits()
    net = nn.Sequential(SplitBlock(splits), SplitBlock(splits), nn.Linear(4, 2))
    plan = planned(net, torch.randn(3, 4))
    assert {(axis.size, axis.left) for axis in plan.axes} >= {(8, 4), (6, 3)}
    plan.cut(net)
    assert splits.sizes == [4, 3]


class Recurrent(nn.Module):
    """A recurrent layer of several layers or directions, and two plain ones."""

    def __init__(self, kind: type[nn.RNNBase], **options: int | bool) -> None:
        super().__init__()
        self.rnn = kind(12, 32, batch_first=True, **options)
        self.out, self.last = nn.Linear(32 * (1 + bool(options.get("bidirectional"))), 15), nn.Linear(15, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.out(self.rnn(x)[0]))


RECURRENT = [
    (nn.LSTM, {"num_layers": 2, "bidirectional": True}),
    (nn.GRU, {"num_layers": 2}),
    (nn.RNN, {"bidirectional": True}),
]


@pytest.mark.parametrize(("kind", "options"), RECURRENT)
def test_one_layer_alone_is_told_which_axes_have_its_number(kind: type[nn.RNNBase], options: dict[str, int]) -> None:
    graph = mk.trace(Recurrent(kind, **options).eval(), torch.randn(2, 5, 12))
    names = [axis.name for axis in graph.axes.free if axis.size == 32]
    shared = f"hidden_size of rnn is one number for {', '.join(names)}, which must have equal sizes"
    for how in ({"per_axis": {names[0]: 0.5}}, {"ratio": 0.5, "only": names[1]}):
        with pytest.raises(mk.ModuleKGError, match="could be cut") as caught:
            mk.plan(graph, **how)
        assert shared in str(caught.value)
    plan = mk.plan(graph, per_axis={names[1]: 0.5, "out": 0.5})
    assert [axis.name for axis in plan.axes] == ["out.out"]
    assert shared in str(plan)
    assert len(mk.plan(graph, per_axis={"rnn": 0.5}).axes) == len(names)
