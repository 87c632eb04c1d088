"""A training with a monitor in a process of its own, which prints what it cost in memory: see test_memory.py."""

import argparse
import gc
import json
import os
import tracemalloc
import warnings
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import modulekg_widgets as mk

LAYERS = 8
CALLS = 3 * LAYERS  # of hooks in a step: before and after the forward, and in the backward pass
PAGE = os.sysconf("SC_PAGE_SIZE")


@mk.metric("Raises in the forward", needs="ForwardOutput")
def raises_in_the_forward(y: torch.Tensor) -> torch.Tensor:
    raise ZeroDivisionError("no such number")


@mk.metric("Has no value in the backward", needs="BackwardOutput")
def has_no_value(g: torch.Tensor) -> torch.Tensor:
    raise mk.monitoring.NoValueError("never")


NORMS = ["InputSndNorm", "OutputSndNorm", "OutputGradSndNorm"]
WAYS = {
    "normal": [*NORMS, "WeightGradNorm", "UpdateRatio"],
    "raising": [*NORMS, "Raises in the forward"],
    "reasons": [*NORMS, "Has no value in the backward"],
    "never tracked": NORMS,
}


def resident() -> int:
    """The bytes of this process that lie in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(4, 4) for _ in range(LAYERS)])


def losses(model: nn.Module, steps: int, monitor: mk.Monitor | None, tracks: bool) -> Iterator[float]:
    """Those of SGD, one a step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(1))
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        yield loss.item()
        if monitor is not None and tracks:
            monitor.track(monitor.step)


def count_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


def consumed(found: Iterator[float]) -> float:
    """The last loss."""
    return deque(found, maxlen=1)[0]


def cost(way: str, calls: int, warm_up: int) -> dict[str, Any]:
    """What the monitor of one way cost, in bytes and objects, and what it read."""
    steps, first = calls // CALLS, warm_up // CALLS
    traced_steps = max(steps // 10, 200)
    tracks = way != "never tracked"
    model = net()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with mk.Monitor(model, {nn.Linear: WAYS[way]}) as monitor:
            consumed(losses(model, first, monitor, tracks))
            tensors, before = count_tensors(), resident()
            consumed(losses(model, steps, monitor, tracks))
            grown, tensors = resident() - before, count_tensors() - tensors
            tracemalloc.start()
            consumed(losses(model, traced_steps // 4, monitor, tracks))
            gc.collect()
            traced = tracemalloc.get_traced_memory()[0]
            last = consumed(losses(model, traced_steps, monitor, tracks))
            gc.collect()
            traced = tracemalloc.get_traced_memory()[0] - traced
            tracemalloc.stop()
    total = first + steps + traced_steps // 4 + traced_steps
    plain = net()
    expected = consumed(losses(plain, total, None, False))
    return {
        "grown": grown,
        "traced": traced,
        "tensors": tensors,
        "warnings": [str(warning.message) for warning in said],
        "losses are equal": last == expected,
        "weights are equal": all(map(torch.equal, plain.parameters(), model.parameters())),
        "steps": total,
        "readings": sum(1 for _ in monitor.readings()),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("calls", type=int)
    parser.add_argument("warm_up", type=int)
    parser.add_argument("ways", nargs="+", choices=WAYS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps({way: cost(way, asked.calls, asked.warm_up) for way in asked.ways}))


if __name__ == "__main__":
    main()
