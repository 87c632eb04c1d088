"""KnowledgeExplorer in the kernel: payload, traits, errors, links, picture, and what it keeps."""

from __future__ import annotations

import gc
import json
import re
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ipywidgets.widgets.widget import _instances
from torch import nn
from traitlets import TraitError

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import TooLargeError, UnknownAttributeError, UnknownNameError, UnknownPathError
from modulekg_widgets.engine.knowledge.analysis.centrality import importance
from modulekg_widgets.engine.knowledge.analysis.similarity import SimilarityIndex, superfamilies
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.prediction.data.features import find_record
from modulekg_widgets.engine.views.knowledge_payload import RUNNING, Findings, analyse_contents, knowledge_payload
from modulekg_widgets.engine.views.payload import text
from modulekg_widgets.engine.views.pictures.svg import svg_text
from modulekg_widgets.widgets import knowledge_explorer
from modulekg_widgets.widgets.knowledge_explorer import VIEWS
from modulekg_widgets.widgets.shared.base import WidgetValueError
from modulekg_widgets.widgets.shared.pair_links import links_of
from widgets.golden_models import Block
from widgets.knowledge_samples import Graph, contents_of, golden_knowledge, payload_of, sample_contents, small, wide

GOLDEN = Path(__file__).parent / "golden_knowledge"
MADE = golden_knowledge()
HOSTILE = "<img src=x onerror=alert(1)>"


FOUND: dict[int, tuple[Contents, Findings]] = {}


