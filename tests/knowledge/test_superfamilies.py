"""Families of models, and those that are built alike."""

from __future__ import annotations

import pytest
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.knowledge.analysis.similarity import Superfamilies, superfamilies
from modulekg_widgets.engine.knowledge.facts.contents import Contents


def conv_net(width: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3))


def dense_net(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, width))


def family(name: str, make: object) -> type[nn.Module]:
    def build(self: nn.Module, width: int) -> None:
        nn.Module.__init__(self)
        self.body = make(width)  # type: ignore[operator]

    return type(name, (nn.Module,), {"__init__": build})


@pytest.fixture(scope="module")
def contents() -> Contents:
    """Three families of convolutions and three of linear layers, two or one models each."""
    kg = mk.KnowledgeGraph()
    for number, make in enumerate([conv_net, dense_net] * 3):
        cls = family(f"{make.__name__.title().replace('_', '')}{number}", make)
        for width in (8, 16)[: 2 - number % 3 // 2]:
            kg.add_model(cls(width), name=f"{cls.__name__} {width}")
    return kg.contents()


def test_few_families_stand_for_themselves(contents: Contents) -> None:
    found = superfamilies(contents)
    assert found.superfamily_of == list(range(6))
    assert found.names == list(found.families) == [f"{kind}{n}" for n, kind in enumerate(["ConvNet", "DenseNet"] * 3)]
    assert sorted(name for names in found.families.values() for name in names) == sorted(contents.models)


def test_those_that_are_built_alike_stand_together(contents: Contents) -> None:
    found = superfamilies(contents, most=2)
    groups = {
        frozenset(name for name, of in zip(found.families, found.superfamily_of, strict=True) if of == at)
        for at in (0, 1)
    }
    assert groups == {frozenset(found.families) & {f"{kind}Net{n}" for n in range(6)} for kind in ("Conv", "Dense")}
    assert found.names[0].endswith(" + 2 more")
    assert superfamilies(contents, most=2) == found


def test_links_join_each_with_what_is_most_like_it(contents: Contents) -> None:
    found = superfamilies(contents)
    kinds = ["Conv" if name.startswith("Conv") else "Dense" for name in found.names]
    assert all(0 <= weight <= 1 and one < other for one, other, weight in found.links)
    strongest = {}
    for one, other, weight in found.links:
        for end, far in ((one, other), (other, one)):
            strongest[end] = max(strongest.get(end, (0.0, -1)), (weight, far))
    assert all(kinds[end] == kinds[far] for end, (_, far) in strongest.items())
    assert set(strongest) == set(range(6))


def test_no_two_are_called_alike(contents: Contents) -> None:
    kg = mk.KnowledgeGraph()
    kg.add_contents(contents)
    odd = family("ConvNet0 + 2 more", lambda width: nn.LSTM(width, width, num_layers=2))
    kg.add_model(odd(8), name="odd")
    names = superfamilies(kg.contents(), most=3).names
    assert len(set(names)) == len(names) == 3
    assert sum(name.startswith("ConvNet0 + 2 more") for name in names) == 2


def test_a_graph_of_nothing_has_none() -> None:
    assert superfamilies(Contents()) == Superfamilies({}, [], [], [])
