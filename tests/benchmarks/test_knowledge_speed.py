"""The knowledge graph at scale; run with `pytest -m nightly tests/benchmarks/test_knowledge_speed.py -s`.

The figures are printed, and written to $MODULEKG_BENCHMARKS (default: knowledge_speed.json in the temporary folder).
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import modulekg_widgets as mk
from benchmarks.figures import collected, p95
from knowledge.postgres_server import PostgresServer
from modulekg_widgets.engine.knowledge.contents import Contents
from modulekg_widgets.engine.knowledge.records import StructureNode

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200)]
STORES = ("sqlite", "postgres")
NODES, CHILDREN = 1_000_000, 3
# name → (unit, goal, whether less is better)
GOALS = {
    **{f"{store}: 1 million nodes and 3 million edges": ("s", 60.0, True) for store in STORES},
    **{f"{store}: look-up by fingerprint, median": ("ms", 1.0, True) for store in STORES},
    **{f"{store}: look-up by fingerprint, p95": ("ms", 1.0, True) for store in STORES},
    "torchvision's models indexed": ("s", 30.0, True),
    "torchvision's models indexed again": ("s", 1.0, True),
    "torchvision's graph read whole": ("s", 1.0, True),
}


@pytest.fixture(scope="module")
def measured() -> Iterator[dict[str, float]]:
    yield from collected(GOALS, "knowledge_speed")


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


def seconds(action: object) -> float:
    begun = time.perf_counter()
    action()  # type: ignore[operator]
    return time.perf_counter() - begun
