"""Suggesting known models and blocks for a data set: within the budget, and such that they build and run."""

import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from tqdm import tqdm

import modulekg_widgets as mk
from knowledge.zoo_contents import DATASETS, contents_of, small_contents, small_predictor
from models.zoo import zoo_model
from modulekg_widgets.engine.errors import PredictionError
from modulekg_widgets.engine.knowledge.facts.contents import Contents, DataSetNode
from modulekg_widgets.engine.knowledge.facts.records import model_record
from modulekg_widgets.engine.knowledge.prediction.data.datasets import dataset_similarity, is_imagenet
from modulekg_widgets.engine.knowledge.prediction.data.published import published_models
from modulekg_widgets.engine.knowledge.suggestion import known_models
from modulekg_widgets.engine.knowledge.suggestion.candidates import Candidate, Ranking, count_text
from modulekg_widgets.engine.knowledge.suggestion.known_models import ModelSearch, Requirements, suggest


class Own(nn.Module):
    """A small model of a user's."""

    def __init__(self, num_classes: int = 1000, width: int = 8) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, stride=2)
        self.head = nn.Linear(width, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.conv(images).mean((2, 3)))


def suggested(contents: Contents | None = None, dataset: str | None = None, **options: Any) -> Ranking[Candidate]:
    given = {"n": 4, "max_params": 2e6, **options}
    return suggest(contents or small_contents(), dataset, predictor=small_predictor(), **given)


def own_contents(name: str = "own") -> Contents:
    return contents_of(model_record(Own(), name))


def test_what_is_suggested_keeps_within_the_budget_and_is_ordered() -> None:
    rows = suggested(max_params=4e6, max_flops=5e8, n=6)
    assert len(rows) == 6
    assert {row.kind for row in rows} == {"model", "block"}
    assert all(row.parameters <= 4e6 and row.flops is not None and row.flops <= 5e8 for row in rows)
    assert sum(row.kind == "block" for row in rows) == 2
    cautious = [row.value - row.std for row in rows]
    assert cautious == sorted(cautious, reverse=True)
    assert rows[:2] == (rows[0], rows[1])


def test_candidates_build_and_run_with_the_classes_of_the_data_set() -> None:
    rows = suggested(dataset="CIFAR-10", n=3)
    for row in rows:
        module = row.build().eval()
        assert not any(parameter.is_meta for parameter in module.parameters())
        with torch.no_grad():
            output = module(*(torch.rand(shape) for shape in row.inputs))
        if row.kind == "model":
            assert output.shape == (1, 10)
            assert row.inputs == ((1, 3, 32, 32),)
        else:
            assert sum(parameter.numel() for parameter in module.parameters()) == row.parameters
    model = next(row for row in rows if row.kind == "model")
    assert model.build(num_classes=7)(torch.rand(2, 3, 64, 64)).shape == (2, 7)


