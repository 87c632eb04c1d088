"""Values on data sets of which none is known: of whichever is alike, and inside of their own intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from knowledge.zoo_contents import contents_of, zoo_record
from modulekg_widgets.engine.knowledge.facts.contents import DataSetNode, JobNode
from modulekg_widgets.engine.knowledge.prediction.data.datasets import dataset_similarity, task_of
from modulekg_widgets.engine.knowledge.prediction.data.published import IMAGENET, published_models, published_records
from modulekg_widgets.engine.knowledge.prediction.predictor import Prediction, fitted_predictor

NEW = DataSetNode("new", {"task": "image classification", "classes": 10, "image_size": 32})


def asked(hard: dict[str, DataSetNode], value: float) -> list[Prediction]:
    """The published models on a new data set, where they are known on ImageNet-1K and on hard ones."""
    records = published_records()
    jobs = [
        JobNode(f"{name} on {dataset}", None, dataset, name, value * (1 + 0.1 * at) / 100, None, {}, 0.0, None, {})
        for dataset in hard
        for at, name in enumerate(records)
    ]
    contents = replace(contents_of(*records.values(), jobs=jobs), datasets={**hard, "new": NEW})
    return fitted_predictor(contents).predict(list(records.values()), "new", extrapolate=True)


@pytest.mark.parametrize("value", [1e-7, 2.0])
@pytest.mark.parametrize("count", [1, 3])
def test_data_sets_without_properties_do_not_tell_of_one_that_has_some(count: int, value: float) -> None:
    told = asked({f"hard{at}": DataSetNode(f"hard{at}", {}) for at in range(count)}, value)
    for each in told:
        assert f"order of {IMAGENET}" in each.predictor
        assert each.low <= each.value <= each.high  # type: ignore[operator]
    values = [each.value for each in told]
    truth = [published_models()[each.model].values["acc@1"] for each in told]
    assert np.corrcoef(values, truth)[0, 1] > 0.9  # type: ignore[arg-type]


def test_one_that_is_clearly_more_alike_tells() -> None:
    alike = DataSetNode("alike", {"task": "classification of images", "classes": 12, "image_size": 28})
    told = asked({"alike": alike}, 5.0)
    assert {each.predictor for each in told} == {"order of alike, where no value is known on new"}
    assert all(each.low <= each.value <= each.high for each in told)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("stated", "task"),
    [
        ("image classification", "classification"), ("Classification of photos", "classification"),
        ("text classification", "classification"), ("semantic segmentation", "segmentation"),
        ("object detection", "detection"), ("tabular regression", "tabular regression"), ("", None), (None, None),
    ],
)  # fmt: skip
def test_tasks_by_what_they_mean(stated: str | None, task: str | None) -> None:
    assert task_of(DataSetNode("d", {} if stated is None else {"task": stated})) == task


def test_tasks_are_alike_by_what_they_mean() -> None:
    plain = DataSetNode("plain", {"task": "classification", "classes": 10})
    pictures = DataSetNode("pictures", {"task": "image classification", "classes": 10})
    text = DataSetNode("text", {"task": "text classification", "classes": 10})
    assert dataset_similarity(plain, pictures) == pytest.approx(0.9)
    assert dataset_similarity(pictures, text) == 0
    assert dataset_similarity(DataSetNode("a", {}), pictures) == 0


def test_a_model_of_the_zoo_is_not_for_every_task() -> None:
    contents = replace(
        contents_of(zoo_record("resnet18")), datasets={"boxes": DataSetNode("boxes", {"task": "detection"})}
    )
    (found,) = fitted_predictor(contents).predict([zoo_record("resnet18")], "boxes")
    assert found.value is None
    assert found.reason == "boxes is for detection, and values are known of classification"
