"""Models are suggested for what they take, text for text, and get a head for the classes of the data set."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import PredictionError
from modulekg_widgets.engine.knowledge.contents import DataSetNode
from modulekg_widgets.engine.knowledge.prediction.modality import modality_of
from modulekg_widgets.engine.knowledge.suggestion.candidates import call_with
from modulekg_widgets.engine.knowledge.suggestion.heads import with_classes

IMAGE = call_with([(2, 3, 32, 32)])


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
    changed = with_classes(model, (tuple(each.half() for each in IMAGE[0]), {}), 7)
    assert changed[-1].out_features == 7  # type: ignore[index]
    assert changed[-1].bias is None  # type: ignore[index]
    assert changed[-1].weight.dtype == torch.float16  # type: ignore[index]
    assert changed[0] is trunk  # type: ignore[index]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.words(x))


@pytest.mark.parametrize(
    ("make", "call"),
    [
        (squeezed, IMAGE),  # the mean comes behind it
        (Tied, ((torch.zeros(1, 3, dtype=torch.long),), {})),
        (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), IMAGE),
        (lambda: nn.Linear(4, 2), call_with([(1, 4)])),
    ],
)
def test_models_without_a_head_say_so(make: Callable[[], nn.Module], call: tuple) -> None:
    with pytest.raises(PredictionError, match="comes of no layer of its own"):
        with_classes(make(), call, 7)


def test_types_of_transformers_have_classifiers() -> None:
    pytest.importorskip("transformers")
    tiny = {"model_type": "bert", "hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 50}
    build = mk.transformers_builders(configs={"tiny": tiny, "none": {"model_type": "timesformer"}})
    model = build["tiny"](num_classes=3)
    assert model(input_ids=torch.zeros(1, 4, dtype=torch.long)).logits.shape == (1, 3)
    assert type(build["tiny"]()).__name__ == "BertModel"
    with pytest.raises(PredictionError, match="for classes"):
        mk.transformers_builders(configs={"t": {"model_type": "sam"}})["t"](num_classes=3)
