"""The knowledge graph at scale; run with `pytest -m nightly tests/benchmarks/test_knowledge_speed.py -s`.

The figures are printed, and written to $MODULEKG_BENCHMARKS (default: knowledge_speed.json in the temporary folder).
$MODULEKG_LARGE_ZOO names a store of 2,000 models (browser/large_zoo.py), which takes ten minutes to make.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator
from inspect import isfunction
from pathlib import Path

import pandas as pd
import pytest
import torch

import modulekg_widgets as mk
from benchmarks.figures import collected, p95
from knowledge.postgres_server import PostgresServer
from models.large_zoo import large_zoo
from modulekg_widgets.engine.knowledge import questions
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.facts.records import StructureNode

__all__ = ["large_zoo"]  # the fixture
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]
STORES = ("sqlite", "postgres")
NODES, CHILDREN = 1_000_000, 3
MEASURES = ("pagerank", "in_degree", "models", "closeness", "betweenness")
FORMATS = ("graphml", "cyjs", "jsonld", "dot", "gv", "edges", "gexf", "csv")
# what is asked of a graph of 2,000 models; the first word is the name of the method
QUESTIONS: dict[str, Callable[[mk.KnowledgeGraph, Path], object]] = {
    "most_used": lambda kg, _: kg.most_used(),
    "most_used over jobs": lambda kg, _: kg.most_used(10**6, "block", over="jobs"),
    "jobs": lambda kg, _: kg.jobs(),
    "module_statistics": lambda kg, _: kg.module_statistics(),
    "best_modules": lambda kg, _: kg.best_modules(),
    "is_a": lambda kg, _: kg.is_a(),
    "is_a of level 2": lambda kg, _: kg.is_a(2),
    "subclass_of": lambda kg, _: kg.subclass_of(),
    "families": lambda kg, _: kg.families(),
    "rank_frequency": lambda kg, _: kg.rank_frequency().verdict,
    **{f"importance by {measure}": lambda kg, _, by=measure: kg.importance(by) for measure in MEASURES},
    "communities by louvain": lambda kg, _: kg.communities(),
    "communities by leiden": lambda kg, _: kg.communities("leiden"),
    "overlap": lambda kg, _: kg.overlap(),
    "difference": lambda kg, _: kg.difference("resnet18", "resnet34"),
    "similar": lambda kg, _: kg.similar("resnet18"),
    "plot of types": lambda kg, _: kg.plot("is_a"),
    "plot of overlap": lambda kg, _: kg.plot("overlap"),
    "equivalent": lambda kg, _: kg.equivalent("resnet18", "resnet34"),
    "predict": lambda kg, _: kg.predict("acc@1", "resnet18"),
    "suggest": lambda kg, _: kg.suggest(max_params=5e6),
    "to_networkx": lambda kg, _: kg.to_networkx(),
    "to_networkx of all types": lambda kg, _: kg.to_networkx("all"),
    "number_of_nodes": lambda kg, _: kg.number_of_nodes(),
    "number_of_edges": lambda kg, _: kg.number_of_edges(),
    **{f"export to {kind}": lambda kg, folder, kind=kind: kg.export(folder / f"zoo.{kind}") for kind in FORMATS},
}
# these build and trace, or fit, for as many models as they are asked to
SEARCHES = {"same_as", "evaluate_prediction", "generate"}
MANY_RESULTS = "100,000 rows of results added"
AT_ONCE = "2,000 models: like one, once one was asked for"
# name → (unit, goal, whether less is better)
GOALS = {
    **{f"{store}: 1 million nodes and 3 million edges": ("s", 60.0, True) for store in STORES},
    **{f"{store}: look-up by fingerprint, median": ("ms", 1.0, True) for store in STORES},
    **{f"{store}: look-up by fingerprint, p95": ("ms", 1.0, True) for store in STORES},
    "torchvision's models indexed": ("s", 30.0, True),
    "torchvision's models indexed again": ("s", 1.0, True),
    "torchvision's graph read whole": ("s", 1.0, True),
    **{f"2,000 models: {question}": ("CPU-s", 2.0, True) for question in QUESTIONS},
    AT_ONCE: ("CPU-ms", 50.0, True),
    MANY_RESULTS: ("CPU-s", 60.0, True),
}


@pytest.fixture(scope="module")
def measured() -> Iterator[dict[str, float]]:
    yield from collected(GOALS, "knowledge_speed")


@pytest.fixture(scope="module")
def few() -> mk.KnowledgeGraph:
    builders = mk.torchvision_builders()
    return mk.index_models({name: builders[name] for name in ("resnet18", "resnet34")})


@pytest.fixture(scope="module")
def million() -> Contents:
    """A graph in which each structure contains three of those before it."""
    rng = random.Random(0)
    keys = [f"{rng.getrandbits(128):032x}" for _ in range(NODES)]
    modules = {key: made_up(key, at, inside(keys, at, rng)) for at, key in enumerate(keys)}
    assert sum(len(node.slots) for node in modules.values()) >= CHILDREN * (NODES - 10)
    return Contents(modules=modules)


def inside(keys: list[str], at: int, rng: random.Random) -> list[str]:
    return [keys[index] for index in rng.sample(range(at), CHILDREN)] if at >= 10 else []


def made_up(key: str, at: int, children: list[str]) -> StructureNode:
    settings = {"in_channels": at, "out_channels": 64, "kernel_size": "(3, 3)", "stride": "(1, 1)", "groups": 1}
    slots = tuple((str(place), child) for place, child in enumerate(children))
    bases = ("torch.nn.modules.conv._ConvNd", "torch.nn.modules.module.Module")
    return StructureNode(
        key, "Conv2d", "torch.nn.modules.conv.Conv2d", bases, settings, {"weight": (64, at, 3, 3), "bias": None}, slots,
        576 * at, 2304 * at,
    )  # fmt: skip


@pytest.mark.parametrize("store", STORES)
def test_a_million_nodes(
    store: str, million: Contents, tmp_path: Path, measured: dict[str, float], request: pytest.FixtureRequest
) -> None:
    location = str(tmp_path / "graph.db")
    if store == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        location = server.new_database()
    graph = mk.KnowledgeGraph(location)
    measured[f"{store}: 1 million nodes and 3 million edges"] = seconds(lambda: graph.add_contents(million))
    keys = random.Random(1).sample(sorted(million.modules), 500)
    graph.node(keys[0])
    times = [1000 * seconds(lambda key=key: graph.node(key)) for key in keys]
    measured[f"{store}: look-up by fingerprint, median"] = statistics.median(times)
    measured[f"{store}: look-up by fingerprint, p95"] = p95(times)
    assert graph.node(keys[7]) == million.modules[keys[7]]
    assert graph.unique_count == NODES


def test_the_zoo(tmp_path: Path, measured: dict[str, float]) -> None:
    store, builders = tmp_path / "zoo.db", mk.torchvision_builders()
    measured["torchvision's models indexed"] = seconds(lambda: mk.index_models(builders, store))
    measured["torchvision's models indexed again"] = seconds(lambda: mk.index_models(builders, store))
    graph = mk.KnowledgeGraph(store)
    measured["torchvision's graph read whole"] = seconds(graph.contents)
    assert (len(graph.models), graph.module_count) == (121, 37_528)


def test_every_question_is_measured() -> None:
    asked = {question.partition(" ")[0] for question in QUESTIONS}
    methods = {name: method.__module__ for name, method in vars(mk.KnowledgeGraph).items() if isfunction(method)}
    assert asked | SEARCHES == {name for name, file in methods.items() if file.startswith(f"{questions.__name__}.")}


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_to_two_thousand_models(
    question: str, large_zoo: Path, few: mk.KnowledgeGraph, tmp_path: Path, measured: dict[str, float]
) -> None:
    QUESTIONS[question](few, tmp_path)  # imports what it needs
    graph = mk.KnowledgeGraph(large_zoo)
    graph.contents()
    gc.collect()
    measured[f"2,000 models: {question}"] = cpu_seconds(lambda: QUESTIONS[question](graph, tmp_path))


def test_models_like_one_of_two_thousand(large_zoo: Path, measured: dict[str, float]) -> None:
    graph = mk.KnowledgeGraph(large_zoo)
    graph.similar("resnet18")
    names = random.Random(0).sample(graph.models, 50)
    measured[AT_ONCE] = 1000 * max(cpu_seconds(lambda name=name: graph.similar(name)) for name in names)


def cpu_seconds(action: Callable[[], object]) -> float:
    begun = time.process_time()
    action()
    return time.process_time() - begun


def seconds(action: object) -> float:
    begun = time.perf_counter()
    action()  # type: ignore[operator]
    return time.perf_counter() - begun


def test_a_large_table_of_results(measured: dict[str, float]) -> None:
    kg, rows = mk.KnowledgeGraph(), 100_000
    kg.add_model(torch.nn.Linear(2, 2), name="model")
    table = pd.DataFrame({
        "model": ["model"] * rows, "value": [90.0 * at / rows for at in range(rows)],
        "tag": [f"run {at}" for at in range(rows)],
    })  # fmt: skip
    begin = time.process_time()
    assert kg.add_results(table, dataset="own", target="acc@1", training=("tag",)).added == rows
    measured[MANY_RESULTS] = time.process_time() - begin
