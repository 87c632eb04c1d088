"""Targets of any name and unit, measured on data sets, devices and with trainings of any name."""

from __future__ import annotations

import math

import pandas as pd
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from knowledge.zoo_contents import zoo_record
from modulekg_widgets.engine.errors import PredictionError
from modulekg_widgets.engine.knowledge.facts.records import model_record
from modulekg_widgets.engine.knowledge.prediction.applicability_domain import ApplicabilityDomain
from modulekg_widgets.engine.knowledge.prediction.data.datasets import modality
from modulekg_widgets.engine.knowledge.prediction.data.design import Sample
from modulekg_widgets.engine.knowledge.prediction.data.features import features_of
from modulekg_widgets.engine.knowledge.prediction.data.observations import training_image_size, training_words

WIDTHS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96)


def net(width: int, depth: int = 2) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


@pytest.fixture
def graph() -> mk.KnowledgeGraph:
    kg = mk.KnowledgeGraph()
    for width in WIDTHS:
        for depth in (2, 4):
            kg.add_model(net(width, depth), f"net{width}x{depth}", args=torch.zeros(1, 3, 16, 16))
    return kg


def latency(width: int, depth: int, size: int, factor: float) -> float:
    return factor * depth * (width / 32) ** 1.5 * (size / 16) ** 2


@pytest.fixture
def timed(graph: mk.KnowledgeGraph) -> mk.KnowledgeGraph:
    rows = [
        (f"net{width}x{depth}", latency(width, depth, size, factor), size, device)
        for width in WIDTHS for depth in (2, 4) for size in (16, 32) for device, factor in (("cpu", 2.0), ("gpu", 0.1))
        if width != 32
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=["model", "value", "image_size", "device"])
    graph.add_results(table, target="latency", unit="ms", training=["image_size"])
    return graph


def test_latency_by_device_and_image_size(timed: mk.KnowledgeGraph) -> None:
    for device, factor in (("cpu", 2.0), ("gpu", 0.1)):
        for size in (16, 32):
            found = timed.predict("latency", "net32x4", device=device, training={"image_size": size})
            truth = latency(32, 4, size, factor)
            assert float(found) == pytest.approx(truth, rel=0.25)
            assert found.low is not None
            assert found.high is not None
            assert 0 < found.low < truth < found.high
            assert (found.unit, found.device, found.dataset) == ("ms", device, None)
    assert " ms, 90 % in " in repr(found)


def test_a_device_has_to_be_named_where_there_are_several(timed: mk.KnowledgeGraph) -> None:
    with pytest.raises(PredictionError, match="pass device=, one of 'cpu', 'gpu'"):
        timed.predict("latency", "net32x4")
    with pytest.raises(mk.ModuleKGError, match="'gpu'"):
        timed.predict("latency", "net32x4", device="gpus")


def test_a_target_that_no_job_has_is_named_with_those_that_some_have(timed: mk.KnowledgeGraph) -> None:
    with pytest.raises(mk.ModuleKGError, match="'latency'"):
        timed.predict("latencies", "net32x4")


def test_how_it_was_trained_counts(graph: mk.KnowledgeGraph) -> None:
    rows = [
        (f"net{width}x{depth}", tag, 40 + 10 * math.log10(width) + (15 if "big" in tag else 0))
        for width in WIDTHS for depth in (2, 4) for tag in ("scratch", "big_ft")
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=["model", "tag", "value"])
    graph.add_results(table, dataset="mine", target="acc@1", unit="%", training=["tag"])
    plain, big = (graph.predict("acc@1", "net32x4", dataset="mine", training={"tag": tag})
                  for tag in ("scratch", "big_ft"))  # fmt: skip
    assert float(big) - float(plain) == pytest.approx(15, abs=3)
    either = graph.predict("acc@1", "net32x4", dataset="mine")
    assert float(plain) < float(either) < float(big)


