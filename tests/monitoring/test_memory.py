"""What a monitor keeps: nothing of the graph, no tensor but its ring and declared copies, no growth with the steps."""

import gc
import json
import os
import subprocess
import sys
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models.functional import Lambda
from monitoring.surroundings import hook_count, tensors_alive

RUN = Path(__file__).with_name("memory_run.py")
LIMIT = 0.5 * 1024 * 1024  # bytes
LAYERS = 8  # those of the run
READINGS = {  # per step of each layer, and once for each layer
    "normal": (5, 0),
    "raising": (3, 1),
    "reasons": (4, 0),
    "never tracked": (0, 0),
}


@pytest.fixture(scope="module", autouse=True)
def _only_new_objects_are_looked_at() -> Iterator[None]:
    """The collector takes seconds for what torch and the other tests left."""
    with mk.Monitor(nn.Linear(1, 1), {"": ["InputSndNorm"]}) as monitor:  # imports what there is to import
        monitor.track(0)
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def costs(calls: int, warm_up: int, ways: list[str], seconds: int) -> dict[str, dict[str, Any]]:
    """What the ways cost, in a fresh process."""
    command = [sys.executable, str(RUN), str(calls), str(warm_up), *ways]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(found: dict[str, dict[str, Any]]) -> None:
    for way, cost in found.items():
        assert cost["grown"] <= LIMIT, (way, cost)
        assert cost["traced"] <= LIMIT, (way, cost)
        assert cost["tensors"] == 0, (way, cost)
        assert len(cost["warnings"]) == (way in ("raising", "reasons")), (way, cost)
        assert cost["losses are equal"], way
        assert cost["weights are equal"], way
        per_step, once = READINGS[way]
        assert cost["readings"] == LAYERS * (per_step * cost["steps"] + once), (way, cost)


@pytest.mark.nightly
def test_50_000_hook_calls() -> None:
    check(costs(50_000, 10_000, ["normal", "raising"], 250))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", READINGS)
def test_1_000_000_hook_calls(way: str) -> None:
    check(costs(1_000_000, 50_000, [way], 3500))


# ------------------------------------------------------------------ tensors and graphs


class Marked(torch.autograd.Function):
    """A node of the graph that can be followed: it holds a token, which dies with it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, token: object) -> torch.Tensor:
        ctx.token = token
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0] * 2, None


class Token:
    pass


class InPlaceMLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.relu = nn.ReLU(inplace=True)
        self.last = nn.Linear(4, 4)
        self.seen: list[weakref.ref[Any]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        token = Token()
        h = Marked.apply(self.first(x), token)
        y = self.last(self.relu(h))
        self.seen = [weakref.ref(thing) for thing in (x, h, y, token)]
        return y

    def alive(self) -> int:
        return sum(ref() is not None for ref in self.seen)


STAGES = {
    "before": ["InputSndNorm", "InputMean", "InputCovMaxEig"],
    "after": ["OutputSndNorm", "RankMe", "DeadNeuronFraction", "OutputHistogram"],
    "backward": ["OutputGradSndNorm", "InputGradSndNorm"],
    "track": ["WeightGradNorm", "WeightNorm"],
}


@pytest.fixture
def _no_collector() -> Iterator[None]:
    """Everything must be freed by itself, at once."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("backward", [True, False])
@pytest.mark.parametrize("stage", [*STAGES, "all"])
@pytest.mark.slow
def test_a_graph_and_its_activations_are_freed_within_the_step(stage: str, backward: bool) -> None:
    model = InPlaceMLP()
    metrics = [name for names in STAGES.values() for name in names] if stage == "all" else STAGES[stage]
    with mk.Monitor(model, {"*": metrics}) as monitor:
        for step in range(2):
            y = model(torch.randn(6, 4, requires_grad=True))
            if backward:
                y.sum().backward()
            assert model.alive() > 0
            del y
            assert model.alive() == 0  # before `track`
            monitor.track(step)


