"""`mk.marimo` without marimo: what its page is given, both ways of every message, errors, and nothing left behind."""

from __future__ import annotations

import gc
import importlib.util
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import ipywidgets
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import MissingPackageError
from modulekg_widgets.widgets.shared.base import WidgetValueError


@pytest.fixture(autouse=True)
def _installed(require: Callable[..., None]) -> None:
    require("anywidget")


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


X = torch.zeros(1, 4)


class Host:
    """The comm of an adapter, with a page behind it."""

    kernel = "host"

    def __init__(self, adapter: Any) -> None:
        self.comm_id = adapter.comm.comm_id
        self.sent: list[tuple[dict[str, Any], list[Any]]] = []
        self.is_closed = False
        self.adapter = adapter
        adapter.comm = self

    def on_msg(self, callback: Any) -> None:
        self.hear = callback

    def send(self, data: Any = None, metadata: Any = None, buffers: Any = None) -> None:
        if data["method"] == "custom":
            self.sent.append((data["content"], list(buffers or ())))

    def close(self, *args: Any, **keywords: Any) -> None:
        self.is_closed = True

    def say(self, content: Any, *buffers: bytes) -> None:
        self.hear({"content": {"data": {"method": "custom", "content": content}}, "buffers": list(buffers)})

    def set(
        self, widget: Any, *buffers: bytes, paths: Any = (), page: str = "page", number: int = 1, **state: Any
    ) -> None:
        message = {"id": widget.model_id, "method": "update", "state": state, "buffer_paths": list(paths)}
        lot = {"kind": "messages", "page": page, "number": number, "messages": [{**message, "buffers": len(buffers)}]}
        self.say(lot, *buffers)

    def ask(self, widget: Any, content: Any) -> None:
        message = {"id": widget.model_id, "method": "custom", "content": content, "buffers": 0}
        self.say({"kind": "messages", "page": "page", "number": 1, "messages": [message]})

    def open(self, page: str = "page") -> dict[str, Any]:
        self.say({"kind": "open", "page": page})
        content, _ = self.sent.pop()
        return content

    def taken(self, kind: str) -> list[dict[str, Any]]:
        return [content for content, _ in self.sent if content["kind"] == kind]

    def data(self, widget: Any, method: str) -> list[dict[str, Any]]:
        return [
            message["data"]
            for message in self.taken("message")
            if message["id"] == widget.model_id and message["data"]["method"] == method
        ]


@pytest.fixture
def shown() -> Iterator[Callable[[Any], Host]]:
    hosts: list[Host] = []

    def show(widget: Any) -> Host:
        hosts.append(Host(mk.marimo(widget)))
        return hosts[-1]

    yield show
    for host in hosts:
        host.adapter.close()


def test_the_page_gets_all_widgets_with_their_binary_values(shown: Any, model: nn.Module) -> None:
    bench = mk.Workbench(model, X)
    host = shown(bench)
    kinds = [entry["kind"] for entry in host.adapter.states]
    assert {"Workbench", "ModelGraph", "MaskEditor", "Layout", "Link"} <= set(kinds)
    assert host.adapter.root == bench.model_id
    (editor,) = [entry for entry in host.adapter.states if entry["kind"] == "MaskEditor"]
    assert bytes(editor["state"]["scores"]) == bytes(bench.editor.scores) != b""
    at = host.adapter.states.index(editor)
    assert ["states", at, "state", "scores"] in _buffer_paths(host.adapter)


def _buffer_paths(adapter: Any) -> list[list[Any]]:
    from ipywidgets.widgets.widget import _remove_buffers

    return _remove_buffers(adapter.get_state())[1]


def test_a_click_is_a_python_value_and_is_not_sent_back(shown: Any, model: nn.Module) -> None:
    graph = mk.ModelGraph(model)
    host = shown(graph)
    host.set(graph, selected="2", number=7)
    assert graph.selected == "2"
    assert host.data(graph, "update") == []
    (echo,) = host.taken("message")
    assert echo["data"]["state"] == {"selected": "2"}
    assert (echo["page"], echo["number"]) == ("page", 7)
    assert host.taken("done") == [{"kind": "done", "page": "page", "number": 7, "paths": []}]


def test_what_python_sets_is_sent_once(shown: Any, model: nn.Module) -> None:
    graph = mk.ModelGraph(model)
    host = shown(graph)
    graph.selected = "1"
    assert [one["state"] for one in host.data(graph, "update")] == [{"selected": "1"}]
    assert "number" not in host.taken("message")[0]


