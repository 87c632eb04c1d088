"""Steps until a metric reaches a value: which jobs have them, which not and why, and that they are predicted."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import PropertyError, UnknownNameError
from modulekg_widgets.engine.knowledge.facts.contents import JobNode
from modulekg_widgets.engine.knowledge.facts.results import Result, results_of

WIDTHS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96)


def graph_of(**histories: Any) -> mk.KnowledgeGraph:
    kg = mk.KnowledgeGraph()
    kg.add_model(nn.Linear(2, 2), name="net")
    for name, history in histories.items():
        kg.add_job(model="net", history=history, name=name)
    return kg


def jobs(kg: mk.KnowledgeGraph) -> dict[str, JobNode]:
    return dict(kg.contents().jobs)


def steps(kg: mk.KnowledgeGraph, target: str) -> dict[str, float]:
    found = {name: results_of(job).get(target) for name, job in jobs(kg).items()}
    assert {result.unit for result in found.values() if result is not None} <= {"steps"}
    return {name: result.value for name, result in found.items() if result is not None}


def test_an_accuracy_rises_to_it() -> None:
    kg = graph_of(
        fractions=[0.1, 0.9, 0.5], percents={"val_acc": [(10, 20.0), (20, 89.9), (30, 90.0)]},
        gap={"accuracy": [(0, math.nan), (7, math.inf), (9, 0.95)]}, weak=[0.1, 0.2], at_once=[0.99],
        other={"loss": [2.0, 1.0]}, none={"accuracy": [math.nan]},
    )  # fmt: skip
    kg.add_job(model="net", accuracy=0.9, name="silent")
    report = kg.add_convergence("accuracy", reach=0.9)
    assert steps(kg, "steps to accuracy 0.9") == {"fractions": 1.0, "percents": 30.0, "gap": 9.0, "at_once": 0.0}
    assert (report.added, report.jobs) == (4, 4)
    assert report.left_out == {
        "weak": "it does not reach 0.9: its best is 0.2", "none": "its 'accuracy' has no finite value",
        "other": "its history has no 'accuracy': known: 'loss'",
    }  # fmt: skip
    assert "1 jobs have no history" in str(report)
    assert "3 jobs left out" in str(report)


def test_percents_name_the_same_target() -> None:
    kg = graph_of(a=[0.1, 0.5, 0.9])
    assert kg.add_convergence(reach=50).added == kg.add_convergence(reach=0.5).added == 1
    assert set(results_of(jobs(kg)["a"])) == {"acc@1", "convergence", "steps to accuracy 0.5"}


@pytest.mark.parametrize(
    ("metric", "values", "reach", "how", "expected"),
    [
        ("loss", [2.0, 1.2, 0.9, 1.1], 1.0, {}, 2.0), ("val/acc_loss", [2.0, 0.9], 1.0, {}, 1.0),
        ("perplexity", [90.0, 31.0, 30.0], 30, {}, 2.0), ("val_mse", [3.0, 2.0], 2.5, {}, 1.0),
        ("loss", [-1.0, -5.0, -9.0], -5.0, {}, 1.0), ("val/f1", [0.2, 0.7], 70, {}, 1.0),
        ("top5", [20.0, 95.0], 0.9, {}, 1.0), ("reward", [-5.0, 80.0, 200.0], 100, {"falls": False}, 2.0),
        ("reward", [9.0, 3.0], 4, {"falls": True}, 1.0),
    ],
)  # fmt: skip
def test_losses_fall_and_others_as_one_says(
    metric: str, values: list[float], reach: float, how: dict[str, bool], expected: float
) -> None:
    kg = graph_of(a={metric: values})
    kg.add_convergence(metric, reach=reach, **how)
    (target,) = {name for name in results_of(jobs(kg)["a"]) if name.startswith("steps to ")}
    assert results_of(jobs(kg)["a"])[target] == Result(expected, "steps")
    assert target.startswith(f"steps to {metric} ")


@pytest.mark.parametrize(
    ("metric", "how", "error", "reason"),
    [
        ("reward", {"reach": 1.0}, PropertyError, "pass falls="),
        ("acuracy", {"reach": 0.9, "falls": False}, UnknownNameError, "'accuracy'"),
        ("accuracy", {"reach": math.nan}, PropertyError, "finite number"),
        ("accuracy", {"reach": "high"}, PropertyError, "finite number"),
        ("loss", {"reach": True}, PropertyError, "True"),
        (7, {"reach": 1.0}, UnknownNameError, "named by a text"),
        ("f1", {"reach": 1.0}, UnknownNameError, "no history"),
    ],
)  # fmt: skip
def test_what_is_no_goal_is_refused_and_nothing_is_written(
    metric: Any, how: dict[str, Any], error: type[Exception], reason: str
) -> None:
    kg = graph_of(a={"accuracy": [0.1, 0.95], "reward": [1.0, 2.0], "loss": [2.0, 0.0]})
    before = jobs(kg)
    with pytest.raises(error, match=reason):
        kg.add_convergence(metric, **how)
    assert jobs(kg) == before


def test_what_the_job_has_stays() -> None:
    kg = graph_of(a=[0.1, 0.95])
    kg.add_results(pd.DataFrame({"model": ["net"], "value": [3.0]}), target="latency", unit="ms", dataset="mine")
    kg.add_job(model="net", history=[0.1, 0.95], name="b", results={"latency": [4.0, "ms"]}, note="x")
    kg.add_job(model="net", history=[0.1, 0.95], name="c", results="good")
    report = kg.add_convergence(reach=0.9)
    assert report.left_out == {"c": "its property 'results' is something else"}
    assert results_of(jobs(kg)["b"])["latency"] == Result(4.0, "ms")
    assert jobs(kg)["b"].properties["note"] == "x"
    assert jobs(kg)["c"].properties == {"results": "good"}
    again = jobs(kg)
    kg.add_convergence(reach=0.9)
    assert jobs(kg) == again


def test_it_is_predicted_as_any_target() -> None:
    kg = mk.KnowledgeGraph()
    kg.add_dataset("mine", classes=10, image_size=16)
    for width in WIDTHS:
        for depth in (2, 3):
            layers = [nn.Conv2d(3, width, 3, padding=1), *(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))]
            model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
            kg.add_model(model, f"net{width}x{depth}", args=torch.zeros(1, 3, 16, 16))
            if width != 32:
                rate = 0.5 / (100 + 1000 / width)
                history = [(step, 1 - math.exp(-rate * step)) for step in range(0, 3000, 10)]
                kg.add_job(model=f"net{width}x{depth}", dataset="mine", history={"accuracy": history})
    assert kg.add_convergence(reach=0.6).added == 2 * (len(WIDTHS) - 1)
    found = kg.predict("steps to accuracy 0.6", "net32x2", dataset="mine")
    assert found.unit == "steps"
    assert float(found) == pytest.approx((100 + 1000 / 32) / 0.5 * math.log(2.5), rel=0.15)
