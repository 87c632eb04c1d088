"""What a trace takes in memory beside the graph that it gives, and a shadow beside the modules that it copies.

Run with `pytest -m nightly tests/benchmarks/test_trace_memory.py -s`.

Python's own memory, counted by tracemalloc: each figure is a ratio within one run. Data of tensors and what torch keeps
in C++ are not in it.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from benchmarks.figures import Goal, collected
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import run_isolated

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
MODULES = 3000
GRAPH, MODEL = "% of the graph", "% of the model"
GOALS: dict[str, Goal] = {
    "peak of a trace, resnet152": (GRAPH, 175, True),
    "peak of a trace, vit_b_16": (GRAPH, 145, True),
    "peak of a trace, densenet201": (GRAPH, 175, True),
    "peak of a trace, mobilenet_v3_large": (GRAPH, 210, True),
    "peak of a trace, 3000 small modules": (GRAPH, 190, True),
    "a shadow of 3000 small modules": (MODEL, 60, True),
}


@pytest.fixture(scope="module")
def measured() -> Iterator[dict[str, float]]:
    """Values by the names of GOALS."""
    yield from collected(GOALS, "trace-memory")


class Small(nn.Module):
    """A module with one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def narrow() -> nn.Module:
    return nn.Sequential(*(Small() for _ in range(MODULES)))


def traced_bytes(make: Callable[[], Any]) -> tuple[int, int]:
    """What a call takes at its peak, and what it leaves."""
    gc.collect()
    tracemalloc.start()
    try:
        result = make()
        _, peak = tracemalloc.get_traced_memory()
        gc.collect()
        stays, _ = tracemalloc.get_traced_memory()
        del result
    finally:
        tracemalloc.stop()
    return peak, stays


@pytest.mark.parametrize("name", ["resnet152", "vit_b_16", "densenet201", "mobilenet_v3_large"])
def test_a_trace_takes_little_beside_its_graph(name: str, measured: dict[str, float]) -> None:
    size = 224 if name == "vit_b_16" else 64
    _peak_of(f"peak of a trace, {name}", torchvision_builders()[name]().eval(), torch.randn(1, 3, size, size), measured)


def test_a_trace_of_many_modules_takes_little_beside_its_graph(measured: dict[str, float]) -> None:
    _peak_of(f"peak of a trace, {MODULES} small modules", narrow(), torch.randn(1, 4), measured)


def _peak_of(measure: str, model: nn.Module, x: torch.Tensor, measured: dict[str, float]) -> None:
    mk.trace(model, x)  # what the process keeps of a first trace
    peak, graph = traced_bytes(lambda: mk.trace(model, x))
    measured[measure] = 100 * peak / graph
    assert measured[measure] <= GOALS[measure][1]


def test_a_shadow_takes_less_than_the_modules_that_it_copies(measured: dict[str, float]) -> None:
    measure = f"a shadow of {MODULES} small modules"
    narrow()
    _, original = traced_bytes(narrow)
    model = narrow()
    modules = [*model.modules()]
    run_isolated(modules, (), lambda sandbox: None)
    shadow: list[int] = []
    before: list[int] = []

    def run(sandbox: Any) -> None:
        gc.collect()
        shadow.append(tracemalloc.get_traced_memory()[0] - before[0])

    gc.collect()
    tracemalloc.start()
    try:
        before.append(tracemalloc.get_traced_memory()[0])
        run_isolated(modules, (), run)
    finally:
        tracemalloc.stop()
    measured[measure] = 100 * shadow[0] / original
    assert measured[measure] <= GOALS[measure][1]
