"""What makes large graphs quick changes no answer: counts without a graph, quick JSON, XML written directly."""

from __future__ import annotations

import gc
import io
from collections import Counter
from dataclasses import replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from torch import nn

import modulekg_widgets as mk
from knowledge.exchanged import HOSTILE, everything
from knowledge.graphs import contents_of, key, made_up, zoo_contents
from modulekg_widgets.engine.errors import PropertyError, UnwritableFileError
from modulekg_widgets.engine.knowledge.exchange import export_contents, export_graph, exporters
from modulekg_widgets.engine.knowledge.exchange.graph_xml import gexf, graphml
from modulekg_widgets.engine.knowledge.exchange.json_formats import object_text, value_text
from modulekg_widgets.engine.knowledge.exchange.lossless_format import MAX_VALUES, header, xml_escaped
from modulekg_widgets.engine.knowledge.exchange.property_graph import (
    copy_values,
    edge_count,
    gc_paused,
    node_count,
    property_graph,
    to_networkx,
)
from modulekg_widgets.engine.knowledge.facts.contents import Contents, JobNode, UserNode
from modulekg_widgets.engine.knowledge.facts.property_values import encode, to_json
from modulekg_widgets.engine.knowledge.facts.records import model_record

ALL = "all"


# ------------------------------------------------------------------ counts


def broken() -> Contents:
    """Edges to what is not there: a child, a root, the ends of runs and of a trace."""
    made = made_up({"a": ["b", "b", None], "b": ["b"], "c": ["gone"]}, {"whole": {"a": 1}, "rest": {"gone": 1}})
    models = {**made.models, "rest": replace(made.models["rest"], occurrences=Counter())}
    models["whole"].feeds.update({(key("a"), key("b")): 2, (key("b"), key("a")): 1, (key("a"), "gone"): 1})
    models["rest"].feeds.update({(key("b"), key("a")): 1, ("gone", key("a")): 1})
    models["rest"].calls.update({("gone", "aten.relu"): 1, (key("c"), "aten.relu"): 1, (key("c"), "aten.add"): 1})
    models["whole"].calls.update({(key("c"), "aten.relu"): 3})
    jobs = {
        name: JobNode(name, user, "gone", model, None, None, {}, 0.0, None, {})
        for name, user, model in (("one", "ada", "whole"), ("two", "gone", None), ("three", None, "gone"))
    }
    return replace(made, models=models, users={"ada": UserNode("ada", {})}, jobs=jobs)


@cache
def graphs() -> dict[str, Contents]:
    traced = contents_of(net=nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.ReLU()))
    return {
        "everything": everything(), "torchvision": zoo_contents(), "empty": Contents(), "broken": broken(),
        "modules alone": traced, "models that nobody trains": replace(everything(), datasets={}, users={}, jobs={}),
        "users": Contents(users={"ada": UserNode("ada", {})}),
        "of the seed": Contents("seed", *_seed()),
    }  # fmt: skip


def _seed() -> tuple[Any, Any]:
    record = model_record(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.ReLU()), "small", "seed")
    return record.nodes, {"small": record.model}


@pytest.mark.parametrize("name", graphs())
def test_counts_are_those_of_the_graph(name: str) -> None:
    contents = graphs()[name]
    graph = to_networkx(contents)
    assert (node_count(contents), edge_count(contents)) == (graph.number_of_nodes(), graph.number_of_edges())


def test_a_graph_counts_what_was_traced_and_trained() -> None:
    kg = mk.KnowledgeGraph()
    kg.add_model(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), name="net")
    assert (kg.number_of_nodes(), kg.number_of_edges()) == (3, 2)
    kg.add_user("ada")
    kg.add_dataset("digits")
    kg.add_job(user="ada", dataset="digits", model="net")
    graph = kg.to_networkx()
    assert (kg.number_of_nodes(), kg.number_of_edges()) == (len(graph), graph.size()) == (7, 6)


# ------------------------------------------------------------------ JSON


class Text(str):
    """A text that is no plain value."""


