"""Modules that lie, raise and repeat themselves under a monitor: none is touched, and no hook is left anywhere."""

import gc
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from cases.nasty_modules import NASTY
from models.nasty import nasty_module
from modulekg_widgets.engine.monitoring.hooks.observation import first_tensor
from modulekg_widgets.engine.monitoring.metrics import METRICS
from monitoring.surroundings import contents, hook_count, identities, own_metrics, process_state

# some of each stage: before the forward, after it, in the backward pass, at `track`
STAGES = {
    "before": ["InputSndNorm", "InputStd"],
    "after": ["OutputSndNorm", "RankMe", "DeadNeuronFraction", "AttentionEntropy", "NonFiniteOrigin"],
    "backward": ["OutputGradSndNorm", "InputGradSndNorm", "GradientNoiseScale"],
    "track": ["WeightNorm", "WeightGradNorm", "UpdateRatio", "WeightParamJump", "WeightStatistic"],
}
HANDFUL = [name for names in STAGES.values() for name in names]
SECONDS = 5.0  # that an entry may take, or 20 where it says that it is slow
NAMES = [pytest.param(name, marks=[pytest.mark.nightly] * NASTY[name]["slow"]) for name in sorted(NASTY)]


@pytest.fixture(autouse=True)
def _the_process_is_as_before() -> Iterator[None]:
    torch.manual_seed(0)
    before = process_state()
    with own_metrics():
        yield
    after = process_state()
    assert {**after, "random": 0} == {**before, "random": 0}


def run(model: nn.Module, inputs: tuple[Any, ...], monitor: mk.Monitor | None) -> list[Any]:
    """Two steps of forward and backward; what they gave, errors by their kind."""
    found: list[Any] = []
    for step in range(2):
        try:
            y = first_tensor(model(*inputs))
            found.append(None if y is None else y.detach().numpy().tobytes())
            if y is not None and y.requires_grad:
                y.sum().backward()
        except Exception as error:  # noqa: BLE001 - whatever the model raises, it must raise with and without
            found.append((type(error), str(error)))
        if monitor is not None:
            monitor.track(step)
    return found


def inputs_of(name: str) -> tuple[Any, ...] | None:
    torch.manual_seed(1)
    return NASTY[name]["inp"]()


def twin(name: str) -> nn.Module:
    torch.manual_seed(3)
    return nasty_module(name)


@pytest.mark.parametrize("name", NAMES)
def test_each_is_watched_and_not_touched(name: str) -> None:
    inputs = inputs_of(name)
    plain, watched = twin(name), twin(name)
    torch.manual_seed(2)
    expected = [] if inputs is None else run(plain, inputs, None)
    random_after = torch.get_rng_state()

    torch.manual_seed(2)
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        monitor = mk.Monitor(watched, {"*": HANDFUL[:2] if NASTY[name]["slow"] else HANDFUL})
        before = identities(watched)
        monitor.start()
        monitor.track(0)
        monitor.stop()
        assert identities(watched) == before
        with monitor:
            got = [] if inputs is None else run(watched, inputs, monitor)
    assert time.process_time() - begin < (20.0 if NASTY[name]["slow"] else SECONDS)
    assert got == expected
    assert torch.equal(torch.get_rng_state(), random_after)
    assert contents(watched) == contents(plain)
    assert hook_count() == 0
    monitor.get_output()
    monitor.frame()
    assert set(monitor.reasons) <= {(one.path, one.name) for one in monitor._metrics}


@pytest.mark.parametrize("name", ["shared_submodule", "cycle_through_child", "slots", "getattr_raises_keyerror"])
def test_values_of_hostile_modules_are_right(name: str) -> None:
    model, x = nasty_module(name), torch.randn(2, 4)
    with mk.Monitor(model, {"": ["InputSndNorm", "OutputSndNorm"]}) as monitor:
        y = model(x)
        monitor.track(0)
    values = monitor.get_output()[""]
    assert values["InputSndNorm"][0] == pytest.approx(np.linalg.norm(x.numpy()), rel=1e-5)
    assert values["OutputSndNorm"][0] == pytest.approx(np.linalg.norm(y.detach().numpy()), rel=1e-5)


def test_all_names_reach_the_output_as_they_are() -> None:
    model = nasty_module("hostile_names")
    with mk.Monitor(model, {"Identity": ["OutputSndNorm"]}) as monitor:
        model(torch.ones(2, 4))
        monitor.track(0)
    assert set(monitor.get_output()) == set(model._modules)
    assert len(monitor.frame()) == len(model._modules)


@pytest.mark.filterwarnings("ignore:the metric GradientNoiseScale")
def test_a_forward_that_fails_leaves_no_call_open() -> None:
    model = nasty_module("forward_raises")
    with mk.Monitor(model, {"*": HANDFUL}) as monitor:
        for step in range(3):
            with pytest.raises(ValueError, match="bad batch"):
                model(torch.randn(3, 4))
            x = torch.randn(2, 4)
            model(x).sum().backward()
            monitor.track(step)
            latest = monitor.get_output()["l"]["InputSndNorm"][step]
            assert latest == pytest.approx(np.linalg.norm(x.numpy()), rel=1e-5)
    assert hook_count() == 0


# ------------------------------------------------------------------ what ends a training


