"""Numbers that the code computes from sizes, whole ones as well: a plan says which change, and counts with the new."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.pruning.plan.corrections.compile_edits import EditCompiler
from modulekg_widgets.engine.pruning.plan.corrections.repair_loop import Repair
from modulekg_widgets.engine.pruning.plan.dry_run.masked_reference import output_error
from pruning.attempts import attempt_of

Tensor = torch.Tensor
USES: dict[str, tuple[Callable[[Tensor, int], Tensor], str]] = {
    "divided": (lambda h, n: h / n, "16 becomes 8"),
    "added": (lambda h, n: h + n, "16 becomes 8"),
    "half": (lambda h, n: h * (n // 2), "8 becomes 4"),
    "mean": (lambda h, n: h - h.sum(1, keepdim=True) / n, "16 becomes 8"),
    "clamped": (lambda h, n: h.clamp(min=n), "16 becomes 8"),
    "from": (lambda h, n: n - h, "16 becomes 8"),
    "keyword": (lambda h, n: torch.add(h, h, alpha=n), "16 becomes 8"),
    "root": (lambda h, n: h * n**-0.5, "0.25 becomes 0.353553"),
}


class Uses(nn.Module):
    """Computes with the number of its own features."""

    def __init__(self, use: Callable[[Tensor, int], Tensor]) -> None:
        super().__init__()
        self.use = use
        self.a, self.b = nn.Linear(4, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x).relu()
        return self.b(self.use(h, h.shape[1]))


@pytest.mark.parametrize("name", USES)
def test_a_number_that_is_computed_from_a_size(name: str) -> None:
    use, change = USES[name]
    torch.manual_seed(0)
    model, x = Uses(use).eval(), torch.randn(2, 4)
    graph = mk.trace(model, x)
    plan = mk.plan(graph, ratio=0.5)
    assert [each.kind for each in plan.changes] == ["scale"]
    assert change in str(plan.changes[0])

    (axis,) = graph.axes.free
    keep = np.ones(axis.size, dtype=bool)
    keep[list(plan.axes[0].dropped)] = False
    rehearsal = Repair(graph.axes, EditCompiler(graph.axes)).dry_run(attempt_of(axis, plan))
    assert rehearsal.matches_trace
    assert output_error(graph.axes, {axis.term: keep}, plan.edits, rehearsal.scales) < 1e-9
    assert output_error(graph.axes, {axis.term: keep}, plan.edits) > 1e-3  # the old number gives other values

    expected = nn.functional.linear(use(model.a(x).relu()[:, keep], 8), model.b.weight[:, keep], model.b.bias)
    plan.cut(model)
    torch.testing.assert_close(model(x), expected)


def test_sizes_of_what_is_made_of_nothing_are_sizes() -> None:
    class Positions(Uses):
        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            return self.b(h + torch.zeros(h.shape[1]) + torch.full((h.shape[1],), 0.5))

    graph = mk.trace(Positions(USES["added"][0]).eval(), torch.randn(2, 4))
    plan = mk.plan(graph, ratio=0.5)
    assert not plan.changes
    assert [cut.left for cut in plan.axes] == [8]
