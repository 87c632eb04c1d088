"""Models are suggested for what they take, text for text, and get a head for the classes of the data set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models.shared_weights import TiedEmbedding
from modulekg_widgets.engine.errors import PredictionError
from modulekg_widgets.engine.knowledge.facts.contents import DataSetNode
from modulekg_widgets.engine.knowledge.prediction.data.datasets import modality_of
from modulekg_widgets.engine.knowledge.suggestion.candidates import meta_call, replace_head

IMAGE = meta_call([(2, 3, 32, 32)])


class Reader(nn.Module):
    """A small model of text, by the mean of its words."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.words, self.body, self.head = nn.Embedding(100, width), nn.Linear(width, width), nn.Linear(width, 5)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.words(words)).relu().mean(1))


class ReaderBuilder:
    """Builds one, and knows how it is called."""

    def __init__(self, width: int) -> None:
        self.width = width

    def __call__(self) -> nn.Module:
        return Reader(self.width)

    def example(self, model: nn.Module) -> tuple:
        return (torch.zeros(1, 7, dtype=torch.long, device="meta"),), {}


@pytest.fixture
def graph() -> mk.KnowledgeGraph:
    graph = mk.index_models({f"reader{width}": ReaderBuilder(width) for width in (8, 16, 32)})
    graph.add_dataset("reviews", task="text classification", classes=2)
    return graph


@pytest.mark.slow
def test_text_is_offered_models_of_text_alone(graph: mk.KnowledgeGraph) -> None:
    rows = graph.suggest("reviews", n=5, kinds=["model"])
    assert {row.name for row in rows} == {"reader8", "reader16", "reader32"}
    assert all(row.buildable for row in rows)
    assert "no value is known of models for text" in rows[0].why
    assert "?" in repr(rows)
    model = rows[0].build()
    assert model(torch.zeros(3, 7, dtype=torch.long)).shape == (3, 2)


def test_jobs_on_text_tell_which_is_best(graph: mk.KnowledgeGraph) -> None:
    table = pd.DataFrame([("reader8", 90.0), ("reader16", 80.0), ("reader32", 70.0)], columns=["model", "value"])
    graph.add_results(table, dataset="reviews", target="acc@1", unit="%")
    rows = graph.suggest("reviews", n=3, kinds=["model"])
    assert [row.name for row in rows] == ["reader8", "reader16", "reader32"]
    assert all(60 < row.value < 100 for row in rows)


def test_pictures_are_not_offered_models_of_text(graph: mk.KnowledgeGraph) -> None:
    rows = graph.suggest(n=30, kinds=["model"], max_params=3e6)
    assert not {row.name for row in rows} & {"reader8", "reader16", "reader32"}


def test_nothing_is_known_for_video_and_the_reason_says_so(graph: mk.KnowledgeGraph) -> None:
    graph.add_dataset("clips", task="video description of scenes", modality="video")
    assert len(graph.suggest("clips", n=3)) == 0
    with pytest.raises(PredictionError, match="no known model is for clips, which holds video"):
        graph.generate("acc@1", dataset="clips", generations=1, population=2)


def test_the_real_cause_is_named(graph: mk.KnowledgeGraph) -> None:
    graph.builders.clear()
    with pytest.raises(PredictionError, match="of 3 that were tried 3 have no builder"):
        graph.generate("acc@1", dataset="reviews", generations=1, population=2)


def test_text_models_are_generated_from_text_models(graph: mk.KnowledgeGraph) -> None:
    rows = graph.generate(lambda record: -record.model.parameters, dataset="reviews", generations=2, population=4)
    assert all(row.base.startswith("reader") for row in rows)
    for row in rows:
        assert row.build()(torch.zeros(3, 7, dtype=torch.long)).shape == (3, 2)


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({"task": "text classification"}, "text"), ({"task": "Translation"}, "text"), ({"vocabulary": 3000}, "text"),
        ({"task": "image classification"}, "pictures"), ({"image_size": 32}, "pictures"), ({"hours": 960}, "sequences"),
        ({"task": "texture classification"}, None), ({"task": "text reading", "image_size": 32}, "pictures"),
        ({"task": "visual question answering"}, "pictures and text"), ({"task": "speech to text"}, "sequences"),
        ({"task": "speech translation"}, "sequences"), ({"task": "tabular regression"}, "tables"),
        ({"task": "image_classification"}, "pictures"), ({"task": "ImageClassification"}, "pictures"),
        ({"task": "object detection"}, "pictures"), ({"task": "language detection"}, "text"),
        ({"modality": "text", "task": "image classification"}, "text"),
        ({"modality": "video", "task": "classification"}, "video"), ({"task": "classification"}, None), ({}, None),
    ],
)  # fmt: skip
def test_what_a_data_set_holds(properties: dict[str, object], kind: str | None) -> None:
    assert modality_of(DataSetNode("d", properties)) == kind


