"""`mk.save_html`: what a page holds, which widgets it takes, and that it is written whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import ipywidgets
import pytest
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.monitoring.run import Run
from modulekg_widgets.widgets.pages.pages import CONTAINERS, page_data
from widgets.metric_samples import Page, histogram, live_run, put

PAYLOADS = [
    line
    for line in (Path(__file__).parents[1] / "cases" / "xss_payloads.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
]


def small_model() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU())


def measured(name: str = "net", steps: int = 3) -> Run:
    run = Run(name)
    for step in range(steps):
        put(run, step, {("0", "Norm"): float(step), ("0", "Weights"): histogram([1, step])})
    return run


def written(widget: Any, folder: Path) -> str:
    return mk.save_html(widget, folder / "page.html").read_text("utf-8")


def data_of(page: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="mkg-page">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def only(data: dict[str, Any], kind: str) -> dict[str, Any]:
    (entry,) = [entry for entry in data["widgets"] if entry["kind"] == kind]
    return entry


# ------------------------------------------------------------------ what the page holds


def test_a_graph_with_its_state(tmp_path: Path) -> None:
    graph = mk.ModelGraph(small_model(), selected="0", color_by="params", query="type:Linear")
    data = data_of(written(graph, tmp_path))
    entry = only(data, "ModelGraph")
    assert data["views"] == [entry["id"]]
    assert entry["state"]["payload"] == json.loads(json.dumps(graph.payload))
    state = {name: entry["state"][name] for name in ("selected", "color_by", "query", "view", "expanded")}
    assert state == {
        "selected": "0",
        "color_by": "params",
        "query": "type:Linear",
        "view": "hierarchy",
        "expanded": graph.expanded,
    }


def test_a_panel_with_all_values_of_its_runs() -> None:
    entry = only(page_data(mk.MetricPanel([measured("a"), measured("b", steps=5)])), "MetricPanel")
    assert entry["state"]["payload"]["runs"] == ["a", "b"]
    (message,) = entry["messages"]
    assert (message["content"]["kind"], message["content"]["seq"], message["content"]["reset"]) == ("update", 1, True)
    page = Page()
    page.receive(message["content"], map(base64.b64decode, message["buffers"]))
    assert page.line("0", "Norm", run=0) == [(step, step) for step in range(3)]
    assert page.line("0", "Norm", run=1) == [(step, step) for step in range(5)]
    assert len(page.histograms) == 8
    assert page.ended == {0, 1}


def test_a_long_run_is_thinned_as_in_the_notebook() -> None:
    run = Run("long")
    for step in range(10_000):
        put(run, step, {("0", "Norm"): float(step == 777)})
    (message,) = only(page_data(mk.MetricPanel(run)), "MetricPanel")["messages"]
    page = Page()
    page.receive(message["content"], map(base64.b64decode, message["buffers"]))
    line = page.line("0", "Norm")
    assert len(line) <= 2000
    assert (777, 1.0) in line
    assert line[-1] == (9999, 0.0)


def test_a_run_that_goes_on_has_not_ended() -> None:
    run = live_run()
    put(run, 0, {("0", "Norm"): 1.0})
    (message,) = only(page_data(mk.MetricPanel(run)), "MetricPanel")["messages"]
    assert message["content"]["ended"] == []


def test_a_panel_without_values_says_at_most_that_it_waits() -> None:
    (message,) = only(page_data(mk.MetricPanel(live_run())), "MetricPanel")["messages"]
    assert message == {
        "content": {"kind": "update", "seq": 1, "reset": True, "saved": True, "waiting": [0], "ended": []},
        "buffers": [],
    }
    assert only(page_data(mk.MetricPanel(mk.Monitor(small_model()))), "MetricPanel")["messages"] == []


@pytest.mark.parametrize("container", CONTAINERS)
def test_a_container_and_what_it_holds(container: type[ipywidgets.Box]) -> None:
    graph, panel = mk.ModelGraph(small_model()), mk.MetricPanel(measured())
    data = page_data(container([graph, ipywidgets.HBox([panel])]))
    outer = only(data, container.__name__) if container is not ipywidgets.HBox else data["widgets"][0]
    assert data["views"] == [outer["id"]]
    inner = only({"widgets": data["widgets"][1:]}, "HBox")
    assert outer["state"]["children"] == [f"IPY_MODEL_{one['id']}" for one in (only(data, "ModelGraph"), inner)]
    assert inner["state"]["children"] == [f"IPY_MODEL_{only(data, 'MetricPanel')['id']}"]


def test_links_between_widgets_of_the_page_and_no_others() -> None:
    graph, panel, other = mk.ModelGraph(small_model()), mk.MetricPanel(measured()), mk.ModelGraph(small_model())
    panel.link(graph)
    panel.link(other)
    data = page_data(ipywidgets.VBox([graph, panel]))
    ends = [[f"IPY_MODEL_{only(data, kind)['id']}", "selected"] for kind in ("ModelGraph", "MetricPanel")]
    link = only(data, "Link")
    assert [link["state"]["source"], link["state"]["target"]] == ends


def test_the_same_widgets_give_the_same_page(tmp_path: Path) -> None:
    pages = [
        written(ipywidgets.VBox([mk.ModelGraph(small_model()), mk.MetricPanel(measured())]), tmp_path) for _ in "ab"
    ]
    assert pages[0] == pages[1]


def test_a_closed_panel_writes_no_page_and_an_open_one_stays_as_it_is(tmp_path: Path) -> None:
    panel = mk.MetricPanel(measured())
    before = panel.get_state()
    written(panel, tmp_path)
    assert panel.get_state() == before
    panel.close()
    with pytest.raises(mk.ModuleKGError, match="this MetricPanel was closed: make a new one"):
        mk.save_html(panel, tmp_path / "closed.html")
    assert not (tmp_path / "closed.html").exists()


# ------------------------------------------------------------------ what the page may do


def test_the_policy_admits_one_script_and_no_network(tmp_path: Path) -> None:
    page = written(mk.ModelGraph(small_model()), tmp_path)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    without = page.replace(script, "")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', without)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.split("; ") == [
        "default-src 'none'",
        f"script-src 'sha256-{digest}'",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "worker-src blob:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    assert without.index("Content-Security-Policy") < without.index("<script")
    assert not re.search(r"<(link|iframe|img|script src|base)\b", without)


@pytest.mark.parametrize("text", PAYLOADS)
def test_hostile_text_stays_data(text: str, tmp_path: Path) -> None:
    model = nn.Sequential()
    model._modules[text] = nn.Identity()
    run = Run(text)
    put(run, 0, {(text, text): 1.0})
    tab = ipywidgets.Tab([mk.ModelGraph(model), mk.MetricPanel(run)], titles=[text, text])
    page = written(tab, tmp_path)
    assert Elements(page).names == ["html", "head", *["meta"] * 4, "title", "body", "noscript", "script", "script"]
    data = data_of(page)
    assert only(data, "ModelGraph")["state"]["payload"]["nodes"]["name"][1] == text
    assert only(data, "Tab")["state"]["titles"] == [text, text]
    (message,) = only(data, "MetricPanel")["messages"]
    assert message["content"]["catalog"]["entries"][0][1:3] == [text, text]
    title = re.findall(r"<title>(.*?)</title>", written(mk.MetricPanel(run), tmp_path))[0]
    assert "<" not in title
    assert html.unescape(title)[:20] == "".join(c if c.isprintable() else "\ufffd" for c in text)[:20]


class Elements(HTMLParser):
    """The names of all elements, as a browser finds them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.append(tag)


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ipywidgets.HTML("<b>x</b>"), "an HTML was passed$"),
        (lambda: ipywidgets.VBox([ipywidgets.IntSlider()]), "an IntSlider was passed in a VBox"),
        (lambda: ipywidgets.Layout(), "a Layout was passed$"),
        (lambda: small_model(), "a Sequential was passed$"),
        (lambda: None, "None was passed$"),
    ],
)
def test_another_widget_is_refused(make: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(mk.ModuleKGError, match=f"writes a widget of this package, as ModelGraph, .*: {words}"):
        mk.save_html(make(), tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["page.htm", "page", "page.html.txt", "page.svg"])
def test_another_extension_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(mk.ModuleKGError, match=rf"name the file \.html, '{name}' was passed"):
        mk.save_html(mk.ModelGraph(small_model()), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(mk.ModuleKGError, match=r"no folder .*missing"):
        mk.save_html(mk.ModelGraph(small_model()), tmp_path / "missing" / "page.html")


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = mk.save_html(mk.ModelGraph(small_model()), tmp_path / "page.html")
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        mk.save_html(mk.MetricPanel(measured()), path)
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]
    assert path.read_bytes() == before


def test_the_path_may_be_a_text_and_is_returned(tmp_path: Path) -> None:
    path = tmp_path / "Page.HTML"
    assert mk.save_html(mk.ModelGraph(small_model()), str(path)) == path
    assert path.is_file()
