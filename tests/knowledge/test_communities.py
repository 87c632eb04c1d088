"""Communities: what they are, that they never depend on order or on hashes, and how good they are."""

import os
import subprocess
import sys

import pytest

from knowledge.graphs import key, made_up, zoo_contents
from modulekg_widgets.engine.errors import MissingPackageError, UnknownNameError
from modulekg_widgets.engine.knowledge.analysis.communities import COMMUNITY_METHODS, communities, detect_communities
from modulekg_widgets.engine.knowledge.analysis.containment import containment
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders

# two groups of four that hold each other, one edge between them, and one structure alone
TWO = {
    "a": ["b", "c", "d"], "b": ["c", "d"], "c": ["d"], "d": ["e"],
    "e": ["f", "g", "h", "h", "h"], "f": ["g", "h"], "g": ["h"], "h": [], "i": [],
}  # fmt: skip


def modularity(contents: Contents, community: dict[str, int]) -> float:
    """Newman's Q by its formula, on containment without direction and counts."""
    graph = containment(contents)
    pairs = {(min(pair), max(pair)) for pair in graph.counts}
    number = [community[fingerprint] for fingerprint in graph.keys]
    inside: dict[int, int] = dict.fromkeys(number, 0)
    degrees: dict[int, int] = dict.fromkeys(number, 0)
    for one, two in pairs:
        inside[number[one]] += number[one] == number[two]
        degrees[number[one]] += 1
        degrees[number[two]] += 1
    return sum(inside[c] / len(pairs) - (degrees[c] / 2 / len(pairs)) ** 2 for c in inside)


@pytest.mark.parametrize("method", COMMUNITY_METHODS)
def test_two_groups_are_found(method: str) -> None:
    contents = made_up(TWO, {"model": {"a": 1, "e": 2, "h": 9}})
    table = communities(contents, method)
    assert list(table.columns) == ["name", "community", "class", "count"]
    found = [set(group["class"]) for _, group in table.groupby("community")]
    assert sorted(map(sorted, found)) == [list("abcd"), list("efgh"), ["i"]]
    assert table["community"].tolist() == [0] * 4 + [1] * 4 + [2]
    groups = {group["class"].tolist()[0]: group["count"].tolist() for _, group in table.groupby("community")}
    assert groups["h"] == [9, 2, 0, 0]
    by_key, quality = detect_communities(contents, method)
    assert table.attrs["modularity"] == quality == pytest.approx(modularity(contents, by_key))


@pytest.mark.parametrize("method", COMMUNITY_METHODS)
def test_a_few_models_of_torchvision(method: str) -> None:
    contents = zoo_contents()
    by_key, quality = detect_communities(contents, method)
    assert set(by_key) == set(contents.modules)
    assert quality == pytest.approx(modularity(contents, by_key))
    assert quality > 0.6
    sizes = [list(by_key.values()).count(number) for number in range(max(by_key.values()) + 1)]
    assert sizes == sorted(sizes, reverse=True)
    assert communities(contents, method, seed=3).equals(communities(contents, method, seed=3))


@pytest.mark.parametrize("method", COMMUNITY_METHODS)
def test_the_order_of_adding_does_not_count(method: str) -> None:
    contents = zoo_contents(("resnet18", "squeezenet1_1"))
    turned = Contents(modules=dict(reversed(contents.modules.items())), models=contents.models)
    assert communities(contents, method).equals(communities(turned, method))


def ring_of(size: int) -> Contents:
    """Each structure holds three others; no order among communities of one size is more natural than another."""
    slots = {str(n): [str(n * factor % size) for factor in (2, 3, 5)] for n in range(size)}
    return made_up(slots, classes=dict.fromkeys(slots, "Block"))


@pytest.mark.slow
def test_the_seed_of_hashes_does_not_count() -> None:
    script = (
        "from knowledge.test_communities import detect_communities, ring_of\n"
        "print(sorted(detect_communities(ring_of(97))[0].items()))"
    )
    other = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert other.stdout.strip() == str(sorted(detect_communities(ring_of(97))[0].items()))


@pytest.mark.parametrize("method", COMMUNITY_METHODS)
@pytest.mark.parametrize("slots", [{}, {"a": []}, {"a": [], "b": []}, {"a": ["a"]}], ids=str)
def test_graphs_with_nothing_to_part(slots: dict[str, list[str | None]], method: str) -> None:
    by_key, quality = detect_communities(made_up(slots), method)
    assert sorted(by_key.values()) == list(range(len(slots)))
    assert set(by_key) == {key(name) for name in slots}
    assert quality == 0


def test_leiden_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "igraph", None)
    with pytest.raises(MissingPackageError, match=r"modulekg-widgets\[analysis\]"):
        communities(made_up(TWO), "leiden")
    assert len(communities(made_up(TWO), "louvain")) == len(TWO)


@pytest.mark.parametrize("method", ["leuven", "", None, []])
def test_unknown_methods(method: str) -> None:
    with pytest.raises(UnknownNameError, match="method"):
        communities(made_up(TWO), method)


@pytest.mark.parametrize("seed", [-1, 0.5, None, "0", True])
def test_no_seeds(seed: int) -> None:
    with pytest.raises(UnknownNameError, match="seed"):
        communities(made_up(TWO), seed=seed)


def test_large_seeds() -> None:
    for method in COMMUNITY_METHODS:
        assert len(communities(made_up(TWO), method, seed=2**70)) == len(TWO)


@pytest.mark.nightly
def test_the_whole_of_torchvision() -> None:
    contents = zoo_contents(tuple(torchvision_builders()))
    assert communities(contents).attrs["modularity"] > 0.775
    assert communities(contents, "leiden").attrs["modularity"] > 0.785


@pytest.mark.parametrize("level", ["model", "stage", "block", "op"])
def test_communities_at_a_level_are_those_of_all_for_what_occurs_there(level: str) -> None:
    contents = zoo_contents()
    there = {contents.names[key] for model in contents.models.values() for key, at in model.occurrences if at == level}
    every, found = communities(contents), communities(contents, level=level)
    assert found.values.tolist() == [row for row in every.values.tolist() if row[0] in there]
    assert found.attrs == every.attrs
    with pytest.raises(UnknownNameError, match="no level 'ops'"):
        communities(contents, level="ops")
