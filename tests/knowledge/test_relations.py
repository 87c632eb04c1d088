"""Types of modules, what sets a module apart from its type, classes above classes, families of models."""

from collections import defaultdict
from typing import Any

import pytest
from torch import nn

from knowledge.graphs import FEW, contents_of, key, made_up, zoo_contents
from models.zoo import zoo_model
from modulekg_widgets.engine.errors import UnknownNameError
from modulekg_widgets.engine.knowledge.analysis.module_types import (
    ABSENT,
    families,
    is_a,
    is_a_edges,
    module_types,
    subclass_of,
    type_names,
)
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders


def members(contents: Contents, level: int = 1) -> set[frozenset[str]]:
    """The display names of the modules of each type with more than one."""
    groups = is_a(contents, level).groupby("type")["node"]
    return {frozenset(nodes) for _, nodes in groups}


def types_of(contents: Contents, level: int = 1) -> list[set[str]]:
    by_key = {key(name): name for name in ("a", "b", "c", "d", "e")}
    return [{by_key[member] for member in kind.members if member in by_key} for kind in module_types(contents, level)]


def differs(contents: Contents, level: int = 1) -> dict[str, dict[str, Any]]:
    names = {name: fingerprint for fingerprint, name in contents.names.items()}
    table = is_a(contents, level)
    return {names[node]: values for node, values in zip(table["node"], table["differs"], strict=True)}


def test_columns_and_order() -> None:
    table = is_a(contents_of(one=nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4), nn.ReLU(), nn.ReLU6())))
    assert list(table.columns) == ["node", "type", "differs"]
    assert [name.rstrip("0123456789") for name in table["type"]] == ["Linear*"] * 2


def test_an_answer_may_be_changed() -> None:
    values = {"a": {"x": [1]}, "b": {"x": [2]}, "c": {"x": [2]}}
    contents = made_up(dict.fromkeys(values, ()), {"m": dict.fromkeys(values, 1)}, dict.fromkeys(values, "A"), values)
    (found,) = (row for row in is_a(contents)["differs"] if row)
    found["x"].append("changed")
    assert [row for row in is_a(contents)["differs"] if row] == [{"x": [1]}]


def test_values_shapes_and_names_of_children_do_not_count() -> None:
    one = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    two = nn.Sequential()
    two.add_module("first", nn.Linear(5, 7, bias=False))
    two.add_module("second", nn.ReLU(inplace=True))
    contents = contents_of(one=one, two=two)
    assert len(contents.modules) == 6
    assert sorted(len(group) for group in members(contents)) == [2, 2, 2]


@pytest.mark.parametrize(
    "other",
    [
        nn.Sequential(nn.ReLU(), nn.Linear(2, 2)),
        nn.Sequential(nn.Linear(2, 2), nn.ReLU6()),
        nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.ReLU()),
        nn.ModuleList([nn.Linear(2, 2), nn.ReLU()]),
    ],
    ids=["order", "class of a child", "number of children", "own class"],
)
def test_classes_and_children_do(other: nn.Module) -> None:
    contents = contents_of(one=nn.Sequential(nn.Linear(2, 2), nn.ReLU()), two=other)
    assert members(contents) == set()


def test_classes_of_one_name_from_two_places_are_two_types() -> None:
    contents = made_up({"a": [], "b": []}, classes={"a": "Block", "b": "Block"})
    assert len(module_types(contents)) == 1
    moved = made_up({"b": []}, classes={"b": "Block"}).modules[key("b")]
    elsewhere = type(moved)(*[getattr(moved, n) if n != "qualified_class" else "else.Block" for n in moved.__slots__])
    assert len(module_types(Contents(modules=contents.modules | {elsewhere.fingerprint: elsewhere}))) == 2


def test_level_two_counts_equal_children_in_a_row_once() -> None:
    contents = made_up(
        {
            "a": ["x", "y", "y"], "b": ["x", "x", "y"], "c": ["x", "y", "x"], "d": ["a", "b"], "e": ["a"],
            "x": [], "y": [],
        },
        classes=dict.fromkeys("abc", "Stage") | dict.fromkeys("de", "Net"),
    )  # fmt: skip
    assert [group for group in types_of(contents) if group] == [{"a"}, {"b"}, {"c"}, {"d"}, {"e"}]
    assert [group for group in types_of(contents, 2) if group] == [{"a", "b"}, {"c"}, {"d", "e"}]


def test_differing_hyper_parameters_are_told_with_the_value_here() -> None:
    values = [{"width": 8, "bias": True}, {"width": 8, "bias": False}, {"width": 16, "bias": True}]
    contents = made_up(
        {"a": [], "b": [], "c": []}, classes=dict.fromkeys("abc", "Conv"), values=dict(zip("abc", values, strict=True))
    )
    assert differs(contents) == {key("a"): {}, key("b"): {"bias": False}, key("c"): {"width": 16}}
    assert module_types(contents)[0].mode == {"width": 8, "bias": True}


