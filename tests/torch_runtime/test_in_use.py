"""Cuts, masks and undo write: they refuse, whole, while another thread runs or trains the model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import ModelInUseError
from modulekg_widgets.engine.torch_runtime.look import Stage, look
from modulekg_widgets.engine.torch_runtime.shadow import ALL
from modulekg_widgets.engine.torch_runtime.threads import user_of
from tracing.samples import unchanged


class Halted(nn.Module):
    """Stops inside forward until it may go on."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self.__dict__["gate"] = gate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.gate.wait_inside()
        return x


class Gate:
    """Holds one thread at a place until the body that wants it there is done."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
        self.inside, self.go_on = threading.Event(), threading.Event()

    def wait_inside(self) -> None:
        if threading.current_thread() is self.thread:
            self.inside.set()
            assert self.go_on.wait(60)

    @contextmanager
    def held(self, work: Callable[[], object]) -> Iterator[None]:
        """`work` runs in a thread that stands at the gate while the body runs."""
        self.inside.clear(), self.go_on.clear()
        self.thread = threading.Thread(target=work, name="worker")
        self.thread.start()
        try:
            assert self.inside.wait(60)
            yield
        finally:
            self.go_on.set()
            self.thread.join()


def model_at(gate: Gate) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), Halted(gate), nn.ReLU(), nn.Linear(8, 2))


def in_backward(model: nn.Sequential, gate: Gate) -> None:
    x = model(torch.randn(2, 4))
    handle = model[3].weight.register_hook(lambda _: gate.wait_inside())
    x.sum().backward()
    handle.remove()


def in_a_step(model: nn.Sequential, gate: Gate) -> None:
    class Stops(torch.optim.SGD):
        def step(self, closure: None = None) -> None:  # type: ignore[override]
            gate.wait_inside()

    Stops(model.parameters(), 0.1).step()


@pytest.mark.parametrize("place", ["forward", "backward", "step"])
@pytest.mark.parametrize("what", ["cut", "mask", "undo", "restore"])
def test_a_model_in_use_is_not_changed(what: str, place: str) -> None:
    gate = Gate()
    model, x = model_at(gate), torch.randn(2, 4)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    receipt = None if what in ("cut", "mask") else plan.cut(model)
    works = {
        "forward": lambda: model(x),
        "backward": lambda: in_backward(model, gate),
        "step": lambda: in_a_step(model, gate),
    }
    if place == "backward":
        model[1] = nn.Identity()  # the gate stands in a hook
    change = getattr(plan, what) if receipt is None else (lambda _: getattr(receipt, what)())
    with gate.held(works[place]):
        if place == "backward":
            model[3].weight.grad = None
        with unchanged(model), pytest.raises(ModelInUseError, match=r"the thread 'worker' runs (its|a step of its)"):
            change(model)
    change(model)


def test_other_models_in_other_threads_are_no_matter() -> None:
    gate = Gate()
    busy, model, x = model_at(gate), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(2, 4)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    with gate.held(lambda: busy(x)):
        assert user_of(model.modules()) is None
        assert user_of(busy.modules()) == "the thread 'worker' runs its forward pass"
        plan.cut(model).undo()
    assert user_of(busy.modules()) is None


# ------------------------------------------------------ without a shadow


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
        pytest.raises(ModelInUseError, match="cannot be looked at now: the thread 'worker' runs its forward pass"),
    ):
        mk.trace(past_self, x)
    assert mk.trace(past_self, x).operators


@pytest.mark.parametrize("what", ["tensors were replaced", "parameters were written"])
def test_tensors_that_move_meanwhile_end_such_a_look(past_self: PastSelf, what: str) -> None:
    def leaves(stage: Stage) -> None:
        stage.check(past_self.linear.weight)
        if what == "tensors were replaced":
            past_self.norm.weight = nn.Parameter(torch.ones(6))
        else:
            past_self.norm.weight.data.add_(1)
            with torch.no_grad():
                past_self.norm.weight.add_(1)

    with pytest.raises(ModelInUseError, match=f"its {what} meanwhile"):
        look(list(past_self.modules()), (), leaves, ALL)


def test_a_hook_that_always_looks_is_refused() -> None:
    model, x = nn.Sequential(nn.Linear(4, 2)), torch.randn(3, 4)
    model[0].register_forward_hook(lambda *_: mk.trace(model, x) and None)
    with unchanged(model, x), pytest.raises(ModelInUseError, match="inside of 4 other looks of this thread"):
        mk.trace(model, x)
    model[0]._forward_hooks.clear()
    assert mk.trace(model, x).operators
