"""After a write of its own a graph knows what it holds, exactly as it would be read, without reading all again."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from torch import nn

import modulekg_widgets as mk
from knowledge.exchanged import everything, exactly
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.store import reader

COUNTS = ("occurrences", "feeds", "calls")


def in_order(contents: Contents) -> list[Any]:
    """All nodes in their order; of counts, as of uses, no order is told."""
    models = {name: replace(model, **{each: Counter(dict(sorted(getattr(model, each).items()))) for each in COUNTS})
              for name, model in contents.models.items()}  # fmt: skip
    kinds = (contents.modules, models, contents.datasets, contents.users, contents.jobs)
    return [[(key, exactly(value)) for key, value in kind.items()] for kind in kinds]


def check(graph: mk.KnowledgeGraph, store: Path) -> None:
    with mk.KnowledgeGraph(store) as other:
        assert in_order(graph.contents()) == in_order(other.contents())


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often a whole store was read."""
    found: list[int] = []
    read = reader.read_contents
    monkeypatch.setattr(reader, "read_contents", lambda *args: found.append(1) or read(*args))
    return found


@pytest.mark.slow
def test_everything_that_a_graph_can_hold(tmp_path: Path, reads: list[int]) -> None:
    graph = mk.KnowledgeGraph(tmp_path / "zoo.db")
    graph.contents()
    graph.add_contents(everything())
    in_order(graph.contents())
    assert len(reads) == 1
    check(graph, tmp_path / "zoo.db")
    assert graph.contents().holders
    assert graph.contents().uses


@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_writes(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    store = tmp_path / "zoo.db"
    graph = mk.KnowledgeGraph(store)
    graph.contents()

    def add_model() -> None:
        width = rng.choice([1, 2, 3])
        graph.add_model(nn.Sequential(nn.Linear(width, 4), nn.ReLU(), nn.Linear(4, 4)), f"m{rng.randrange(3)}")

    def add_dataset() -> None:
        graph.add_dataset(f"d{rng.randrange(3)}", classes=rng.randrange(9), sizes=(1, 2.5, float("nan")))

    def add_user() -> None:
        graph.add_user(f"u{rng.randrange(3)}", team="t")

    def add_job() -> None:
        known = graph.contents()
        graph.add_job(
            history={"loss": [2.0, rng.random()]}, name=f"j{rng.randrange(4)}",
            model=rng.choice([None, *known.models]), dataset=rng.choice([None, *known.datasets]),
            user=rng.choice([None, *known.users]), accuracy=rng.random(), started=1.0, ended=2.0,
        )  # fmt: skip

    def add_results() -> None:
        rows = [(name, 50 + rng.random(), rng.choice(["a_b", None])) for name in graph.contents().models]
        graph.add_results(pd.DataFrame(rows, columns=["model", "value", "tag"]), dataset="r", target="acc@1")

    def remove() -> None:
        known = graph.contents()
        kind = rng.choice(["models", "datasets", "users", "jobs"])
        if names := list(getattr(known, kind)):
            getattr(graph, f"remove_{kind[:-1]}")(rng.choice(names))

    writes = [add_model, add_dataset, add_user, add_job, add_job, add_results, remove]
    for _ in range(30):
        rng.choice(writes)()
        check(graph, store)


def test_what_is_removed_is_not_read_again(tmp_path: Path, reads: list[int]) -> None:
    graph = mk.KnowledgeGraph(tmp_path / "zoo.db")
    for width in (2, 3):
        graph.add_model(nn.Sequential(nn.Linear(2, width), nn.ReLU()), f"m{width}")
    graph.add_dataset("d")
    graph.add_user("u")
    for name in "abc":
        graph.add_job(name=name, model="m2", dataset="d", user="u", accuracy=0.5)
    graph.contents()
    for kind, name in (
        ("job", "a"),
        ("job", "Job:b"),
        ("model", "m2"),
        ("dataset", "d"),
        ("user", "u"),
        ("model", "m3"),
    ):
        getattr(graph, f"remove_{kind}")(name)
        known = in_order(graph.contents())
        assert len(reads) == 1
        with mk.KnowledgeGraph(tmp_path / "zoo.db") as other:
            assert known == in_order(other.contents())
        reads.pop()
    (job,) = graph.contents().jobs.values()
    assert (job.model, job.dataset, job.user) == (None, None, None)
    assert not graph.contents().modules


def test_what_is_not_there_is_not_removed(tmp_path: Path, reads: list[int]) -> None:
    graph = mk.KnowledgeGraph(tmp_path / "zoo.db")
    before = graph.contents()
    for kind in ("model", "dataset", "user", "job"):
        with pytest.raises(mk.ModuleKGError):
            getattr(graph, f"remove_{kind}")("none")
    assert graph.contents() is before
    assert len(reads) == 1


def test_modules_of_no_model_make_it_read_again(tmp_path: Path, reads: list[int]) -> None:
    graph = mk.KnowledgeGraph(tmp_path / "zoo.db")
    graph.add_contents(everything())
    graph.add_model(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "small")
    graph.add_contents(replace(everything(), models={}, datasets={}, users={}, jobs={}))
    for name in graph.models:
        graph.contents()
        graph.remove_model(name)
        check(graph, tmp_path / "zoo.db")


def test_what_another_one_writes_is_read(tmp_path: Path, reads: list[int]) -> None:
    one, other = (mk.KnowledgeGraph(tmp_path / "zoo.db") for _ in range(2))
    one.add_dataset("first")
    assert list(one.contents().datasets) == list(other.contents().datasets) == ["first"]
    other.add_dataset("second")
    one.add_dataset("third")  # between what it has read and this write there was another
    assert list(one.contents().datasets) == ["first", "second", "third"]
    assert len(reads) == 3
    assert list(other.contents().datasets) == ["first", "second", "third"]


def test_a_write_that_fails_changes_nothing(tmp_path: Path, reads: list[int]) -> None:
    graph = mk.KnowledgeGraph(tmp_path / "zoo.db")
    before = graph.contents()
    with pytest.raises(mk.ModuleKGError):
        graph.add_job(name="a", dataset="none", accuracy=0.5)
    assert graph.contents() is before
    assert len(reads) == 1


def test_a_graph_of_the_seed_s_scheme_is_read_again(tmp_path: Path) -> None:
    graph = mk.KnowledgeGraph(tmp_path / "zoo.db", scheme="seed")
    graph.contents()
    graph.add_model(nn.Sequential(nn.Linear(2, 2)), "a")
    graph.add_model(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "b")
    check(graph, tmp_path / "zoo.db")
    graph.remove_model("a")
    check(graph, tmp_path / "zoo.db")
