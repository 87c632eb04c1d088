"""Times of a plan against the trace of the same model.

Run with `pytest -m nightly tests/benchmarks/test_plan_speed.py -s`.

CPU time on one thread. A model is traced for the first time, as a user does, then planned at half of its size.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from axes import transformers_models
from axes.zoo import float_models, zoo_case

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]
TIMES, SECONDS = 10, 5.0  # a plan takes at most so many traces, and so long below SMALL parameters
SMALL = 5e6
SHORT = 1.0  # seconds below which a plan may take more traces: each trial of a correction costs a copy of the model


class Row(NamedTuple):
    name: str
    parameters: int
    trace: float
    plan: float

    def __str__(self) -> str:
        return (
            f"{self.name:<34} {self.parameters / 1e6:7.1f} M  trace {self.trace:6.3f} s  plan {self.plan:6.2f} s  "
            f"{self.plan / self.trace:5.1f} x"
        )


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    mk.plan(mk.trace(model, torch.randn(1, 3, 8, 8)), ratio=0.5)  # what is imported late
    yield
    torch.set_num_threads(threads)


def cpu_seconds(action: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    gc.freeze()  # what is there already need not be looked through meanwhile
    try:
        start = time.process_time()
        found = action()
        return time.process_time() - start, found
    finally:
        gc.unfreeze()


def measured(name: str, model: nn.Module, args: Any, kwargs: dict[str, Any]) -> Row:
    trace, graph = cpu_seconds(lambda: mk.trace(model, args, kwargs))
    plan, _ = cpu_seconds(lambda: mk.plan(graph, ratio=0.5))
    return Row(name, sum(p.numel() for p in model.parameters()), trace, plan)


def judged(rows: list[Row]) -> None:
    print()
    for row in sorted(rows, key=lambda row: row.plan / row.trace):
        print(row)
    slow = [str(row) for row in rows if row.parameters < SMALL and row.plan > SECONDS]
    slow += [str(row) for row in rows if row.plan > max(TIMES * row.trace, SHORT)]
    assert not slow, "\n".join(slow)


def test_torchvision() -> None:
    judged([measured(name, *zoo_case(name), {}) for name in float_models()])


def test_transformers() -> None:
    pytest.importorskip("transformers")
    rows = []
    for name in transformers_models.CASES:
        model, kwargs = transformers_models.build(name)
        rows.append(measured(name, model.eval(), (), kwargs))
    judged(rows)