VALUES: list[Any] = [
    [], (), {}, [[]], {"a": []}, {"a": ()}, {"a": {}}, [()], [1, "a", None, True], [[1, [2.5]], ["b"], None],
    {"a": (1, 2), "b": [3], "c": None}, {"a": (1, (2,))}, {"a": ([1],)}, {"a": [(1,)]}, {"$tuple": [1]}, {"$x": 1},
    {"$x": 1, "y": 2}, {1: 2}, {None: 1}, {"a": float("nan")}, {"a": float("inf")}, [float("-inf")], {"a": -0.0},
    {"a": 2**53}, {"a": 2**53 + 1}, {"a": -(2**60)}, [2**70], [1e300], {"a": (2**60,)}, {"a": (float("nan"),)},
    [[[[1]]]], [[[[[1]]]]], {"a": [[[1]]]}, {"a": [[[[1]]]]}, {"a": b"x"}, {"a": 1j}, {"a": datetime(2024, 1, 1)},
    {"a": np.float32(1.5)}, [np.int64(3)], {"a": np.str_("x")}, ["\ud83d\ude00"], ["😀"], {"\ud83d\ude00": 1},
    [["\ud800"]], {"a": ("\ud83d\ude00",)}, ["x" * 10_000] * 3, [1] * 1000, {"a": True, "b": (True, 1, 1.0)},
    "\ud83d\ude00", "é", 5, 2**60, 1.5, float("nan"), True, ("a", "b"), (1, (2,)), HOSTILE,
    {name: name for name in HOSTILE}, [[0] * 400] * 400, {"a": tuple([tuple([0] * 400)] * 400)},
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(VALUES)))
def test_quick_json_is_the_same_text(at: int) -> None:
    value = VALUES[at]
    listed = list(value) if type(value) is tuple else value
    assert value_text(value, "x") == encode(listed, "x", MAX_VALUES)
    if value is not None:
        expected = {"id": "é", "x": to_json(listed, "x", MAX_VALUES), "end": [1]}
        assert object_text({"id": "é"}, {"x": value, "none": None}, {"end": [1]}) == object_text(expected, {})


@pytest.mark.parametrize("value", [[object()], {"a": object()}, {"a": (object(),)}, [Text("a")], {Text("a"): 1}, [{1}]])
def test_quick_json_refuses_the_same_values(value: Any) -> None:
    for write in (lambda: value_text(value, "x"), lambda: object_text({}, {"x": value}), lambda: encode(value, "x")):
        with pytest.raises(PropertyError, match="property 'x"):
            write()


def test_lists_that_share_lists_take_no_more_memory_than_is_allowed() -> None:
    row: list[Any] = [0] * 100_000
    for value in ([row] * 100_000, {"a": [row] * 100_000}, dict.fromkeys(map(str, range(1000)), tuple(row))):
        with pytest.raises(PropertyError, match="longer than"):
            value_text(value, "x", 500_000)


# ------------------------------------------------------------------ XML


def scalars(data: dict[str, Any], relation: str = "type") -> dict[str, Any]:
    return {
        relation if name == "type" else name: scalar(value, name) for name, value in data.items() if value is not None
    }


def scalar(value: Any, name: str) -> Any:
    if type(value) is str:
        return xml_escaped(value)
    return value if type(value) in (bool, int, float) else encode(list(value) if type(value) is tuple else value, name)


def test_networkx_reads_graphml_with_every_value_and_type(tmp_path: Path) -> None:
    graph = to_networkx(everything(), ALL)
    again = nx.read_graphml(export_contents(everything(), tmp_path / "graph.graphml"))
    assert again.graph.items() >= header(graph).items()
    assert dict(again.nodes(data=True)) == {xml_escaped(node): scalars(data) for node, data in graph.nodes(data=True)}
    assert {(start, end): data for start, end, data in again.edges(data=True)} == {
        (xml_escaped(start), xml_escaped(end)): scalars(data) for start, end, data in graph.edges(data=True)
    }
    assert {type(data["started"]) for _, data in again.nodes(data=True) if "started" in data} == {float}