# -------------------------------------------------------------------------- heads


def squeezed() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 5, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def plain() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5, bias=False))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_last_layer_is_exchanged(device: str) -> None:
    model = plain().to(device).half()
    trunk = model[0]
    changed = replace_head(model, (tuple(each.half() for each in IMAGE[0]), {}), 7)
    assert changed[-1].out_features == 7  # type: ignore[index]
    assert changed[-1].bias is None  # type: ignore[index]
    assert changed[-1].weight.dtype == torch.float16  # type: ignore[index]
    assert changed[0] is trunk  # type: ignore[index]


@pytest.mark.parametrize(
    ("make", "call"),
    [
        (squeezed, IMAGE),  # the mean comes behind it
        pytest.param(lambda: TiedEmbedding(10, 4), ((torch.zeros(1, 3, dtype=torch.long),), {}), id="Tied-call1"),
        (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), IMAGE),
        (lambda: nn.Linear(4, 2), meta_call([(1, 4)])),
    ],
)
def test_models_without_a_head_say_so(make: Callable[[], nn.Module], call: tuple) -> None:
    with pytest.raises(PredictionError, match="comes from no layer"):
        replace_head(make(), call, 7)


def test_types_of_transformers_have_classifiers() -> None:
    pytest.importorskip("transformers")
    tiny = {"model_type": "bert", "hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 50}
    build = mk.transformers_builders(configs={"tiny": tiny, "none": {"model_type": "timesformer"}})
    model = build["tiny"](num_classes=3)
    assert model(input_ids=torch.zeros(1, 4, dtype=torch.long)).logits.shape == (1, 3)
    assert type(build["tiny"]()).__name__ == "BertModel"
    with pytest.raises(PredictionError, match="for classes"):
        mk.transformers_builders(configs={"t": {"model_type": "sam"}})["t"](num_classes=3)


# ------------------------------------------------------------- reasons for nothing


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"task": "speech recognition"}, "no known model is for d, which holds sequences"),
        ({"task": "tabular regression"}, "which holds tables and which is for tabular regression"),
        ({"task": "visual question answering"}, "which holds pictures and text"),
        ({"task": "object detection", "classes": 80}, "which is for detection"),
        ({"task": "depth estimation"}, "which is for depth estimation"),
    ],
)
def test_for_what_no_known_model_is_there_is_nothing_and_a_reason(
    graph: mk.KnowledgeGraph, properties: dict[str, Any], reason: str
) -> None:
    graph.add_dataset("d", **properties)
    found = graph.suggest("d", n=3)
    assert len(found) == 0
    assert reason in found.reason
    assert found.reason in repr(found)


@pytest.mark.parametrize("limits", [{"max_params": 10}, {"max_flops": 10}, {"max_params": 1, "max_flops": 2}])
def test_budgets_that_nothing_keeps_to_say_what_the_least_has(graph: mk.KnowledgeGraph, limits: dict[str, Any]) -> None:
    found = graph.suggest("reviews", kinds=["model"], **limits)
    assert len(found) == 0
    assert "is within" in found.reason
    assert all(name in found.reason for name in limits)


@pytest.mark.parametrize("limit", [float("nan"), -1, 0, "3", True])
@pytest.mark.parametrize("name", ["max_params", "max_flops", "max_latency"])
def test_limits_that_are_none_are_named(name: str, limit: Any, timed: mk.KnowledgeGraph) -> None:
    with pytest.raises(PredictionError, match=f"{name} is .*above zero"):
        timed.suggest("reviews", **{name: limit}, device="phone")


# ------------------------------------------------------------------------ latency


@pytest.fixture
def timed(graph: mk.KnowledgeGraph) -> mk.KnowledgeGraph:
    for device, factor in (("phone", 1.0), ("card", 0.01)):
        table = pd.DataFrame([(f"reader{width}", factor * width) for width in (8, 16, 32)], columns=["model", "value"])
        graph.add_results(table, target="latency", unit="ms", device=device)
    return graph


