"""Cuts, masks and undo write: they refuse, whole, while another thread runs or trains the model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from checks.model_state import unchanged
from modulekg_widgets.engine.errors import ModelInUseError
from modulekg_widgets.engine.torch_runtime.threads import current_use
from torch_runtime.halting import Gate, Halted


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
        assert current_use(model.modules()) is None
        assert current_use(busy.modules()) == "the thread 'worker' runs its forward pass"
        plan.cut(model).undo()
    assert current_use(busy.modules()) is None


# ------------------------------------------------------ between two passes


class Trainer:
    """Knows the model as an attribute only."""

    def __init__(self, model: nn.Module, work: Callable[[], object]) -> None:
        self.model, self.work = model, work

    def run(self) -> None:
        self.work()


def with_a_local(model: nn.Module, work: Callable[[], object]) -> None:
    work()
    assert model is not None


def with_a_parameter(model: nn.Module, work: Callable[[], object]) -> None:
    parameters = list(model.parameters())
    bias = parameters[-1]
    del model, parameters
    work()
    assert bias is not None


def with_an_optimizer(model: nn.Module, work: Callable[[], object]) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    del model
    work()
    assert optimizer is not None


def with_a_wrapper(model: nn.Module, work: Callable[[], object]) -> None:
    wrapped = nn.Sequential(model)
    del model
    work()
    assert wrapped is not None


def with_a_global(model: nn.Module, work: Callable[[], object]) -> None:
    """As the code of a notebook's cell."""
    names = {"net": model, "work": work}
    del model
    exec("def train():\n    work()\n    return net\n", names)
    train = names.pop("train")
    train()  # type: ignore[operator]


KNOWERS: dict[str, Callable[[nn.Module, Callable[[], object]], object]] = {
    "local": with_a_local,
    "parameter": with_a_parameter,
    "optimizer": with_an_optimizer,
    "wrapper": with_a_wrapper,
    "global": with_a_global,
    "attribute": lambda model, work: Trainer(model, work).run(),
}


def plain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    thread = threading.Thread(target=work, name="worker")
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.parametrize("knower", KNOWERS.values(), ids=KNOWERS)
def test_a_thread_that_trains_is_at_work_between_its_passes_too(
    knower: Callable[[nn.Module, Callable[[], object]], object],
) -> None:
    model = plain()
    plan = mk.plan(mk.trace(model, torch.randn(2, 4)), ratio=0.5)
    begun, ended = threading.Event(), threading.Event()

    def prepares_a_batch() -> None:
        begun.set()
        while not ended.is_set():
            sum(range(1000))

    with beside(partial(knower, model, prepares_a_batch)):
        assert begun.wait(60)
        try:
            with unchanged(model), pytest.raises(ModelInUseError, match="the thread 'worker' is at work on it"):
                plan.cut(model)
        finally:
            ended.set()
    plan.cut(model).undo()


@pytest.mark.parametrize("knower", KNOWERS.values(), ids=KNOWERS)
@pytest.mark.slow
def test_a_thread_that_waits_leaves_the_model_alone(
    knower: Callable[[nn.Module, Callable[[], object]], object],
) -> None:
    """A loop that takes turns with the cut, by a lock or by asking again and again."""
    model = plain()
    plan = mk.plan(mk.trace(model, torch.randn(2, 4)), ratio=0.5)
    lock, begun, ended = threading.Lock(), threading.Event(), threading.Event()

    def waits() -> None:
        begun.set()
        with lock:
            pass
        while not ended.wait(0.01):
            pass

    lock.acquire()
    with beside(partial(knower, model, waits)):
        assert begun.wait(60)
        try:
            plan.cut(model).undo()
            lock.release()
            plan.cut(model).undo()
        finally:
            ended.set()


class Unmade(nn.Module):
    """A module without `super().__init__()`."""

    def __init__(self) -> None:
        pass


class Unbound:
    """A stand-in for what is not there."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise RuntimeError("unbound")


def test_what_other_threads_have_at_hand_is_looked_at_with_care() -> None:
    model = plain()
    plan = mk.plan(mk.trace(model, torch.randn(2, 4)), ratio=0.5)
    begun, ended = threading.Event(), threading.Event()
    around = nn.Sequential()
    around.add_module("around", around)

    def work(unmade: nn.Module, unbound: object, circle: nn.Module, slots: object) -> None:
        begun.set()
        while not ended.is_set():
            sum(range(1000))

    with beside(partial(work, Unmade(), Unbound(), around, object())):
        assert begun.wait(60)
        try:
            plan.cut(model).undo()
        finally:
            ended.set()


def test_a_thread_at_work_on_another_model_is_no_matter() -> None:
    model, other = plain(), plain()
    plan = mk.plan(mk.trace(model, torch.randn(2, 4)), ratio=0.5)
    ended = threading.Event()

    def train() -> None:
        optimizer = torch.optim.SGD(other.parameters(), 0.1)
        while not ended.is_set():
            optimizer.zero_grad()
            other(torch.randn(2, 4)).sum().backward()
            optimizer.step()

    with beside(train):
        try:
            plan.cut(model).undo()
        finally:
            ended.set()


def test_a_training_is_never_cut() -> None:
    """Wherever its thread stands when it is tried: the losses go on, and all tries are refused."""
    model = plain()
    plan = mk.plan(mk.trace(model, torch.randn(2, 4)), ratio=0.5)
    losses: list[float] = []
    failures: list[RuntimeError] = []
    ended = threading.Event()

    def train() -> None:
        optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
        try:
            while not ended.is_set():
                loss = model(torch.randn(16, 4)).square().mean()
                optimizer.zero_grad()
                losses.append(loss.item())
                sum(range(20_000))  # what people do with a loss before they go back
                loss.backward()
                optimizer.step()
        except RuntimeError as error:
            failures.append(error)

    with beside(train):
        try:
            for _ in range(60):
                with pytest.raises(ModelInUseError):
                    plan.cut(model)
        finally:
            ended.set()
    assert failures == []
    assert losses
