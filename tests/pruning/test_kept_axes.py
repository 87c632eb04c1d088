"""What is kept or chosen as an axis of the graph stays so where the plan is made on the pass of another mode."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import modulekg_widgets as mk
from models import seeded


class WithHelper(nn.Module):
    """Reads more parameters while it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(3, 8), nn.Linear(8, 12), nn.Linear(12, 2)
        self.helper = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x).relu()
        out = self.last(self.middle(y).relu())
        return out + self.helper(y) if self.training else out


def test_an_axis_that_is_kept_stays_and_one_that_is_chosen_goes() -> None:
    model = seeded(WithHelper).eval()
    graph = mk.trace(model, torch.randn(4, 3))
    axis, other = graph.axes["first.weight", 0], graph.axes["middle.weight", 0]
    kept, chosen = mk.plan(graph, ratio=0.5, keep=[axis]), mk.plan(graph, ratio=0.5, only=[axis])
    assert [cut.name for cut in kept.axes] == [other.name]
    assert [cut.name for cut in chosen.axes] == [axis.name]
