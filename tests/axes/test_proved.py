"""A plan proves what it uses: axes through operators that no test has proved are verified before it says it runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import modulekg_widgets as mk
from models import seeded
from modulekg_widgets.engine.axes.proof import operator_proofs as proved_module
from modulekg_widgets.engine.axes.proof.operator_proofs import prove, unproved_axes
from modulekg_widgets.engine.axes.terms.call import Call, Dims

_count = itertools.count()


def custom(of: Callable[[Tensor], Tensor]) -> tuple[str, Any]:
    """A new operator, by name and as a function."""
    name = f"mkgproof::own{next(_count)}"

    @torch.library.custom_op(name, mutates_args=())
    def own(x: Tensor) -> Tensor:
        return of(x)

    own.register_fake(torch.empty_like)
    return name, getattr(torch.ops.mkgproof, name.partition("::")[2])


def keep(call: Call) -> Dims:
    """The rule of an operator that treats every index alike."""
    return call.axes(call.inputs[0])


class Hidden(nn.Module):
    """Two hidden widths; an operator works on the first."""

    def __init__(self, of: Any) -> None:
        super().__init__()
        self.of = of
        self.a, self.b, self.c = nn.Linear(3, 8), nn.Linear(8, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.b(self.of(self.a(x))).relu())


def test_a_wrong_rule_of_a_user_is_found_before_the_plan_says_it_runs() -> None:
    name, rolled = custom(lambda x: x + x.roll(1, -1))
    mk.axis_rule(name)(keep)
    model = seeded(lambda: Hidden(rolled))
    graph = mk.trace(model, torch.randn(4, 3))
    assert list(unproved_axes(graph.axes)) == [graph.axes["a.weight", 0]]
    plan = mk.plan(graph, ratio=0.5)
    assert [cut.name for cut in plan.axes] == ["b.out"]
    reason = str(graph.axes["a.weight", 0].frozen)
    assert name in reason
    assert "test_proved.py" in reason
    with pytest.raises(mk.ModuleKGError, match=name):
        mk.plan(graph, per_axis={("a.weight", 0): 0.5})


def test_a_right_rule_of_a_user_is_proved_and_cut(monkeypatch: Any) -> None:
    name, doubled = custom(lambda x: 2 * x)
    mk.axis_rule(name)(keep)
    calls = []
    verify = proved_module.verify
    monkeypatch.setattr(proved_module, "verify", lambda *a, **k: calls.append(k["only"]) or verify(*a, **k))
    graph = mk.trace(seeded(lambda: Hidden(doubled)), torch.randn(4, 3))
    plan = mk.plan(graph, ratio=0.5)
    assert [cut.name for cut in plan.axes] == ["a.out", "b.out"]
    assert plan.notes == ()
    mk.plan(graph, ratio=0.25)
    assert calls == [[graph.axes["a.out"]]]  # once, and of the axes that go through it


def test_a_model_of_proved_operators_is_not_run(monkeypatch: Any) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(proved_module, "verify", never)
    graph = mk.trace(seeded(lambda: Hidden(torch.tanh)), torch.randn(4, 3))
    assert unproved_axes(graph.axes) == {}
    assert mk.plan(graph, ratio=0.5).notes == ()


def test_what_cannot_be_verified_is_told() -> None:
    name, tripled = custom(lambda x: 3 * x)
    mk.axis_rule(name, like="aten::relu")
    with torch.device("meta"):
        model = Hidden(tripled)
    graph = mk.trace(model, torch.randn(4, 3, device="meta"))
    plan = mk.plan(graph, ratio=0.5, importance="random")
    assert [cut.name for cut in plan.axes] == ["a.out", "b.out"]
    (note,) = plan.notes
    assert name in note
    assert "meta device" in note
    assert note in str(plan)
    assert name in plan._repr_html_()
    assert prove(graph.axes) == [note]
