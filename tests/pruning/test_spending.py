"""Where a common ranking spends a target: by what an index costs the network for what it saves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import modulekg_widgets as mk
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.pruning.plan.targets.ranking import SAVINGS_EXPONENT, target_scores

draws = np.random.default_rng(0)


def terms(*sizes: int) -> list[Term]:
    return [Term(size) for size in sizes]


class TestWorths:
    def test_those_of_an_axis_are_in_the_order_of_its_scores(self) -> None:
        (term,) = terms(50)
        scores = draws.normal(size=50)  # of which some are negative, as those of a loss that falls
        found = target_scores({term: scores}, {term: 2}, {term: 0.5})[term]
        assert np.isfinite(found).all()
        assert (np.diff(found[np.argsort(scores)]) >= 0).all()

    def test_of_twice_the_savings_the_worth_is_less_and_of_twice_the_weights_more(self) -> None:
        one, dear, wide = terms(8, 8, 8)
        scores = draws.random(8)
        found = target_scores(
            dict.fromkeys((one, dear, wide), scores), {one: 2, dear: 2, wide: 4}, {one: 0.1, dear: 0.2, wide: 0.1}
        )
        assert found[dear] == pytest.approx(found[one] / 2**SAVINGS_EXPONENT)
        assert found[wide] == pytest.approx(found[one] * 2**SAVINGS_EXPONENT)

    def test_a_network_of_twice_the_depth_ranks_alike(self) -> None:
        inner, stream = terms(8, 8)
        scores = {inner: draws.random(8), stream: draws.random(8)}
        shallow = target_scores(scores, {inner: 2, stream: 6}, {inner: 0.2, stream: 0.6})
        deep = target_scores(scores, {inner: 2, stream: 12}, {inner: 0.1, stream: 0.6})
        ratio = [deep[term] / shallow[term] for term in (inner, stream)]
        assert ratio[0] == pytest.approx(ratio[1])

    def test_the_less_is_left_the_more_the_next_one_counts(self) -> None:
        (term,) = terms(64)
        found = np.sort(target_scores({term: np.ones(64)}, {term: 2}, {term: 0.5})[term])
        assert (np.diff(found) > 0).all()
        assert found[-2] > 2 * found[0]

    @pytest.mark.parametrize("scores", [np.zeros(5), np.empty(0), -np.ones(3), np.array([0.0, 0.0, 1e-200, 1.0])])
    def test_any_scores_give_finite_worths(self, scores: np.ndarray) -> None:
        (term,) = terms(max(len(scores), 1))
        found = target_scores({term: scores}, {}, {})[term]
        assert found.shape == scores.shape
        assert np.isfinite(found).all()


class Pictures(nn.Module):
    """Two layers of one width: the first reads pictures, the second what is left of them."""

    def __init__(self) -> None:
        super().__init__()
        self.large = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, stride=4), nn.ReLU())
        self.small = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 4, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.small(self.large(x)).mean((2, 3))


def left(unit: str) -> dict[str, float]:
    """Which share of each axis stays when 0.4 of the unit do."""
    torch.manual_seed(0)
    graph = mk.trace(Pictures(), torch.zeros(1, 3, 32, 32))
    plan = mk.plan(graph, target={unit: 0.4}, scope="global")
    cut = {axis.name: axis.left / axis.size for axis in plan.axes}
    return {axis.name: cut.get(axis.name, 1.0) for axis in graph.axes.free}


def test_flops_are_spent_where_they_are_and_parameters_where_these_are() -> None:
    flops, params = left("flops"), left("params")
    first, *others = flops
    assert len(others) == 2
    assert flops[first] < min(flops[name] for name in others) - 0.1
    assert params[first] > flops[first] + 0.1
    assert params[first] > min(params[name] for name in others) + 0.1


@pytest.mark.parametrize("target", [{"flops": 0.08}, {"params": 0.3}, {"flops": 0.3, "params": 0.3}])
def test_a_twentieth_of_every_axis_stays(target: dict[str, float]) -> None:
    torch.manual_seed(0)
    layers = [
        nn.Linear(8, 400),
        nn.ReLU(),
        nn.Linear(400, 24),
        nn.ReLU(),
        nn.Linear(24, 400),
        nn.ReLU(),
        nn.Linear(400, 2),
    ]
    graph = mk.trace(nn.Sequential(*layers), torch.zeros(1, 8))
    plan = mk.plan(graph, target=target, scope="global")
    assert all(axis.left >= axis.size / 20 for axis in plan.axes)
    free = mk.plan(graph, target=target, scope="global", floor=0.2)
    assert all(axis.left >= axis.size / 5 for axis in free.axes)
