"""Predicting accuracy from structure: always leave-family-out, with intervals that hold."""

import math
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from knowledge.zoo_contents import contents_of, job, small_contents, small_predictor, traced, zoo_record
from models.zoo import zoo_model
from modulekg_widgets.engine.errors import PredictionError
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.facts.records import model_record
from modulekg_widgets.engine.knowledge.prediction.data.features import (
    Features,
    LabelCache,
    family_of,
    features_of,
    operation_label,
)
from modulekg_widgets.engine.knowledge.prediction.data.observations import Condition
from modulekg_widgets.engine.knowledge.prediction.data.published import (
    IMAGENET,
    published_by_torchvision,
    published_models,
    published_records,
)
from modulekg_widgets.engine.knowledge.prediction.evaluation import (
    COLUMNS,
    KERNEL_REGRESSIONS,
    PREDICTORS,
    evaluate_prediction,
    leave_family_out,
)
from modulekg_widgets.engine.knowledge.prediction.predictor import Predictor, fitted_predictor, predict
from modulekg_widgets.engine.knowledge.prediction.predictors.gaussian_process import CONSTANT_SCALE, GaussianProcess
from modulekg_widgets.engine.knowledge.prediction.predictors.gnn import GraphNetworkEnsemble
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_weights

FEW = ("alexnet", "squeezenet1_0", "squeezenet1_1", "resnet18", "resnet34", "mobilenet_v3_small", "mnasnet0_5")


@cache
def published_alone(target: str = "acc@1") -> Predictor:
    """What torchvision publishes, and nothing else."""
    return fitted_predictor(Contents(), target)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return evaluate_prediction(published_alone(), predictors=["mean", "ridge", "wl", "wl-rbf", "nearest", "own"])


def few_samples() -> tuple[list[Features], np.ndarray, np.ndarray]:
    """Features, values and families of a few published models."""
    surface = published_alone().regressor(Condition(IMAGENET), True)
    chosen = [at for at, sample in enumerate(surface.samples) if sample.features.name in FEW]
    return [surface.samples[at].features for at in chosen], surface.values[chosen], surface.families[chosen]


def test_what_is_published() -> None:
    every = published_models()
    assert len(every) == 78
    assert len({each.family for each in every.values()}) == 17
    assert all(math.isfinite(value) for each in every.values() for value in each.values.values())
    assert every["resnet50"].values == {"acc@1": 76.13, "acc@5": 92.862}
    assert every["resnet50"].parameters == 25557032
    assert every["resnet50"].flops == 8_178_000_000
    assert not any(name.startswith("quantized") for name in every)


def test_the_shipped_figures_are_those_of_torchvision() -> None:
    assert published_models() == published_by_torchvision()


