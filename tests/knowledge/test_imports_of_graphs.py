"""Graphs that come back from GraphML, Cytoscape JSON and JSON-LD as they were written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import modulekg_widgets as mk
from knowledge.exchanged import READABLE, everything, exactly
from knowledge.graphs import contents_of, zoo_contents
from modulekg_widgets.engine.errors import GraphFileError
from modulekg_widgets.engine.knowledge.exchange import export_contents, export_graph, read_contents
from modulekg_widgets.engine.knowledge.exchange.graph_reader import from_networkx
from modulekg_widgets.engine.knowledge.exchange.property_graph import to_networkx
from modulekg_widgets.engine.knowledge.facts.contents import Contents, JobNode
from modulekg_widgets.engine.knowledge.facts.records import model_record

formats = pytest.mark.parametrize("ending", READABLE)


@formats
def test_everything_comes_back(ending: str, tmp_path: Path) -> None:
    path = export_contents(everything(), tmp_path / f"graph.{ending}")
    assert exactly(read_contents(path)) == exactly(everything())
    graph, expected = mk.load_graph(path), mk.KnowledgeGraph()
    expected.add_contents(everything())
    counts = (graph.number_of_nodes(), graph.number_of_edges())
    assert counts == (expected.number_of_nodes(), expected.number_of_edges())
    assert counts == (len(graph.to_networkx()), graph.to_networkx().size())


@formats
def test_torchvision_comes_back_equal(ending: str, tmp_path: Path) -> None:
    path = export_contents(zoo_contents(), tmp_path / f"graph.{ending.upper()}")
    assert read_contents(path) == zoo_contents()
    again = export_contents(read_contents(path), tmp_path / f"again.{ending}")
    assert again.read_bytes() == path.read_bytes()


@formats
def test_a_graph_of_the_seed_scheme_and_an_empty_one_come_back(ending: str, tmp_path: Path) -> None:
    record = model_record(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), "small", "seed")
    for contents in (Contents("seed", record.nodes, {"small": record.model}), Contents(), Contents("seed")):
        assert read_contents(str(export_contents(contents, tmp_path / f"g.{ending}"))) == contents


@formats
def test_a_part_of_a_graph_is_a_graph_where_it_needs_nothing_else(ending: str, tmp_path: Path) -> None:
    contents = everything()
    path = tmp_path / f"part.{ending}"
    read = read_contents(export_graph(to_networkx(contents, "Module"), path))
    assert exactly(read) == exactly(Contents(modules=contents.modules))
    export_graph(to_networkx(contents, ("Module", "Model", "Job")), path)
    with pytest.raises(GraphFileError, match=r"the user .* of the job .* is missing"):
        read_contents(path)


def test_networkx_holds_everything() -> None:
    graph = to_networkx(everything(), "all")
    assert exactly(from_networkx(graph)) == exactly(everything())


@formats
def test_what_other_tools_add_does_not_hurt(ending: str, tmp_path: Path) -> None:
    path = export_contents(zoo_contents(("resnet18",)), tmp_path / f"g.{ending}")
    text = path.read_text()
    if ending == "graphml":
        text = text.replace("<graphml ", '<?xml version="1.0" encoding="UTF-8"?>\n<!-- laid out --><graphml ', 1)
        text = text.replace("  <graph ", '  <key id="x" for="node" attr.name="x" attr.type="double"/>\n  <graph ', 1)
        text = text.replace("    </node>", '      <data key="x">1.5</data>\n    </node>', 1)
    else:
        document = json.loads(text)
        nodes = document["elements"]["nodes"] if ending == "cyjs" else document["@graph"]
        for node in nodes:
            node.update(position={"x": 1.5, "y": 2})
            node.get("data", node)["color"] = "#fff"
        text = json.dumps(document, indent=1)
    path.write_text(text)
    assert read_contents(path) == zoo_contents(("resnet18",))


@formats
def test_a_run_may_be_taken_away_with_its_edges(ending: str, tmp_path: Path) -> None:
    contents = everything()
    graph = to_networkx(contents)
    graph.remove_node("Job:=1+1")
    read = read_contents(export_graph(graph, tmp_path / f"g.{ending}"))
    jobs = {name: job for name, job in contents.jobs.items() if name != "=1+1"}
    assert exactly(read) == exactly(replace(contents, jobs=jobs))


# ------------------------------------------------------------------ refused


def changed(contents: Contents, path: Path, change: Callable[[Any], object]) -> Path:
    graph = to_networkx(contents, ("Module", "Model", "DataSet", "User", "Job", "Operator"))
    change(graph)
    return export_graph(graph, path)


def runs() -> Contents:
    contents = contents_of(net=nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    job = JobNode("run", None, None, "net", 0.5, None, {"a": [(1, 2)]}, 1.0, 2.0, {})
    return replace(contents, jobs={"run": job})


def root_of(graph: Any) -> Any:
    return graph.nodes[graph.nodes["Model:net"]["root"]]


FORGED: dict[str, tuple[str, Callable[[Any], object]]] = {
    "no type": ("type|no fingerprint", lambda g: g.nodes["Job:run"].pop("type")),
    "another type": ("type", lambda g: g.nodes["Job:run"].update(type="Robot")),
    "no root": ("root", lambda g: g.nodes["Model:net"].pop("root")),
    "an unknown root": ("root .* is missing", lambda g: g.nodes["Model:net"].update(root="0" * 32)),
    "an unknown child": ("child .* is missing", lambda g: root_of(g)["slots"][0].__setitem__(1, "0" * 32)),
    "a slot twice": ("each name stands once", lambda g: root_of(g)["slots"][1].__setitem__(0, "0")),
    "a slot of three": ("slots", lambda g: root_of(g)["slots"].append(["a", None, 1])),
    "an unknown level": ("occurrences", lambda g: g.nodes["Model:net"]["occurrences"][0].__setitem__(1, "attic")),
    "a count of nothing": ("occurrences", lambda g: g.nodes["Model:net"]["occurrences"][0].__setitem__(2, 0)),
    "a negative count": ("occurrences", lambda g: g.nodes["Model:net"]["occurrences"][0].__setitem__(2, -3)),
    "a count that is a text": ("occurrences", lambda g: g.nodes["Model:net"]["occurrences"][0].__setitem__(2, "3")),
    "a pair twice": ("different pairs", lambda g: g.nodes["Model:net"]["occurrences"].append(
        list(g.nodes["Model:net"]["occurrences"][0]))),
    "modules that are not counted": ("does not consist", lambda g: g.nodes["Model:net"]["occurrences"].pop()),
    "unknown modules": ("which is missing", lambda g: g.nodes["Model:net"]["dataflow"].append(["0" * 32, "1" * 32, 1])),
    "a cycle": ("contains itself", lambda g: g.nodes[root_of(g)["slots"][1][1]].update(
        slots=[["up", g.nodes["Model:net"]["root"]]])),
    "negative parameters": ("parameters", lambda g: root_of(g).update(parameters=-1)),
    "endless parameters": ("parameters", lambda g: root_of(g).update(parameters=2**63)),
    "real bytes": ("bytes", lambda g: root_of(g).update(bytes=1.5)),
    "a shape that is none": ("tensors", lambda g: root_of(g).update(tensors={"w": [1, -1]})),
    "bases that are not texts": ("bases", lambda g: root_of(g).update(bases=[1])),
    "hyper-parameters that are a list": ("hyperparameters", lambda g: root_of(g).update(hyperparameters=[])),
    "a cyclic that is a number": ("cyclic", lambda g: g.nodes["Model:net"].update(cyclic=1)),
    "another name": ("called by its key", lambda g: g.nodes["Model:net"].update(name="other")),
    "an accuracy of 200 %": ("fraction", lambda g: g.nodes["Job:run"].update(accuracy=2.0)),
    "an accuracy that is none": ("accuracy", lambda g: g.nodes["Job:run"].update(accuracy=float("nan"))),
    "an end before the start": ("after its start", lambda g: g.nodes["Job:run"].update(ended=0.5)),
    "a start in milliseconds": ("started", lambda g: g.nodes["Job:run"].update(started=1767225600000.0, ended=None)),
    "an end after all calendars": ("ended", lambda g: g.nodes["Job:run"].update(ended=1e18)),
    "a start before all calendars": ("started", lambda g: g.nodes["Job:run"].update(started=-1e12)),
    "no start": ("started", lambda g: g.nodes["Job:run"].pop("started")),
    "a history of texts": ("history", lambda g: g.nodes["Job:run"].update(history={"a": [["1", 2]]})),
    "an unknown model": ("model .* of the job .* is missing", lambda g: g.nodes["Job:run"].update(model="gone")),
    "a missing edge": ("is missing", lambda g: g.remove_edge("Job:run", "Model:net")),
    "an edge of its own": ("fits to nothing", lambda g: g.add_edge("Model:net", "Job:run", type="trains")),
    "another scheme": ("the scheme is", lambda g: g.graph.update(scheme="mine")),
    "a fingerprint that is none": ("no fingerprint", lambda g: g.add_node("xyz", **root_of(g))),
}  # fmt: skip


@pytest.mark.parametrize("what", FORGED)
@formats
def test_what_does_not_fit_together_is_refused(ending: str, what: str, tmp_path: Path) -> None:
    reason, change = FORGED[what]
    path = changed(runs(), tmp_path / f"forged.{ending}", change)
    with pytest.raises(GraphFileError, match=f"(?s)forged.*' is not a graph that can be read: .*{reason}"):
        read_contents(path)


@formats
def test_the_forged_graphs_would_be_read_without_the_change(ending: str, tmp_path: Path) -> None:
    assert read_contents(changed(runs(), tmp_path / f"g.{ending}", lambda graph: None)) == runs()


@formats
def test_a_newer_version_is_named(ending: str, tmp_path: Path) -> None:
    path = export_contents(runs(), tmp_path / f"new.{ending}")
    old, new = (">1</data>", ">2</data>") if ending == "graphml" else ('"version": 1', '"version": 2')
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(GraphFileError, match=r"has version 2, and this program reads up to 1: update modulekg-widgets"):
        read_contents(path)


FOREIGN = {
    "graphml": '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph><node id="a"/></graph></graphml>',
    "cyjs": '{"data": {}, "elements": {"nodes": [{"data": {"id": "a"}}]}}',
    "jsonld": '{"@context": "https://schema.org", "@type": "Person", "name": "x"}',
}


@formats
@pytest.mark.parametrize(
    "content",
    ["foreign", b"", b"\0", b"{}", b"[]", b"null", b"<a/>", b"<graphml/>", b"\xff\xfe<\0a\0/\0>\0", b"{" * 9999],
)
def test_files_of_others_are_refused(ending: str, content: str | bytes, tmp_path: Path) -> None:
    path = tmp_path / f"other.{ending}"
    path.write_bytes(FOREIGN[ending].encode() if isinstance(content, str) else content)
    with pytest.raises(GraphFileError, match=f"other.{ending}' is not a graph that can be read: "):
        read_contents(path)


@formats
def test_a_file_that_was_cut_is_refused(ending: str, tmp_path: Path) -> None:
    content = export_contents(runs(), tmp_path / f"g.{ending}").read_bytes()
    path = tmp_path / f"cut.{ending}"
    for end in [*range(0, len(content) - 4, 211), len(content) - 4]:
        path.write_bytes(content[:end])
        with pytest.raises(GraphFileError, match="cut"):
            read_contents(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.cyjs")
    (tmp_path / "folder.graphml").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    for name in ("pipe.cyjs", "folder.graphml", "missing.jsonld", "notes.txt", "none", "nul\0.cyjs"):
        with pytest.raises(GraphFileError, match=r"read|ordinary"):
            read_contents(tmp_path / name)
    for other in (None, 3, b"x.cyjs"):
        with pytest.raises(GraphFileError, match="named by the path of a file"):
            read_contents(other)  # type: ignore[arg-type]
        with pytest.raises(GraphFileError, match="named by the path of a file"):
            mk.load_graph(other)  # type: ignore[arg-type]
