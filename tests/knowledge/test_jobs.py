"""Training runs: what is told of them, and the questions who used what, when and how well."""

import math
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.knowledge.jobs import fraction, histories, steps_to_converge

DAY = 86_400.0


def block(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU())


def network(width: int, *others: nn.Module) -> nn.Module:
    return nn.Sequential(block(width), *others)


@pytest.fixture
def graph() -> mk.KnowledgeGraph:
    """Three models; the wide one is the best on letters, the deep one on digits."""
    made = mk.KnowledgeGraph()
    made.add_model(network(2), name="small")
    made.add_model(network(8), name="wide")
    made.add_model(network(2, block(8), nn.Tanh()), name="deep")
    for name in ("digits", "letters"):
        made.add_dataset(name)
    for name in ("ada", "eve"):
        made.add_user(name)
    runs: list[tuple[str, str, str, str, float, list[float]]] = [
        ("1", "ada", "digits", "small", 0.8, [0.1, 0.5, 0.79, 0.8]),
        ("2", "ada", "digits", "deep", 0.9, [0.1, 0.9]),
        ("3", "eve", "letters", "wide", 95.0, [0.2, 0.95, 0.95]),
        ("4", "eve", "letters", "small", 60, [0.2, 0.6]),
    ]
    for day, (name, user, dataset, model, accuracy, history) in enumerate(runs):
        made.add_job(
            name=name, user=user, dataset=dataset, model=model, accuracy=accuracy, history=history,
            started=day * DAY, ended=day * DAY + 60,
        )  # fmt: skip
    return made


def test_who_trained_what_on_which_data(graph: mk.KnowledgeGraph) -> None:
    table = graph.jobs()
    assert list(table.columns) == [
        "job", "user", "dataset", "model", "accuracy", "convergence", "started", "ended",
    ]  # fmt: skip
    assert table["job"].tolist() == ["1", "2", "3", "4"]
    assert table["accuracy"].tolist() == pytest.approx([0.8, 0.9, 0.95, 0.6])
    assert table["convergence"].tolist() == [2, 1, 1, 1]
    assert graph.jobs(user="eve", model="small")["job"].tolist() == ["4"]
    assert graph.jobs(dataset="digits")["model"].tolist() == ["small", "deep"]
    assert graph.jobs(since=1.5 * DAY)["job"].tolist() == ["3", "4"]
    assert graph.jobs(since=DAY + 30, until=2 * DAY)["job"].tolist() == ["2", "3"]
    assert table["started"][1] == datetime(1970, 1, 2, tzinfo=timezone.utc)
    assert len(mk.KnowledgeGraph().jobs()) == 0


def counted(graph: mk.KnowledgeGraph, **chosen: Any) -> dict[str, int]:
    table = graph.most_used(100, **chosen)
    return dict(zip(table["class"] + table["hyperparameters"].map(str), table["count"], strict=True))


def test_recently_most_used(graph: mk.KnowledgeGraph) -> None:
    every = {row["class"]: row["count"] for _, row in graph.most_used(3, level="op").iterrows()}
    assert every["ReLU"] == 4
    recent = graph.most_used(10, level="op", since=2.5 * DAY)
    assert recent["class"].tolist() == ["Linear", "ReLU"]
    assert recent["count"].tolist() == [1, 1]
    assert graph.most_used(10, since=9 * DAY).empty
    assert set(graph.most_used(10, level="op", until=DAY / 2)["class"]) == {"Linear", "ReLU"}


def test_most_used_ops_over_jobs(graph: mk.KnowledgeGraph) -> None:
    table = graph.most_used(10, level="op", over="jobs")
    relu = table[table["class"] == "ReLU"].iloc[0]
    assert (relu["count"], relu["models"]) == (5, 3)  # small twice, wide, and two in deep
    assert graph.most_used(10, level="op", over="jobs", user="ada", dataset="digits")["count"].max() == 3
    with pytest.raises(mk.ModuleKGError, match="'jobs'"):
        graph.most_used(over="job")


def test_which_blocks_are_in_the_best_models(graph: mk.KnowledgeGraph) -> None:
    table = graph.best_modules(level="stage", top=2)
    wide = mk.fingerprint(block(8)).display_name
    assert table["name"].tolist()[0] == wide
    assert table.iloc[0][["models", "count", "in_others"]].tolist() == [2, 2, 0]
    assert table.iloc[0]["accuracy"] == 0.95
    assert graph.best_modules(level="stage", top=1, dataset="digits")["models"].tolist() == [1, 1]


def test_accuracy_and_convergence_of_each_module(graph: mk.KnowledgeGraph) -> None:
    table = graph.module_statistics(level="stage").set_index("name")
    narrow = table.loc[mk.fingerprint(block(2)).display_name]
    assert narrow["jobs"] == 3
    assert narrow["accuracy"] == pytest.approx((0.8 + 0.9 + 0.6) / 3)
    assert narrow["best"] == 0.9
    assert narrow["convergence"] == pytest.approx((2 + 1 + 1) / 3)
    assert graph.module_statistics(dataset="letters", level="op")["jobs"].max() == 2
    graph.add_job(model="small", dataset="digits")
    more = graph.module_statistics(level="stage").set_index("name").loc[narrow.name]
    assert (more["jobs"], more["accuracy"]) == (4, narrow["accuracy"])