class Interrupted(torch.autograd.Function):
    """Raises in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, error: type[BaseException]) -> torch.Tensor:
        ctx.error = error
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, None]:
        raise ctx.error


class Fragile(nn.Module):
    """Attention and linear layers, that ends in an error at a chosen place."""

    def __init__(self, place: str = "", error: type[BaseException] = RuntimeError) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.attention = nn.MultiheadAttention(8, 2)
        self.last = nn.Linear(8, 8)
        self.place, self.error = place, error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        h = self.attention(h, h, h)[0]
        if self.place == "forward":
            raise self.error
        if self.place == "backward":
            h = Interrupted.apply(h, self.error)
        return self.last(h)


def end_by_hook(model: Fragile) -> None:
    def fail(*_: Any) -> None:
        raise model.error

    if model.place == "hook":
        model.attention.register_forward_hook(fail)
    if model.place == "pre-hook":
        model.attention.register_forward_pre_hook(fail)
    if model.place == "gradient hook":
        model.last.weight.register_hook(fail)


PLACES = ["", "forward", "backward", "hook", "pre-hook", "gradient hook", "between"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, torch.OutOfMemoryError])
@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_left_after_the_end(place: str, error: type[BaseException]) -> None:
    model = Fragile(place, error)
    end_by_hook(model)
    before = process_state()
    steps = 0
    with suppress(error), mk.Monitor(model, {"*": HANDFUL}) as monitor, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for steps in range(2):
            model(torch.randn(3, 2, 8)).sum().backward()
            if place == "between":
                raise error
            monitor.track(steps)
    assert (steps == 1) == (place == "")
    assert hook_count() == 0
    assert {**process_state(), "random": 0} == {**before, "random": 0}
    assert not monitor.is_running


def test_an_interrupt_that_is_caught_within_the_monitor_leaves_the_modes_alone() -> None:
    """What a notebook does: the cell is interrupted, and the next one trains on."""
    model = Fragile("forward", KeyboardInterrupt)
    before = process_state()
    monitor = mk.Monitor(model, {"*": ["AttentionEntropy", "OutputSndNorm"]})
    monitor.start()
    with pytest.raises(KeyboardInterrupt):
        model(torch.randn(3, 2, 8))
    model.place = ""
    model(torch.randn(3, 2, 8)).sum().backward()
    monitor.track(0)
    monitor.stop()
    assert {**process_state(), "random": 0} == {**before, "random": 0}


@pytest.mark.slow
def test_an_interrupted_call_keeps_nothing_alive_after_the_next_step() -> None:
    model = Fragile("forward", KeyboardInterrupt)
    x = torch.randn(3, 2, 8)
    alive = weakref.ref(x)
    with mk.Monitor(model, {"*": HANDFUL}) as monitor, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(KeyboardInterrupt):
            model(x)
        monitor.track(0)
        del x
        gc.collect()
        assert alive() is None


def start_and_forget(model: nn.Module) -> None:
    monitor = mk.Monitor(model, {"*": HANDFUL})
    monitor.start()
    model(torch.randn(3, 2, 8))


def enter_and_forget(model: nn.Module) -> None:
    monitor = mk.Monitor(model, {"*": HANDFUL})
    monitor.__enter__()
    model(torch.randn(3, 2, 8)).sum().backward()
    monitor.track(0)
    del monitor


@pytest.mark.parametrize("forget", [start_and_forget, enter_and_forget])
def test_a_forgotten_monitor_takes_its_hooks_away(forget: Callable[[nn.Module], None]) -> None:
    model = Fragile()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forget(model)
    assert hook_count() == 0  # at once, without waiting for the garbage collector


@pytest.mark.slow
def test_a_forgotten_monitor_is_freed_with_its_model() -> None:
    model = Fragile()
    gone = weakref.ref(model)
    start_and_forget(model)
    del model
    gc.collect()
    assert gone() is None


def failing(stage: str) -> str:
    """The name of a metric of this stage that raises."""
    needs = {"before": "ForwardInput", "after": "ForwardOutput", "backward": "BackwardOutput", "track": "WeightGrad"}
    if "Failing" not in METRICS:

        @mk.metric("Failing", needs=needs[stage])
        def fail(tensor: torch.Tensor) -> torch.Tensor:
            raise ZeroDivisionError("no such number")

    return "Failing"


@pytest.mark.parametrize("filters", ["always", "error"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_metric_that_fails_leaves_the_training_alone(stage: str, filters: str) -> None:
    def losses(monitored: bool) -> list[float]:
        torch.manual_seed(0)
        model, found = Fragile(), []
        with mk.Monitor(model, {"*": [failing(stage), "OutputSndNorm"]} if monitored else {}) as monitor:
            for step in range(3):
                loss = model(torch.randn(3, 2, 8)).square().sum()
                loss.backward()
                found.append(loss.item())
                monitor.track(step)
        if monitored:
            values = monitor.get_output()["first"]
            assert [np.isnan(value) for value in values[failing(stage)].values()] == [True]
            assert len(values["OutputSndNorm"]) == 3
            assert "no such number" in monitor.reasons["first", failing(stage)]
        return found

    expected = losses(False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter(filters)
        assert losses(True) == expected
    assert len(said) == (filters == "always")