@pytest.mark.slow
def test_no_question_about_the_graph_imports_what_takes_seconds() -> None:
    """Neither torchvision nor scipy.stats; a process of its own, as others of these tests import both."""
    code = """
import sys
from modulekg_widgets.engine.knowledge.prediction.data.design import Sample
from modulekg_widgets.engine.knowledge.prediction.data.features import features_of
from modulekg_widgets.engine.knowledge.prediction.data.published import published_models
from modulekg_widgets.engine.knowledge.prediction.predictors.target_regressor import TargetRegressor
from modulekg_widgets.engine.knowledge.facts.records import model_record
from torch import nn
samples = [Sample(features_of(model_record(nn.Linear(width, 3), str(width)))) for width in range(1, 90)]
TargetRegressor("here", samples, [float(width) for width in range(1, 90)], None, False).predict(samples)
assert len(published_models()) == 78
print({"torchvision", "scipy.stats", "sklearn"} & sys.modules.keys())
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_models_of_one_graph_share_the_labels_of_their_modules() -> None:
    labels = LabelCache()
    for name in FEW:
        alone, shared = (features_of(zoo_record(name), labels=each) for each in (None, labels))
        assert alone == shared
    other = model_record(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), "other")
    assert features_of(other, labels=labels) == features_of(other)


def test_the_entry_without_an_accuracy_is_another_one() -> None:
    metrics = torchvision_weights("IMAGENET1K_FEATURES")["vgg16"][1]["_metrics"]["ImageNet-1K"]
    assert math.isnan(metrics["acc@1"])
    assert published_models()["vgg16"].values["acc@1"] == 71.592


def test_families_are_told_from_the_structure_as_torchvision_files_them() -> None:
    records = published_records()
    assert {name: family_of(record) for name, record in records.items()} == {
        name: each.family for name, each in published_models().items()
    }
    assert published_models()["wide_resnet50_2"].family == published_models()["resnext50_32x4d"].family == "resnet"


def test_models_of_nowhere_are_families_of_their_own() -> None:
    one, other = (model_record(nn.Sequential(nn.Linear(2, 2)), name) for name in ("one", "other"))
    assert family_of(one) != family_of(other)


def test_a_users_model_of_that_name_is_not_taken_for_the_published_one() -> None:
    own = model_record(nn.Linear(2, 2), "resnet18")
    assert published_records(["resnet18"], {"resnet18": own})["resnet18"].model.parameters == 11689512
    same = zoo_record("resnet18")
    assert published_records(["resnet18"], {"resnet18": same})["resnet18"] is same


def test_labels_tell_kernel_stride_and_groups_but_no_width() -> None:
    kinds = {operation_label(node) for node in zoo_record("mobilenet_v3_small").nodes.values()}
    assert {"Conv2d/3x3/s2/full", "Conv2d/5x5/s1/depthwise", "Conv2d/1x1/s1/full", "Hardswish", "container"} <= kinds
    counts = features_of(zoo_record("resnet18")).ops
    assert counts == Counter(
        {"Conv2d": 20, "BatchNorm2d": 20, "ReLU": 9, "MaxPool2d": 1, "AdaptiveAvgPool2d": 1, "Linear": 1}
    )


# ---------------------------------------------------------------- evaluation


@pytest.mark.slow
def test_the_table_beats_its_baselines(table: pd.DataFrame) -> None:
    assert list(table.columns) == COLUMNS
    assert set(table["families"]) == {17}
    assert set(table["models"]) == set(table["n"]) == {78}
    rows = table.set_index("predictor")
    own, by_size = rows.iloc[-1], rows.loc["ridge on log-params and log-FLOPs"]
    assert own["rho"] >= 0.94
    assert own["mae"] < 1.8
    assert by_size["rho"] < 0.5
    assert (rows["mae"].drop(["WL kernel ridge + RBF of size", own.name]) > 1.5 * own["mae"]).all()


def test_the_intervals_hold_what_they_say(table: pd.DataFrame) -> None:
    assert 0.85 <= table["coverage"].iloc[-1] <= 0.98
    assert table["coverage"].iloc[:-1].isna().all()


@pytest.mark.slow
def test_the_same_is_found_again() -> None:
    options = {"predictors": ["wl-rbf", "gnn", "own"], "models": FEW, "seeds": [3]}
    first, again = (evaluate_prediction(published_alone(), **options) for _ in range(2))
    pd.testing.assert_frame_equal(first, again)


@pytest.mark.parametrize("predictor", [*KERNEL_REGRESSIONS, "gnn"])
@pytest.mark.slow
def test_a_familys_own_values_say_nothing_about_it(predictor: str) -> None:
    features, values, families = few_samples()
    wrong = np.where(families == "resnet", 5.0, values)

    def predicted(values: np.ndarray) -> np.ndarray:
        if predictor == "gnn":
            return GraphNetworkEnsemble(features, values, families, [0]).out_of_fold
        return leave_family_out(KERNEL_REGRESSIONS[predictor], features, values, families)

    before, after = predicted(values), predicted(wrong)
    assert np.allclose(before[families == "resnet"], after[families == "resnet"], atol=1e-3)
    assert not np.allclose(before[families != "resnet"], after[families != "resnet"], atol=1e-3)


def test_residuals_of_left_out_families_are_those_of_fits_without_them() -> None:
    features, values, families = few_samples()
    kernel, ridge = KERNEL_REGRESSIONS["wl-rbf"].kernels(features)[3], 0.1
    found, _ = GaussianProcess(kernel, values, ridge).leave_family_out(families)
    for family in set(families):
        test, train = families == family, families != family
        inside = kernel[np.ix_(train, train)] + CONSTANT_SCALE + ridge * np.eye(train.sum())
        weights = np.linalg.solve(inside, values[train] - values.mean())
        predicted = values.mean() + (kernel[np.ix_(test, train)] + CONSTANT_SCALE) @ weights
        assert found[test] == pytest.approx(predicted, rel=1e-6)


def test_the_network_learns_and_leaves_all_as_it_was() -> None:
    features, values, families = few_samples()
    before = torch.get_rng_state(), torch.get_num_threads()
    with torch.inference_mode():
        first = GraphNetworkEnsemble(features, values, families, [0, 1]).runs_by_seed
        assert not torch.is_grad_enabled()
    assert torch.equal(before[0], torch.get_rng_state())
    assert torch.get_num_threads() == before[1]
    assert torch.is_grad_enabled()
    assert first.shape == (2, len(FEW))
    assert not np.allclose(first[0], first[1])
    assert np.abs(first - values).mean() < 25


@pytest.mark.nightly
def test_the_network_over_five_seeds_stands_in_the_same_table() -> None:
    row = evaluate_prediction(published_alone(), predictors=["gnn"]).iloc[0]
    assert row["rho"] > 0.85
    assert row["mae"] < 3.0
    assert 0 < row["rho_std"] < 0.05


def test_boosting_stands_in_the_table() -> None:
    row = evaluate_prediction(published_alone(), predictors=["boosting"]).iloc[0]
    assert row["rho"] > 0.6


def test_top_5_accuracy_is_predicted_too() -> None:
    table = evaluate_prediction(published_alone("acc@5"), predictors=["own"])
    assert table["rho"].iloc[0] > 0.9


def test_what_does_not_exist_is_named_with_what_does() -> None:
    with pytest.raises(mk.ModuleKGError, match="'acc@1'"):
        fitted_predictor(Contents(), "acc@2")
    with pytest.raises(mk.ModuleKGError, match="'wl'"):
        evaluate_prediction(published_alone(), predictors=["wll"])
    with pytest.raises(mk.ModuleKGError, match="'resnet18'"):
        evaluate_prediction(published_alone(), models=["resnet81", "alexnet"])
    with pytest.raises(PredictionError, match="families"):
        evaluate_prediction(published_alone(), models=["resnet18", "alexnet"])
    assert set(PREDICTORS) >= set(KERNEL_REGRESSIONS)


# ------------------------------------------------------------------- predict


def test_a_known_model_is_told_as_published() -> None:
    predicted = small_predictor().predict([zoo_record("resnet18")])[0]
    assert predicted.value == pytest.approx(69.758, abs=1.5)
    assert predicted.low is not None
    assert predicted.high is not None
    assert predicted.low < 69.758 < predicted.high
    assert predicted.numbers[1] < 2
    assert predicted.nearest[0] == "resnet18"
    assert not predicted.far
    assert predicted.unit == "%"
    assert repr(predicted).startswith("<acc@1 of resnet18 on ImageNet-1K: ")


def test_the_cost_is_of_use_where_it_is_known() -> None:
    record = replace(zoo_record("resnet18"), model=replace(zoo_record("resnet18").model, name="mine"))
    without, cheap = small_predictor().predict([record, traced(record, 3_600_000_000)])
    assert abs(float(cheap) - 69.758) < 2
    assert without.numbers[1] > cheap.numbers[1]


def test_jobs_on_the_same_data_are_learnt_from() -> None:
    own = traced(model_record(zoo_model("squeezenet1_1"), "mine"), 50_000_000_000)
    datasets = {IMAGENET: replace(small_contents().datasets["CIFAR-10"], name=IMAGENET)}
    before = small_predictor().predict([own])[0]
    contents = replace(
        contents_of(own, jobs=[job(IMAGENET, "mine", 0.2), job(IMAGENET, "mine", 0.3)]), datasets=datasets
    )
    predicted = fitted_predictor(contents).predict([own])[0]
    assert predicted.training == 80
    assert abs(float(predicted) - 25) < abs(float(before) - 25) / 2


def test_a_data_set_of_two_jobs_and_some_without() -> None:
    ten, none = (small_predictor().predict([zoo_record("squeezenet1_1")], name)[0] for name in ("CIFAR-10", "digits"))
    assert 85 < float(ten) < 97
    assert ten.training == 80
    assert none.numbers[1] > 25  # of two data sets no spread of levels is known
    assert "where no value is known on digits" in none.predictor


def test_predict_takes_the_name_of_a_model() -> None:
    predicted = predict(small_contents(), "acc@5", "resnet18")
    assert float(predicted) == pytest.approx(89.078, abs=1.5)
    with pytest.raises(mk.ModuleKGError, match="'resnet18'"):
        predict(small_contents(), "acc@5", "resnet81")
    with pytest.raises(mk.ModuleKGError, match="'CIFAR-10'"):
        predict(small_contents(), "acc@5", "resnet18", "CIFAR10x")


def test_a_graph_without_models_predicts_and_takes_other_ways_of_writing() -> None:
    predicted = published_alone().predict([zoo_record("mobilenet_v3_small")], "imagenet1k")[0]
    assert float(predicted) == pytest.approx(67.668, abs=2)
    assert predicted.dataset == IMAGENET


class Modes(nn.Module):
    """Notes in which mode it runs, and cannot be trained on a single image."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(8), nn.Dropout())
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("training" if self.training else "evaluating")  # a look leaves nothing in lists and classes
        return self.head(self.body(x).flatten(1))


