"""The most used structures: columns, levels, ties, and names that tell all apart."""

from itertools import permutations

import pytest
from torch import nn

import modulekg_widgets as mk


def network(stages: int) -> nn.Module:
    block = [nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(stages)]
    return nn.Sequential(*(nn.Sequential(b, nn.Dropout(0.1)) for b in block), nn.ReLU())


def graph_of(levels: str) -> mk.KnowledgeGraph:
    made = mk.KnowledgeGraph(levels=levels)
    made.add_model(network(3), name="three")
    made.add_model(network(2), name="two")
    return made


@pytest.fixture
def graph() -> mk.KnowledgeGraph:
    return graph_of("repetition")


def rows(graph: mk.KnowledgeGraph, n: int = 10, level: str | None = None) -> list[tuple[str, int, int]]:
    table = graph.most_used(n, level=level)
    return list(table[["class", "count", "models"]].itertuples(index=False, name=None))


def test_columns(graph: mk.KnowledgeGraph) -> None:
    table = graph.most_used(1)
    assert list(table.columns) == ["name", "count", "models", "class", "hyperparameters"]
    assert table.iloc[0].to_dict() == {
        "name": mk.fingerprint(nn.ReLU()).display_name, "count": 7, "models": 2, "class": "ReLU",
        "hyperparameters": {"inplace": False},
    }  # fmt: skip


def test_levels_by_repetition(graph: mk.KnowledgeGraph) -> None:
    assert rows(graph, level="model") == [("Sequential", 1, 1)] * 2
    assert rows(graph, level="stage") == []
    assert rows(graph, level="block") == [("Sequential", 5, 2)]
    ops = [("Dropout", 5, 2), ("Linear", 5, 2), ("ReLU", 7, 2), ("Sequential", 5, 2)]
    assert sorted(rows(graph, level="op")) == ops
    assert sum(count for _, count, _ in rows(graph, 100)) == graph.module_count


def test_levels_by_depth() -> None:
    graph = graph_of("depth")
    assert rows(graph, level="model") == [("Sequential", 1, 1)] * 2
    assert rows(graph, level="stage") == [("Sequential", 5, 2)]
    assert rows(graph, level="block") == [("Sequential", 5, 2)]
    assert sorted(rows(graph, level="op")) == [("Dropout", 5, 2), ("Linear", 5, 2), ("ReLU", 7, 2)]
    assert sum(count for _, count, _ in rows(graph, 100)) == graph.module_count


@pytest.mark.parametrize("level", ["layer", "ops", 5])
def test_an_unknown_level_is_refused(graph: mk.KnowledgeGraph, level: str) -> None:
    with pytest.raises(mk.ModuleKGError, match=r"model, stage|'op', 'stage'|'block'|did you mean"):
        graph.most_used(level=level)


def test_the_number_of_rows(graph: mk.KnowledgeGraph) -> None:
    assert len(graph.most_used(2)) == 2
    assert len(graph.most_used(0)) == 0
    assert len(graph.most_used(1000)) == graph.unique_count


def test_ties_do_not_depend_on_the_order_of_adding() -> None:
    models = {f"m{i}": nn.Sequential(nn.Linear(i, 1), nn.Dropout(i / 10)) for i in range(1, 5)}
    tables = set()
    for order in list(permutations(models))[::5]:
        graph = mk.KnowledgeGraph()
        for name in order:
            graph.add_model(models[name], name=name)
        tables.add(graph.most_used(100).to_csv())
    assert len(tables) == 1


def test_among_equal_counts_more_models_come_first() -> None:
    graph = mk.KnowledgeGraph()
    graph.add_model(nn.Sequential(nn.ReLU(), nn.ReLU()), name="a")
    graph.add_model(nn.Sequential(nn.SiLU()), name="b")
    graph.add_model(nn.Sequential(nn.SiLU(), nn.Tanh()), name="c")
    assert rows(graph, 2) == [("SiLU", 2, 2), ("ReLU", 2, 1)]


def test_names_are_lengthened_until_they_tell_all_apart() -> None:
    graph = mk.KnowledgeGraph()
    graph.add_model(nn.Sequential(*(nn.Linear(i, 1, bias=False) for i in range(1, 200))), name="many")
    names = graph.names()
    assert len(set(names.values())) == graph.unique_count == 200
    digits = {len(name.removeprefix("Linear")) for name in names.values() if name.startswith("Linear")}
    assert {3, 4} <= digits


def test_a_lengthened_name_is_no_name_of_a_class_that_ends_in_a_digit() -> None:
    # Block1 with 234 and Block with 1234 would both be Block1234
    classes = {name: type(name, (nn.Module,), {}) for name in ["Block", *(f"Block{d}" for d in range(10))]}

    def made(name: str, value: int) -> nn.Module:
        module = classes[name]()
        module.value = value
        return module

    graph = mk.KnowledgeGraph()
    graph.add_model(nn.Sequential(*(made(name, i) for name in classes for i in range(150))), name="blocks")
    names = graph.names()
    assert len(set(names.values())) == len(names) == 11 * 150 + 1


def test_networkx_has_a_node_per_structure_and_an_edge_per_containment(graph: mk.KnowledgeGraph) -> None:
    made = graph.to_networkx()
    assert len(made) == graph.unique_count
    assert sum(uses for _, uses in made.nodes(data="count")) == graph.module_count
    relu = mk.fingerprint(nn.ReLU()).hexdigest
    assert made.nodes[relu]["models"] == ["three", "two"]
    assert made.nodes[relu]["name"] == graph.names()[relu]
    for model, stages in (("three", 3), ("two", 2)):
        root = graph.tree(model).nodes[""]["fingerprint"]
        stage = mk.fingerprint(network(1)[0]).hexdigest
        assert made.edges[root, stage] == {"type": "contains", "count": stages, "order": tuple(range(stages))}
        assert made.edges[root, relu]["order"] == (stages,)