def test_a_search_that_ends_early_is_shown_as_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook shows a bar that is closed before its end in red, as after an error."""
    closed = []

    class Bar(tqdm):
        def close(self) -> None:
            closed.append((self.n, self.total))
            super().close()

    monkeypatch.setattr(known_models, "tqdm", Bar)
    assert len(suggested(kinds=["model"], n=1)) == 1
    assert closed
    assert all(done >= total for done, total in closed)


@pytest.mark.slow
def test_published_and_own_runs_are_told() -> None:
    published = {row.name: row.why for row in suggested(kinds=["model"], max_params=3e6, n=9)}
    assert "published with 67.7 %" in published["mobilenet_v3_small"]
    runs = {row.name: row.why for row in suggested(dataset="digits", kinds=["model"], max_params=3e6, n=9)}
    assert "91.0 % on CIFAR-10" in runs["mobilenet_v3_small"]
    strange = replace(small_contents(), datasets={"scenes": DataSetNode("scenes", {"metres": 80})})
    rows = suggest(strange, "scenes", max_params=2e6, n=2)
    assert {row.why.partition(";")[0] for row in rows} >= {"no Job on data like it"}


def test_a_model_that_nobody_can_build_stands_last() -> None:
    rows = suggested(own_contents(), kinds=["model"], max_params=1.3e6, n=9)
    assert [row.buildable for row in rows] == [True] * (len(rows) - 1) + [False]
    assert rows[-1].name == "own"
    with pytest.raises(PredictionError, match="builders="):
        rows[-1].build()


def test_a_builder_makes_it_buildable() -> None:
    rows = suggested(own_contents(), kinds=["model"], max_params=1e5, builders={"own": Own})
    assert [(row.name, row.buildable) for row in rows] == [("own", True)]
    assert rows[0].flops is not None
    assert rows[0].build(num_classes=3).head.out_features == 3


def raising() -> nn.Module:
    raise RuntimeError("not today")


@pytest.mark.parametrize("builder", [lambda: Own(width=16), raising, lambda: 3])
def test_a_builder_of_something_else_builds_nothing(builder: Callable[..., Any]) -> None:
    rows = suggested(own_contents(), kinds=["model"], max_params=1e5, builders={"own": builder})
    assert [row.buildable for row in rows] == [False]


def test_another_model_of_a_published_name_is_not_built_as_that() -> None:
    rows = suggested(own_contents("squeezenet1_1"), kinds=["model"], max_params=1e5)
    assert [(row.name, row.buildable) for row in rows] == [("squeezenet1_1", False)]


def test_no_module_is_imported_for_what_a_graph_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "never_to_be_imported.py").write_text("class Own: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    record = model_record(Own(), "never_to_be_imported.Own")
    root = record.nodes[record.model.root]
    hostile = replace(root, qualified_class="never_to_be_imported.Own")
    contents = contents_of(replace(record, nodes={**record.nodes, root.fingerprint: hostile}))
    rows = suggested(contents, kinds=["model"], max_params=1e5)
    assert [row.name for row in rows] == ["never_to_be_imported.Own"]
    assert "never_to_be_imported" not in sys.modules


def test_models_are_suggested_for_their_own_task() -> None:
    contents = contents_of(model_record(zoo_model("lraspp_mobilenet_v3_large"), "lraspp_mobilenet_v3_large"))

    def known(task: str) -> set[str]:
        required = Requirements(replace(DATASETS["CIFAR-10"], properties={"task": task}), None, None)
        return {record.model.name for record, _ in ModelSearch(contents, small_predictor(), required, {}).ranked}

    assert known("Semantic segmentation") == {"lraspp_mobilenet_v3_large"}
    assert known("image classification") == set(published_models())


def test_names_reach_the_page_as_text() -> None:
    rows = suggested(own_contents("<img src=x onerror=alert(1)>"), kinds=["model"], max_params=1e5)
    assert "<img" not in rows._repr_html_()
    assert "&lt;img" in rows._repr_html_()
    assert "\x1b" not in repr(suggested(own_contents("a\x1b[31mb"), kinds=["model"], max_params=1e5))


def test_the_table_can_be_read() -> None:
    rows = suggested(n=2)
    assert list(rows.frame().columns) == [
        "name", "kind", "value", "std", "parameters", "flops", "buildable", "why",
    ]  # fmt: skip
    assert repr(rows).startswith("Suggestions for ImageNet-1K, at most 2.0 M parameters\n")
    none = suggested(max_params=1)
    assert none.reason == "none of 78 known models is within max_params=1 (the smallest has 1.2 M)"
    assert repr(none) == f"<Suggestions for ImageNet-1K, at most 1 parameters: none, {none.reason}>"
    assert [count_text(value) for value in (None, 12, 25.6e6, 3e9)] == ["?", "12", "25.6 M", "3.0 G"]


def test_random_numbers_go_on_as_if_nothing_had_been() -> None:
    contents = own_contents()
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    suggested(contents, builders={"own": lambda: (random.random(), np.random.rand(), Own())[2]}, max_params=1e5)
    assert torch.equal(before[0], torch.get_rng_state())
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]


def test_unknown_names_are_told_with_what_is_known() -> None:
    with pytest.raises(mk.ModuleKGError, match="'CIFAR-10'"):
        suggested(dataset="CIFAR-11")
    with pytest.raises(mk.ModuleKGError, match="'block'"):
        suggested(kinds=["blocks"])


@pytest.mark.parametrize(
    ("left", "right", "low", "high"),
    [
        (DATASETS["CIFAR-10"], DataSetNode("cifar10", {}), 1, 1),
        (DATASETS["CIFAR-10"], DATASETS["CIFAR-100"], 0.6, 0.8),
        (DATASETS["CIFAR-10"], DATASETS["digits"], 0.85, 0.9),
        (DATASETS["CIFAR-10"], DATASETS["speech"], 0, 0.3),
        (DataSetNode("a", {"image_size": [32, 32]}), DataSetNode("b", {"image_size": 32}), 0.9, 0.9),
        (DataSetNode("a", {"size": 0}), DataSetNode("b", {"size": float("nan")}), 0, 0.9),
        (DataSetNode("a", {}), DataSetNode("b", {}), 0, 0),
    ],
)
def test_likeness(left: DataSetNode, right: DataSetNode, low: float, high: float) -> None:
    assert low <= dataset_similarity(left, right) <= high
    assert dataset_similarity(left, right) == dataset_similarity(right, left)


def test_ways_of_writing_imagenet() -> None:
    assert all(map(is_imagenet, ["ImageNet-1K", "imagenet_1k", "ImageNet", "ILSVRC2012"]))
    assert not is_imagenet("ImageNet-21k")
