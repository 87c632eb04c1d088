"""The tree of a model is restored exactly from the graph."""

from collections.abc import Callable

import networkx as nx
import pytest
from torch import nn

import modulekg_widgets as mk
from identity.samples import Outer
from models.zoo import zoo_model

ZOO = [
    "resnet152",
    "densenet121",
    "googlenet",
    "squeezenet1_0",
    "mobilenet_v3_small",
    "maskrcnn_resnet50_fpn",
    "regnet_y_400mf",
]


@pytest.fixture(scope="module")
def zoo() -> mk.KnowledgeGraph:
    graph = mk.KnowledgeGraph()
    for name in ZOO:
        graph.add_model(zoo_model(name), name=name)
    return graph


def in_order(tree: nx.DiGraph) -> list[str]:
    return list(nx.dfs_preorder_nodes(tree, ""))


def assert_restored(tree: nx.DiGraph, model: nn.Module) -> None:
    modules = dict(model.named_modules(remove_duplicate=False))
    assert in_order(tree) == list(tree) == list(modules)
    known: dict[int, str] = {}
    for path, module in modules.items():
        if id(module) not in known:
            known[id(module)] = mk.fingerprint(module).hexdigest
        assert tree.nodes[path]["fingerprint"] == known[id(module)]
        assert [p.rpartition(".")[2] for p in tree.successors(path)] == list(dict(module.named_children()))


@pytest.mark.parametrize("name", ZOO)
def test_models_of_torchvision_are_restored(zoo: mk.KnowledgeGraph, name: str) -> None:
    assert_restored(zoo.tree(name), zoo_model(name))


def shared() -> nn.Module:
    inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    return Outer(a=inner, none=None, b=nn.Sequential(inner, nn.SiLU()))


def reversed_names() -> nn.Module:
    return Outer(z=nn.ReLU(), a=nn.ReLU(), m=nn.Sequential(nn.ReLU()))


@pytest.mark.parametrize("make", [shared, reversed_names, nn.ReLU, nn.Sequential])
def test_made_models_are_restored(make: Callable[[], nn.Module]) -> None:
    graph = mk.KnowledgeGraph()
    graph.add_model(make(), name="model")
    tree = graph.tree("model")
    model = make()
    expected = [path for path, _ in model.named_modules(remove_duplicate=False)]
    assert in_order(tree) == list(tree) == expected
    for path in expected:
        assert tree.nodes[path]["fingerprint"] == mk.fingerprint(model.get_submodule(path)).hexdigest


def test_a_cycle_ends_where_it_closes() -> None:
    model = Outer(child=Outer(leaf=nn.ReLU()))
    model.child.parent = model
    graph = mk.KnowledgeGraph()
    root = graph.add_model(model, name="cyclic")
    tree = graph.tree("cyclic")
    assert list(tree) == ["", "child", "child.leaf", "child.parent"]
    assert tree.nodes["child.parent"]["fingerprint"] == root
    assert list(tree.successors("child.parent")) == []


@pytest.mark.slow
def test_modules_that_share_each_other_are_refused_beyond_many_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modulekg_widgets.engine.knowledge.repository.MAX_PATHS", 10_000)
    model = nn.Sequential(nn.ReLU())
    for _ in range(40):
        model = nn.Sequential(model, model)
    graph = mk.KnowledgeGraph()
    graph.add_model(model, name="doubled")
    assert graph.module_count == 42
    with pytest.raises(mk.ModuleKGError, match="10,000 paths"):
        graph.tree("doubled")


def test_five_thousand_levels() -> None:
    model: nn.Module = nn.ReLU()
    chain = [model]
    for _ in range(5_000):
        model = nn.Sequential(model)
        chain.append(model)
    graph = mk.KnowledgeGraph()
    graph.add_model(model, name="deep")
    assert len(graph.tree("deep")) == 5_001
    for module in chain:  # torch deletes nested modules one within the other, which overflows the stack
        module._modules.clear()