def test_networkx_reads_gexf_with_every_value_and_type(tmp_path: Path) -> None:
    graph = to_networkx(everything(), ALL)
    again = nx.read_gexf(export_contents(everything(), tmp_path / "graph.gexf"))
    assert dict(again.nodes(data=True)) == {
        xml_escaped(node): {**scalars(data), "label": xml_escaped(data["name"])}
        for node, data in graph.nodes(data=True)
    }
    edges = {(start, end): data for start, end, data in again.edges(data=True)}
    assert sorted(int(data.pop("id")) for data in edges.values()) == list(range(graph.size()))
    assert edges == {
        (xml_escaped(start), xml_escaped(end)): scalars(data, "relation") for start, end, data in graph.edges(data=True)
    }


@pytest.mark.parametrize(("ending", "read"), [("graphml", nx.read_graphml), ("gexf", nx.read_gexf)])
def test_numbers_that_are_whole_in_one_node_and_not_in_another(ending: str, read: Any, tmp_path: Path) -> None:
    graph = nx.DiGraph(scheme="structure")
    values: list[Any] = [1, 0.5, True, '<&>"é😀', float("inf"), -3]
    for at, value in enumerate(values):
        graph.add_node(f"n{at}", x=value, y=values[at % 2], z=value if at else None)
    again = read(export_graph(graph, tmp_path / f"graph.{ending}"))
    found = [again.nodes[f"n{at}"] for at in range(len(values))]
    assert [data["y"] for data in found] == [1, 0.5] * 3
    assert "z" not in found[0]
    assert found[3]["x"] == values[3]


@pytest.mark.parametrize("write", [graphml, gexf])
def test_xml_of_an_empty_graph_is_what_networkx_reads(write: Any) -> None:
    text = "\n".join(write(property_graph(Contents(), ALL)))
    again = nx.parse_graphml(text) if write is graphml else nx.read_gexf(io.BytesIO(text.encode()))
    assert (len(again), again.is_directed()) == (0, True)


# ------------------------------------------------------------------ what is shared, and what runs meanwhile


def test_a_copy_shares_nothing_that_can_be_changed() -> None:
    inner: list[Any] = [1]
    values = {
        "a": 1,
        "b": (1, "x"),
        "c": (1, inner),
        "d": inner,
        "e": {"f": inner},
        "g": None,
        "h": datetime(2024, 1, 1),
    }
    made = copy_values(values)
    assert made == values
    assert list(made) == list(values)
    inner.append(2)
    assert (made["c"], made["d"], made["e"]) == ((1, [1]), [1], {"f": [1]})
    plain = {"a": 1}
    copy_values(plain)["a"] = 2
    assert plain == {"a": 1}


@pytest.mark.parametrize("ending", ["dot", "edges", "graphml", "gexf", "cyjs", "jsonld", "csv"])
def test_a_file_is_the_same_from_the_graph_of_networkx(ending: str, tmp_path: Path) -> None:
    types = "Module" if ending == "edges" else ALL
    one = export_contents(everything(), tmp_path / f"one.{ending}")
    other = export_graph(to_networkx(everything(), types), tmp_path / f"other.{ending}")
    assert one.read_bytes() == other.read_bytes()


def test_the_collector_runs_again_whatever_is_raised() -> None:
    assert gc.isenabled()
    seen: list[bool] = []

    def fail() -> None:
        with gc_paused(), gc_paused():
            seen.append(gc.isenabled())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (seen, gc.isenabled()) == ([False], True)
    gc.disable()
    try:
        with gc_paused():
            pass
        assert not gc.isenabled()  # it was the caller who paused it
    finally:
        gc.enable()


def test_the_collector_runs_in_an_exporter_of_the_user_and_after_a_failure(tmp_path: Path) -> None:
    seen: list[bool] = []

    def fails(graph: nx.DiGraph) -> list[str]:
        seen.append(gc.isenabled())
        raise ValueError("no")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporters, "entries", exporters.entries)
        mk.exporter("fails")(fails)
        with pytest.raises(UnwritableFileError, match="no"):
            export_contents(zoo_contents(("resnet18",)), tmp_path / "graph.fails")
    with pytest.raises(mk.ModuleKGError):
        export_contents(Contents(users={"a": UserNode("a", {"x": object()})}), tmp_path / "graph.graphml")
    assert (seen, gc.isenabled()) == ([True], True)