def test_models_keep_to_a_latency_on_a_device(timed: mk.KnowledgeGraph) -> None:
    every = {row.name: row.latency for row in timed.suggest("reviews", device="phone", kinds=["model"])}
    assert len(every) == 3
    middle = 1.001 * sorted(every.values())[1]  # type: ignore[operator, type-var]
    found = timed.suggest("reviews", max_latency=middle, device="phone")
    assert {row.name for row in found} == {name for name, each in every.items() if each <= middle}  # type: ignore[operator]
    assert "latency" in found.frame()
    assert "on phone" in found.title
    assert "latency" not in timed.suggest("reviews").frame()
    assert len(timed.suggest("reviews", max_latency=middle, device="card")) == 3


def test_latencies_that_cannot_be_told_are_counted(timed: mk.KnowledgeGraph) -> None:
    found = timed.suggest(max_latency=1e3, device="phone", max_params=3e6)  # of pictures
    assert len(found) == 0
    assert "left out, whose latency is unknown" in found.reason
    none = timed.suggest("reviews", max_latency=1e-9, device="phone")
    assert "max_latency=1e-09 (the smallest has" in none.reason


def test_a_few_latencies_tell_those_of_models_of_such_sizes_with_their_deviation(timed: mk.KnowledgeGraph) -> None:
    mk.index_models({f"reader{width}": ReaderBuilder(width) for width in (48, 128)}, timed)  # 2 and 7 times the largest
    found = timed.suggest("reviews", max_latency=1e9, device="phone")
    assert {row.name for row in found} == {"reader8", "reader16", "reader32", "reader48"}
    assert found.reason == "1 left out, whose latency is unknown"
    for row in found:
        told = timed.predict("latency", row.name, device="phone")
        assert (row.latency, row.latency_std) == pytest.approx((told.value, told.std), rel=1e-6)
    assert found.frame()["latency_std"].gt(0).all()
    assert "latency_std" in repr(found)
    large = timed.predict("latency", "reader128", device="phone")
    assert large.far
    assert large.value is None


def test_devices_are_named(timed: mk.KnowledgeGraph) -> None:
    with pytest.raises(mk.ModuleKGError, match=r"known: '(card', 'phone|phone', 'card)'"):
        timed.suggest("reviews", max_latency=3, device="abacus")
    with pytest.raises(PredictionError, match="pass device=, one of 'card', 'phone'"):
        timed.suggest("reviews", max_latency=3)
    with pytest.raises(mk.ModuleKGError, match="no values are known of 'latency'"):
        mk.KnowledgeGraph().suggest(max_latency=3)


# ------------------------------------------------- what one modality says of another


def test_values_on_data_of_another_kind_are_told_when_asked_alone(graph: mk.KnowledgeGraph) -> None:
    graph.add_dataset("pets", task="image classification", classes=37, image_size=64)
    before = graph.predict("acc@1", "reader8", dataset="pets")
    model = mk.torchvision_builders()["squeezenet1_1"]()
    alone = graph.predict("acc@1", model, dataset="pets")
    table = pd.DataFrame([("reader8", 9.0), ("reader16", 8.0), ("reader32", 7.0)], columns=["model", "value"])
    graph.add_results(table, dataset="reviews", target="acc@1", unit="%")
    beside = graph.predict("acc@1", model, dataset="pets")
    assert before.value is None
    assert before.reason == "pets holds pictures, the model takes text"
    assert (beside.value, beside.low, beside.high) == (alone.value, alone.low, alone.high)
    across = graph.predict("acc@1", model, dataset="reviews")
    assert across.value is None
    assert across.reason == "reviews holds text, the model takes pictures"
    assert graph.predict("acc@1", model, dataset="reviews", extrapolate=True).value is not None
    assert graph.predict("acc@1", "reader8", dataset="reviews").value is not None


def test_costs_are_those_on_images_of_the_data_set() -> None:
    name = "squeezenet1_1"
    graph = mk.KnowledgeGraph()
    graph.add_model(mk.torchvision_builders()[name](), name=name, args=(torch.zeros(1, 3, 224, 224),))
    graph.add_dataset("whole", task="image classification", classes=10, image_size=64)
    graph.add_dataset("sides", task="image classification", classes=10, image_size=(64, 64))
    full, *small = (
        next(row for row in graph.suggest(dataset, kinds=["model"], max_params=1.3e6) if row.name == name).flops
        for dataset in (None, "whole", "sides")
    )
    assert full is not None
    assert small[0] == small[1]
    assert small[0] is not None
    assert small[0] < full / 8
    assert name in {row.name for row in graph.suggest("sides", kinds=["model"], max_flops=small[0], max_params=1.3e6)}
