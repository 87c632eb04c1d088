"""What the side panel hears of a kernel: names and sizes, when they change, and never an error or a reference."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from jupyter_client.manager import start_new_kernel
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.views import object_list
from modulekg_widgets.engine.views.object_list import MAX_OBJECTS
from modulekg_widgets.widgets.lab import kernel_objects
from modulekg_widgets.widgets.lab import tabs as lab_tabs
from modulekg_widgets.widgets.lab.kernel_objects import TARGET, KernelObjects

LONG = 120  # seconds for a kernel on a busy machine


class Events:
    def __init__(self) -> None:
        self.callbacks: list[tuple[str, Any]] = []

    def register(self, event: str, callback: Any) -> None:
        self.callbacks.append((event, callback))


class Shell:
    """As much of IPython's shell as is used."""

    def __init__(self, **names: Any) -> None:
        self.user_ns = names
        self.user_ns_hidden = {"In": None}
        self.events = Events()


class Comm:
    def __init__(self, broken: bool = False) -> None:
        self.sent: list[dict[str, Any]] = []
        self.broken = broken

    def send(self, data: dict[str, Any]) -> None:
        if self.broken:
            raise OSError("no socket")
        self.sent.append(data)


def watched(comm: Comm | None = None, **names: Any) -> tuple[KernelObjects, Comm]:
    objects = KernelObjects(Shell(**names))
    objects.comm = comm or Comm()
    return objects, objects.comm


def entries(**names: Any) -> list[tuple[str, str, str, Any]]:
    found = watched(**names)[0].objects.payload()["objects"]
    return [(entry["name"], entry["kind"], entry["class"], entry["size"]) for entry in found]


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3))


def test_models_plans_trainings_and_graphs_are_listed_in_the_order_of_the_namespace() -> None:
    model = network()
    graph = mk.trace(model, torch.randn(1, 1, 8, 8))
    plan = mk.plan(graph, ratio=0.5)
    monitor = mk.Monitor(model, {nn.Conv2d: ["OutputHistogram"]})
    assert entries(net=model, number=3, plan=plan, watch=monitor, graph=graph) == [
        ("net", "model", "Sequential", [114]),
        ("plan", "plan", "PruningPlan", [114, plan.params[1]]),
        ("watch", "monitor", "Monitor", [0]),
        ("graph", "graph", "DataflowGraph", [len(graph.operators)]),
    ]


def test_only_plain_names_are_listed() -> None:
    model = nn.Linear(1, 1)
    odd: dict[Any, Any] = dict.fromkeys(("_", "_hidden", "In", "a b", "x;y", "lambda", "n" * 101, "größe"), model)
    assert [name for name, *_ in entries(**odd)] == ["größe"]
    objects = KernelObjects(Shell())
    objects.shell.user_ns[3] = model
    assert objects.objects.payload()["objects"] == []


ASKED: list[str] = []


class NamedOtherwise(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        ASKED.append("name")
        return "Other"


class Telling(nn.Linear, metaclass=NamedOtherwise):
    """Tells when it is asked anything."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        ASKED.append("class")
        return nn.Linear

    def __eq__(self, other: object) -> bool:
        ASKED.append("eq")
        return self is other

    def __hash__(self) -> int:
        ASKED.append("hash")
        return id(self)

    def __getattr__(self, name: str) -> Any:
        ASKED.append(name)
        return super().__getattr__(name)

    def parameters(self, recurse: bool = True) -> Any:
        ASKED.append("parameters")
        return super().parameters(recurse)


class Pretending:
    """Is nothing of ours, and says that it is a module."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        ASKED.append("class")
        return nn.Module

    def __getattr__(self, name: str) -> Any:
        ASKED.append(name)
        raise AttributeError(name)


def test_no_code_of_an_object_runs() -> None:
    objects = {"model": Telling(2, 3), "other": Pretending()}
    ASKED.clear()
    found = entries(**objects)
    asked = list(ASKED)
    assert found == [("model", "model", "Telling", [9])]
    assert asked == []


def test_class_names_are_one_short_printable_line() -> None:
    kinds = [type(name, (nn.Identity,), {}) for name in ("<img src=x>", "a\nb\u202e", "x" * 300)]
    found = [entry[2] for entry in entries(a=kinds[0](), b=kinds[1](), c=kinds[2]())]
    assert found[:2] == ["<img src=x>", "a\\nb\\u202e"]
    assert len(found[2]) == 80


def test_a_model_that_cannot_be_counted_is_listed_without_a_size() -> None:
    broken = nn.Sequential(nn.Linear(1, 1))
    broken._modules["odd"] = object()  # type: ignore[assignment]
    assert entries(net=broken) == [("net", "model", "Sequential", None)]


def test_the_list_is_bounded_and_says_what_it_left_out() -> None:
    listed = watched(**{f"m{i}": nn.ReLU() for i in range(MAX_OBJECTS + 7)})[0].objects.payload()
    assert len(listed["objects"]) == MAX_OBJECTS
    assert listed["left_out"] == 7


def test_large_counts_travel_as_text() -> None:
    with torch.device("meta"):
        huge = nn.Linear(2**27, 2**27, bias=False)
    assert entries(net=huge)[0][3] == [str(2**54)]


def test_it_is_sent_only_when_it_has_changed() -> None:
    objects, comm = watched(net=nn.Linear(1, 1))
    objects.after_cell()
    objects.after_cell()
    assert len(comm.sent) == 1
    objects.shell.user_ns["other"] = nn.ReLU()
    objects.after_cell()
    assert [len(sent["objects"]) for sent in comm.sent] == [1, 2]


def test_a_list_that_could_not_be_sent_is_sent_later() -> None:
    objects, comm = watched(Comm(broken=True), net=nn.Linear(1, 1))
    objects.after_cell()
    comm.broken = False
    objects.after_cell()
    assert len(comm.sent) == 1


def test_it_answers_requests_and_nothing_else() -> None:
    objects, comm = watched(net=nn.Linear(1, 1))
    asked: list[Any] = [{"method": "list"}, {"method": "exec", "code": "1"}, {}, None, {"method": "close", "tab": 3}]
    for data in asked:
        objects.answer({"content": {"data": data}})
    objects.answer({})
    assert len(comm.sent) == 1


def test_a_slow_count_is_kept_until_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_list, "SLOW_SECONDS", -1.0)
    model = nn.Sequential(nn.Linear(1, 1))
    objects, comm = watched(net=model)
    objects.after_cell()
    model.append(nn.Linear(1, 1))
    objects.after_cell()
    assert [sent["objects"][0]["size"] for sent in comm.sent] == [[2]]
    objects.answer({"content": {"data": {"method": "list"}}})
    assert comm.sent[-1]["objects"][0]["size"] == [4]
    objects.shell.user_ns["net"] = nn.ReLU()  # another object under the name
    objects.after_cell()
    assert comm.sent[-1]["objects"][0]["size"] == [0]


