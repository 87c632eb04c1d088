"""A KnowledgeExplorer of a large graph: its models at once, its structures from a thread, and never what is stale."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import UnknownPathError
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.views.knowledge_payload import Findings, analyse_contents
from modulekg_widgets.engine.views.pictures.svg import svg_text
from modulekg_widgets.widgets import knowledge_explorer
from modulekg_widgets.widgets.pages.pages import page_data
from widgets.knowledge_samples import Graph, contents_of, payload_of, sample_contents, small, wide


class Gate:
    """Analyses as the engine does, once it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.began = threading.Event()
        self.error: Exception | None = None

    def findings(self, contents: Contents, go_on: Callable[[], None]) -> Findings:
        self.began.set()
        assert self.may.wait(30)
        if self.error is not None:
            raise self.error
        return analyse_contents(contents, go_on)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    monkeypatch.setattr(knowledge_explorer, "MAX_SYNCHRONOUS", 3)
    monkeypatch.setattr(knowledge_explorer, "analyse_contents", gate.findings)
    yield gate
    gate.may.set()


def when_analysed(explorer: Any) -> dict[str, Any]:
    """The payload that the thread has set."""
    running = explorer._analysis
    if running is not None:
        running.payload()
        running._thread.join(30)
    return explorer.payload


def test_models_and_results_are_there_before_the_structures(gate: Gate) -> None:
    contents = sample_contents()
    explorer = mk.KnowledgeExplorer(Graph(contents), selected="Model:wide")
    first = explorer.payload
    assert (first["analysis"], first["size"]) == ("running", len(contents.modules))
    whole = payload_of(contents)
    for part in ("name", "params", "bytes", "flops", "family", "modules", "structures"):
        assert first["models"][part] == whole["models"][part]
    for part in ("families", "superfamilies", "results", "datasets"):
        assert first[part] == whole[part]
    assert first["entities"]["name"] == first["jobs"]["name"] == []
    assert set(first["models"]["root"]) == {-1}
    assert "in 0 communities" not in svg_text(explorer._static_picture())
    gate.may.set()
    assert when_analysed(explorer) == whole
    assert explorer.selected == "Model:wide"
    explorer.close()


def test_what_only_the_analysis_knows_is_waited_for(gate: Gate) -> None:
    contents = sample_contents()
    explorer = mk.KnowledgeExplorer(Graph(contents))
    key = next(iter(contents.modules))
    explorer.selected = key  # the structures are known before
    assert gate.began.wait(30)
    threading.Timer(0.2, gate.may.set).start()
    explorer.selected = "Community:0"
    assert explorer.selected == "Community:0"
    with pytest.raises(UnknownPathError, match="no 'Community:99'"):
        explorer.selected = "Community:99"
    explorer.close()
    gate.may.set()
    at_once = mk.KnowledgeExplorer(Graph(contents), selected="Community:0")
    assert when_analysed(at_once)["analysis"] == "done"
    assert at_once.selected == "Community:0"
    at_once.close()


def test_a_page_is_saved_with_the_structures(gate: Gate) -> None:
    explorer = mk.KnowledgeExplorer(Graph(sample_contents()))
    threading.Timer(0.2, gate.may.set).start()
    (entry,) = [each for each in page_data(explorer)["widgets"] if each["kind"] == "KnowledgeExplorer"]
    assert entry["state"]["payload"]["analysis"] == "done"
    assert not explorer.finish()
    explorer.close()


def test_the_answer_of_an_older_graph_is_not_shown(gate: Gate) -> None:
    graph = Graph(contents_of({"small": small()}))
    explorer = mk.KnowledgeExplorer(graph)
    older: Any = explorer._analysis
    graph.held = contents_of({"small": small(), "wide": wide()})
    explorer.refresh()
    assert explorer._analysis is not older
    gate.may.set()
    older._thread.join(30)
    assert when_analysed(explorer)["models"]["name"] == ["small", "wide"]
    assert explorer.payload["analysis"] == "done"
    explorer.close()


def test_a_refresh_of_an_unchanged_graph_changes_nothing(gate: Gate) -> None:
    gate.may.set()
    explorer = mk.KnowledgeExplorer(Graph(sample_contents()), selected="Community:0")
    whole = when_analysed(explorer)
    before = threading.active_count()
    for _ in range(5):
        explorer.refresh()
    assert explorer.payload is whole
    assert threading.active_count() == before
    assert explorer.selected == "Community:0"
    explorer.close()


def test_an_analysis_that_nobody_asks_for_ends_after_its_step(gate: Gate) -> None:
    graph = Graph(contents_of({"small": small()}))
    explorer = mk.KnowledgeExplorer(graph, selected="Model:small")
    older: Any = explorer._analysis
    assert gate.began.wait(30)
    graph.held = contents_of({"wide": wide()})
    explorer.refresh()
    assert explorer.selected is None
    gate.may.set()
    assert older.payload()["analysis"] == "failed"  # of which nobody hears
    assert when_analysed(explorer)["analysis"] == "done"
    assert explorer.payload["models"]["name"] == ["wide"]
    explorer.close()


def test_a_community_that_a_refreshed_graph_has_not_is_let_go(gate: Gate) -> None:
    gate.may.set()
    graph = Graph(sample_contents())
    explorer = mk.KnowledgeExplorer(graph)
    when_analysed(explorer)
    last = explorer.payload["communities"]["count"] - 1
    explorer.selected = f"Community:{last}"
    chain = nn.Sequential(nn.Sequential(nn.Sequential(nn.Linear(1, 1))))
    graph.held = contents_of({"chain": chain})
    explorer.refresh()
    assert when_analysed(explorer)["communities"]["count"] <= last
    assert explorer.selected is None
    explorer.close()


def test_a_failed_analysis_says_so_and_leaves_the_models(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    gate.error = RuntimeError("no memory")
    gate.may.set()
    explorer = mk.KnowledgeExplorer(Graph(sample_contents()))
    payload = when_analysed(explorer)
    assert payload["analysis"] == "failed"
    assert payload["models"]["name"][:2] == ["small", "wide"]
    assert "no memory" in caplog.text
    with pytest.raises(UnknownPathError):
        explorer.selected = "Community:0"
    explorer.close()


@pytest.mark.slow
def test_a_closed_explorer_is_left_alone_by_its_analysis(gate: Gate) -> None:
    explorer = mk.KnowledgeExplorer(Graph(sample_contents()))
    running: Any = explorer._analysis
    before = explorer.payload
    explorer.close()
    gate.may.set()
    running._thread.join(30)
    assert explorer.payload is before
    gone = weakref.ref(explorer)
    del explorer, running
    gc.collect()
    assert gone() is None
