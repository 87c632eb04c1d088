"""Google Colab: widgets are allowed once, at the first display; a page stands in where they are not."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import ipywidgets
import pytest
from IPython.core.formatters import DisplayFormatter
from torch import nn

import modulekg_widgets as mk
from browser.hosts import FileServer
from modulekg_widgets.widgets.hosts import colab as hosts
from modulekg_widgets.widgets.hosts.colab import VIEW, ColabFormat, installed_front_end
from modulekg_widgets.widgets.pages.pages import page_of

COLAB = Path(__file__).parents[1] / "browser" / "colab_kernel"
ADDRESS = f"/npm/modulekg-widgets@{mk.__version__}/dist/index.js"
FRONT_END = installed_front_end()
MANAGER = "https://manager.invalid/manager.js"
TOLD = {VIEW: {"colab": {"custom_widget_manager": {"url": MANAGER}}}}


class Colab:
    """A `google.colab` in this process, and how widgets are displayed beside it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, network: FileServer) -> None:
        self.calls = 0
        self.error: Exception | None = None
        self.internals = ModuleType("google.colab.output._widgets")
        self.output: Any = ModuleType("google.colab.output")
        self.output.enable_custom_widget_manager = self.allow
        for module in (ModuleType("google.colab"), self.output, self.internals):
            monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.delenv("MODULEKG_COLAB", raising=False)
        monkeypatch.setattr(hosts, "CDN_URL", f"{network.url}/npm")
        self.network = network
        self.network.put(ADDRESS, FRONT_END)
        self.format = ColabFormat(DisplayFormatter().format)

    def allow(self) -> None:
        self.calls += 1
        if self.error:
            raise self.error
        vars(self.internals)["_installed_url"] = MANAGER


@pytest.fixture
def colab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Colab]:
    network = FileServer()
    yield Colab(monkeypatch, network)
    network.close()


def graph() -> mk.ModelGraph:
    return mk.ModelGraph(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))


def assert_is_page_of(widget: Any, data: dict[str, Any]) -> None:
    """One frame that runs scripts, has no origin and asks nobody for anything, and nothing that Colab might prefer."""
    assert set(data) == {"text/plain", "text/html"}
    (frame,) = re.findall(r"<iframe ([^>]*)></iframe>", data["text/html"])
    attributes = dict(re.findall(r'([\w-]+)="([^"]*)"', frame))
    assert attributes["sandbox"] == "allow-scripts"
    assert "src" not in attributes
    assert html.unescape(attributes["srcdoc"]).encode() == page_of(widget)


def test_colab_is_asked_once_and_told_who_manages_widgets(colab: Colab) -> None:
    first, second = graph(), graph()
    box = ipywidgets.HBox([first])
    for widget in (first, second, box):
        data, metadata = colab.format(widget)
        assert data[VIEW]["model_id"] == widget.model_id
        assert ("image/png" in data) is (widget is not box)  # without IPython boxes have no picture
        assert metadata == TOLD
        assert "text/html" not in data
    assert colab.calls == 1
    assert colab.network.asked == [ADDRESS]


def test_other_values_are_none_of_its_business(colab: Colab) -> None:
    for value in (3, ipywidgets.IntSlider(), ipywidgets.VBox([ipywidgets.IntSlider()]), nn.Linear(2, 2)):
        assert colab.format(value) == DisplayFormatter().format(value)
    assert colab.calls == 0


def test_a_colab_that_does_not_say_who_is_told_nothing(colab: Colab) -> None:
    colab.output.enable_custom_widget_manager = lambda: None
    data, metadata = colab.format(graph())
    assert VIEW in data
    assert metadata == {}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "HTTPError: HTTP Error 404"),
        (FRONT_END + b" ", "ModuleKGError: the network has another front end"),
        (FRONT_END[:-1], "ModuleKGError: the network has another front end"),
        (b"", "ModuleKGError: the network has another front end"),
    ],
)
def test_a_page_stands_in_until_the_network_has_the_installed_front_end(
    colab: Colab, monkeypatch: pytest.MonkeyPatch, content: bytes | None, reason: str
) -> None:
    """A version that is not published yet, and code of somebody else under its name."""
    colab.network.files.pop(ADDRESS)
    if content is not None:
        colab.network.put(ADDRESS, content)
    widget = graph()
    with pytest.warns(UserWarning, match=rf"loads no widgets \({reason}.*\): you see pages"):
        assert_is_page_of(widget, colab.format(widget)[0])
    assert_is_page_of(widget, colab.format(widget)[0])
    assert (colab.calls, colab.network.asked) == (0, [ADDRESS])
    monkeypatch.setenv("MODULEKG_COLAB", "widgets")
    assert VIEW in ColabFormat(DisplayFormatter().format)(widget)[0]
    assert (colab.calls, colab.network.asked) == (1, [ADDRESS])