@pytest.mark.parametrize(
    ("values", "uses", "mode", "others"),
    [
        ([1, 2], {"a": 1, "b": 5}, 2, 1),
        ([1, 2], {"a": 3, "b": 3}, 1, 1),
        ([2, 1], {"a": 3, "b": 3}, 1, 1),
        ([float("nan"), float("nan"), 0.0], {"a": 1, "b": 1, "c": 9}, float("nan"), 1),
        ([True, 1, 1.0, 1], {}, 1, 2),
    ],
    ids=["used more", "smaller text", "in any order", "NaN is itself", "kinds of one"],
)
def test_the_mode(values: list[Any], uses: dict[str, int], mode: Any, others: int) -> None:
    names = "abcd"[: len(values)]
    contents = made_up(
        {name: [] for name in names}, {"model": uses} if uses else {}, dict.fromkeys(names, "Conv"),
        {name: {"value": value} for name, value in zip(names, values, strict=True)},
    )  # fmt: skip
    found = module_types(contents)[0].mode["value"]
    assert (type(found), str(found)) == (type(mode), str(mode))
    assert sum(bool(values) for values in differs(contents).values()) == others


def test_what_most_have_and_one_has_not_is_absent() -> None:
    contents = made_up(
        {name: [] for name in "abc"}, classes=dict.fromkeys("abc", "Conv"),
        values={"a": {"groups": 1}, "b": {"groups": 1}, "c": {"rate": 2}},
    )  # fmt: skip
    assert module_types(contents)[0].mode == {"groups": 1, "rate": ABSENT}
    assert differs(contents)[key("c")] == {"groups": ABSENT, "rate": 2}