def test_what_a_widget_refuses_is_put_right_in_the_page_which_waits_no_longer(shown: Any, model: nn.Module) -> None:
    graph = mk.ModelGraph(model)
    host = shown(graph)
    host.set(graph, view="upside-down")
    assert graph.view == "hierarchy"
    assert host.data(graph, "update")[-1]["state"] == {"view": "hierarchy"}
    assert len(host.taken("done")) == 1


def test_a_page_that_comes_later_gets_what_has_changed(shown: Any, model: nn.Module) -> None:
    graph = mk.ModelGraph(model)
    host = shown(graph)
    assert host.open()["changed"] == []
    graph.selected = "0"
    host.set(graph, query="relu")
    answer = host.open("second")
    assert answer["page"] == "second"
    assert [entry["state"] for entry in answer["changed"]] == [{"query": "relu", "selected": "0"}]


def test_a_drawn_mask_comes_with_its_bits_and_is_checked(shown: Any, model: nn.Module) -> None:
    editor = mk.MaskEditor(model, X)
    host = shown(editor)
    draft = {
        "generation": editor.payload["generation"],
        "base": editor.draft["revision"],
        "by": "page",
        "axes": [editor.payload["axes"]["name"].index("0.out")],
        "bits": None,
    }
    host.set(editor, bytes([0b00000011]), paths=[["draft", "bits"]], draft=draft)
    assert sum(byte.bit_count() for byte in editor.dropped) == 2
    host.ask(editor, {"type": "check"})
    reports = [one["state"]["report"] for one in host.data(editor, "update") if "report" in one["state"]]
    assert [(report["revision"], report["error"]) for report in reports if report] == [(1, None)]


def test_values_of_a_thread_reach_the_page(shown: Any, model: nn.Module) -> None:
    monitor = mk.Monitor(model, {nn.Linear: ["OutputSndNorm"]})
    panel = mk.MetricPanel(monitor)
    host = shown(panel)
    arrived = threading.Event()
    send = host.send

    def hear(data: Any = None, metadata: Any = None, buffers: Any = None) -> None:
        send(data, metadata, buffers)
        if buffers:
            arrived.set()

    host.send = hear  # type: ignore[method-assign]
    host.ask(panel, {"kind": "resync"})
    with monitor:
        model(torch.randn(3, 4)).sum().backward()
        monitor.track(0)
    assert arrived.wait(20)
    panel.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "modulekg-metrics" and thread.is_alive()]


def test_two_adapters_of_a_widget_agree(shown: Any, model: nn.Module) -> None:
    graph = mk.ModelGraph(model)
    one, other = shown(graph), shown(graph)
    one.set(graph, selected="2")
    assert [echo["state"] for echo in other.data(graph, "echo_update")] == [{"selected": "2"}]
    one.adapter.close()
    graph.selected = "0"
    assert other.data(graph, "update")[-1]["state"] == {"selected": "0"}
    assert one.data(graph, "update") == []


def test_what_is_linked_later_is_joined_in_the_page_or_by_python(shown: Any, model: nn.Module) -> None:
    graph, other, apart = mk.ModelGraph(model), mk.ModelGraph(model), mk.ModelGraph(model)
    together, alone = shown(ipywidgets.HBox([graph, other])), shown(apart)
    link = mk.link(graph, other)
    mk.link(graph, apart)
    together.set(graph, selected="1")
    (added,) = together.taken("add")
    assert {entry["kind"] for entry in added["added"]} == {"Link"}
    assert other.selected is None  # its page does it
    assert apart.selected == "1"
    assert alone.data(apart, "update")[-1]["state"] == {"selected": "1"}
    link.close()
    assert len(together.taken("close")) == 2


def test_widgets_that_come_later_come_to_the_page_first(shown: Any, model: nn.Module) -> None:
    graph, later = mk.ModelGraph(model), mk.ModelGraph(model)
    box = ipywidgets.VBox([graph])
    host = shown(box)
    box.children = [graph, later]
    kinds = [content["kind"] for content, _ in host.sent]
    assert kinds == ["add", "message"]
    assert later.model_id in [entry["id"] for entry in host.open()["added"]]
    later.selected = "0"
    assert host.data(later, "update")