def test_fractions_count_as_percents(graph: mk.KnowledgeGraph) -> None:
    rows = [(f"net{width}x{depth}", 0.3 + 0.1 * math.log10(width)) for width in WIDTHS for depth in (2, 4)]
    graph.add_results(pd.DataFrame(rows, columns=["model", "value"]), dataset="boxes", target="mAP")
    found = graph.predict("mAP", "net8x2", dataset="boxes")
    assert found.unit == "%"
    assert float(found) == pytest.approx(39, abs=3)
    assert graph.predict("mAP", "net8x2").dataset == "boxes"  # the only one


@pytest.mark.slow
def test_any_target_is_judged_on_families_left_out() -> None:
    kg = mk.KnowledgeGraph()
    kinds = (nn.ReLU, nn.GELU, nn.Tanh, nn.SiLU)

    def own(kind: type[nn.Module], width: int) -> nn.Module:
        """A class of its own is a family of its own."""
        made = type(
            f"Net{kind.__name__}",
            (nn.Module,),
            {"forward": lambda self, x: self.body(x), "__module__": f"own.{kind.__name__}"},
        )()
        made.body = nn.Sequential(nn.Conv2d(3, width, 3), kind(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        made.body.append(nn.Linear(width, 10))
        return made

    rows = []
    for kind in kinds:
        for width in WIDTHS:
            name = f"{kind.__name__}{width}"
            kg.add_model(own(kind, width), name, args=torch.zeros(1, 3, 16, 16))
            rows.append((name, 3.0 * width**0.5))
    kg.add_results(pd.DataFrame(rows, columns=["model", "value"]), target="memory", unit="MB", dataset="mine")
    table = kg.evaluate_prediction("memory", dataset="mine")
    assert {"predictor", "rho", "mae", "families", "coverage", "n", "relative"} <= set(table.columns)
    rows_by = table.set_index("predictor")
    own_row = rows_by.iloc[-1]
    assert own_row["n"] == len(rows)
    assert own_row["rho"] > 0.95
    assert own_row["mae"] < 0.5 * rows_by.loc["mean", "mae"]
    assert 0.8 <= own_row["coverage"] <= 1


@pytest.mark.parametrize("values", [[0.0] * 8, [100.0] * 8, [50.0] * 8, [0.0, 0.0, 0.0, 100.0, 0.0, 0.0, 0.0, 0.0]])
def test_values_at_the_ends_of_a_scale_are_within_the_interval(graph: mk.KnowledgeGraph, values: list[float]) -> None:
    names = list(graph.contents().models)[:8]
    graph.add_results(pd.DataFrame({"model": names, "value": values}), dataset="d", target="hits", unit="%")
    found = graph.predict("hits", names[0], dataset="d")
    assert found.low is not None
    assert found.high is not None
    assert 0 <= found.low <= values[0] + 1e-6
    assert values[0] - 1e-6 <= found.high <= 100


@pytest.mark.parametrize("values", [[1e300, 1e-300, 1.0, 5.0], [-5.0, 3.0, 0.0, 9.0], [7.0], [120.0, 50.0, 80.0]])
def test_any_numbers_are_taken(graph: mk.KnowledgeGraph, values: list[float]) -> None:
    names = list(graph.contents().models)[: len(values)]
    graph.add_results(pd.DataFrame({"model": names, "value": values}), dataset="d", target="odd", unit="x")
    found = graph.predict("odd", "net64x4", dataset="d", extrapolate=True)
    assert found.low is not None
    assert found.value is not None
    assert found.high is not None
    assert math.isfinite(found.low)
    assert found.low <= found.value <= found.high


@pytest.mark.parametrize(
    "question",
    [{"training": "abc"}, {"training": [1]}, {"dataset": 5}, {"device": 5}, {"dataset": "nowhere"}],
    ids=str,
)  # fmt: skip
def test_questions_that_are_none(timed: mk.KnowledgeGraph, question: dict) -> None:
    with pytest.raises(mk.ModuleKGError):
        timed.predict("latency", "net32x4", **{"device": "cpu", **question})


# --------------------------------------------------------------- out of domain


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(50000, 64), nn.Linear(64, 50000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(x))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10)), "an unknown kind of input"),
        (Words(), "holds pictures, the model takes text"),
        (nn.Sequential(nn.ReLU(), nn.Flatten()), "no weights"),
        (nn.Sequential(nn.Conv3d(3, 64, 3), nn.ReLU(), nn.Conv3d(64, 512, 3)), "takes video"),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), "112 parameters"),
    ],
)
def test_a_model_of_another_kind_gets_no_number_unless_asked(model: nn.Module, reason: str) -> None:
    kg = mk.KnowledgeGraph()
    found = kg.predict("acc@1", model)
    assert found.value is None
    assert (found.std, found.low, found.high) == (None, None, None)
    assert found.far
    assert reason in found.reason
    assert "no prediction" in repr(found)
    with pytest.raises(PredictionError, match="extrapolate=True"):
        float(found)
    told = kg.predict("acc@1", model, extrapolate=True)
    assert told.value is not None
    assert 0 <= told.low <= told.value <= told.high <= 100  # type: ignore[operator]
    assert told.far