@pytest.mark.parametrize(
    ("given", "kept"),
    [(0, 0), (1, 1), (0.5, 0.5), (1.5, 0.015), (97.5, 0.975), (100, 1), (np.float32(50), 0.5),
     (torch.tensor(0.25), 0.25)],
)  # fmt: skip
def test_accuracy_is_a_fraction_or_percent(given: Any, kept: float) -> None:
    assert fraction(given) == pytest.approx(kept)


@pytest.mark.parametrize("given", [-0.1, 100.1, math.nan, math.inf, "0.9", True, torch.zeros(2), [0.5]])
def test_other_accuracies_are_refused(given: Any) -> None:
    with pytest.raises(mk.ModuleKGError, match="accuracy"):
        fraction(given)


def test_histories() -> None:
    assert histories([0.5, 1]) == {"accuracy": [(0.0, 0.5), (1.0, 1.0)]}
    assert histories({"loss": [(10, 2.0), (0, 3)]}) == {"loss": [(0.0, 3.0), (10.0, 2.0)]}
    assert histories(None) == {}
    for bad in (5, "abc", [(1, 2, 3)], {"loss": 5}, {5: [1.0]}, [None], [("a", 1)], [(math.nan, 1)]):
        with pytest.raises(mk.ModuleKGError):
            histories(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "steps"),
    [
        ([0.1, 0.5, 0.94, 0.95, 1.0], 3),
        ([1.0], None),
        ([], None),
        ([0.5, math.nan, 0.5], 0),
        ([4.0, 2.0, 1.1, 1.0], 2),  # a loss: 95 % of the way from 4 to 1 is at 1.15
        ([-2.0, -1.0], 1),
        ([0.0, 0.0], 0),
    ],
)
def test_steps_to_converge(values: list[float], steps: float | None) -> None:
    assert steps_to_converge([(float(step), value) for step, value in enumerate(values)]) == steps


def test_accuracy_is_read_off_the_history() -> None:
    graph = mk.KnowledgeGraph()
    graph.add_job(name="a", history={"loss": [1.0, 0.5], "accuracy": [10, 97.5]})
    graph.add_job(name="b", history={"loss": [1.0, 0.5]})
    jobs = graph.contents().jobs
    assert (jobs["a"].accuracy, jobs["b"].accuracy) == (0.975, None)


def test_moments() -> None:
    graph = mk.KnowledgeGraph()
    graph.add_job(name="a", started="2026-01-01T00:00:00+00:00", ended=datetime(2026, 1, 2, tzinfo=timezone.utc))
    job = graph.contents().jobs["a"]
    assert job.ended is not None
    assert job.ended - job.started == DAY
    for bad in ("yesterday", math.nan, [1]):
        with pytest.raises(mk.ModuleKGError):
            graph.add_job(started=bad)  # type: ignore[arg-type]
    assert graph.add_job(model=None).startswith("Job:")


def test_two_graphs_are_merged(graph: mk.KnowledgeGraph) -> None:
    other = mk.KnowledgeGraph()
    other.add_model(network(5), name="other")
    other.add_model(network(2), name="small")  # the same in both
    other.add_dataset("signs")
    other.add_job(name="5", model="other", dataset="signs", accuracy=0.5)
    graph.merge(other)
    assert graph.models == ["small", "wide", "deep", "other"]
    assert graph.datasets == ["digits", "letters", "signs"]
    assert graph.jobs()["job"].tolist() == ["1", "2", "3", "4", "5"]
    assert graph.unique_count == len({k for g in (graph, other) for k in g.contents().modules})


@pytest.mark.parametrize(("on_conflict", "width"), [("keep", 2), ("replace", 6)])
def test_conflicts_of_a_merge(graph: mk.KnowledgeGraph, on_conflict: str, width: int) -> None:
    other = mk.KnowledgeGraph()
    other.add_model(network(6), name="small")
    before = graph.contents()
    with pytest.raises(mk.ModuleKGError, match=r"a model 'small'.*nothing was added"):
        graph.merge(other)
    assert graph.contents() == before
    graph.merge(other, on_conflict=on_conflict)
    assert graph.tree("small").nodes["0"]["fingerprint"] == mk.fingerprint(block(width)).hexdigest
    assert graph.jobs(model="small")["job"].tolist() == ["1", "4"]
    used = {key for model in graph.contents().models.values() for key, _ in model.occurrences}
    assert set(graph.contents().modules) == used
    with pytest.raises(mk.ModuleKGError, match="'keep'"):
        graph.merge(other, on_conflict="kep")


def test_graphs_of_other_schemes_are_not_merged(graph: mk.KnowledgeGraph) -> None:
    with pytest.raises(mk.ModuleKGError, match="do not go together"):
        graph.merge(mk.KnowledgeGraph(scheme="seed"))