@pytest.mark.parametrize("slow", [-1.0, 10.0])
@pytest.mark.slow
def test_no_object_is_kept_alive(monkeypatch: pytest.MonkeyPatch, slow: float) -> None:
    monkeypatch.setattr(object_list, "SLOW_SECONDS", slow)
    model = nn.Linear(1, 1)
    gone = weakref.ref(model)
    objects, _ = watched(net=model)
    objects.after_cell()
    objects.shell.user_ns.clear()
    del model
    gc.collect()
    assert gone() is None


def test_a_second_start_in_one_kernel_changes_nothing() -> None:
    from comm import get_comm_manager

    first, second = KernelObjects(Shell()), KernelObjects(Shell())
    try:
        first.announce()
        second.announce()
        assert [event for event, _ in first.shell.events.callbacks] == ["post_run_cell"]
        assert second.shell.events.callbacks == []
    finally:
        get_comm_manager().comms.pop(TARGET, None)


def test_without_a_kernel_nothing_starts() -> None:
    from comm import get_comm_manager

    kernel_objects.start()
    assert TARGET not in get_comm_manager().comms


def test_a_tab_closes_what_it_has_shown(capsys: pytest.CaptureFixture[str]) -> None:
    from ipywidgets.widgets.widget import _instances

    before = set(_instances)
    lab_tabs.show_graph(nn.Linear(1, 1), "tab")
    first = set(_instances) - before
    lab_tabs.show_graph(nn.Linear(1, 1), "tab")
    assert first
    assert not first & set(_instances)
    for tab in ("tab", "tab", "no such tab", None, []):
        lab_tabs.close(tab)
    assert set(_instances) == before
    assert "ModelGraph of Linear" in capsys.readouterr().out


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    manager, client = start_new_kernel(startup_timeout=LONG)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run(client: Any, code: str) -> list[tuple[str, Any]]:
    """What a cell sends, but for its status."""
    seen: list[tuple[str, Any]] = []
    client.execute_interactive(
        code, timeout=LONG, output_hook=lambda message: seen.append((message["msg_type"], message["content"]))
    )
    return [(kind, content) for kind, content in seen if kind not in ("status", "execute_input")]


def test_a_kernel_tells_after_each_cell_and_opens_no_comm(kernel: Any) -> None:
    shown = run(kernel, "import sys, modulekg_widgets; print('torch' in sys.modules, 'ipywidgets' in sys.modules)")
    assert sorted(kind for kind, _ in shown) == ["comm_msg", "stream"]
    assert [content["text"] for kind, content in shown if kind == "stream"] == ["False False\n"]
    assert run(kernel, "x = 1") == []
    ((kind, content),) = run(kernel, "import torch; net = torch.nn.Linear(2, 3)")
    assert (kind, content["comm_id"]) == ("comm_msg", TARGET)
    assert content["data"]["objects"] == [{"name": "net", "kind": "model", "class": "Linear", "size": [9]}]
    ((_, content),) = run(kernel, "del net")
    assert content["data"]["objects"] == []


@pytest.mark.slow
def test_errors_never_reach_a_cell(kernel: Any) -> None:
    run(kernel, "from modulekg_widgets.engine.views.object_list import ObjectList as _Objects")
    run(kernel, "_listed, _Objects.payload = _Objects.payload, lambda self: 1 / 0")
    assert run(kernel, "print('fine')") == [("stream", {"name": "stdout", "text": "fine\n"})]
    run(kernel, "_Objects.payload = _listed")
