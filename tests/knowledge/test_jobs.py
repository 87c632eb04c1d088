"""Training runs: what is told of them, and the questions who used what, when and how well."""

import math
from collections import OrderedDict
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.knowledge.facts.jobs import accuracy_fraction, parse_history, steps_to_converge

DAY = 86_400.0


def block(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU())


def network(width: int, *others: nn.Module) -> nn.Module:
    return nn.Sequential(block(width), *others)


@pytest.fixture
def graph() -> mk.KnowledgeGraph:
    """Three models, too small to repeat much; the wide one is the best on letters, the deep one on digits."""
    made = mk.KnowledgeGraph(levels="depth")
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
        "job", "user", "dataset", "model", "accuracy", "convergence", "started", "ended", "properties",
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
    assert accuracy_fraction(given) == pytest.approx(kept)


@pytest.mark.parametrize("given", [-0.1, 100.1, math.nan, math.inf, "0.9", True, torch.zeros(2), [0.5]])
def test_other_accuracies_are_refused(given: Any) -> None:
    with pytest.raises(mk.ModuleKGError, match="accuracy"):
        accuracy_fraction(given)


def test_histories() -> None:
    assert parse_history([0.5, 1]) == {"accuracy": [(0.0, 0.5), (1.0, 1.0)]}
    assert parse_history({"loss": [(10, 2.0), (0, 3)]}) == {"loss": [(0.0, 3.0), (10.0, 2.0)]}
    assert parse_history(None) == {}
    for bad in (5, "abc", [(1, 2, 3)], {"loss": 5}, {5: [1.0]}, [None], [("a", 1)], [(math.nan, 1)]):
        with pytest.raises(mk.ModuleKGError):
            parse_history(bad)  # type: ignore[arg-type]


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
        ([0.9, 0.95, 0.89], 2),  # as a metric that falls
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


def test_an_accuracy_that_ends_below_its_first_value_has_converged_at_once() -> None:
    graph = mk.KnowledgeGraph()
    graph.add_job(name="a", history=[0.9, 0.95, 0.89])
    assert graph.jobs()["convergence"].tolist() == [0]


@pytest.mark.parametrize(
    ("history", "accuracy"),
    [
        ([99.0, 0.8], 0.008),  # in percent, as the first value says
        ({"val_acc": [50, 60.0]}, 0.6),
        ({"loss": [3.0], "top1": {0: 10, 5: 20}}, 0.2),
        ({"accuracy": {0: 0.1, 10: 0.9}}, 0.9),
        (np.array([[0, 0.5], [5, 0.75]]), 0.75),
        ([np.float32(1.0000001)], 1.0),
        ([0.5, math.nan], math.nan),  # it diverged
    ],
)
def test_ways_to_tell_a_history(history: Any, accuracy: float) -> None:
    graph = mk.KnowledgeGraph()
    graph.add_job(history=history)
    assert graph.jobs()["accuracy"].tolist() == pytest.approx([accuracy], nan_ok=True)


def test_usual_values_are_made_plain_properties() -> None:
    graph = mk.KnowledgeGraph()
    values = {
        "size": torch.Size([3, 4]), "path": Path("a") / "b", "day": date(2026, 1, 2), "array": np.arange(3),
        "tensor": torch.tensor(0.5), "ordered": OrderedDict(a=(1, np.float32(2))),
    }  # fmt: skip
    graph.add_dataset("d", **values)
    assert graph.contents().datasets["d"].properties == {
        "size": (3, 4), "path": "a/b", "day": "2026-01-02", "array": [0, 1, 2], "tensor": 0.5,
        "ordered": {"a": (1, 2.0)},
    }  # fmt: skip


def test_an_answer_may_be_changed(graph: mk.KnowledgeGraph) -> None:
    graph.add_job(name="5", note={"a": [1]})
    graph.most_used()["hyperparameters"][0]["evil"] = 1
    graph.jobs()["properties"][4]["note"]["a"].append(2)
    assert "evil" not in graph.most_used()["hyperparameters"][0]
    assert graph.jobs()["properties"][4] == {"note": {"a": [1]}}


