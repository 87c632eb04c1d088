"""Adding, replacing and removing models; counts, and what a failure leaves."""

from collections import OrderedDict
from typing import Any

import pytest
from torch import nn

import modulekg_widgets as mk


def block(width: int = 2) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU())


def model(blocks: int, width: int = 2) -> nn.Module:
    return nn.Sequential(*(block(width) for _ in range(blocks)))


def contents(graph: mk.KnowledgeGraph) -> tuple[Any, ...]:
    return (
        graph.models, graph.module_count, graph.unique_count, sorted(n.fingerprint for n in graph.nodes),
        graph.most_used(100).to_dict(), sorted(graph.to_networkx().edges(data="count")),
    )  # fmt: skip


def test_an_empty_graph() -> None:
    graph = mk.KnowledgeGraph()
    assert (graph.models, graph.module_count, graph.unique_count, len(graph.most_used())) == ([], 0, 0, 0)
    assert len(graph.to_networkx()) == 0


def test_modules_are_counted_per_occurrence_root_and_containers_included() -> None:
    graph = mk.KnowledgeGraph()
    root = graph.add_model(model(3), name="three")
    assert (graph.module_count, graph.unique_count) == (10, 4)
    assert root == mk.fingerprint(model(3)).hexdigest
    graph.add_model(model(2), name="two")
    assert (graph.module_count, graph.unique_count) == (17, 5)
    assert graph.models == ["three", "two"]


def test_a_shared_module_is_one_occurrence_with_two_edges() -> None:
    layer = nn.Linear(2, 2)
    graph = mk.KnowledgeGraph()
    root = graph.add_model(nn.Sequential(layer, layer), name="shared")
    assert (graph.module_count, graph.unique_count) == (2, 2)
    edge = graph.to_networkx().edges[root, mk.fingerprint(layer).hexdigest]
    assert (edge["count"], edge["order"]) == (2, (0, 1))


def test_the_name_defaults_to_the_class() -> None:
    graph = mk.KnowledgeGraph()
    graph.add_model(nn.ReLU())
    assert graph.models == ["ReLU"]


def test_a_model_of_the_same_name_is_replaced() -> None:
    graph, expected = mk.KnowledgeGraph(), mk.KnowledgeGraph()
    graph.add_model(model(1, width=5), name="a")
    graph.add_model(model(2), name="b")
    graph.add_model(model(3), name="a")
    expected.add_model(model(2), name="b")
    expected.add_model(model(3), name="a")
    assert contents(graph) == contents(expected)


def test_adding_the_same_model_twice_changes_nothing() -> None:
    graph = mk.KnowledgeGraph()
    graph.add_model(model(2), name="a")
    before = contents(graph)
    graph.add_model(model(2), name="a")
    assert contents(graph) == before


def test_removing_leaves_what_others_contain() -> None:
    graph, expected = mk.KnowledgeGraph(), mk.KnowledgeGraph()
    graph.add_model(model(2), name="a")
    graph.add_model(model(3, width=5), name="b")
    graph.remove_model("b")
    expected.add_model(model(2), name="a")
    assert contents(graph) == contents(expected)
    graph.remove_model("a")
    assert contents(graph) == contents(mk.KnowledgeGraph())


FAILING = {
    "no module": "model",
    "a class": nn.Linear,
    "lazy": nn.Sequential(nn.ReLU(), nn.LazyLinear(2)),
    "broken": nn.Module.__new__(nn.Module),
}


FAILS = [(scheme, name) for scheme in ("structure", "seed") for name in FAILING]
FAILS.remove(("seed", "lazy"))  # its hash does not look at tensors


@pytest.mark.parametrize(("scheme", "failing"), FAILS)
def test_a_model_that_fails_leaves_the_graph_as_it_was(scheme: str, failing: str) -> None:
    graph = mk.KnowledgeGraph(scheme=scheme)
    graph.add_model(model(2), name="a")
    before = contents(graph)
    with pytest.raises(mk.ModuleKGError):
        graph.add_model(FAILING[failing], name="a")
    assert contents(graph) == before


@pytest.mark.parametrize("name", [5, ["a"], b"a"])
def test_a_name_is_a_text(name: Any) -> None:
    graph = mk.KnowledgeGraph()
    with pytest.raises(mk.ModuleKGError, match="named by a text"):
        graph.add_model(nn.ReLU(), name=name)


UNKNOWN = [lambda g: g.tree("resnet"), lambda g: g.remove_model("resnet"), lambda g: g.node("x")]


@pytest.mark.parametrize("call", UNKNOWN)
def test_unknown_names_are_refused(call: Any) -> None:
    graph = mk.KnowledgeGraph()
    graph.add_model(nn.ReLU(), name="resnet18")
    with pytest.raises(mk.ModuleKGError, match=r"resnet18|no module has the fingerprint"):
        call(graph)


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(mk.ModuleKGError, match="did you mean 'seed'"):
        mk.KnowledgeGraph(scheme="seeds")


def test_the_seed_scheme_merges_as_the_seed_did() -> None:
    models = [nn.Linear(2, 2, bias=True), nn.Linear(2, 2, bias=False)]
    for scheme, unique in (("seed", 1), ("structure", 2)):
        graph = mk.KnowledgeGraph(scheme=scheme)
        for i, each in enumerate(models):
            graph.add_model(each, name=str(i))
        assert graph.unique_count == unique


def test_nodes_tell_class_hyperparameters_tensors_and_slots() -> None:
    graph = mk.KnowledgeGraph()
    child = nn.Linear(3, 2)
    parent = nn.Sequential(OrderedDict(first=child, none=nn.Identity()))
    parent._modules["none"] = None
    root = graph.node(graph.add_model(parent))
    node = graph.node(mk.fingerprint(child).hexdigest)
    assert root.slots == (("first", node.fingerprint), ("none", None))
    assert (node.class_name, node.qualified_class) == ("Linear", "torch.nn.modules.linear.Linear")
    assert node.hyperparameters == {"in_features": 3, "out_features": 2}
    assert node.tensors == {"weight": (2, 3), "bias": (2,)}


def test_the_graph_prints_its_size() -> None:
    graph = mk.KnowledgeGraph()
    graph.add_model(model(3))
    assert repr(graph) == "<KnowledgeGraph: 1 models, 10 modules, 4 unique>"
