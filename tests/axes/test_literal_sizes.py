"""Sizes that stand as numbers in the code of a view: their axes are frozen, with the line, and the views are listed."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import CutError

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="code of Python 3.10 has no columns")
WIDTH = 8


class Viewed(nn.Module):
    """Eight channels that some function takes apart."""

    def __init__(self, view: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layer, self.view = nn.Conv2d(3, 8, 3, padding=1), view

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.view(self.layer(x))


def of_a_local_name(h: torch.Tensor) -> torch.Tensor:
    count = 8
    return h.reshape(len(h), count, -1).mean(1)


def of_a_name_that_changes(h: torch.Tensor) -> torch.Tensor:
    count = 8
    count = h.shape[1]
    return h.reshape(len(h), count, -1).mean(1)


def of_an_argument(h: torch.Tensor, count: int = 8) -> torch.Tensor:
    return h.reshape(len(h), h.shape[1], -1).mean(1)


def over_several_lines(h: torch.Tensor) -> torch.Tensor:
    # fmt: off
    return (h
            .view(2,
                  8,
                  64)
            .mean(1))
    # fmt: on


def traced(view: Callable[[torch.Tensor], torch.Tensor]) -> mk.DataflowGraph:
    return mk.trace(Viewed(view).eval(), torch.randn(2, 3, 8, 8))


NUMBERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "view": lambda h: h.view(2, 8, 4, 16).mean(1),
    "a tuple": lambda h: torch.reshape(h, (2, 8, 64)).mean(1),
    "a keyword": lambda h: h.reshape(shape=[-1, 8, 64]).mean(1),
    "a product": lambda h: h.view(-1, 8 * 8 * 8).mean(1),
    "of the module": lambda h: h.view(2, WIDTH, -1).mean(1),
    "after others": lambda h: h.flatten(2).view(*h.shape[:1], 8, 64).mean(1),
    "a local name": of_a_local_name,
    "several lines": over_several_lines,
}
COMPUTED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "left open": lambda h: h.view(2, -1, 64).mean(1),
    "read": lambda h: h.view(h.size(0), h.size(1), 64).mean(1),
    "flattened": lambda h: h.flatten(2).mean(1),
    "changes": of_a_name_that_changes,
    "an argument": of_an_argument,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_in_the_code_freezes_the_axis_and_is_listed(name: str) -> None:
    graph = traced(NUMBERS[name])
    frozen = [axis.frozen or "" for axis in graph.axes if axis.size == 8 and axis.name.startswith("layer.out")]
    assert graph.axes.free == []
    assert any("its size is fixed in the code, as " in each and "test_literal_sizes.py:" in each for each in frozen)
    assert ["layer"] in graph.reshape_dependency().dependency.values()
    with pytest.raises(CutError, match="its size is fixed in the code"):
        mk.plan(graph, ratio=0.5)
    with pytest.raises(CutError, match="its size is fixed in the code"):
        mk.plan(graph, per_axis={"layer": 0.5})


@pytest.mark.parametrize("name", COMPUTED)
def test_what_is_computed_is_free(name: str) -> None:
    graph = traced(COMPUTED[name])
    assert [axis.name for axis in graph.axes.free] == ["layer.out"]
    assert mk.plan(graph, ratio=0.5).axes[0].left == 4


def test_of_two_numbers_the_one_that_is_left_open_is_free() -> None:
    graph = traced(lambda h: h.unflatten(1, (2, -1)).mean((1, 2)))
    assert [(axis.size, axis.frozen is None) for axis in graph.axes if "layer.out" in axis.name] == [
        (2, False),
        (4, True),
    ]
    assert mk.plan(graph, ratio=0.5).params == (8 * 28, 4 * 28)


def test_joined_channels_that_a_view_counts() -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c, self.d = (nn.Conv2d(*sizes, 1) for sizes in ((3, 9), (3, 9), (3, 18), (18, 4)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            gate = torch.cat([self.a(x).mean((0, 2, 3)), self.b(x).mean((0, 2, 3))])
            return self.d(self.c(x) * gate.view(1, 18, 1, 1))

    graph = mk.trace(Gated().eval(), torch.randn(2, 3, 8, 8))
    assert graph.axes.free == []
    assert list(graph.reshape_dependency().dependency.values()) == [["a", "b"]]


def test_views_of_one_line_are_told_apart() -> None:
    # fmt: off
    one, other = (lambda h: h.unflatten(1, (2, 4)).sum((1, 2))), (lambda h: h.unflatten(1, (2, -1)).sum((1, 2)))
    # fmt: on
    assert [axis.size for axis in traced(one).axes.free] == []
    assert [axis.size for axis in traced(other).axes.free] == [4]


def test_views_inside_of_a_layer_are_not_those_beside_it_on_the_line() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 16), nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x)).relu().mean(-1) + torch.zeros(6, 16).view(3, 2, 16).mean(-1).view(3, 2)

    graph = mk.trace(Mixed(), torch.zeros(3, 2, 4))
    assert [axis.name for axis in graph.axes.free] == ["a.out", "b.out"]
    assert graph.reshape_dependency().dependency == {}


def test_code_that_cannot_be_read_says_nothing() -> None:
    space: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {}
    exec(compile("def view(h): return h.view(2, 8, 64).mean(1)", "<nowhere>", "exec"), space)
    graph = traced(space["view"])
    assert len(graph.axes.free) == 1
    with pytest.raises(CutError, match="could be cut"):
        mk.plan(graph, ratio=0.5)