class Table(nn.Module):
    """Has a shape that no hyper-parameter tells."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.table = nn.Parameter(nn.Linear(2, rows).weight.detach())


def test_shapes_are_told_where_no_hyper_parameter_differs() -> None:
    contents = contents_of(one=nn.Sequential(Table(2), Table(3)), two=nn.Sequential(Table(2)))
    assert [values for values in differs(contents).values() if values] == [{"table": (3, 2)}]


def test_slots_are_told_where_nothing_else_differs() -> None:
    one, two, three = nn.Sequential(nn.ReLU()), nn.Sequential(), nn.Sequential(nn.ReLU(), nn.ReLU())
    two.add_module("act", nn.ReLU())
    contents = contents_of(one=one, again=nn.Sequential(one), two=two, three=three)
    by_model = {model.name: model.root for model in contents.models.values()}
    assert differs(contents)[by_model["two"]] == {"slots": ("act",)}
    assert differs(contents, 2)[by_model["three"]] == {"children": 2}


def test_names_of_types_are_no_names_of_modules() -> None:
    contents = contents_of(one=nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4)))
    (name,) = {*is_a(contents)["type"]}
    digits = int(name.removeprefix("Linear*"))
    clash = made_up({"x": []}, classes={"x": "Linear*"}).modules[key("x")]
    taken = type(clash)(f"{digits:032x}", *[getattr(clash, field) for field in clash.__slots__[1:]])
    both = Contents(modules=contents.modules | {taken.fingerprint: taken}, models=contents.models)
    assert both.names[taken.fingerprint] == name
    assert {len(kind) for kind in is_a(both)["type"]} == {len(name) + 1}


def test_keys_and_names_are_the_same_in_any_order() -> None:
    contents = zoo_contents(("resnet18", "squeezenet1_1"))
    turned = Contents(modules=dict(reversed(contents.modules.items())), models=contents.models)
    for level in (1, 2):
        assert type_names(contents, module_types(contents, level)) == type_names(turned, module_types(turned, level))
    assert differs(contents) == differs(turned)


@pytest.mark.parametrize(
    "slots",
    [{"a": ["a"]}, {"a": ["b"], "b": ["a"]}, {"a": ["b", "d"], "b": ["c"], "c": ["a", None], "d": []}],
    ids=["itself", "two", "three and one outside"],
)
def test_cycles_have_types(slots: dict[str, list[str | None]]) -> None:
    contents = made_up(slots)
    for level in (1, 2):
        kinds = module_types(contents, level)
        assert sorted(member for kind in kinds for member in kind.members) == sorted(contents.modules)


def test_a_cycle_leaves_the_types_of_the_rest_as_they_are() -> None:
    rest = {"x": ["y", "z"], "y": ["z"], "z": [], "w": []}
    for slots in ({"a": ["b"], "b": ["a", "y"], **rest}, {"z": [], "b": ["a", "y"], **rest, "a": ["b"]}):
        of_rest = {kind.key for kind in module_types(made_up(rest))}
        assert of_rest < {kind.key for kind in module_types(made_up(slots))}


def test_a_cycle_of_live_modules() -> None:
    outer, inner = nn.Sequential(nn.Linear(2, 2), nn.Linear(3, 3)), nn.Sequential()
    outer.add_module("inner", inner)
    inner.add_module("outer", outer)
    contents = contents_of(one=outer, two=outer)
    assert all(model.cyclic for model in contents.models.values())
    assert families(contents)["count"].tolist() == [2]
    assert members(contents) == {frozenset(name for name in contents.names.values() if name.startswith("Linear"))}


def test_a_very_deep_and_a_very_wide_structure() -> None:
    deep = {str(depth): [str(depth + 1)] for depth in range(5_000)} | {"5000": []}
    chain = made_up(deep, classes=dict.fromkeys(deep, "Box"))
    assert len(module_types(chain)) == 5_001  # no two are of the same depth
    wide = made_up({"a": ["x"] * 100_000, "b": ["x"], "x": []}, classes={"a": "List", "b": "List"})
    assert len(module_types(wide)) == 3
    assert differs(wide, 2) == {key("a"): {}, key("b"): {"children": 1}}


@pytest.mark.parametrize("level", [0, 3, "1", None, []])
def test_there_are_two_levels(level: Any) -> None:
    with pytest.raises(UnknownNameError, match="level"):
        is_a(contents_of(one=nn.ReLU()), level)


def test_nothing_gives_empty_tables() -> None:
    assert list(is_a(Contents()).columns) == ["node", "type", "differs"]
    assert (len(is_a(Contents())), len(subclass_of(Contents())), len(families(Contents()))) == (0, 0, 0)


class Marked:
    """A class beside Module."""


class MarkedConv(Marked, nn.Conv2d):
    """Derives from two."""


def test_every_class_above_a_class() -> None:
    table = subclass_of(contents_of(one=nn.Sequential(MarkedConv(1, 1, 1), nn.Conv2d(1, 1, 1), nn.Conv2d(2, 2, 1))))
    assert list(table.columns) == ["class", "base", "distance"]
    rows = [(c.rpartition(".")[2], b.rpartition(".")[2], d) for c, b, d in table.itertuples(index=False)]
    assert sorted(rows) == [
        ("Conv2d", "Module", 2), ("Conv2d", "_ConvNd", 1),
        ("MarkedConv", "Conv2d", 2), ("MarkedConv", "Marked", 1), ("MarkedConv", "Module", 4),
        ("MarkedConv", "_ConvNd", 3), ("Sequential", "Module", 1),
    ]  # fmt: skip


def test_families_of_torchvision() -> None:
    table = families(zoo_contents())
    assert list(table.columns) == ["family", "count", "models", "class"]
    assert {frozenset(models) for models in table["models"]} == {
        frozenset({"densenet121", "densenet161"}), frozenset({"efficientnet_b0", "efficientnet_b1"}),
        frozenset({"resnet18", "resnet34"}), frozenset({"resnet50"}), frozenset({"squeezenet1_1"}),
    }  # fmt: skip
    assert table["count"].tolist() == [2, 2, 2, 1, 1]
    assert set(table["family"]) == set(type_names_of_roots())


def type_names_of_roots() -> list[str]:
    contents = zoo_contents()
    kinds = module_types(contents, 2)
    names = type_names(contents, kinds)
    return [names[kind.key] for kind in kinds for model in contents.models.values() if model.root in kind.members]


def skeletons(names: tuple[str, ...], squash: bool) -> dict[str, set[tuple[Any, ...]]]:
    """The skeletons of live modules by recursion, with the structures of each: another way to the same numbers."""
    found: dict[Any, set[Any]] = defaultdict(set)

    def skeleton(module: nn.Module, fingerprint: dict[int, str]) -> Any:
        inside: list[Any] = []
        for child in module.children():
            below = skeleton(child, fingerprint)
            if not (squash and inside and inside[-1] == below):
                inside.append(below)
        shape = (type(module).__module__, type(module).__qualname__, *inside)
        found[shape].add(fingerprint[id(module)])
        return shape

    for name in names:
        model = zoo_model(name)
        # the printed form tells all that matters apart, but for own tensors that no value tells: none in these models
        skeleton(model, {id(module): f"{type(module)} {module}" for module in model.modules()})
    return found


@pytest.mark.parametrize(("level", "types", "edges"), [(1, 62, 527), (2, 39, 550)])
def test_figures_of_a_few_models(level: int, types: int, edges: int) -> None:
    contents = zoo_contents()
    expected = skeletons(FEW, squash=level == 2)
    kinds = module_types(contents, level)
    assert len(kinds) == len(expected) == types
    assert sorted(len(kind.members) for kind in kinds) == sorted(map(len, expected.values()))
    assert len(is_a(contents, level)) == edges
    assert len(is_a_edges(contents, kinds)) == edges


@pytest.mark.nightly
def test_figures_of_the_whole_of_torchvision() -> None:
    contents = zoo_contents(tuple(torchvision_builders()))
    modules = len(contents.modules)
    assert [len(module_types(contents, level)) for level in (1, 2)] == [599, 436]
    assert modules - len(is_a(contents)) == 301  # structures that are alone in their type
    grouped = {frozenset(models) for models in families(contents)["models"]}
    assert {f"efficientnet_b{size}" for size in range(8)} in grouped
    assert {f"densenet{depth}" for depth in (121, 161, 169, 201)} in grouped