@pytest.mark.usefixtures("_no_collector")
def test_what_waits_for_the_gradient_is_freed_with_the_graph() -> None:
    model = InPlaceMLP()
    with mk.Monitor(model, {"Linear": ["GradientNoiseScale"]}) as monitor:
        for backward in (True, False):
            y = model(torch.randn(6, 4))
            if backward:
                y.sum().backward()
            del y
            assert model.alive() == 0
            monitor.track(monitor.step)


@pytest.mark.usefixtures("_no_collector")
def test_a_forward_that_failed_keeps_nothing() -> None:
    model = nn.Sequential(InPlaceMLP(), nn.Linear(5, 5))  # the second does not fit
    with mk.Monitor(model, {"*": ["InputSndNorm", "InputGradSndNorm", "OutputGradSndNorm"]}):
        with pytest.raises(RuntimeError):
            model(torch.randn(6, 4, requires_grad=True))
        assert model[0].alive() == 0


def test_a_monitor_that_is_never_told_of_a_step_keeps_a_bounded_number_of_values() -> None:
    model, x = nn.Linear(4, 4), torch.randn(6, 4)
    with mk.Monitor(model, {"": ["InputSndNorm", "OutputGradSndNorm"]}):
        counts = []
        for _ in range(4):
            for _ in range(100):
                model(x).sum().backward()
            counts.append(tensors_alive())
    assert counts == [counts[0]] * 4


def copies(metric: str) -> int:
    """The tensors that stay between two steps."""
    model = nn.Linear(4, 4)

    def step() -> None:
        model.zero_grad()
        model(torch.randn(6, 4)).sum().backward()
        assert model.weight.grad is not None  # looked at, it is an object that lives with the tensor

    step()
    before = tensors_alive()
    with mk.Monitor(model, {"": [metric]}) as monitor, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counts = []
        for number in range(4):
            step()
            monitor.track(number)
            counts.append(tensors_alive() - before)
    assert tensors_alive() == before
    assert counts[1:] == [counts[-1]] * 3
    return counts[-1]


ONE_STEP = ["InputSndNorm", "OutputGradSndNorm", "InputGradSndNorm", "WeightGradNorm", "RankMe", "NonFiniteOrigin"]


@pytest.mark.parametrize("metric", ONE_STEP)
def test_no_tensor_outlives_a_step(metric: str) -> None:
    assert copies(metric) == 0


@pytest.mark.parametrize("metric", ["UpdateRatio", "WeightParamJump"])
def test_a_declared_copy_is_one_tensor_and_goes_with_the_end(metric: str) -> None:
    assert copies(metric) == 1


def test_a_window_keeps_its_state_and_no_activation() -> None:
    model = InPlaceMLP()
    with mk.Monitor(model, {"relu": [["DeadNeuronFraction", "window(3,4)"]]}) as monitor:
        for step in range(4):
            model(torch.randn(6, 4)).sum().backward()
            monitor.track(step)
            gc.collect()
            assert model.alive() == 0


def test_a_parameter_that_a_module_returns_gathers_no_hooks() -> None:
    prompt = Lambda(lambda m, x: m.weight, weight=nn.Parameter(torch.ones(4)))
    model, leaf = nn.ModuleList([prompt, nn.Identity()]), torch.ones(4, requires_grad=True)
    with mk.Monitor(model, {"*": ["OutputGradSndNorm", "InputGradSndNorm"]}) as monitor:
        for step in range(3):
            (model[0](leaf) * model[1](leaf) * 3).sum().backward()
            monitor.track(step)
            for tensor in (leaf, model[0].weight):
                assert len(tensor._backward_hooks or ()) <= 1
    assert not leaf._backward_hooks
    assert not model[0].weight._backward_hooks
    assert list(monitor.get_output()["0"]["OutputGradSndNorm"].values()) == pytest.approx([6.0] * 3)
    assert list(monitor.get_output()["1"]["OutputGradSndNorm"].values()) == pytest.approx([6.0] * 3)
    assert hook_count() == 0
