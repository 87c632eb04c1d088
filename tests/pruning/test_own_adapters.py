"""A user's own modules: their attributes follow a cut by an adapter, or because the dry run finds them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import modulekg_widgets as mk
from models import seeded
from modulekg_widgets.engine.adapters import LayerSizes, adapters
from pruning.battery import differs, state_of
from pruning.standard_modules import pruned


class DepthwiseConv(nn.Module):
    """A convolution of each channel by itself, as an author writes one who knows of no pruning."""

    def __init__(self, channels: int, size: int = 3) -> None:
        super().__init__()
        self.channels = channels
        self.weight = nn.Parameter(torch.randn(channels, 1, size, size))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, self.weight, self.bias, groups=self.channels)


class Labelled(DepthwiseConv):
    """The same with a number that forward does not read, which no dry run can find."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.shown_as = channels


def depthwise_net(cls: type[DepthwiseConv] = DepthwiseConv) -> Any:
    return seeded(lambda: nn.Sequential(nn.Conv2d(3, 8, 1), cls(8), nn.ReLU(), nn.Conv2d(8, 3, 1)))


@pytest.fixture
def open_table() -> Iterator[None]:
    """What a test registers is gone behind it; users have no need to take an adapter back."""
    before = adapters.entries
    yield
    adapters.entries = before


def channels_of(sizes: LayerSizes) -> dict[str, int]:
    return {"channels": sizes.parameter("weight", 0)}


X = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(3))


def assert_cut_as_by_hand(net: Any) -> mk.PruningPlan:
    """What the author of a `set_cut` would write: slices of four tensors, and the number of channels."""
    drop, keep = [1, 2, 6], [0, 3, 4, 5, 7]
    weights = [net[0].weight[keep], net[1].weight[keep], net[3].weight[:, keep]]
    first, own, last = [weight.detach().clone() for weight in weights]
    biases = [net[0].bias[keep].detach().clone(), net[1].bias[keep].detach().clone(), net[3].bias.detach().clone()]
    cut = mk.trace(net, X).cut_analysis("1.weight", drop)
    with pruned(net, X, cuts=[cut]) as plan:
        assert net[1].channels == 5
        assert [tuple(p.shape) for p in net[1].parameters()] == [(5, 1, 3, 3), (5,)]
        by_hand = F.conv2d(F.conv2d(X, first, biases[0]), own, biases[1], groups=5)
        assert torch.allclose(net(X), F.conv2d(by_hand.relu(), last, biases[2]), atol=1e-6)
    return plan


@pytest.mark.usefixtures("open_table")
def test_the_manuals_depthwise_convolution_with_an_adapter() -> None:
    mk.adapter(DepthwiseConv)(lambda sizes: {"channels": sizes.parameter("weight", 0)})
    plan = assert_cut_as_by_hand(depthwise_net())
    assert plan.changes == ()
    assert plan.edits.attributes["1.channels"] == (8, 5)


def test_the_manuals_depthwise_convolution_without_one() -> None:
    plan = assert_cut_as_by_hand(depthwise_net())
    (change,) = plan.changes
    assert change.kind == "attribute"
    assert "1.channels" in change.what
    assert "test_own_adapters.py:" in change.source


@pytest.mark.usefixtures("open_table")
def test_subclasses_inherit_and_the_nearest_class_decides() -> None:
    asked: list[str] = []

    @mk.adapter(DepthwiseConv)
    def of_all(sizes: LayerSizes) -> dict[str, int]:
        asked.append("all")
        return channels_of(sizes)

    with pruned(depthwise_net(Labelled), X, ratio=0.5) as plan:
        assert set(asked) == {"all"}
        assert "1.shown_as" not in plan.edits.attributes

    @mk.adapter(Labelled)
    def of_labelled(sizes: LayerSizes) -> dict[str, int]:
        asked.append("labelled")
        return {**channels_of(sizes), "shown_as": sizes.parameter("weight", 0)}

    asked.clear()
    net = depthwise_net(Labelled)
    with pruned(net, X, ratio=0.5):
        assert set(asked) == {"labelled"}
        assert net[1].shown_as == net[1].channels == 4
    with pruned(depthwise_net(), X, ratio=0.5):
        assert "all" in asked


