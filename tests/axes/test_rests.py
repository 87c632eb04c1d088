"""Of a table that is longer than an input, what the input leaves is no axis to cut: a longer one reads it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import modulekg_widgets as mk
from modulekg_widgets.engine.axes.inference.inference import LONGER_INPUT

LONGEST, WIDTH = 16, 8


class Positions(nn.Module):
    """A learnt table, of which forward takes as much as it gets."""

    def __init__(self, take: Callable[[Tensor, int], Tensor]) -> None:
        super().__init__()
        self.take = take
        self.embed = nn.Embedding(20, WIDTH)
        self.table = nn.Parameter(torch.randn(1, LONGEST, WIDTH))
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed(x) + self.take(self.table, x.shape[1]))


TAKES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "from the start": lambda table, length: table[:, :length],
    "from the end": lambda table, length: table[:, -length:],
    "from the middle": lambda table, length: table[:, 2 : 2 + length],
    "narrow": lambda table, length: table.narrow(1, 1, length),
    "after a conversion": lambda table, length: (table * 1.0)[:, :length],
}


@pytest.mark.parametrize("take", TAKES.values(), ids=TAKES)
def test_longer_inputs_go_through_a_cut_model(take: Callable[[Tensor, int], Tensor]) -> None:
    torch.manual_seed(0)
    model = Positions(take).eval()
    graph = mk.trace(model, torch.randint(20, (2, 10)))
    assert {axis.name for axis in graph.axes.free} == {"embed.dim"}
    assert any(axis.frozen == LONGER_INPUT for axis in graph.axes)
    mk.plan(graph, ratio=0.5).cut(model)
    for length in (1, 10, 14):
        assert model(torch.randint(20, (2, length))).shape == (2, length, 4)


class Beside(nn.Module):
    """Features of the model's own beside those of the input, which one weight reads."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.randn(6))
        self.mix, self.head = nn.Linear(4 + 6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.mix(torch.cat([x, self.own.expand(len(x), 6)], dim=1)).relu())


def test_what_is_read_beside_an_input_stays_free() -> None:
    graph = mk.trace(Beside(), torch.randn(2, 4))
    assert [axis.size for axis in graph.axes.free if axis.name.startswith("mix.in")] == [6]
