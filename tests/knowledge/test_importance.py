"""Importance with igraph and without, and what models have in common."""

import random
import sys
from itertools import pairwise

import numpy as np
import pytest
from torch import nn

from knowledge.graphs import FEW, class_name, contents_of, key, made_up, zoo_contents
from modulekg_widgets.engine.errors import UnknownNameError, UnknownPathError
from modulekg_widgets.engine.knowledge.analysis.centrality import (
    IGRAPH_MEASURES,
    MEASURES,
    NETWORKX_MEASURES,
    importance,
    importance_by_key,
)
from modulekg_widgets.engine.knowledge.analysis.containment import Containment, containment
from modulekg_widgets.engine.knowledge.analysis.similarity import difference, overlap
from modulekg_widgets.engine.knowledge.facts.contents import Contents

Slots = dict[str, list[str | None]]


def random_slots(size: int, edges: int, seed: int) -> Slots:
    """Any edges at all: cycles, self-loops, several of a kind, structures that nothing holds."""
    draw = random.Random(seed)
    slots: Slots = {str(node): [] for node in range(size)}
    for _ in range(edges):
        slots[str(draw.randrange(size))].append(str(draw.randrange(size // 2)))
    return slots


GRAPHS: dict[str, Slots] = {
    "empty": {},
    "one": {"a": []},
    "two apart": {"a": [], "b": []},
    "self-loop": {"a": ["a"]},
    "self-loop and more": {"a": ["a", "b"], "b": ["b"], "c": []},
    "cycle": {"a": ["b"], "b": ["c"], "c": ["a"]},
    "counts": {"a": ["b", "b", "b", "c"], "b": ["d"], "c": ["d", "d"], "d": []},
    "disconnected": {"a": ["b"], "b": [], "c": ["d", "e"], "d": ["e"], "e": [], "f": []},
    "chain": {str(n): [str(n + 1)] for n in range(300)} | {"300": []},
    "sparse": random_slots(200, 150, 1),
    "dense": random_slots(60, 1_000, 2),
    "cyclic": random_slots(300, 900, 3),
}


@pytest.mark.parametrize("measure", NETWORKX_MEASURES)
@pytest.mark.parametrize("slots", GRAPHS.values(), ids=GRAPHS)
def test_both_ways_give_the_same(slots: Slots, measure: str) -> None:
    graph = containment(made_up(slots))
    if graph.keys:
        assert [*IGRAPH_MEASURES[measure](graph)] == pytest.approx(
            [*NETWORKX_MEASURES[measure](graph)], rel=1e-6, abs=1e-15
        )


@pytest.mark.parametrize("measure", ["pagerank", "closeness"])
def test_both_ways_give_the_same_on_torchvision(measure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_igraph = importance(zoo_contents(), measure)
    monkeypatch.setitem(sys.modules, "igraph", None)
    by_networkx = importance(zoo_contents(), measure)
    assert by_igraph["name"].tolist() == by_networkx["name"].tolist()
    assert by_igraph[measure].tolist() == pytest.approx(by_networkx[measure].tolist(), rel=1e-6)


def test_the_two_tables_hold_the_same_measures() -> None:
    assert set(IGRAPH_MEASURES) == set(NETWORKX_MEASURES) < set(MEASURES)


@pytest.mark.parametrize(
    "slots", [GRAPHS["counts"], GRAPHS["sparse"], GRAPHS["cyclic"]], ids=["counts", "any", "cyclic"]
)
def test_pagerank_is_the_solution_of_its_equation(slots: Slots) -> None:
    contents = made_up(slots)
    graph = containment(contents)
    size = len(graph.keys)
    links = np.zeros((size, size))
    for (container, content), count in graph.counts.items():
        links[content, container] = count
    sums = links.sum(axis=0)
    links = np.where(sums > 0, links / np.where(sums > 0, sums, 1), 1 / size)
    ranks = np.linalg.solve(np.eye(size) - 0.85 * links, np.full(size, 0.15 / size))
    assert [*importance_by_key(contents, "pagerank").values()] == pytest.approx(ranks.tolist(), rel=1e-6)


def values(measure: str, slots: Slots, models: dict[str, dict[str, int]] | None = None) -> dict[str, float]:
    contents = made_up(slots, models)
    found = importance_by_key(contents, measure)
    return {name: found[key(name)] for name in slots}


def test_measures_by_hand() -> None:
    slots: Slots = {"a": ["b", "b"], "b": ["c"], "c": [], "d": ["c", None]}
    models = {"one": {"a": 1, "b": 2, "c": 2}, "two": {"d": 1, "c": 1}}
    assert values("in_degree", slots, models) == {"a": 0, "b": 1, "c": 2, "d": 0}
    assert values("models", slots, models) == {"a": 1, "b": 1, "c": 2, "d": 1}
    # b: one node at distance 1, a third of all others; c: distances 1, 1, 2
    assert values("closeness", slots) == pytest.approx({"a": 0, "b": 1 / 3, "c": 3 / 4, "d": 0})
    # one pair, a → c, of six goes through b
    assert values("betweenness", slots) == pytest.approx({"a": 0, "b": 1 / 6, "c": 0, "d": 0})


def test_what_many_are_built_of_ranks_high() -> None:
    contents = zoo_contents()
    for measure in ("pagerank", "in_degree", "models", "closeness"):
        assert class_name(contents, importance(contents, measure)["name"][0]) == "ReLU"


@pytest.mark.parametrize("measure", MEASURES)
def test_the_table(measure: str) -> None:
    contents = made_up({"x": [], "c": ["x"], "b": ["x"], "a": ["x"]}, {"model": {"a": 1, "b": 1, "c": 1, "x": 3}})
    table = importance(contents, measure)
    assert list(table.columns) == ["name", measure]
    assert sorted(table["name"]) == sorted(contents.names.values())
    rows = list(table.itertuples(index=False, name=None))
    assert all(one[1] > two[1] or one[0] < two[0] for one, two in pairwise(rows))


def test_the_order_of_adding_does_not_count() -> None:
    contents = zoo_contents(("resnet18", "squeezenet1_1"))
    turned = Contents(modules=dict(reversed(contents.modules.items())), models=contents.models)
    assert importance(contents).equals(importance(turned))


@pytest.mark.parametrize("measure", ["page_rank", "", None, [], "name"])
def test_unknown_measures(measure: str) -> None:
    with pytest.raises(UnknownNameError, match="pagerank"):
        importance(Contents(), measure)


def test_nothing_at_all() -> None:
    for measure in MEASURES:
        assert list(importance(Contents(), measure).columns) == ["name", measure]
    assert overlap(Contents()).shape == (0, 0)


def test_containment_counts_slots() -> None:
    contents = made_up(GRAPHS["counts"])
    graph = containment(contents)
    at = {name: graph.keys.index(key(name)) for name in "abcd"}
    assert graph == Containment(
        sorted(contents.modules),
        {(at["a"], at["b"]): 3, (at["a"], at["c"]): 1, (at["b"], at["d"]): 1, (at["c"], at["d"]): 2},
    )


# ------------------------------------------------------------------ models


def sets_of(contents: Contents) -> dict[str, set[str]]:
    return {name: {fingerprint for fingerprint, _ in model.occurrences} for name, model in contents.models.items()}


def test_overlap_is_the_jaccard_index_of_the_sets() -> None:
    contents = zoo_contents()
    sets = sets_of(contents)
    table, shared = overlap(contents), overlap(contents, shared=True)
    assert list(table.index) == list(table.columns) == list(shared.index) == list(shared.columns) == list(FEW)
    for one, first in sets.items():
        for two, second in sets.items():
            assert table.loc[one, two] == pytest.approx(len(first & second) / len(first | second))
            assert shared.loc[one, two] == len(first & second)
    assert shared.to_numpy().dtype == np.int64


def test_a_structure_at_two_levels_counts_once() -> None:
    contents = contents_of(one=nn.Sequential(nn.Sequential(nn.ReLU()), nn.ReLU()), two=nn.Sequential(nn.ReLU()))
    assert overlap(contents, shared=True).to_numpy().tolist() == [[3, 2], [2, 2]]


def test_difference() -> None:
    slots: Slots = {name: [] for name in "wxyz"}
    contents = made_up(slots, {"one": {"w": 1, "x": 5, "y": 2}, "two": {"z": 7, "y": 9, "w": 1}})
    table = difference(contents, "one", "two")
    assert list(table.columns) == ["name", "class", "where", "first", "second"]
    assert table[["class", "where", "first", "second"]].to_numpy().tolist() == [
        ["x", "first", 5, 0], ["z", "second", 0, 7], ["y", "both", 2, 9], ["w", "both", 1, 1],
    ]  # fmt: skip
    assert set(difference(contents, "one", "one")["where"]) == {"both"}


@pytest.mark.parametrize("pair", [("resnet18", "resnet5"), ("resnet5", "resnet18")])
def test_unknown_models(pair: tuple[str, str]) -> None:
    with pytest.raises(UnknownPathError, match="did you mean 'resnet50'"):
        difference(zoo_contents(), *pair)
    with pytest.raises(UnknownPathError, match="there is no model"):
        difference(zoo_contents(), [], "resnet18")  # type: ignore[arg-type]


@pytest.mark.parametrize("level", ["model", "stage", "block", "op"])
@pytest.mark.parametrize("measure", ["pagerank", "models"])
def test_importance_at_a_level_is_that_of_all_for_what_occurs_there(measure: str, level: str) -> None:
    contents = zoo_contents()
    there = {contents.names[key] for model in contents.models.values() for key, at in model.occurrences if at == level}
    every, found = importance(contents, measure), importance(contents, measure, level)
    assert found.values.tolist() == [row for row in every.values.tolist() if row[0] in there]
    assert len(found) == len(there) > 0


def test_a_level_that_there_is_none_of() -> None:
    with pytest.raises(UnknownNameError, match=r"no level 'ops'.*'op'"):
        importance(zoo_contents(), level="ops")
