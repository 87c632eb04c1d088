"""What the site's own extensions make of a document: flow charts, links out of docs/, code that is run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from docs.site import ROOT

EXTENSIONS = ROOT / "docs" / "_ext"


@pytest.fixture(autouse=True)
def _reachable(monkeypatch: pytest.MonkeyPatch, require: Callable[..., None]) -> None:
    require("sphinx")
    monkeypatch.setattr(sys, "path", [str(EXTENSIONS), *sys.path])


@pytest.fixture
def flowcharts() -> ModuleType:
    return import_module("flowcharts")


@pytest.fixture
def live_pages() -> ModuleType:
    return import_module("live_pages")


def test_a_chart_has_its_boxes_in_rows(flowcharts: ModuleType) -> None:
    lines = ["flowchart LR", 'a["A <b>"] -->|"to b"| b', "c --> b", "b -->|back| a"]
    chart = flowcharts.chart_of(lines)
    assert flowcharts.rows_of(chart) == [["a", "c"], ["b"]]
    assert chart.described() == "Flow chart. A <b> to b: to b; c to b; b to A <b>: back"
    assert "A &lt;b&gt;</tspan>" in flowcharts.Drawing(chart).svg()


def test_a_line_that_is_no_arrow_is_told(flowcharts: ModuleType) -> None:
    with pytest.raises(flowcharts.FlowchartError, match="subgraph"):
        flowcharts.chart_of(["flowchart LR", "subgraph x"])


def test_every_chart_of_the_documents_is_drawn(flowcharts: ModuleType) -> None:
    texts = [path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md")]
    blocks = [block.partition("```")[0] for text in texts for block in text.split("```mermaid\n")[1:]]
    assert len(blocks) >= 5
    for block in blocks:
        chart = flowcharts.chart_of(block.strip().splitlines())
        rows = flowcharts.rows_of(chart)
        assert sorted(id for row in rows for id in row) == sorted(chart.texts)


@pytest.mark.parametrize(
    ("file", "page"),
    [
        ("docs/axes.md", "axes"),
        ("CONTRIBUTING.md", "project/contributing"),
        ("notebooks/09_model_files.ipynb", "notebooks/09_model_files"),
        ("README.md", "index"),
        ("modulekg_widgets/cli.py", None),
        ("docs/quality.json", None),
        ("../elsewhere.md", None),
    ],
)
def test_files_have_their_pages(file: str, page: str | None) -> None:
    repository = import_module("repository")
    assert repository.page_of((ROOT / file).resolve()) == page
    if page and page != "index":
        assert repository.origin_of(page) == ROOT / file


def test_names_are_told_as_users_write_them() -> None:
    api = import_module("api")
    assert api.short(api.whole("mk.pruning.Taylor")) == "mk.pruning.Taylor"
    assert api.short("modulekg_widgets.engine.pruning.cut.receipt.Receipt") == "Receipt"
    assert {"cut", "save", "summary"} <= set(api.members(api.found("modulekg_widgets.PruningPlan")))
    assert "keys" not in api.members(api.found("modulekg_widgets.ModelGraph"))
    with pytest.raises(ImportError):
        api.found("nothing_of_that_name.at.all")


WIDGET = """
from torch import nn
import modulekg_widgets as mk
graph = mk.ModelGraph(nn.Linear(2, 2))
"""


def test_code_is_run_and_its_page_kept(live_pages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    page = live_pages.LivePage("gallery/small", WIDGET + 'mk.save_html(graph, "small.html")', 1)
    assert live_pages.saved(page, tmp_path) == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.html"]


@pytest.mark.parametrize(
    ("code", "error"), [("1 / 0", "ZeroDivisionError: division by zero"), (WIDGET, "FileNotFoundError")]
)
def test_code_that_fails_is_told(
    live_pages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, error: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert live_pages.saved(live_pages.LivePage("gallery/small", code, 1), tmp_path).startswith(error)
    assert list(tmp_path.iterdir()) == []


def test_a_head_cell_without_text_is_no_head() -> None:
    page = {"body": '<tr><th class="head"><p></p></th>\n<th class="head"><p>ours</p></th></tr>'}
    import_module("tables").without_empty_heads(None, "", "", page, None)
    assert page["body"] == '<tr><td></td>\n<th class="head"><p>ours</p></th></tr>'
