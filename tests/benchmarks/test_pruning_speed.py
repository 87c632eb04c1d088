"""Times of planning and cutting, against a forward pass and Torch-Pruning, and of the models that come out.

Run with `pytest -m nightly tests/benchmarks/test_pruning_speed.py -s`.

CPU time on one thread in one process, which is the latency of an idle core; the parties in turn, so that a machine
that slows down slows all of them.
"""

from __future__ import annotations

import copy
import gc
import itertools
import statistics
import time
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models import transformers_models
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]
ROUNDS = 7
FORWARDS = 3.0  # passes that a plan and its cut may take
THEIRS = 0.5  # of Torch-Pruning's time
# of the original's latency, for a quarter of its FLOPs: what is left is memory, norms and activations
FASTER = 0.5
# Torch-Pruning takes half a minute for densenet201
FEWER = {"densenet201": 5}

SMALL = 5.0  # seconds for a model below 5 M parameters

Args = tuple[torch.Tensor, ...]
Table = list[tuple[str, str, str]]


@pytest.fixture(scope="module")
def table() -> Iterator[Table]:
    """Rows of (measure, value, goal), printed at the end."""
    rows: Table = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield rows
    torch.set_num_threads(threads)
    print(f"\n{'measure':<52} {'median (range)':<60} goal")
    for measure, value, goal in rows:
        print(f"{measure:<52} {value:<60} {goal}")


def image_model(name: str, batch: int = 1) -> tuple[nn.Module, Args]:
    torch.manual_seed(0)
    return torchvision_builders()[name]().eval(), (torch.randn(batch, 3, 224, 224),)


def cpu_seconds(action: Callable[[], object]) -> float:
    gc.collect()
    start = time.process_time()
    action()
    return time.process_time() - start


def forward(model: nn.Module, args: Args) -> None:
    with torch.inference_mode():
        model(*args)


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


# -------------------------------------------------------------- what is won


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("name", ["resnet50", "vit_b_16"])
def test_latency_of_the_pruned_model(name: str, batch: int, table: Table) -> None:
    original, args = image_model(name, batch)
    pruned = copy.deepcopy(original)
    plan = mk.plan(mk.trace(pruned, args), ratio=0.5)
    plan.cut(pruned)
    for model in (original, pruned):  # warm
        forward(model, args)
    pairs = [
        (cpu_seconds(lambda: forward(pruned, args)), cpu_seconds(lambda: forward(original, args)))
        for _ in range(ROUNDS)
    ]
    ratios = [after / before for after, before in pairs]
    after, before = (statistics.median(times) * 1e3 for times in zip(*pairs, strict=True))
    flops = plan.flops[1] / plan.flops[0]
    figures = f"{spread(ratios)}, FLOPs {flops:.2f}  {after:.0f} / {before:.0f} ms"
    table.append((f"latency, pruned {name} / original, batch {batch}", figures, f"≤ {FASTER}"))
    assert statistics.median(ratios) <= FASTER


# ------------------------------------------------------------- what it costs


class Ours:
    """The times of tracing, planning and cutting a fresh copy."""

    def __init__(self, model: nn.Module, args: Args) -> None:
        model = copy.deepcopy(model)
        gc.collect()
        times = [time.process_time()]
        graph = mk.trace(model, args)
        times.append(time.process_time())
        plan = mk.plan(graph, ratio=0.5)
        times.append(time.process_time())
        plan.cut(model)
        times.append(time.process_time())
        self.trace, self.plan, self.cut = (end - start for start, end in itertools.pairwise(times))

    @property
    def planned(self) -> float:
        return self.plan + self.cut

    @property
    def whole(self) -> float:
        return self.trace + self.planned