@pytest.mark.usefixtures("open_table")
def test_bad_registrations_are_refused() -> None:
    mk.adapter(DepthwiseConv)(channels_of)
    with pytest.raises(mk.ModuleKGError, match="DepthwiseConv has an adapter already"):
        mk.adapter(DepthwiseConv)
    with pytest.raises(mk.ModuleKGError, match="Linear has an adapter already"):
        mk.adapter(Labelled, nn.Linear)(channels_of)
    assert Labelled not in adapters.entries  # all of the classes or none
    for wrong in (int, DepthwiseConv(4), "Conv2d", channels_of):
        with pytest.raises(mk.ModuleKGError, match=r"subclasses of torch\.nn\.Module") as caught:
            mk.adapter(wrong)  # type: ignore[arg-type]
        assert isinstance(caught.value, TypeError)
    with pytest.raises(mk.ModuleKGError, match="name them"):
        mk.adapter()


CELL = """
@mk.adapter(cls)
def sizes_of(sizes):
    return {"channels": sizes.parameter("weight", 0), "shown_as": number}
"""


@pytest.mark.usefixtures("open_table")
def test_a_cell_of_a_notebook_may_run_again() -> None:
    for _ in range(2):
        exec(CELL, {"__name__": "__main__", "mk": mk, "cls": Labelled, "number": None})
    with pytest.raises(mk.ModuleKGError, match="has an adapter already"):
        exec(CELL, {"__name__": "theirs", "mk": mk, "cls": Labelled, "number": 1})
    with pytest.raises(mk.ModuleKGError, match="has an adapter already"):
        exec(CELL, {"__name__": "__main__", "mk": mk, "cls": nn.Linear, "number": 1})


@pytest.mark.usefixtures("open_table")
@pytest.mark.parametrize(
    ("sizes_of", "message"),
    [
        (lambda sizes: {"channels": sizes.parameter("wieght", 0)}, "has no tensor 'wieght': did you mean 'weight'"),
        (lambda sizes: {"channels": sizes.parameter("weight", 4)}, "there is no dimension 4"),
        (lambda sizes: {"channels": sizes.parameter("weight", 1)}, "gives channels=1 before the cut, where it is 8"),
        (lambda sizes: {"channels": 4.5}, "fails: TypeError"),
        (lambda sizes: 8, "fails: TypeError"),
        (lambda sizes: sizes.nothing, "fails: AttributeError"),
        (lambda sizes: {"channels": 8 // (8 - sizes.parameter("weight", 0))}, "fails: ZeroDivisionError"),
    ],
)
def test_an_adapter_that_is_wrong_is_named(sizes_of: Any, message: str) -> None:
    mk.adapter(DepthwiseConv)(sizes_of)
    net = depthwise_net()
    graph, before = mk.trace(net, X), state_of(net)
    for ask in (lambda: mk.plan(graph, ratio=0.5), lambda: graph.cut_analysis("1.weight", [0])):
        with pytest.raises(mk.ModuleKGError, match=r"the adapter for 1, a DepthwiseConv, .*@mk\.adapter") as caught:
            ask()
        assert message in str(caught.value)
    assert not differs(before, state_of(net))


@pytest.mark.usefixtures("open_table")
def test_numbers_of_other_kinds_become_those_of_the_attribute() -> None:
    class Shaped(DepthwiseConv):
        def __init__(self, channels: int) -> None:
            super().__init__(channels)
            self.sizes, self.named, self.unused = [channels, 1], (channels, 3), None

    @mk.adapter(Shaped)
    def sizes_of(sizes: LayerSizes) -> dict[str, Any]:
        count = torch.tensor(sizes.parameter("weight", 0))
        return {"channels": count, "sizes": (count, 1), "named": [count, 3], "unused": 1, "not_there": 2}

    net = depthwise_net(Shaped)
    with pruned(net, X, ratio=0.5) as plan:
        assert (net[1].channels, net[1].sizes, net[1].named, net[1].unused) == (4, [4, 1], (4, 3), None)
        assert type(net[1].channels) is int
        assert not hasattr(net[1], "not_there")
    assert plan.changes == ()
