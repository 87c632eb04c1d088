"""Looks beside a thread that trains the model: its losses are those of a twin that nobody looked at."""

from __future__ import annotations

import copy
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import modulekg_widgets as mk
from modulekg_widgets.engine.playback.player import Playback
from modulekg_widgets.engine.pruning.plan.corrections import repair_loop
from modulekg_widgets.engine.pruning.plan.dry_run.dry_run import dry_run
from modulekg_widgets.engine.rewriting.function_modules.recording import record_functions
from sampling import sampled
from torch_runtime.training import net_and_input, training_beside

TARGETS = torch.tensor([0, 3])
OTHER = net_and_input()[0]  # made before a training draws


def batches(x: torch.Tensor) -> list[Any]:
    return [(x, TARGETS)]


class Slow:
    """Batches as of files: they take a while, and another thread trains meanwhile."""

    def __init__(self, x: torch.Tensor) -> None:
        self.batch = (x, TARGETS)

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[Any]:
        for _ in range(2):
            time.sleep(0.01)
            yield self.batch


def sensitivity(graph: Any, batches: Any) -> object:
    return mk.pruning.sensitivity(graph, batches, nn.functional.cross_entropy, axes=["inner.0.out"])


def recalibrated(x: torch.Tensor) -> None:
    """Another model is cut meanwhile."""
    other = copy.deepcopy(OTHER)
    mk.plan(mk.trace(other, x), ratio=0.5).cut(other, recalibrate=(x for x, _ in Slow(x)))


def edits(model: nn.Module, graph: Any, x: torch.Tensor) -> None:
    """The editor's check of a draft."""
    editor = mk.MaskEditor(model, x)
    editor.plan = mk.plan(graph, per_axis={"inner.0.out": [1, 2]})


Look = Callable[[nn.Module, Any, torch.Tensor], object]
LOOKS: dict[str, Look] = {
    "trace": lambda model, graph, x: len(mk.trace(model, x).axes),
    "trace in eval mode": lambda model, graph, x: mk.trace(model, x, training=False),
    "plan": lambda model, graph, x: mk.plan(graph, ratio=0.5),
    "verify": lambda model, graph, x: graph.axes.verify(),
    "ModelGraph": lambda model, graph, x: mk.ModelGraph(model, x),
    "MaskEditor": edits,
    "player": lambda model, graph, x: Playback(model, x),
    "function modules": lambda model, graph, x: record_functions(model, (x,), None),
    "Taylor": lambda model, graph, x: mk.plan(
        graph, ratio=0.5, importance=mk.pruning.Taylor(batches(x), nn.functional.cross_entropy)
    ),
    "Activation": lambda model, graph, x: mk.plan(graph, ratio=0.5, importance=mk.pruning.Activation([x])),
    "Hessian": lambda model, graph, x: mk.plan(
        graph, ratio=0.5, importance=mk.pruning.Hessian(batches(x), nn.functional.cross_entropy)
    ),
    "sensitivity": lambda model, graph, x: sensitivity(graph, Slow(x)),
    "sensitivity of what is drawn": lambda model, graph, x: sensitivity(
        graph, DataLoader(list(zip(x, TARGETS, strict=True)), batch_size=2, shuffle=True)
    ),
    "recalibration of another model": lambda model, graph, x: recalibrated(x),
    "ForwardPlayer": lambda model, graph, x: mk.ForwardPlayer(model, x),
}


@pytest.mark.parametrize("times", [6, pytest.param(200, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])])
@pytest.mark.parametrize("name", sampled(LOOKS, set(LOOKS) - {"Activation", "Taylor"}))
def test_the_losses_are_those_of_a_twin(name: str, times: int) -> None:
    model, x = net_and_input()
    graph = mk.trace(model, x)
    with training_beside(model) as training:
        for looks in itertools.count():
            if looks >= times and len(training.losses) > 2:
                break
            LOOKS[name](model, graph, x)


def test_the_check_sees_a_look_that_writes() -> None:
    model, x = net_and_input()

    def look_that_writes() -> None:
        with training_beside(model) as training, torch.no_grad():
            while len(training.losses) < 3:  # on a busy machine twenty looks can end before the first step
                model(x)  # counts batches, and draws

    with pytest.raises(AssertionError, match="the losses of the training differ"):
        look_that_writes()


@pytest.mark.slow
def test_four_threads_that_plan_at_once() -> None:
    model, x = net_and_input()
    expected = mk.plan(mk.trace(model, x), ratio=0.5)
    found: list[Any] = []

    def look() -> None:
        try:
            found.extend(mk.plan(mk.trace(model, x), ratio=0.5) for _ in range(5))
        except BaseException as error:  # noqa: BLE001 - told below
            found.append(error)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    assert all(plan.axes == expected.axes and plan.edits.attributes == expected.edits.attributes for plan in found)


class Counted(nn.Module):
    """The name of a size, and beside it a number that another thread counts up."""

    def __init__(self) -> None:
        super().__init__()
        self.width = self.count = 8
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x).view(-1, self.width))


def test_a_number_that_moves_while_a_plan_is_made_is_no_size(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Counted(), torch.randn(3, 4)
    graph = mk.trace(model, x)

    def counting(*args: Any) -> Any:
        model.count += 1
        return dry_run(*args)

    monkeypatch.setattr(repair_loop, "dry_run", counting)
    for start in range(1, 9):  # at one of these dry runs the count is the width
        model.count = start
        plan = mk.plan(graph, ratio=0.5)
        assert plan.edits.attributes["width"] == (8, 4)
        assert "count" not in plan.edits.attributes