@pytest.mark.parametrize("frozen", [False, True])
def test_a_model_is_traced_in_eval_mode_whatever_its_own_mode(frozen: bool, capsys: pytest.CaptureFixture[str]) -> None:
    model = Modes().train()
    model.body[2].train(not frozen)
    modes, state = [module.training for module in model.modules()], mk.weight_fingerprint(model)
    graph = mk.KnowledgeGraph()
    value = graph.predict(
        "acc@1", model, args=torch.zeros(1, 3, 32, 32), extrapolate=True
    )  # batch norm cannot train on one value
    assert set(capsys.readouterr().out.split()) == {"evaluating"}
    assert [module.training for module in model.modules()] == modes
    assert mk.weight_fingerprint(model) == state
    assert int(model.body[2].num_batches_tracked) == 0  # type: ignore[arg-type]
    assert value.value == graph.predict("acc@1", model.eval(), args=torch.zeros(1, 3, 32, 32), extrapolate=True).value


def test_a_model_that_cannot_be_copied_says_so() -> None:
    class Single(Modes):
        def __deepcopy__(self, memo: object) -> Modes:
            raise RuntimeError("there is one of me")

    model, graph = Single(), mk.KnowledgeGraph()
    with pytest.raises(mk.ModuleKGError, match=r"cannot be copied.*call model\.eval\(\) first"):
        graph.predict("acc@1", model, args=torch.zeros(1, 3, 32, 32), extrapolate=True)
    assert float(graph.predict("acc@1", model.eval(), args=torch.zeros(1, 3, 32, 32), extrapolate=True)) > 0