@pytest.mark.parametrize("wrong", ["a text", nn.Linear(2, 2), None, ipywidgets.Button(), 3])
def test_anything_else_is_refused_in_one_sentence(wrong: Any) -> None:
    with pytest.raises(WidgetValueError, match=r"^marimo shows widgets of this package, .* was passed$"):
        mk.marimo(wrong)


def test_foreign_and_closed_widgets_are_refused_with_nothing_changed(model: nn.Module) -> None:
    graph = mk.ModelGraph(model)
    before = graph.comm
    with pytest.raises(WidgetValueError, match="Button was passed in an HBox"):
        mk.marimo(ipywidgets.HBox([graph, ipywidgets.Button()]))
    assert graph.comm is before
    graph.close()
    with pytest.raises(WidgetValueError, match="was closed: make a new one"):
        mk.marimo(graph)


def test_without_anywidget_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, model: nn.Module) -> None:
    find = importlib.util.find_spec
    absent = lambda name, *more: None if name == "anywidget" else find(name, *more)  # noqa: E731
    monkeypatch.setattr("modulekg_widgets.widgets.hosts.marimo.find_spec", absent)
    with pytest.raises(MissingPackageError, match=r"pip install 'modulekg-widgets\[marimo\]'"):
        mk.marimo(mk.ModelGraph(model))


@pytest.mark.nightly
def test_neither_package_is_imported_before_it_is_needed() -> None:
    code = "import sys, modulekg_widgets as mk; mk.marimo; print({'anywidget', 'marimo'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"


def test_a_closed_adapter_leaves_the_widget_as_it_was(shown: Any, model: nn.Module) -> None:
    graph = mk.ModelGraph(model)
    before = {one: one.comm for one in (graph, graph.layout)}
    host = shown(graph)
    open_before = len(_instances())
    host.adapter.close()
    assert {one: one.comm for one in before} == before
    assert host.is_closed
    graph.selected = "0"
    host.set(graph, selected="1")
    assert graph.selected == "0"
    assert host.data(graph, "update") == []
    assert len(_instances()) == open_before - 2  # the adapter, and its layout


@pytest.mark.slow
def test_nobody_holds_a_closed_adapter(model: nn.Module) -> None:
    graph = mk.ModelGraph(model)
    adapter = mk.marimo(graph)
    gone = weakref.ref(adapter)
    adapter.close()
    del adapter
    gc.collect()
    assert gone() is None
    mk.marimo(graph).close()  # once more


def _instances() -> dict[str, Any]:
    from ipywidgets.widgets.widget import _instances

    return _instances


def test_an_adapter_closes_with_its_widget(shown: Any, model: nn.Module) -> None:
    graph = mk.ModelGraph(model)
    host = shown(graph)
    graph.close()
    assert host.is_closed
    assert host.adapter.comm is None
    assert repr(host.adapter) == "<marimo's ModelGraph, closed>"
    assert host.taken("close")[0]["id"] == host.adapter.root


def test_a_page_can_set_nothing_of_the_adapter_but_that_it_has_changed_something(shown: Any, model: nn.Module) -> None:
    host = shown(mk.ModelGraph(model))
    before = host.adapter._esm
    state = {"_esm": "alert(1)", "states": [], "root": "x", "changes": 4}
    host.hear({"content": {"data": {"method": "update", "state": state, "buffer_paths": []}}, "buffers": []})
    assert (host.adapter._esm, host.adapter.changes) == (before, 4)
    assert len(host.adapter.states) > 0
    assert host.adapter.root != "x"


def test_the_code_is_the_packages_file_whatever_the_model_says(shown: Any) -> None:
    hostile = nn.ModuleDict({"</script><img src=x onerror=alert(1)>": nn.Linear(2, 2)})
    one, other = shown(mk.ModelGraph(hostile)), shown(mk.ModelGraph(nn.Linear(2, 2)))
    assert one.adapter._esm == other.adapter._esm
    assert "onerror=alert(1)" not in one.adapter._esm


@pytest.mark.parametrize(
    "content", [None, 3, {}, {"kind": "messages"}, {"kind": "messages", "messages": [3, {"id": 4}]}]
)
def test_what_is_no_message_changes_nothing(shown: Any, model: nn.Module, content: Any) -> None:
    graph = mk.ModelGraph(model)
    host = shown(graph)
    host.say(content)
    host.set(graph, selected="0")
    assert graph.selected == "0"