def theirs(model: nn.Module, args: Args) -> float:
    """The time of Torch-Pruning's pruner on a fresh copy, its construction and one step, told what it asks for."""
    tp = pytest.importorskip("torch_pruning")
    model = copy.deepcopy(model)
    head = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    heads = {module: module.num_heads for module in model.modules() if isinstance(module, nn.MultiheadAttention)}

    def prune() -> None:
        pruner = tp.pruner.MagnitudePruner(
            model, args[0], importance=tp.importance.MagnitudeImportance(p=1), pruning_ratio=0.5,
            ignored_layers=[head], num_heads=heads,
        )  # fmt: skip
        pruner.step()

    return cpu_seconds(prune)


def parts(runs: list[Ours]) -> str:
    """The medians of what takes our time."""
    names = ("trace", "plan", "cut")
    return ", ".join(f"{name} {statistics.median(getattr(run, name) for run in runs):.3f}" for name in names)


def test_plan_and_cut_against_a_forward_pass(table: Table) -> None:
    model, args = image_model("resnet152")
    Ours(model, args)  # warm
    forward(model, args)
    pairs = [(Ours(model, args), cpu_seconds(lambda: forward(model, args))) for _ in range(ROUNDS)]
    ratios = [ours.planned / once for ours, once in pairs]
    once = statistics.median(seconds for _, seconds in pairs)
    goal = f"≤ {FORWARDS}"
    figures = f"{spread(ratios)}  {parts([ours for ours, _ in pairs])} / {once:.3f} s"
    table.append(("plan + cut of resnet152 / a forward pass", figures, goal))
    table.append(("the same with its trace", spread([ours.whole / once for ours, once in pairs]), goal))
    assert statistics.median(ratios) <= FORWARDS


@pytest.mark.parametrize("name", ["densenet201", "vit_b_16"])
def test_against_torch_pruning(name: str, table: Table) -> None:
    model, args = image_model(name)
    Ours(model, args)  # warm
    if name not in FEWER:
        theirs(model, args)
    pairs = [(Ours(model, args), theirs(model, args)) for _ in range(FEWER.get(name, ROUNDS))]
    ratios = [ours.whole / other for ours, other in pairs]
    other = statistics.median(seconds for _, seconds in pairs)
    goal = f"≤ {THEIRS}"
    figures = f"{spread(ratios)}  {parts([ours for ours, _ in pairs])} / {other:.3f} s"
    table.append((f"trace + plan + cut of {name} / Torch-Pruning", figures, goal))
    table.append(("the same without the trace", spread([ours.planned / other for ours, other in pairs]), goal))
    assert statistics.median(ratios) <= THEIRS


@pytest.mark.parametrize("name", ["led", "prophetnet", "nemotron", "wavlm", "longformer"])
def test_a_plan_of_a_small_model_that_needs_corrections(table: Table, name: str) -> None:
    pytest.importorskip("transformers")
    model, kwargs = transformers_models.build(name)
    graph = mk.trace(model, (), kwargs)
    seconds = cpu_seconds(lambda: mk.plan(graph, ratio=0.5))
    table.append((f"{name}: plan with corrections", f"{seconds:.2f} s", f"≤ {SMALL} s"))
    assert seconds <= SMALL


@pytest.mark.parametrize("size", [64, 224])
def test_sensitivity_of_every_index(size: int, table: Table) -> None:
    """All axes of resnet18: an index takes less than a forward pass, all of them less than a minute of 2 cores."""
    model, _ = image_model("resnet18")
    x, target = torch.randn(1, 3, size, size), torch.tensor([1])
    graph = mk.trace(model, x)
    with torch.no_grad():
        passes = [cpu_seconds(lambda: model(x)) for _ in range(30)]
    taken = cpu_seconds(lambda: mk.pruning.sensitivity(graph, [(x, target)], nn.functional.cross_entropy))
    indices = sum(axis.size for axis in graph.axes.free)
    ratio = taken / indices / statistics.median(passes)
    table.append(
        (f"sensitivity of resnet18, {size} px", f"{taken:.1f} s, {ratio:.2f} passes an index", "120 s, 1 pass")
    )
    assert taken <= 120
    assert ratio <= 1
