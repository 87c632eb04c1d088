"""Operators of a user's own: unknown ones freeze and are listed, a rule or a likeness frees them."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from checks.axes import frozen
from models import seeded

_count = itertools.count()


def custom(fake: bool = True) -> str:
    """A new operator that doubles its input, and its name."""
    name = f"mkgtest::double{next(_count)}"

    @torch.library.custom_op(name, mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x.detach().clone() * 2

    if fake:
        double.register_fake(torch.empty_like)
    return name


class Uses(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(4, 5), nn.Linear(5, 2)
        namespace, _, short = name.partition("::")
        self.__dict__["operator"] = getattr(getattr(torch.ops, namespace), short)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(self.b(self.operator(self.a(x))))


@pytest.mark.parametrize("fake", [True, False])
def test_an_unknown_operator_freezes_what_it_touches_and_is_listed(fake: bool) -> None:
    name = custom(fake)
    graph = mk.trace(seeded(lambda: Uses(name)), torch.randn(2, 3))
    assert graph.traced_on == ("meta" if fake else "real")
    (record,) = graph.unknown
    assert (record.operator, record.module) == (name, "")
    assert "test_registration.py:" in record.source
    assert "mk.axis_rule" in record.remedy
    for weight, dim in (("a.weight", 0), ("b.weight", 1)):
        reason = frozen(graph, weight, dim)
        assert name in reason
        assert "test_registration.py:" in reason
    assert graph.axes["b.weight", 0].frozen is None
    assert graph.axes.verify().ok


def test_a_rule_frees_it() -> None:
    name = custom()

    @mk.axis_rule(name)
    def double(call):  # type: ignore[no-untyped-def]
        return call.axes(call.inputs[0])

    graph = mk.trace(seeded(lambda: Uses(name)), torch.randn(2, 3))
    assert graph.unknown == []
    assert graph.cut_analysis("a.weight", [1]).parameters["b.weight"] == {1: [1]}
    assert graph.axes.verify().ok


def test_a_likeness_frees_it_and_shape_value_and_cost_are_told_in_one_place() -> None:
    name = custom(fake=False)
    mk.axis_rule(name, like="aten::relu", shape=lambda x: tuple(x.shape), flops=lambda x: 3 * x.numel())
    graph = mk.trace(seeded(lambda: Uses(name)), torch.randn(2, 3))
    assert (graph.traced_on, graph.unknown) == ("meta", [])
    assert graph.axes["a.weight", 0].frozen is None
    operator = next(operator for operator in graph.operators if operator.name == name)
    assert operator.flops() == 3 * 2 * 4
    assert graph.flops().unknown == []


def test_a_rule_that_fails_freezes_and_is_listed() -> None:
    name = custom()

    @mk.axis_rule(name)
    def double(call):  # type: ignore[no-untyped-def]
        return call.axes(call.inputs[0])[:1]  # one dimension too few

    graph = mk.trace(seeded(lambda: Uses(name)), torch.randn(2, 3))
    assert [record.operator for record in graph.unknown] == [name]
    assert "its rule failed" in graph.unknown[0].remedy
    assert frozen(graph, "a.weight", 0)


class ThroughNumpy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(4, 5), nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outside = self.a(x).numpy()[:, ::-1].copy()
        return self.c(self.b(torch.from_numpy(outside)))


def test_what_leaves_torch_is_frozen_and_listed() -> None:
    graph = mk.trace(seeded(ThroughNumpy), torch.randn(2, 3))
    assert graph.traced_on == "real"
    assert [record.operator for record in graph.data_dependent] == ["Tensor.numpy"]
    assert "is read by Python code: Tensor.numpy in (root), " in frozen(graph, "a.weight", 0)
    assert "test_registration.py:" in frozen(graph, "a.weight", 0)
    assert "neither parameter nor buffer" in frozen(graph, "b.weight", 1)
    assert graph.axes["c.weight", 1].frozen is None
    assert graph.axes.verify().ok


CELL = """
@mk.axis_rule(name, flops=lambda x: cost)
def doubled(call):
    return call.axes(call.inputs[0])
"""


def test_a_cell_of_a_notebook_may_run_again() -> None:
    name = custom()
    for cost in (5, 7):
        exec(CELL, {"__name__": "__main__", "mk": mk, "name": name, "cost": cost})
        graph = mk.trace(seeded(lambda: Uses(name)), torch.randn(2, 3))
        assert graph.unknown == []
        assert next(operator for operator in graph.operators if operator.name == name).flops() == cost
    exec("mk.axis_rule(name, like='aten::sum')", {"__name__": "__main__", "mk": mk, "name": name})
    assert mk.trace(seeded(lambda: Uses(name)), torch.randn(2, 3)).unknown != []  # a sum has another shape


@pytest.mark.parametrize(("first", "second"), [("theirs", "__main__"), ("__main__", "theirs"), ("theirs", "theirs")])
def test_nobody_replaces_what_another_module_registered(first: str, second: str) -> None:
    name = custom()
    exec(CELL, {"__name__": first, "mk": mk, "name": name, "cost": 5})
    with pytest.raises(mk.ModuleKGError, match="has a rule already"):
        exec(CELL, {"__name__": second, "mk": mk, "name": name, "cost": 7})
    graph = mk.trace(seeded(lambda: Uses(name)), torch.randn(2, 3))
    assert next(operator for operator in graph.operators if operator.name == name).flops() == 5


def test_a_notebook_does_not_replace_a_rule_of_this_project() -> None:
    with pytest.raises(mk.ModuleKGError, match="has a rule already"):
        exec("mk.axis_rule('aten::relu', like='aten::cat')", {"__name__": "__main__", "mk": mk})


def test_bad_registrations_are_refused() -> None:
    with pytest.raises(mk.ModuleKGError, match="has a rule already"):
        mk.axis_rule("aten::relu_", "aten::cat")
    with pytest.raises(mk.ModuleKGError, match="namespace::name"):
        mk.axis_rule("relu")
    with pytest.raises(mk.ModuleKGError, match="did you mean"):
        mk.axis_rule("mkgtest::new", like="aten::max_pol2d")


@pytest.mark.parametrize("like", ["aten::conv2d", "aten::einsum"])
def test_what_torch_runs_as_another_operator_is_told_to_be_named_as_that(like: str) -> None:
    with pytest.raises(mk.ModuleKGError, match=r"graph\.operators shows in its place .*'aten::convolution'"):
        mk.axis_rule("mkgtest::as_composite", like=like)