@pytest.mark.parametrize(
    ("model", "inputs", "kind"),
    [
        (nn.Conv2d(3, 4, 3), None, "pictures"),
        (nn.Embedding(9, 3), None, "text"),
        (nn.Conv1d(3, 4, 3), None, "sequences"),
        (nn.Linear(3, 4), None, None),
        (nn.Linear(3, 4), (1, 3, 8, 3), "pictures"),
        (nn.Linear(3, 4), (1, 3), "tables"),
        (nn.Embedding(9, 3), (1, 5), "text"),
    ],
)
def test_kinds_of_inputs(model: nn.Module, inputs: tuple[int, ...] | None, kind: str | None) -> None:
    features = features_of(model_record(model, "m"))
    assert modality(features.with_cost(1, (inputs,)) if inputs else features) == kind


def test_words_of_a_training() -> None:
    assert training_words(
        {"tag": "fb_in22k_ft_in1k", "image_size": 224, "results": {}, "device": "cpu", "lr": 0.1}
    ) == {
        "fb",
        "in22k",
        "ft",
        "in1k",
    }
    assert training_words({"optimizer": "sgd", "distilled": True}) == {"optimizer sgd", "distilled True"}
    assert training_image_size({"image_size": 224}) == 224.0
    assert training_image_size({"image_size": True}) is None
    assert training_image_size({"image_size": math.inf}) is None
    assert training_image_size({"image_size": 10**400}) is None
    assert training_image_size({"image_size": "big"}) is None


def test_of_one_family_alone_models_are_told_that_are_as_alike_as_these() -> None:
    one = ApplicabilityDomain([sample_of(name) for name in ("resnet18", "resnet50", "resnet152")])
    asked = [sample_of(name) for name in ("resnet34", "wide_resnet50_2", "vit_b_16", "vgg16")]
    told = [reason == "" for reason in one.reasons(asked)]
    assert told == [True, True, False, False]
    assert "no known model has a structure like it" in one.reasons(asked)[2]
    known = ("resnet18", "resnet50", "resnet152", "vgg11", "vit_b_32", "squeezenet1_1")
    several = ApplicabilityDomain([sample_of(name) for name in known])
    assert several.reasons(asked) == [""] * 4


def test_sizes_are_told_as_far_beyond_known_ones_as_these_lie_apart() -> None:
    few = ApplicabilityDomain([sample_of(name) for name in ("resnet50", "resnet101")])  # 26 and 45 million
    many = ApplicabilityDomain([sample_of(name) for name in ("resnet18", "resnet50", "wide_resnet101_2")])  # 12 to 127
    assert (
        "11,689,512 parameters, and the known models 25,557,032 to 44,549,160"
        in few.reasons([sample_of("resnet18")])[0]
    )
    assert few.reasons([sample_of("resnet152")]) == [""]
    assert many.reasons([sample_of("resnet101")]) == [""]
    alone = ApplicabilityDomain([sample_of("resnet50")])
    assert [reason == "" for reason in alone.reasons([sample_of("resnet50"), sample_of("resnet34")])] == [True, False]


def sample_of(name: str) -> Sample:
    return Sample(features_of(zoo_record(name)))
