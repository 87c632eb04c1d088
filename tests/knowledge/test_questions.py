"""Every question of a knowledge graph is answered by the graph itself, empty, small or in a store."""

import inspect
from typing import Any

import pandas as pd
import pytest
from torch import nn

import modulekg_widgets as mk

QUESTIONS: dict[str, list[str]] = {
    "most_used": ["name", "count", "models", "class", "hyperparameters"],
    "jobs": ["job", "user", "dataset", "model", "accuracy", "convergence", "started", "ended", "properties"],
    "module_statistics": ["name", "class", "jobs", "accuracy", "accuracy_std", "best", "convergence"],
    "best_modules": ["name", "models", "count", "accuracy", "in_others", "class", "hyperparameters"],
    "is_a": ["node", "type", "differs"],
    "subclass_of": ["class", "base", "distance"],
    "families": ["family", "count", "models", "class"],
    "importance": ["name", "pagerank"],
    "communities": ["name", "community", "class", "count"],
}
PLOTS = ["most_used", "rank_frequency", "importance", "communities", "overlap", "is_a", "families"]


def small() -> mk.KnowledgeGraph:
    graph = mk.KnowledgeGraph()
    for blocks in (2, 3):
        inner = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(blocks)))
        graph.add_model(nn.Sequential(inner, nn.Dropout(0.5)), name=f"model{blocks}")
    graph.add_model(nn.Sequential(nn.Linear(1, 2)), name="\udc80")
    graph.add_job(model="model2", accuracy=0.5)
    return graph


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("make", [mk.KnowledgeGraph, small], ids=["empty", "small"])
def test_a_question_gives_a_table(question: str, make: Any) -> None:
    answer = getattr(make(), question)()
    assert isinstance(answer, pd.DataFrame)
    assert list(answer.columns) == QUESTIONS[question]
    assert answer.empty == (make is not small)


def test_every_question_that_takes_nothing_has_a_row() -> None:
    asked = {
        name
        for name, question in inspect.getmembers(mk.KnowledgeGraph, inspect.isfunction)
        if not name.startswith("_")
        and inspect.signature(question).return_annotation == "pd.DataFrame"
        and all(p.default is not p.empty or p.name == "self" for p in inspect.signature(question).parameters.values())
    }
    assert asked - set(QUESTIONS) - {"overlap", "same_as"} == set()  # a matrix: below; asks builders, not the contents


def test_models_are_compared() -> None:
    graph = small()
    table = graph.overlap()
    assert table.shape == (3, 3)
    assert table.loc["model2", "model3"] == pytest.approx(4 / 8)
    assert graph.difference("model2", "model3").set_index("class").loc["ReLU", "second"] == 3
    with pytest.raises(mk.ModuleKGError, match="'model3'"):
        graph.difference("model2", "model4")


@pytest.mark.parametrize("question", PLOTS)
def test_a_question_is_drawn(question: str) -> None:
    figure = small().plot(question)
    assert figure.axes
    assert any(axes.has_data() for axes in figure.axes)


def test_a_difference_is_drawn() -> None:
    (axes,) = small().plot("difference", "model2", "model3").axes
    assert axes.get_title() == "2 only in the first, 4 in both, 2 only in the second"
    assert [text.get_text() for text in axes.get_yticklabels()] == ["Sequential", "Dropout", "Linear", "ReLU"]


def test_an_unknown_picture_is_refused() -> None:
    with pytest.raises(mk.ModuleKGError, match="did you mean 'most_used'"):
        small().plot("most_use")
