"""A store in which one bit has turned over answers, or says that it is damaged; it never fails in another way."""

from __future__ import annotations

import random
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import StoreError

SECONDS = 20  # of computing: a question that takes longer hangs

QUESTIONS: dict[str, Callable[[mk.KnowledgeGraph], object]] = {
    "most_used": lambda graph: graph.most_used(50),
    "recently used": lambda graph: graph.most_used(over="jobs", since="2020-01-01"),
    "jobs": lambda graph: graph.jobs(),
    "module_statistics": lambda graph: graph.module_statistics(),
    "best_modules": lambda graph: graph.best_modules(),
    "is_a": lambda graph: (graph.is_a(), graph.is_a(2)),
    "subclass_of": lambda graph: graph.subclass_of(),
    "families": lambda graph: graph.families(),
    "rank_frequency": lambda graph: repr(graph.rank_frequency()),
    "importance": lambda graph: [
        graph.importance(by) for by in ("pagerank", "closeness", "betweenness", "in_degree", "models")
    ],
    "communities": lambda graph: graph.communities(),
    "overlap": lambda graph: graph.overlap(),
    "difference": lambda graph: graph.difference("model2", "model3"),
    "names": lambda graph: (graph.models, graph.datasets, graph.users, graph.names),
    "counts": lambda graph: (graph.module_count, graph.unique_count),
    "nodes": lambda graph: repr(graph.nodes),
    "trees": lambda graph: [graph.tree(name) for name in graph.models],
    "networkx": lambda graph: graph.to_networkx(),
    "sizes": lambda graph: (graph.number_of_nodes, graph.number_of_edges),
    "repr": repr,
    "explorer": lambda graph: mk.KnowledgeExplorer(graph).close(),
}
BUILDERS: dict[str, Callable[[], nn.Module]] = {f"model{n}": lambda n=n: net(n, n - 1) for n in (2, 3, 4)}
# these fit a predictor to the jobs, or build and run models
SLOW: dict[str, Callable[[mk.KnowledgeGraph], object]] = {
    "predict a module": lambda graph: graph.predict("acc@1", net(3, 2), dataset="digits"),
    "predict a model": lambda graph: graph.predict("acc@1", "model3", dataset="digits"),
    "suggest": lambda graph: repr(graph.suggest(dataset="digits", max_params=100, n=2, builders=BUILDERS)),
    "generate": lambda graph: repr(
        graph.generate(
            lambda record: 1.0, {"max_params": 1e4}, n=1, dataset="digits", models=["model3"], builders=BUILDERS,
            generations=1, population=2,
        )
    ),
}  # fmt: skip
EVERY = 10  # of so many flipped bits, one is asked the slow questions
ENDINGS = ("dot", "edges", "graphml", "gexf", "cyjs", "jsonld", "csv")


def net(width: int, depth: int) -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.5)) for _ in range(depth)))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "graph.db"
    graph = mk.KnowledgeGraph(path)
    graph.add_dataset("digits", classes=10, task="images")
    graph.add_user("ada", team="x")
    for width in (2, 3, 4):
        graph.add_model(net(width, width - 1), name=f"model{width}", args=torch.zeros(1, width))
        graph.add_job(user="ada", dataset="digits", model=f"model{width}", accuracy=0.5, history=[0.1, 0.5, 0.9])
    graph.predict("acc@1", "model3", dataset="digits")  # which makes the published models known to this process
    graph.close()
    return path


@contextmanager
def limited(what: str) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise AssertionError(f"{what} hangs")

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def outcome(what: str, act: Callable[[], object]) -> str:
    """ "read" or "refused"; any other end is the test's."""
    try:
        with limited(what):
            act()
    except mk.ModuleKGError:
        return "refused"
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
    return "read"


def ask(path: Path, expected: Any, folder: Path, slow: bool) -> set[str]:
    """What becomes of every question; of opening alone where all that is read is as it was."""
    try:
        graph = mk.KnowledgeGraph(path)
    except mk.ModuleKGError:
        return {"refused"}
    try:
        known = []
        if outcome("contents", lambda: known.append(graph.contents())) == "read" and known == [expected]:
            return {"read"}
        asked = {
            **QUESTIONS,
            **(SLOW if slow else {}),
            **{end: lambda graph, end=end: graph.export(folder / f"a.{end}") for end in ENDINGS},
        }
        return {outcome(what, lambda question=question: question(graph)) for what, question in asked.items()}
    finally:
        graph.close()


def check_flipped(sound: Path, folder: Path, count: int | None) -> None:
    whole, expected = sound.read_bytes(), mk.KnowledgeGraph(sound).contents()
    places = [place for place, byte in enumerate(whole) if byte]  # most of a page is empty
    rng, seen = random.Random(5), set()
    for number, place in enumerate(places if count is None else rng.sample(places, count)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << rng.randrange(8)
        path = folder / "flipped.db"
        path.write_bytes(flipped)
        try:
            seen |= ask(path, expected, folder, slow=number % EVERY == 0)
        except AssertionError as error:
            raise AssertionError(f"byte {place}, {flipped[place - 16 : place + 16]!r}: {error}") from error
        for rest in folder.glob("flipped.db*"):
            rest.unlink()
    assert seen == {"read", "refused"}


def test_a_sound_store_answers_every_question(sound: Path, tmp_path: Path) -> None:
    graph = mk.KnowledgeGraph(sound)
    for question in (*QUESTIONS.values(), *SLOW.values()):
        question(graph)
    graph.close()


@pytest.mark.slow
def test_a_bit_anywhere(sound: Path, tmp_path: Path) -> None:
    check_flipped(sound, tmp_path, 120)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_a_bit_in_every_byte(sound: Path, tmp_path: Path) -> None:
    check_flipped(sound, tmp_path, None)


@pytest.mark.parametrize("letter", "gG=\x11\u00e9 ")
@pytest.mark.parametrize("kind", ["first", "last"])
def test_a_digest_that_is_none_any_more(sound: Path, tmp_path: Path, letter: str, kind: str) -> None:
    path = tmp_path / "graph.db"
    path.write_bytes(sound.read_bytes())
    with sqlite3.connect(path) as connection:
        order = "ASC" if kind == "first" else "DESC"
        connection.execute(
            "UPDATE modulekg_nodes SET key = substr(key, 1, 10) || ? || substr(key, 12) WHERE id = "
            f"(SELECT id FROM modulekg_nodes WHERE type = 'Module' ORDER BY id {order} LIMIT 1)",
            (letter,),
        )
    connection.close()
    graph = mk.KnowledgeGraph(path)
    for question in (
        graph.most_used,
        lambda: graph.export(tmp_path / "a.graphml"),
        lambda: [graph.tree(name) for name in graph.models],
    ):
        with pytest.raises(StoreError, match="damaged"):
            question()
    graph.close()


@pytest.mark.parametrize("kind", ["runs", "uses", "trains"])
def test_a_job_that_leads_to_a_node_of_another_type(sound: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "graph.db"
    path.write_bytes(sound.read_bytes())
    end = "source" if kind == "runs" else "target"
    other = "SELECT id FROM modulekg_nodes WHERE type = '{}' LIMIT 1".format("Model" if kind == "uses" else "DataSet")
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE OR REPLACE modulekg_edges SET {end} = ({other}) WHERE type = '{kind}'")
    connection.close()
    graph = mk.KnowledgeGraph(path)
    with pytest.raises(StoreError, match=f"of type '{kind}'.*damaged"):
        graph.module_statistics()
    graph.close()
