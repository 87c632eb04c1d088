"""Units and names of targets that mean one thing, shares that cannot be, and numbers that no float holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import ModuleKGError, PropertyError, UnknownNameError
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.facts.results import Result, normalized_result, results_of
from modulekg_widgets.engine.knowledge.facts.units import (
    canonical_target,
    is_cost,
    is_share,
    normalized_value,
    share_error,
)
from modulekg_widgets.engine.knowledge.prediction.data.observations import Condition, observations
from modulekg_widgets.engine.views.knowledge_payload import result_columns

NAMES = [f"net{width}" for width in range(2, 8)]
HUGE = (10**400, 10**5000)  # Python writes no more than 4300 digits


def small(width: int) -> nn.Module:
    layers = nn.Conv2d(3, 8 * width, 3), nn.ReLU(), nn.Conv2d(8 * width, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(8, 10))


@pytest.fixture
def kg() -> mk.KnowledgeGraph:
    found = mk.KnowledgeGraph()
    for width, name in enumerate(NAMES, 2):
        found.add_model(small(width), name, args=torch.zeros(1, 3, 32, 32))
    found.add_dataset("d", classes=10)
    return found


def add(kg: mk.KnowledgeGraph, values: list[Any], **how: Any) -> Any:
    how = {"dataset": "d", "target": "acc@1", **how}
    return kg.add_results(
        pd.DataFrame({"model": NAMES[: len(values)], "value": pd.Series(values, dtype=object)}), **how
    )


def known(kg: mk.KnowledgeGraph, target: str, dataset: str | None = "d", device: str | None = None) -> list[float]:
    places = observations(kg.contents(), target).by_condition
    return [value for _, value in places.get(Condition(dataset, device), [])]


class Odd:
    """Of which nothing can be told."""

    def __float__(self) -> float:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__


# ------------------------------------------------------------------ names and units


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("top-1", "top1", "top_1", "Top 1", "accuracy", "Acc", "acc1", "acc@1", "top-1 accuracy", "acc_1"), "acc@1"),
        (("top-5", "top5", "acc5", "acc@5", "Top5Acc"), "acc@5"), (("Latency", "latency"), "latency"),
    ],
)  # fmt: skip
def test_names_of_one_target(names: tuple[str, ...], expected: str) -> None:
    assert {canonical_target(name) for name in names} == {expected}


@pytest.mark.parametrize("name", ["acc@10", "top-1 error", "1", "5", "val_loss", "", "steps to accuracy 1"])
def test_other_names_stay(name: str) -> None:
    assert canonical_target(name) == name


def test_shares_by_name() -> None:
    for name in ("acc@1", "val_acc", "valAcc", "top5", "mAP", "mAP@50", "recall", "f1", "F1 score", "mIoU", "rocAuc"):
        assert is_share(name), name
    for name in (
        "mape",
        "accidents",
        "steps to accuracy 0.9",
        "acc_loss",
        "f16",
        "latency",
        "auction",
        "accuracy_per_s",
    ):
        assert not is_share(name), name
    assert [is_cost(name) for name in ("val/loss", "latency", "acc@1")] == [True, True, False]


@pytest.mark.parametrize(
    ("target", "value", "unit", "expected"),
    [
        ("acc@1", 0.5, "Fraction", (50, "%")), ("acc@1", 50, "percentage points", (50, "%")),
        ("acc@1", 50, " PCT ", (50, "%")), ("latency", 2, "s", (2000, "ms")), ("latency", 2, "\u03bcs", (0.002, "ms")),
        ("latency", 2, "us", (0.002, "ms")), ("latency", 2, "ns", (2e-6, "ms")), ("latency", 2, "min", (120_000, "ms")),
        ("inference latency", 1, "sec", (1000, "ms")), ("duration", 2, "seconds", (2, "s")), ("x", 2, "MB", (2, "MB")),
        ("latency", 2, None, (2, None)),
    ],
)  # fmt: skip
def test_values_in_the_unit_in_which_they_are_compared(
    target: str, value: float, unit: str | None, expected: tuple[float, str | None]
) -> None:
    found = normalized_value(target, value, unit)
    assert found[0] == pytest.approx(expected[0])
    assert found[1] == expected[1]


def test_a_value_that_leaves_the_floats_is_none() -> None:
    assert normalized_result("growth", Result(1e308, "fraction")) is None


@pytest.mark.parametrize("unit", ["percent", "pct", "%", "percentage points", "fraction"])
@pytest.mark.parametrize("target", ["top-1", "accuracy", "acc@1"])
def test_accuracies_count_by_any_name_and_unit(kg: mk.KnowledgeGraph, target: str, unit: str) -> None:
    values = [0.5, 0.75, 0.25] if unit == "fraction" else [50, 75, 25]
    report = add(kg, values, target=target, unit=unit)
    assert (report.added, report.left_out, report.notes) == (3, {}, ())
    assert known(kg, "accuracy") == known(kg, "acc@1") == [50, 75, 25]
    jobs = list(kg.contents().jobs.values())
    assert [results_of(job)["acc@1"] for job in jobs] == [Result(value, unit) for value in values]  # as given
    assert [job.accuracy for job in jobs] == [0.5, 0.75, 0.25]
    (column,) = result_columns(kg.contents())
    assert (column["target"], column["unit"], column["value"]) == ("acc@1", "%", [50, 75, 25])


def test_a_value_of_another_name_replaces_the_old(kg: mk.KnowledgeGraph) -> None:
    add(kg, [50.0], target="top1", unit="%")
    add(kg, [60.0], target="acc@1", unit="%")
    (job,) = kg.contents().jobs.values()
    assert results_of(job) == {"acc@1": Result(60.0, "%")}


def test_a_job_that_names_it_otherwise(kg: mk.KnowledgeGraph) -> None:
    kg.add_job(model=NAMES[0], dataset="d", results={"Top-1": [50, "percent"], "latency": [2, "s"]})
    kg.add_job(model=NAMES[1], dataset="d", accuracy=0.75, results={"accuracy": [3, "stars"]})
    kg.add_job(model=NAMES[2], dataset="d", results={"acc": [10, "%"], "acc@1": [25, "%"], "top1": [11, "%"]})
    assert known(kg, "acc@1") == [50, 75, 25]
    assert known(kg, "latency") == [2000]


def test_units_of_latency_count_together_and_what_cannot_is_told(kg: mk.KnowledgeGraph) -> None:
    how = {"target": "latency", "dataset": None, "device": "cpu"}
    assert add(kg, [1.0, 2.0, 3.0], unit="ms", **how).notes == ()
    assert add(kg, [0.004], unit="s", **how).notes == ()
    assert known(kg, "latency", None, "cpu") == [2.0, 3.0, 4.0]
    report = add(kg, [4.0, 5.0], unit="fps", **{**how, "device": "gpu"})
    assert report.notes == ("2 values of latency in 'fps' do not count with the 3 in 'ms'",)
    notes = add(kg, [4.0], **{**how, "device": "tpu"}).notes
    assert "no unit is known of latency: pass unit=" in notes
    assert "1 value of latency without a unit does not count with the 3 in 'ms'" in notes
    assert len(known(kg, "latency", None, "gpu") + known(kg, "latency", None, "tpu")) == 0


def test_an_accuracy_in_a_unit_that_says_nothing_is_told(kg: mk.KnowledgeGraph) -> None:
    report = add(kg, [50.0, 60.0], unit="stars")
    assert report.notes == ("2 values of acc@1 in 'stars' do not count with values in '%'",)
    assert [job.accuracy for job in kg.contents().jobs.values()] == [None, None]


def test_units_by_target_go_by_any_of_its_names(kg: mk.KnowledgeGraph) -> None:
    table = pd.DataFrame({"model": NAMES[:2], "a": [0.5, 0.01], "b": [1.0, 2.0]})
    report = kg.add_results(
        table, "d", columns={"a": "Top-1", "b": "Latency"}, unit={"accuracy": "fraction", "latency": "s"}
    )
    assert (report.added, report.notes) == (4, ())
    assert (known(kg, "acc@1"), known(kg, "latency")) == ([50, 1], [1000, 2000])


# ------------------------------------------------------------------ shares


@pytest.mark.parametrize(
    ("values", "how", "added", "reasons"),
    [
        ([80, 70, 0.6], {"unit": "fraction"}, 1, {0: "is it a percentage", 1: "from 0 to 1"}),
        ([250, -40, 100], {"unit": "%"}, 1, {0: "acc@1 is 250", 1: "acc@1 is -40"}),
        ([150, 80, 70], {}, 2, {0: "acc@1 is 150"}),
        ([-3, 0.8, 0.7], {"target": "recall"}, 2, {0: "recall is -3"}),
        ([150, -3, 1e9], {"target": "growth", "unit": "%"}, 3, {}),
        ([3000, 4000, 5], {"target": "steps to accuracy 0.9", "unit": "steps"}, 3, {}),
        ([0, 0, 0.5], {}, 3, {}), ([0, 0, 50], {}, 3, {}), ([0, 0, 0], {}, 3, {}),
        ([0, 0, 0, 50, 0.4, 60], {}, 5, {4: "0.4 among percents"}),
    ],
)  # fmt: skip
def test_shares_that_cannot_be(
    kg: mk.KnowledgeGraph, values: list[float], how: dict[str, Any], added: int, reasons: dict[int, str]
) -> None:
    report = add(kg, values, **how)
    assert report.added == added
    assert report.left_out.keys() == reasons.keys()
    assert all(reason in report.left_out[row] for row, reason in reasons.items())


def test_zeros_do_not_make_fractions_percents(kg: mk.KnowledgeGraph) -> None:
    add(kg, [0, 0, 0.5])
    assert known(kg, "acc@1") == [0, 0, 50]


def test_a_job_cannot_have_them_either(kg: mk.KnowledgeGraph) -> None:
    for target, pair in {"acc@1": [250, "%"], "top1": (80, "fraction"), "f1": [-1, None], "x": [10**400, "%"]}.items():
        with pytest.raises(PropertyError, match=r"250|80|-1|float"):
            kg.add_job(model=NAMES[0], results={target: pair})
    assert kg.jobs().empty
    assert share_error("x", 250, "%") is None


# ------------------------------------------------------------------ numbers beyond floats, objects of anybody's


def test_cells_that_are_no_numbers_are_told_by_row(kg: mk.KnowledgeGraph) -> None:
    report = add(kg, [*HUGE, torch.zeros((), device="meta"), Odd(), 50.0], unit="%")
    assert report.added == 1
    assert report.left_out.keys() == {0, 1, 2, 3}
    assert "not a finite number" in str(report)
    assert known(kg, "acc@1") == [50]


def test_training_that_is_no_plain_value_is_told_by_row(kg: mk.KnowledgeGraph) -> None:
    tags = pd.Series([*HUGE, torch.zeros((), device="meta"), 5, "a"], dtype=object)
    report = kg.add_results(pd.DataFrame({"model": NAMES[:5], "tag": tags, "value": 50.0}), "d", "acc@1", unit="%")
    assert (report.added, report.left_out.keys()) == (2, {0, 1, 2})
    assert sorted(str(job.properties["tag"]) for job in kg.contents().jobs.values()) == ["5", "a"]


@pytest.mark.parametrize("huge", HUGE, ids=["400", "5000"])
def test_what_a_store_holds_of_them_is_no_result(kg: mk.KnowledgeGraph, huge: int) -> None:
    with pytest.raises(PropertyError, match="reach"):
        kg.add_convergence(reach=huge)
    name = kg.add_job(model=NAMES[0], dataset="d", accuracy=0.5, history={"loss": [2.0, 1.0]}, lr=huge)
    job = kg.contents().jobs[name.removeprefix("Job:")]
    results = {"acc@1": [huge, "%"], "latency": [-huge, "ms"], "mAP": [900, "%"]}
    spoilt = replace(job, properties={**job.properties, "results": results, "image_size": huge})
    spoilt = replace(spoilt, history={"loss": [(0, huge), (huge, -huge), (2, 1.5)]})
    kg.add_contents(Contents(kg.scheme, jobs={job.name: spoilt}))
    (found,) = kg.contents().jobs.values()
    assert results_of(found).keys() == {"acc@1", "convergence", "mAP"}
    assert known(kg, "acc@1") == [50]
    with pytest.raises(UnknownNameError):
        kg.predict("mAP", NAMES[0])
    assert {column["target"] for column in result_columns(kg.contents())} == {"acc@1", "convergence"}
    assert kg.add_convergence("loss", reach=1.7).added == 1
    assert mk.KnowledgeExplorer(kg) is not None


# ------------------------------------------------------------------ arguments


@pytest.mark.parametrize(
    "how",
    [
        {"dataset": 5}, {"target": 5}, {"device": 5}, {"training": None}, {"training": [5]}, {"training": {"tag": 1}},
        {"columns": "x"}, {"columns": {"a": 5}}, {"unit": 5}, {"unit": {"a": 5}}, {"model": 5}, {"value": None},
    ],
    ids=str,
)  # fmt: skip
def test_arguments_of_tables_that_are_none(kg: mk.KnowledgeGraph, how: dict[str, Any]) -> None:
    with pytest.raises((PropertyError, UnknownNameError)):
        add(kg, [50.0], **how)
    assert kg.jobs().empty


@pytest.mark.parametrize(
    "how",
    [{"targets": 5}, {"targets": {5: "x"}}, {"targets": {"x": 5}}, {"training": None}, {"unit": 5}, {"model": 5},
     {"dataset": 5}, {"accuracy": 5}],
    ids=str,
)  # fmt: skip
def test_arguments_of_runs_that_are_none(kg: mk.KnowledgeGraph, tmp_path: Any, how: dict[str, Any]) -> None:
    (tmp_path / "runs.csv").write_text("Name,model\na,net2\n", "utf-8")
    with pytest.raises((PropertyError, UnknownNameError)):
        kg.add_wandb(tmp_path / "runs.csv", **how)
    assert kg.jobs().empty


@pytest.mark.parametrize("target", [5, None, b"acc@1"])
def test_targets_that_are_none(kg: mk.KnowledgeGraph, target: Any) -> None:
    with pytest.raises(ModuleKGError):
        kg.predict(target, NAMES[0])


def test_one_column_of_training_by_its_name(kg: mk.KnowledgeGraph) -> None:
    table = pd.DataFrame({"model": NAMES[:1], "value": [50.0], "recipe": ["long"], "r": [1]})
    kg.add_results(table, "d", "acc@1", unit="%", training="recipe")
    (job,) = kg.contents().jobs.values()
    assert job.properties["recipe"] == "long"
    assert "r" not in job.properties


def test_rows_of_labels_that_are_lists_are_told_by_place(kg: mk.KnowledgeGraph) -> None:
    table = pd.DataFrame({"model": ["other", NAMES[0]], "value": [50.0, 60.0]})
    table.index = pd.Index([[1], [2]], dtype=object)
    assert kg.add_results(table, "d", "acc@1", unit="%").left_out.keys() == {0}


def test_a_file_with_a_comma_at_the_end_of_rows(kg: mk.KnowledgeGraph, tmp_path: Any) -> None:
    file = tmp_path / "own.csv"
    file.write_text(f"model,value\n{NAMES[0]},80,\n{NAMES[1]},70,\n", "utf-8")
    assert kg.add_results(file, "d", "acc@1", unit="%").added == 2
    file.write_text(f"model,value\n{NAMES[0]},80,9\n{NAMES[1]},70,9\n", "utf-8")
    with pytest.raises(PropertyError, match="not a table of comma-separated"):
        kg.add_results(file, "d", "acc@1", unit="%")


def test_questions_with_arguments_that_are_none(kg: mk.KnowledgeGraph) -> None:
    add(kg, [50.0, 60.0, 70.0], unit="%")
    for models in ([], 5, "net2"):
        with pytest.raises(ModuleKGError):
            kg.evaluate_prediction(models=models, dataset="d")
    for n in ("x", -1, 2.5, None):
        with pytest.raises(UnknownNameError):
            kg.similar(NAMES[0], n)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UnknownNameError):
        kg.suggest(target=[1])


def test_a_data_set_of_a_number_of_classes_that_no_float_holds(kg: mk.KnowledgeGraph) -> None:
    kg.add_dataset("large", classes=10**400)
    assert kg.suggest("large", n=1) is not None