def test_a_page_stands_in_without_a_network(colab: Colab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "CDN_URL", "https://nowhere.invalid/npm")
    widget = graph()
    with pytest.warns(UserWarning, match="URLError"):
        assert_is_page_of(widget, colab.format(widget)[0])


@pytest.mark.parametrize("error", [RuntimeError("not <b>here</b>"), ImportError("no"), AttributeError("gone")])
def test_a_page_stands_in_where_colab_refuses(colab: Colab, error: Exception) -> None:
    colab.error = error
    widget = graph()
    with pytest.warns(UserWarning, match=rf"loads no widgets \({type(error).__name__}: .*\): you see pages"):
        data, metadata = colab.format(widget)
    assert_is_page_of(widget, data)
    assert metadata == {}
    box = ipywidgets.VBox([widget])
    assert_is_page_of(box, colab.format(box)[0])  # and without a second warning, which would be an error
    assert colab.calls == 1


def test_a_page_stands_in_where_colab_cannot_be_asked(colab: Colab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(colab.output, "enable_custom_widget_manager")
    widget = graph()
    with pytest.warns(UserWarning, match="AttributeError"):
        assert_is_page_of(widget, colab.format(widget)[0])


def test_pages_by_choice_for_all_and_for_one(colab: Colab, monkeypatch: pytest.MonkeyPatch) -> None:
    widget = graph()
    data, _ = colab.format(widget, include={"text/html"})
    assert_is_page_of(widget, data | {"text/plain": ""})
    assert VIEW in colab.format(widget)[0]
    monkeypatch.setenv("MODULEKG_COLAB", "page")
    assert_is_page_of(widget, colab.format(widget)[0])
    monkeypatch.delenv("MODULEKG_COLAB")
    assert VIEW in colab.format(widget)[0]
    assert colab.calls == 1


def test_what_has_no_page_stays_a_widget(colab: Colab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODULEKG_COLAB", "page")
    mixed = ipywidgets.VBox([graph(), ipywidgets.IntSlider()])
    assert VIEW in colab.format(mixed)[0]
    assert colab.format(mixed, include={"text/html"}) == ({}, {})
    assert colab.calls == 0


def test_hostile_names_stay_within_the_frame(colab: Colab) -> None:
    net = type('"></iframe><script>alert(1)</script>', (nn.Sequential,), {})()
    assert_is_page_of(widget := mk.ModelGraph(net), colab.format(widget, include={"text/html"})[0] | {"text/plain": ""})


SESSION = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
{first}
import modulekg_widgets as mk
from torch import nn
graph = mk.ModelGraph(nn.Linear(2, 2))
data, metadata = shell.display_formatter.format(graph)
mk.save_html
told = sys.modules.get("google.colab.output._widgets")
print(json.dumps([sorted(data), metadata, told and told.calls, "modulekg_widgets.widgets.hosts.colab" in sys.modules]))
"""
WIDGET = ["application/vnd.jupyter.widget-view+json", "image/png", "image/svg+xml", "text/plain"]


def session(first: str) -> list[Any]:
    """What a graph's display is in a new process."""
    import json

    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", SESSION.format(first=first)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "MODULEKG_COLAB": "widgets"},
    )
    return json.loads(done.stdout)


@pytest.mark.slow
def test_it_begins_by_itself_in_colab_and_nowhere_else() -> None:
    data, metadata, calls, is_loaded = session(f"sys.path.insert(0, {str(COLAB)!r}); import google.colab")
    assert (data, calls, is_loaded) == (WIDGET, 1, True)
    assert metadata[VIEW]["colab"]["custom_widget_manager"]["url"] == "https://manager.invalid/manager.min.js"
    # to be able to import it is not enough
    assert session(f"sys.path.insert(0, {str(COLAB)!r})") == [WIDGET, {}, None, False]


def test_in_colab_the_kernel_passes_on_what_a_page_sets(colab: Colab) -> None:
    """Elsewhere the page does, and the kernel would send it back as news."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    one, other = mk.ModelGraph(model), mk.ModelGraph(model)
    mk.link(one, other)
    one.set_state({"selected": "1"})  # as a message of the page does
    assert other.selected == "1"


def test_elsewhere_what_a_page_sets_is_left_to_the_page() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    one, other = mk.ModelGraph(model), mk.ModelGraph(model)
    mk.link(one, other)
    one.set_state({"selected": "1"})
    assert other.selected is None
