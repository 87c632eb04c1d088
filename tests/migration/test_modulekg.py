"""Every row of "Coming from ModuleKG": its tasks, with the figures that it published."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from migration.tables import Row, Table
from models.zoo import zoo_model

modulekg = Table("Coming from ModuleKG")
# fmt: off
ELEVEN = (
    "resnet18", "resnet34", "resnet101", "resnet152", "googlenet", "vgg11_bn", "vgg13_bn", "vgg16", "vgg19",
    "squeezenet1_0", "squeezenet1_1",
)
# fmt: on


@cache
def graph_of(*names: str, scheme: str = "structure") -> mk.KnowledgeGraph:
    """These models of torchvision; rows only read it."""
    kg = mk.KnowledgeGraph(scheme=scheme)
    for name in names:
        kg.add_model(zoo_model(name), name)
    return kg


@cache
def with_jobs() -> mk.KnowledgeGraph:
    """Two models, a data set and two training runs; rows only read it."""
    kg = mk.KnowledgeGraph()
    for name in ("resnet18", "squeezenet1_1"):
        kg.add_model(zoo_model(name), name)
    kg.add_dataset("CIFAR-10", classes=10, image_size=32)
    kg.add_job(dataset="CIFAR-10", model="resnet18", accuracy=93.0, history=[50, 92, 93], started="2026-05-01")
    kg.add_job(dataset="CIFAR-10", model="squeezenet1_1", accuracy=0.81, history=[0.81, 0.81], started="2026-07-01")
    return kg


# -------------------------------------------------------------------- identity


@modulekg("the hash of a module")
def _hash() -> None:
    module, with_bias = nn.Conv2d(3, 8, 3, bias=False), nn.Conv2d(3, 8, 3)
    assert mk.fingerprint(module) == mk.fingerprint(nn.Conv2d(3, 8, 3, bias=False))
    assert mk.fingerprint(module) != mk.fingerprint(with_bias)
    assert mk.fingerprint(module, scheme="seed") == mk.fingerprint(with_bias, scheme="seed")  # what the old one merges


@modulekg("a display name such as `ReLU854`")
def _display_name() -> None:
    module, kg = nn.ReLU(inplace=True), graph_of("resnet152", scheme="seed")
    assert mk.fingerprint(module, scheme="seed").display_name == "ReLU854"
    assert {"ReLU854", "BatchNorm2d187", "Conv2d578", "Bottleneck304"} <= set(kg.names().values())


# ------------------------------------------------------------------ collecting


@modulekg("collect models")
def _collect() -> None:
    model = zoo_model("resnet18")
    kg = mk.KnowledgeGraph()
    node = kg.add_model(model, name="resnet18")
    assert kg.models == ["resnet18"]
    assert node == mk.fingerprint(model).hexdigest


@modulekg("all models of torchvision, on a cluster")
def _index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(mk.torchvision_builders()) == 121
    few = {name: mk.torchvision_builders()[name] for name in ("squeezenet1_0", "squeezenet1_1")}
    with ThreadPoolExecutor(2) as executor:
        kg = mk.index_models(few, "zoo.db", executor=executor)
    assert (tmp_path / "zoo.db").is_file()
    assert sorted(kg.models) == ["squeezenet1_0", "squeezenet1_1"]
    kg.close()


@modulekg("count modules and unique modules")
def _counts() -> None:
    kg = graph_of("resnet152")
    assert (kg.module_count, kg.unique_count) == (423, 50)


@modulekg("the published figures: 423/50, 1444/274")
def _published() -> None:
    assert mk.KnowledgeGraph(scheme="seed").scheme == "seed"
    for scheme, unique in (("seed", 274), ("structure", 283)):
        every, one = graph_of(*ELEVEN, scheme=scheme), graph_of("resnet152", scheme=scheme)
        assert (every.module_count, every.unique_count) == (1444, unique)
        assert (one.module_count, one.unique_count) == (423, 50)


@modulekg("the table of the ten most used")
def _most_used() -> None:
    kg = graph_of(*ELEVEN, scheme="seed")
    table = kg.most_used(10)
    assert dict(zip(table["name"][:3], table["count"][:3], strict=True)) == {
        "ReLU854": 218,
        "BatchNorm2d187": 148,
        "Conv2d578": 78,
    }
    assert set(kg.most_used(10, level="block")["class"]) >= {"Bottleneck", "BasicBlock"}
    deep = mk.KnowledgeGraph(levels="depth")
    deep.add_model(torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(2, 2))), "nested")
    assert deep.most_used(9, level="stage")["class"].tolist() == ["Sequential"]


@modulekg("most used recently")
def _recently() -> None:
    kg = with_jobs()
    recent = kg.most_used(10, since="2026-06-01")
    assert "BatchNorm2d" in set(kg.most_used(10)["class"])
    assert "BatchNorm2d" not in set(recent["class"])  # the job of resnet18 is older


# --------------------------------------------------------------------- reading


@modulekg("a model out of the merged graph")
def _tree() -> None:
    kg = graph_of(*ELEVEN)
    tree = kg.tree("resnet18")
    model = zoo_model("resnet18")
    assert list(tree.successors("layer1.0")) == [f"layer1.0.{name}" for name, _ in model.layer1[0].named_children()]
    assert {path: tree.nodes[path]["fingerprint"] for path, _ in model.named_modules()} == {
        path: mk.fingerprint(module).hexdigest for path, module in model.named_modules()
    }


@modulekg("types and their instances (isA)")
def _is_a() -> None:
    kg = graph_of(*ELEVEN)
    names = kg.names()
    two_blocks, three = (kg.tree(name).nodes["layer1"]["fingerprint"] for name in ("resnet18", "resnet34"))
    exact, by_depth = (table.set_index("node")["type"] for table in (kg.is_a(level=1), kg.is_a(level=2)))
    assert exact[names[mk.fingerprint(zoo_model("resnet18").layer1[0]).hexdigest]].startswith("BasicBlock")
    assert not {names[two_blocks], names[three]} & set(exact.index)  # one has two blocks, one three
    assert by_depth[names[two_blocks]] == by_depth[names[three]]
    bases = kg.subclass_of()
    assert set(bases[bases["class"].str.endswith("BasicBlock")]["base"]) >= {"torch.nn.modules.module.Module"}


@modulekg("rank and frequency on log–log axes")
def _rank_frequency() -> None:
    kg = graph_of(*ELEVEN)
    figure = kg.rank_frequency().plot()
    assert any(axes.get_xscale() == axes.get_yscale() == "log" for axes in figure.axes)


@modulekg("the important modules, the parts of the graph")
def _importance() -> None:
    kg = graph_of(*ELEVEN)
    ranks = kg.importance("pagerank")["pagerank"]
    assert ranks.is_monotonic_decreasing
    assert ranks.sum() == pytest.approx(1.0)
    parts = kg.communities()
    assert 1 < parts["community"].nunique() < kg.unique_count
    assert parts.attrs["modularity"] > 0.3


@modulekg("what models have in common")
def _overlap() -> None:
    kg = graph_of(*ELEVEN)
    shared = kg.overlap(shared=True)
    own = {mk.fingerprint(module).hexdigest for module in zoo_model("resnet18").modules()}
    others = {mk.fingerprint(module).hexdigest for module in zoo_model("resnet34").modules()}
    assert shared.loc["resnet18", "resnet34"] == len(own & others) > 20


# ------------------------------------------------------------------------ jobs


@modulekg("data sets, users, training runs")
def _jobs() -> None:
    kg = mk.KnowledgeGraph()
    kg.add_model(nn.Linear(3, 2), "small")
    kg.add_dataset("flowers", classes=102)
    kg.add_user("someone")
    kg.add_job(user="someone", dataset="flowers", model="small", accuracy=93.1)
    (job,) = kg.jobs().to_dict("records")
    assert (job["user"], job["dataset"], job["model"]) == ("someone", "flowers", "small")
    assert job["accuracy"] == pytest.approx(0.931)


@modulekg("accuracy and convergence of a module")
def _statistics() -> None:
    kg = with_jobs()
    table = kg.module_statistics().drop_duplicates("class").set_index("class")
    assert table.loc["BasicBlock"]["accuracy"] == pytest.approx(0.93)  # in resnet18 alone
    assert table.loc["ReLU"]["accuracy"] == pytest.approx((0.93 + 0.81) / 2)
    assert (table.loc["BasicBlock"]["convergence"], table.loc["ReLU"]["convergence"]) == (1.0, 0.5)


@modulekg("from structure to accuracy")
def _prediction() -> None:
    kg, model = with_jobs(), zoo_model("resnet18")
    found = kg.predict("acc@1", model)
    assert abs(found.value - 69.758) < 10  # what torchvision published of it
    assert found.low < found.value < found.high
    judged = kg.evaluate_prediction("acc@1", predictors=["ridge"])
    assert set(judged["families"]) == {17}
    assert judged["rho"].between(0.2, 1.0).all()


@modulekg("a module for a task")
def _suggestion() -> None:
    kg = with_jobs()
    found = kg.suggest(dataset="CIFAR-10", max_params=5_000_000, n=2, kinds=["model"])
    assert len(found) == 2
    model = found[0].build()
    assert sum(parameter.numel() for parameter in model.parameters()) <= 5_000_000
    assert model.eval()(torch.rand(1, 3, 64, 64)).shape[0] == 1


@modulekg("a new module for a task")
def _generation() -> None:
    kg = with_jobs()
    found = kg.generate(objective="acc@1", budget=3_000_000, n=1, models=["squeezenet1_1"], generations=1, population=4)
    model = found[0].build()
    assert sum(parameter.numel() for parameter in model.parameters()) <= 3_000_000
    assert mk.fingerprint(model) != mk.fingerprint(zoo_model("squeezenet1_1"))
    assert model.eval()(torch.rand(1, 3, 64, 64)).shape[0] == 1


# ----------------------------------------------------------------------- files


@modulekg("the edge list for csacademy")
def _edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kg = graph_of("squeezenet1_1")
    kg.export("graph.edges")
    lines = (tmp_path / "graph.edges").read_text("utf-8").splitlines()
    names = set(kg.names().values())
    assert len(lines) >= kg.number_of_edges()
    assert {word for line in lines for word in line.split()} == names


@modulekg("the GraphViz picture")
def _dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kg = graph_of("squeezenet1_1")
    kg.export("graph.dot")
    text = (tmp_path / "graph.dot").read_text("utf-8")
    assert text.startswith("digraph")
    assert text.count("->") == kg.to_networkx("all").number_of_edges()


@modulekg("a picture of the unique modules")
def _picture() -> None:
    model = zoo_model("squeezenet1_1")
    graph = mk.ModelGraph(model, view="deduplicated")
    assert graph.view == "deduplicated"
    graph.close()


@pytest.mark.parametrize("row", modulekg.rows, ids=[row.old for row in modulekg.rows])
def test_row(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modulekg.run(row, tmp_path=tmp_path, monkeypatch=monkeypatch)


def test_every_function_has_its_row() -> None:
    assert modulekg.without_row() == []