@pytest.mark.parametrize(
    "call",
    [
        lambda graph: graph.most_used("op"),
        lambda graph: graph.most_used(2.5),
        lambda graph: graph.most_used(-1),
        lambda graph: graph.best_modules(top="3"),
        lambda graph: graph.jobs(user=["ada"]),
        lambda graph: graph.merge(None),
        lambda graph: graph.merge("missing.db"),
        lambda graph: graph.export(3),
        lambda graph: graph.add_mlflow(None),
        lambda graph: graph.node("ReLU"),
        lambda graph: graph.plot(["most_used"]),
        lambda graph: mk.KnowledgeGraph(3),
        lambda graph: mk.KnowledgeGraph(":memory:"),
        lambda graph: mk.index_models(None),
        lambda graph: mk.index_models([lambda: nn.ReLU()]),
        lambda graph: mk.index_models({"a": nn.ReLU()}),
    ],
)
def test_what_cannot_be_asked_is_refused_by_our_own_errors(
    call: Any, graph: mk.KnowledgeGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(mk.ModuleKGError):
        call(graph)
    assert list(tmp_path.iterdir()) == []


def test_a_structure_is_found_by_the_name_that_tables_give(graph: mk.KnowledgeGraph) -> None:
    name = graph.most_used(1)["name"][0]
    assert graph.node(name).class_name == "ReLU"
    assert graph.node(graph.node(name).fingerprint) == graph.node(name)


def test_the_graph_shows_its_figures(graph: mk.KnowledgeGraph) -> None:
    shown = graph._repr_html_()
    assert "<td>3</td>" in shown
    assert shown.count("<td>") == 6
    assert "<caption>Knowledge graph in the store in memory</caption>" in shown


def test_moments() -> None:
    graph = mk.KnowledgeGraph()
    graph.add_job(name="a", started="2026-01-01T00:00:00+00:00", ended=datetime(2026, 1, 2, tzinfo=timezone.utc))
    job = graph.contents().jobs["a"]
    assert job.ended is not None
    assert job.ended - job.started == DAY
    for bad in ("yesterday", math.nan, [1], 1767225600000, 1e18, -1e12, datetime.max, pd.NaT):
        with pytest.raises(mk.ModuleKGError):
            graph.add_job(started=bad)  # type: ignore[arg-type]
    assert len(graph.jobs()) == 1
    assert graph.add_job(model=None).startswith("Job:")
    same = [pd.Timestamp("2026-01-01", tz="UTC"), date(2026, 1, 1), np.datetime64("2026-01-01T00:00:00.123456789")]
    for number, given in enumerate(same):
        graph.add_job(name=str(number), started=given)
    seconds = {round(graph.contents().jobs[str(number)].started % DAY, 3) for number in range(3)}
    assert 0 in seconds
    assert seconds <= {0, 0.123, *((hour * 3600.0) for hour in range(24)), *((h * 3600 + 0.123) for h in range(24))}


def test_what_is_given_as_an_id_is_a_name_first() -> None:
    graph = mk.KnowledgeGraph()
    graph.add_job(name="x")
    graph.add_job(name="Job:x")
    graph.remove_job("Job:x")
    assert graph.jobs()["job"].tolist() == ["x"]
    graph.remove_job("Job:x")
    assert graph.jobs().empty


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


def test_a_run_that_diverged_is_no_conflict_with_itself(tmp_path: Path) -> None:
    graph, other = mk.KnowledgeGraph(tmp_path / "graph.db"), mk.KnowledgeGraph()
    for each in (graph, other):
        each.add_dataset("d", x=math.nan)
        each.add_job(name="1", history={"loss": [math.nan, 1]}, started=0)
    graph.merge(other)
    assert len(graph.jobs()) == 1


def test_a_run_of_theirs_is_none_of_our_model(graph: mk.KnowledgeGraph) -> None:
    other = mk.KnowledgeGraph()
    other.add_model(network(6), name="small")
    other.add_job(name="9", model="small", accuracy=0.1)
    graph.merge(other, on_conflict="keep")
    assert graph.contents().jobs["9"].model is None
    assert graph.jobs(model="small")["job"].tolist() == ["1", "4"]


def test_graphs_of_other_schemes_are_not_merged(graph: mk.KnowledgeGraph) -> None:
    with pytest.raises(mk.ModuleKGError, match="cannot be merged"):
        graph.merge(mk.KnowledgeGraph(scheme="seed"))
