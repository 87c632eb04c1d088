"""Where no shadow can stand for a model: it is looked at itself, put back, and not while others use it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from checks.model_state import unchanged
from modulekg_widgets.engine.errors import ModelInUseError
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Sandbox, run_isolated
from modulekg_widgets.engine.torch_runtime.isolation.shadow import ALL
from torch_runtime.halting import Gate, Halted


class PastSelf(nn.Module):
    """Calls a module that it reaches past self."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(KNOWN.model.linear(x)))


class Register:
    """An object of the user's, which nobody knows how to copy for a look."""

    model: PastSelf


KNOWN = Register()


@pytest.fixture
def past_self() -> Iterator[PastSelf]:
    model = PastSelf()
    KNOWN.model = model
    yield model
    del KNOWN.model


def test_a_model_that_no_shadow_can_stand_for_is_looked_at_and_put_back(past_self: PastSelf) -> None:
    x = torch.randn(3, 4)
    with unchanged(past_self, x):
        graph = mk.trace(past_self, x)
    (note,) = graph.notes
    assert "the model itself ran, and was put back: its code reaches the tensor 'weight' of Linear past self" in note
    assert [operator.name for operator in graph.operators][:2] == ["aten::t", "aten::addmm"]
    assert mk.trace(PastSelf().linear, x).notes == []
    with unchanged(past_self, x):
        assert mk.plan(graph, ratio=0.5).axes
        assert graph.axes.verify().ok


def test_it_is_refused_while_another_thread_runs_it(past_self: PastSelf) -> None:
    gate = Gate()
    x = torch.randn(3, 4)
    past_self.add_module("gate", Halted(gate))
    past_self.register_forward_hook(lambda module, args, output: module.gate(output))
    with (
        gate.held(lambda: past_self(x)),
        unchanged(past_self),
        pytest.raises(ModelInUseError, match="cannot be viewed now: the thread 'worker' runs its forward pass"),
    ):
        mk.trace(past_self, x)
    assert mk.trace(past_self, x).operators


@pytest.mark.parametrize("what", ["tensors were replaced", "parameters were written"])
def test_tensors_that_move_meanwhile_end_such_a_look(past_self: PastSelf, what: str) -> None:
    def leaves(sandbox: Sandbox) -> None:
        sandbox.check(past_self.linear.weight)
        if what == "tensors were replaced":
            past_self.norm.weight = nn.Parameter(torch.ones(6))
        else:
            past_self.norm.weight.data.add_(1)
            with torch.no_grad():
                past_self.norm.weight.add_(1)

    with pytest.raises(ModelInUseError, match=f"its {what} meanwhile"):
        run_isolated(list(past_self.modules()), (), leaves, ALL)


def test_a_hook_that_always_looks_is_refused() -> None:
    model, x = nn.Sequential(nn.Linear(4, 2)), torch.randn(3, 4)
    model[0].register_forward_hook(lambda *_: mk.trace(model, x) and None)
    with unchanged(model, x), pytest.raises(ModelInUseError, match="inside of 4 other views of this thread"):
        mk.trace(model, x)
    model[0]._forward_hooks.clear()
    assert mk.trace(model, x).operators
