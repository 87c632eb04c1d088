"""A forward pass in which something is not finite: where, in which item of the batch, and what is drawn then."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from modulekg_widgets.engine.playback.player import Playback
from modulekg_widgets.engine.playback.summaries import first_not_finite, item, item_count


class DividesByDeviation(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / x.std(1, keepdim=True)


def with_a_broken_row(rows: int = 8, row: int = 5) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(rows, 4)
    x[row] = 7.0
    return nn.Sequential(nn.Linear(4, 4), DividesByDeviation(), nn.Linear(4, 3)), x


def test_pictures_are_of_the_first_item_that_is_not_finite() -> None:
    model, x = with_a_broken_row()
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(4))
        model[0].bias.zero_()
    played = Playback(model, x)
    assert played.sample == 5
    assert [step.first_not_finite for step in played.steps] == [5, None, 5, 5]
    assert [step.statistics.non_finite for step in played.steps if step.statistics] == [3, 0, 4, 3]
    assert Playback(model, x, sample=2).sample == 2
    assert Playback(model, x[:5]).sample == 0


def test_the_item_is_that_of_what_was_broken_first() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.folded, self.second = DividesByDeviation(), nn.Identity(), nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x)
            self.folded(torch.full((2, 4), float("nan")))  # another number of items: none of the batch
            return self.second(torch.cat([torch.full((1, 4), float("inf")), y[1:]]))

    model, x = Both(), with_a_broken_row()[1]
    played = Playback(model, x)
    assert [step.first_not_finite for step in played.steps] == [0, 5, 0, 0]
    assert played.sample == 5


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 3), (5, 2, 2)])
@pytest.mark.parametrize("batch_dim", [0, 1])
def test_the_first_item_that_is_not_finite_of_any_shape(shape: tuple[int, ...], batch_dim: int) -> None:
    x = torch.zeros(shape)
    assert first_not_finite(x, batch_dim) is None
    if x.numel():
        x.reshape(-1)[-1] = -math.inf
        last = item_count(shape, batch_dim) - 1
        assert first_not_finite(x, batch_dim) == last
        assert not torch.isfinite(item(x, last, batch_dim)).all()
