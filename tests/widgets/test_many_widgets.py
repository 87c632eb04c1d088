"""Widgets opened and closed many times: nothing of them is left in the process."""

from __future__ import annotations

import gc
import json
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from ipywidgets.widgets.widget import _instances
from torch import nn

import modulekg_widgets as mk
from sampling import sampled
from widgets.metric_samples import FakeComm, fake_kernel, measured_run, put

X = torch.ones(2, 4)
FIRST = 10  # openings that fill caches and import modules
MOST = 250_000  # bytes that caches may still take


@pytest.fixture(autouse=True)
def comms(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeComm]]:
    """The comms of a kernel whose pages read no message."""
    for opened in fake_kernel(monkeypatch):
        monkeypatch.setattr(FakeComm, "send", lambda self, data, buffers=None, **given: json.dumps(data))
        yield opened


class Shown(NamedTuple):
    """A widget, and what it must let go of."""

    widget: Any
    seen: list[Any]


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))


def graph() -> Shown:
    model = net()
    return Shown(mk.ModelGraph(model, X), [model])


def editor() -> Shown:
    model = net()
    made = mk.MaskEditor(model, X)
    made.plan = mk.plan(made.graph, ratio=0.5)
    made.mask()
    made.undo()
    made.cut()
    return Shown(made, [model])


def player() -> Shown:
    model = net()
    made = mk.ForwardPlayer(model, X, hide_shapes=True)
    made.run(torch.zeros(3, 4))
    made.step = 2
    return Shown(made, [model])


def panel() -> Shown:
    run = measured_run()
    made = mk.MetricPanel(run, modules=["layer2"])
    put(run, 1, {("layer2", "WeightNorm"): 4.0})
    return Shown(made, [run])


def bench() -> Shown:
    model = net()
    monitor = mk.Monitor(model, {nn.Linear: ["WeightNorm", "OutputSndNorm"]})
    made = mk.Workbench(model, X, monitor=monitor)
    with monitor:
        model(X).sum().backward()
        monitor.track(0)
    made.editor.plan = mk.plan(made.editor.graph, ratio=0.5)
    return Shown(made, [model, monitor])


def explorer() -> Shown:
    kg = mk.KnowledgeGraph()
    kg.add_model(net(), name="net")
    made = mk.KnowledgeExplorer(kg, selected="Model:net")
    kg.add_model(nn.Sequential(nn.Linear(4, 6)), name="other")
    made.refresh()
    return Shown(made, [kg])


def linked() -> Shown:
    model = net()
    made, other = mk.ModelGraph(model, X), mk.MaskEditor(model, X)
    mk.link(made, other)
    made.selected = "0"
    other.close()
    return Shown(made, [model])


MAKERS = [graph, editor, player, panel, bench, explorer, linked]


def hooks(model: Any) -> int:
    modules = model.modules() if isinstance(model, nn.Module) else []
    return sum(len(value) for module in modules for name, value in vars(module).items() if "hooks" in name)


def show(make: Callable[[], Shown]) -> Shown:
    """As a cell does."""
    shown = make()
    bundle = shown.widget._repr_mimebundle_()
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == shown.widget.model_id
    return shown


def open_and_close(make: Callable[[], Shown]) -> list[weakref.ref[Any]]:
    """References to a widget that was shown and closed, and to what it has seen."""
    widget, seen = show(make)
    widget.close()
    assert [hooks(each) for each in seen] == [0] * len(seen)
    return [weakref.ref(each) for each in [widget, *seen]]


def in_use() -> int:
    """Bytes of Python objects."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.fixture
def traced() -> Iterator[None]:
    """The memory of Python objects is counted."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


def assert_nothing_is_left(make: Callable[[], Shown], times: int, comms: list[FakeComm]) -> None:
    widgets, threads = set(_instances), set(threading.enumerate())
    for _ in range(FIRST):
        open_and_close(make)
    comms.clear()
    references: list[weakref.ref[Any]] = []
    before = in_use()
    for _ in range(times):
        references += open_and_close(make)
        assert set(_instances) == widgets
        assert [each.comm_id for each in comms if each.is_open] == []
        comms.clear()
    gc.collect()
    assert [reference() for reference in references if reference() is not None] == []
    references.clear()
    assert in_use() - before < MOST
    assert set(threading.enumerate()) <= threads


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("make", sampled([bench, player, explorer], [explorer]), ids=lambda make: make.__name__)
@pytest.mark.slow
def test_twenty_widgets_leave_nothing(make: Callable[[], Shown], comms: list[FakeComm]) -> None:
    assert_nothing_is_left(make, 20, comms)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_thousand_widgets_leave_nothing(make: Callable[[], Shown], comms: list[FakeComm]) -> None:
    assert_nothing_is_left(make, 1_000, comms)


@pytest.mark.nightly
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("make", [bench], ids=lambda make: make.__name__)
def test_the_limit_would_see_widgets_that_stay(make: Callable[[], Shown]) -> None:
    for _ in range(FIRST):
        open_and_close(make)
    before = in_use()
    kept = [show(make) for _ in range(50)]
    assert in_use() - before > MOST
    for shown in kept:
        shown.widget.close()


def test_questions_of_a_page_are_heard_in_the_subshell_that_they_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """ipykernel leads them to the shell that has last sent, which under Run All is busy until the last cell's end."""
    import comm
    from ipykernel.comm.comm import BaseComm

    monkeypatch.setattr(comm, "create_comm", BaseComm)
    graph = mk.ModelGraph(nn.Linear(2, 2))
    way: Any = graph.comm
    way._reply_subshell_id = None  # as after a message from a cell
    assert way._reply_subshell_for({"method": "custom", "content": {}}, "named") == "named"
    graph.close()
