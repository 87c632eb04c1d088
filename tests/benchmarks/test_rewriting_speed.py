"""Times of folding batch norms over torchvision's models, against the walks and the arithmetic alone.

Run with `pytest -m nightly tests/benchmarks/test_rewriting_speed.py -s`. CPU time on one thread in one process, the
parties in turn, so that a machine that slows down slows all of them.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.fusion import fuse_conv_bn_weights

from benchmarks.figures import collected
from models.zoo import float_models, zoo_case
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.rewriting.recipes.folding import fold_conv_bn
from modulekg_widgets.engine.tracing.trace import trace_dataflow

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]
ROUNDS = 3
GOALS = {
    "folding / (data-flow walk + arithmetic), zoo": ("×", 2.0, True),
    "the same, slowest model": ("×", 3.0, True),
    "folding / (module walk + arithmetic), zoo": ("×", 20.0, True),
    "folding, zoo": ("s CPU", 30.0, True),
}


class Times(NamedTuple):
    """Seconds for one model: folding it, its data-flow walk, the walk over its modules, the arithmetic."""

    folding: float
    flow: float
    modules: float
    arithmetic: float


@pytest.fixture(scope="module")
def figures() -> Iterator[dict[str, float]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.freeze()  # so that collecting is quick
    yield from collected(GOALS, "rewriting_speed")
    gc.unfreeze()
    torch.set_num_threads(threads)


def cpu_seconds(action: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = action()
    return time.process_time() - start, result


def arithmetic_alone(layer: Any, norm: Any) -> Any:
    """The folded weight and bias as torch computes them, all in float32."""
    with torch.no_grad():
        return fuse_conv_bn_weights(
            layer.weight, layer.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias,
            getattr(layer, "transposed", False),
        )  # fmt: skip


def times(model: nn.Module, args: tuple[Any, ...]) -> Times:
    gc.collect()
    flow, _ = cpu_seconds(lambda: trace_dataflow(model, args))
    modules, _ = cpu_seconds(lambda: walk(model))
    folding, rewrite = cpu_seconds(lambda: fold_conv_bn(model, args))
    rewrite.undo()
    pairs = [(model.get_submodule(layer), model.get_submodule(norm)) for layer, norm in rewrite.pairs]
    arithmetic, _ = cpu_seconds(lambda: [arithmetic_alone(layer, norm) for layer, norm in pairs])
    return Times(folding, flow, modules, arithmetic)


def median(rounds: list[Times]) -> Times:
    return Times(*(statistics.median(values) for values in zip(*rounds, strict=True)))


def test_folding_over_the_zoo(figures: dict[str, float]) -> None:
    zoo: dict[str, Times] = {}
    for name in float_models():
        model, args = zoo_case(name)
        if any(isinstance(module, _BatchNorm) for module in model.modules()):
            times(model, args)  # warm
            zoo[name] = median([times(model, args) for _ in range(ROUNDS)])
    whole = Times(*map(sum, zip(*zoo.values(), strict=True)))
    ratios = {name: one.folding / (one.flow + one.arithmetic) for name, one in zoo.items()}
    for name, ratio in sorted(ratios.items(), key=lambda item: item[1]):
        print(f"{name:<40} {ratio:5.2f}  " + "  ".join(f"{value * 1e3:8.1f}" for value in zoo[name]))
    measured = (
        whole.folding / (whole.flow + whole.arithmetic),
        max(ratios.values()),
        whole.folding / (whole.modules + whole.arithmetic),
        whole.folding,
    )
    figures.update(zip(GOALS, measured, strict=True))
    assert len(zoo) > 70
    assert measured[0] <= GOALS["folding / (data-flow walk + arithmetic), zoo"][1]