@pytest.fixture(autouse=True)
def analysed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same contents are analysed by the first test alone."""

    def known(contents: Contents) -> Findings:
        if id(contents) not in FOUND:
            FOUND[id(contents)] = contents, analyse_contents(contents)
        return FOUND[id(contents)][1]

    monkeypatch.setattr(knowledge_explorer, "analyse_contents", known)


@pytest.fixture(scope="module")
def contents() -> Contents:
    return sample_contents()


@pytest.fixture(scope="module")
def payload(contents: Contents) -> dict[str, Any]:
    return payload_of(contents)


@pytest.fixture
def explorer(contents: Contents) -> Iterator[Any]:
    widget = mk.KnowledgeExplorer(Graph(contents))
    yield widget
    widget.close()


def digest_of(module: nn.Module) -> str:
    return mk.fingerprint(module).hexdigest


# ------------------------------------------------------------------ payload


@pytest.mark.parametrize("name", sorted(MADE))
def test_payload_is_the_golden_one(name: str) -> None:
    # a wanted change is written with: python tests/widgets/write_golden.py
    assert {file.stem for file in GOLDEN.glob("*.json")} == set(MADE)
    assert json.loads(json.dumps(MADE[name])) == json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))
    json.dumps(MADE[name], allow_nan=False, ensure_ascii=False).encode("utf-8")


def test_the_columns_say_what_the_graph_holds(contents: Contents, payload: dict[str, Any]) -> None:
    entities, models = payload["entities"], payload["models"]
    assert entities["digest"] == list(contents.modules)
    assert entities["params"] == [node.parameters for node in contents.modules.values()]
    place = entities["digest"].index(digest_of(Block(4)))
    assert payload["classes"]["name"][entities["class"][place]] == "Block"
    uses = [
        members[at + 2] for members in models["members"] for at in range(0, len(members), 3) if members[at] == place
    ]
    assert uses == [2, 1, 2]  # in small, wide and twin
    conv, act = (entities["digest"].index(digest_of(part)) for part in (Block(4).conv, nn.ReLU()))
    assert entities["children"][place] == [conv, 1, act, 1]
    fields = payload["classes"]["fields"][entities["class"][conv]]
    values = [payload["values"][position] for position in entities["hyper"][conv]]
    assert dict(zip(fields, values, strict=True))["out_channels"] == 4
    assert models["name"][:3] == ["small", "wide", "twin"]
    assert models["root"][0] == models["root"][2]
    assert payload["families"][models["family"][0]] == "Sequential"


def test_models_that_are_alike_are_named_with_how_much(contents: Contents, payload: dict[str, Any]) -> None:
    models = payload["models"]
    assert models["nearest"][0][:2] == [2, 1000]  # small and its twin
    expected = SimilarityIndex(contents).most_similar(find_record(contents, "wide"), 1, "wide")
    place, likeness = models["nearest"][1][:2]
    assert models["name"][place] == expected["model"][0]
    assert likeness == round(1000 * float(expected["similarity"].iloc[0]))
    assert models["modules"][0] == sum(contents.models["small"].occurrences.values())
    assert models["structures"][0] == len({key for key, _ in contents.models["small"].occurrences})


def test_results_are_columns_by_target_and_place() -> None:
    kg = mk.KnowledgeGraph()
    for name in ("small", "wide"):
        kg.add_model(small() if name == "small" else wide(), name=name)
    kg.add_dataset("digits")
    kg.add_job(name="a", model="small", dataset="digits", accuracy=0.5)
    reached = pd.DataFrame({"model": ["small", "wide"], "ms": [2.0, 3.0], "image_size": [8, 8]})
    kg.add_results(reached, unit="ms", device="CPU", columns={"ms": "latency"})
    shares = pd.DataFrame({"model": ["wide"], "share": [0.25]})
    kg.add_results(shares, dataset="digits", unit="fraction", columns={"share": "mAP"})
    contents = kg.contents()
    latency, *others = knowledge_payload(contents, superfamilies(contents), None, RUNNING)["results"]
    assert (latency["target"], latency["unit"], latency["device"], latency["cost"]) == ("latency", "ms", "CPU", True)
    assert (latency["model"], latency["value"], latency["size"]) == ([0, 1], [2.0, 3.0], [8, 8])
    assert {(each["target"], each["unit"], each["dataset"], *each["value"], each["cost"]) for each in others} == {
        ("acc@1", "%", "digits", 50.0, False),
        ("mAP", "%", "digits", 25.0, False),
    }


def test_every_structure_has_its_community_and_types(payload: dict[str, Any]) -> None:
    assert set(payload["entities"]["community"]) == set(range(payload["communities"]["count"]))
    first = payload["types"][0]
    of = dict(zip(payload["entities"]["digest"], first["of"], strict=True))
    blocks = [digest_of(Block(width)) for width in (4, 8, 16)]
    assert len({of[block] for block in blocks}) == 1
    assert of[blocks[0]] >= 0
    differs = dict(zip(payload["entities"]["digest"], first["differs"], strict=True))
    assert {first["texts"][differs[block]] for block in blocks} == {"", "width"}


def test_the_findings_are_those_of_the_engine(contents: Contents, payload: dict[str, Any]) -> None:
    table = importance(contents, "pagerank")
    by_name = dict(zip(payload["entities"]["name"], payload["entities"]["importance"]["pagerank"], strict=True))
    for name, value in zip(table["name"], table["pagerank"], strict=True):
        assert by_name[text(name)] == pytest.approx(value, rel=1e-4)


def test_a_graph_of_nothing_is_shown() -> None:
    widget = mk.KnowledgeExplorer(Graph(Contents()))
    assert repr(widget) == "<KnowledgeExplorer of 0 models: 0 structures, selected=None>"
    assert svg_text(widget._static_picture()).startswith("<svg")
    widget.close()


# ------------------------------------------------------------------ traits


def test_state_holds_the_payload(explorer: Any) -> None:
    state = explorer.get_state()
    assert (state["payload"]["schema_version"], state["payload"]["kind"]) == (2, "knowledge")
    assert (state["_model_module"], state["_model_name"]) == ("modulekg-widgets", "KnowledgeExplorerModel")
    json.dumps(state, allow_nan=False, default=str).encode("utf-8")


def test_everything_that_is_shown_can_be_selected(explorer: Any) -> None:
    block = digest_of(Block(4))
    families = ["Family:Sequential", "Superfamily:Sequential"]
    kinds = [block, "Model:small", *families, "Community:0", f"Model:{HOSTILE}", None]
    for key in kinds:
        explorer.selected = key
        assert explorer.selected == key
    (name,) = {explorer.payload["types"][0]["name"][0]}
    explorer.selected = f"Type:{name}"


@pytest.mark.parametrize(
    ("trait", "value", "error", "message"),
    [
        ("selected", "Model:smal", UnknownPathError, "did you mean 'Model:small'"),
        ("selected", "Community:99", UnknownPathError, "no 'Community:99'"),
        ("selected", "0" * 32, UnknownPathError, "known: 'Model"),
        ("view", "rankng", UnknownNameError, "did you mean 'ranking'"),
        ("color_by", "use", UnknownNameError, "did you mean 'uses'"),
        ("query", 3, WidgetValueError, "query"),
        ("selected", 3, WidgetValueError, "selected"),
    ],
)
def test_a_wrong_value_is_refused_with_the_nearest(
    explorer: Any, trait: str, value: object, error: type[Exception], message: str
) -> None:
    before = getattr(explorer, trait)
    with pytest.raises(error, match=message) as caught:
        setattr(explorer, trait, value)
    assert isinstance(caught.value, mk.ModuleKGError)
    assert getattr(explorer, trait) == before


def test_keywords_and_attributes_are_strict(explorer: Any, contents: Contents) -> None:
    with pytest.raises(TypeError, match="did you mean 'color_by'"):
        mk.KnowledgeExplorer(Graph(contents), colour_by="uses")
    with pytest.raises(UnknownAttributeError, match="did you mean 'selected'"):
        explorer.select = "Model:small"
    with pytest.raises(TraitError, match="shows a KnowledgeGraph: a Linear was passed"):
        mk.KnowledgeExplorer(nn.Linear(1, 1))


def test_a_wrong_value_at_the_start_opens_nothing(contents: Contents) -> None:
    before = set(_instances)
    with pytest.raises(UnknownPathError):
        mk.KnowledgeExplorer(Graph(contents), selected="Model:nothing")
    assert not [w for key, w in _instances.items() if key not in before and isinstance(w, mk.KnowledgeExplorer)]


def test_more_than_a_page_holds_is_refused(contents: Contents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knowledge_explorer, "MAX_STRUCTURES", 15)
    with pytest.raises(TooLargeError, match="the graph has 16 structures, and a page holds 15 at most"):
        mk.KnowledgeExplorer(Graph(contents))


def test_jobs_are_a_view_before_there_are_some(explorer: Any) -> None:
    # the page says there what to write
    explorer.view = "jobs"
    widget = mk.KnowledgeExplorer(Graph(sample_contents(jobs=False)))
    widget.view = "jobs"
    widget.refresh()
    assert widget.view == "jobs"
    widget.close()


def test_refresh_shows_what_was_added_and_drops_what_is_gone() -> None:
    graph = Graph(contents_of({"small": small()}))
    explorer = mk.KnowledgeExplorer(graph, selected="Model:small")
    with pytest.raises(UnknownPathError):
        explorer.selected = "Model:wide"
    graph.held = contents_of({"small": small(), "wide": wide()})
    explorer.refresh()
    assert explorer.selected == "Model:small"
    explorer.selected = "Model:wide"
    graph.held = contents_of({"small": small()})
    explorer.refresh()
    assert explorer.selected is None
    assert explorer.payload["models"]["name"] == ["small"]
    explorer.close()


def test_a_real_graph_is_shown() -> None:
    kg = mk.KnowledgeGraph()
    kg.add_model(small(), name="small")
    explorer = mk.KnowledgeExplorer(kg, view="ranking", color_by="uses", query="params>1")
    assert explorer.payload["models"]["name"] == ["small"]
    kg.add_model(wide(), name="wide")
    explorer.refresh()
    assert explorer.payload["models"]["name"] == ["small", "wide"]
    explorer.close()


# ------------------------------------------------------------------ pictures and links


def test_the_picture_is_small_and_escaped(explorer: Any) -> None:
    bundle = explorer._repr_mimebundle_()
    picture = bundle["image/svg+xml"]
    assert len(picture) < 100_000
    assert "<img" not in picture
    assert "&lt;" not in picture or "onerror" not in picture
    assert "4 models: " in picture
    assert "KnowledgeExplorer" in bundle["text/plain"]


def test_a_link_shares_structures_with_a_graph(explorer: Any) -> None:
    graph = mk.ModelGraph(small(), selected="1.act")
    link = mk.link(explorer, graph)
    assert explorer.selected == digest_of(nn.ReLU())
    explorer.selected = digest_of(Block(4))
    assert graph.selected == "0"
    graph.selected = "1"  # the same structure
    assert explorer.selected == digest_of(Block(4))
    graph.selected = "3"
    assert explorer.selected == digest_of(nn.Linear(4, 2))
    explorer.selected = digest_of(Block(16))  # not in this model
    assert graph.selected == "3"
    explorer.selected = "Model:small"
    assert graph.selected == ""
    explorer.selected = None
    assert graph.selected == ""
    assert explorer.get_state()["graphs"] == [f"IPY_MODEL_{graph.model_id}"]
    link.close()
    explorer.selected = digest_of(Block(4))
    assert graph.selected == ""
    assert (links_of(explorer), links_of(graph), explorer.graphs) == ([], [], [])
    graph.close()


def test_a_structure_that_no_model_has_is_not_told(explorer: Any) -> None:
    graph = mk.ModelGraph(nn.Sequential(nn.Conv1d(1, 1, 1)), selected="0")
    mk.link(graph, explorer)
    assert explorer.selected is None
    graph.close()
    assert links_of(explorer) == []


def test_two_explorers_share_the_selection(contents: Contents, explorer: Any) -> None:
    other = mk.KnowledgeExplorer(Graph(contents))
    mk.link(explorer, other)
    other.selected = "Model:wide"
    assert explorer.selected == "Model:wide"
    other.close()


@pytest.mark.slow
def test_a_closed_explorer_leaves_nothing(contents: Contents) -> None:
    before = set(_instances)
    graph = Graph(contents)
    explorer = mk.KnowledgeExplorer(graph)
    references = [weakref.ref(explorer), weakref.ref(graph)]
    explorer.close()
    del explorer, graph
    gc.collect()
    assert [reference() for reference in references] == [None, None]
    assert set(_instances) == before


def test_what_a_page_sets_wrongly_is_put_back() -> None:
    graph = mk.KnowledgeGraph()
    graph.add_model(nn.Linear(2, 2), name="net")
    explorer = mk.KnowledgeExplorer(graph)
    payload = explorer.payload
    for state in (
        {"view": "x", "payload": {}},
        {"view": "x"},
        {"color_by": "x", "view": "overlap"},
    ):
        with pytest.raises(UnknownNameError):
            explorer.set_state(state)
        assert (explorer.view, explorer.color_by) == ("graph", "family")
    explorer.set_state({"view": "frequency", "payload": {}})
    assert explorer.view == "frequency"
    assert explorer.payload is payload  # of which no page is believed
    explorer.close()


def test_both_sides_know_the_same_views() -> None:
    script = (Path(__file__).parents[2] / "js/src/core/words/knowledge.ts").read_text("utf-8")
    body = script.partition("export const VIEWS = {")[2].partition("}")[0]
    assert tuple(re.findall(r"^  (\w+):", body, re.MULTILINE)) == VIEWS
