"""A user's own data sets, of which a few jobs are known: never worse than their mean, and intervals that hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from knowledge.zoo_contents import contents_of, zoo_record
from modulekg_widgets.engine.errors import PredictionError
from modulekg_widgets.engine.knowledge.facts.contents import Contents, DataSetNode, JobNode
from modulekg_widgets.engine.knowledge.facts.records import ModelRecord
from modulekg_widgets.engine.knowledge.prediction.data.design import Sample
from modulekg_widgets.engine.knowledge.prediction.data.features import features_of
from modulekg_widgets.engine.knowledge.prediction.data.observations import Condition
from modulekg_widgets.engine.knowledge.prediction.data.published import IMAGENET, published_models, published_records
from modulekg_widgets.engine.knowledge.prediction.data.scales import PERCENT_POINTS
from modulekg_widgets.engine.knowledge.prediction.predictor import Predictor, fitted_predictor
from modulekg_widgets.engine.knowledge.prediction.predictors.mixture import PredictionIntervals
from modulekg_widgets.engine.knowledge.prediction.predictors.target_regressor import TargetRegressor

MINE = "mine"


def affine(model: str, noise: float) -> float:
    return 0.6 * published_models()[model].values["acc@1"] + 35 + 0.8 * noise


def transformers_poor(model: str, noise: float) -> float:
    is_transformer = published_models()[model].family in ("vision_transformer", "swin_transformer", "maxvit")
    return 0.7 * published_models()[model].values["acc@1"] + 30 - 15 * is_transformer + noise


def small_models_win(model: str, noise: float) -> float:
    return 95 - 8 * (np.log10(published_models()[model].parameters) - 6) + noise


def steep(model: str, noise: float) -> float:
    return 1.3 * published_models()[model].values["acc@1"] - 35 + 0.3 * noise


def rougher_below(model: str, noise: float) -> float:
    value = 0.9 * published_models()[model].values["acc@1"] + 5
    return value + 0.8 * (1 + 0.15 * (85 - value)) * noise


def saturating(model: str, noise: float) -> float:
    return float(100 / (1 + np.exp(-(published_models()[model].values["acc@1"] - 43) / 6 - 0.25 * noise)))


MADE_UP: dict[str, Callable[[str, float], float]] = {
    "affine": affine,
    "transformers poor": transformers_poor,
    "small models win": small_models_win,
}
OTHERS: dict[str, Callable[[str, float], float]] = {
    "steep": steep,
    "rougher below": rougher_below,
    "saturating": saturating,
}


def values_of(kind: str, seed: int) -> dict[str, float]:
    noise = np.random.default_rng(seed).normal(size=len(published_models()))
    made_up = (MADE_UP | OTHERS)[kind]
    return {name: min(made_up(name, float(each)), 100.0) for name, each in zip(published_models(), noise, strict=True)}


def with_jobs(values: dict[str, float], records: dict[str, ModelRecord]) -> Predictor:
    jobs = [JobNode(name, None, MINE, name, value / 100, None, {}, 0.0, None, {}) for name, value in values.items()]
    contents = contents_of(*(records[name] for name in values), jobs=jobs)
    return fitted_predictor(replace(contents, datasets={MINE: DataSetNode(MINE, {})}))


@pytest.fixture(scope="module")
def records() -> dict[str, ModelRecord]:
    return published_records()


def judged(kind: str, count: int, seed: int, records: dict[str, ModelRecord]) -> tuple[float, float, list[bool]]:
    """The mean error of models of other families than those of the jobs, that of the jobs' mean, and who is inside."""
    values = values_of(kind, seed)
    names = list(values)
    rng = np.random.default_rng(100 + seed)
    families = {name: published_models()[name].family for name in names}
    left_out = set(rng.permutation(sorted(set(families.values())))[:5].tolist())
    known = rng.permutation([name for name in names if families[name] not in left_out])[:count].tolist()
    asked = [name for name in names if families[name] in left_out]
    predicted = with_jobs({name: values[name] for name in known}, records).predict(
        [records[name] for name in asked], MINE, extrapolate=True
    )
    truth = np.array([values[name] for name in asked])
    mean = np.mean([values[name] for name in known])
    errors = [abs(float(each) - value) for each, value in zip(predicted, truth, strict=True)]
    inside = [each.low <= value <= each.high for each, value in zip(predicted, truth, strict=True)]  # type: ignore[operator]
    return float(np.mean(errors)), float(np.abs(truth - mean).mean()), inside


@pytest.mark.parametrize("count", [5, 40])
@pytest.mark.parametrize("kind", MADE_UP)
@pytest.mark.slow
def test_a_few_jobs_tell_more_than_their_mean(kind: str, count: int, records: dict[str, ModelRecord]) -> None:
    errors, baselines, insides = zip(*(judged(kind, count, seed, records) for seed in range(6)), strict=True)
    assert np.mean(errors) <= np.mean(baselines)
    if kind != "transformers poor":
        assert np.mean(errors) < 0.75 * np.mean(baselines)
    assert np.mean([each for inside in insides for each in inside]) >= 0.7


@pytest.mark.slow
def test_intervals_hold_over_all_of_these(records: dict[str, ModelRecord]) -> None:
    every = [each for kind in MADE_UP for count in (5, 40) for seed in range(4)
             for each in judged(kind, count, seed, records)[2]]  # fmt: skip
    assert 0.86 <= np.mean(every) <= 0.97


@pytest.mark.parametrize("kind", MADE_UP | OTHERS)
@pytest.mark.slow
def test_intervals_of_sixty_jobs_hold_on_every_kind(kind: str, records: dict[str, ModelRecord]) -> None:
    """By 24 draws, which tell it to 2 %, none of them of those by which the way was chosen."""
    insides = [judged(kind, 60, seed, records)[2] for seed in range(20, 44)]
    assert 0.85 <= np.mean([each for inside in insides for each in inside]) <= 0.95


def test_families_count_once_however_many_values_they_have(records: dict[str, ModelRecord]) -> None:
    """A family that is told badly is one of five, though it has a third of the values."""
    values = values_of("affine", 0)
    own = [
        name
        for name in values
        if published_models()[name].family in ("regnet", "vgg", "resnet", "densenet", "convnext")
    ]
    bent = {name: values[name] - 12 * (published_models()[name].family == "regnet") for name in own}
    few, many = (
        with_jobs({name: value for name, value in bent.items() if keep(name)}, records).regressor(Condition(MINE), True)
        for keep in (lambda name: not name.startswith("regnet_x"), lambda name: True)
    )
    assert few._width_factor == pytest.approx(many._width_factor, rel=0.3)
    assert few._width_factor > 1.3


def test_what_another_place_is_unsure_of_is_not_narrowed() -> None:
    own = PredictionIntervals(*(np.array([each]) for each in (50.0, 49.0, 51.0)))
    whole = PredictionIntervals(*(np.array([each]) for each in (50.0, 48.0, 52.0)))
    found = whole.widen(0.5, PERCENT_POINTS, own)
    assert found.high[0] - 50 == pytest.approx(50 - found.low[0])
    assert found.high[0] - 50 == pytest.approx(np.sqrt(4 - 1 + 0.25))
    assert whole.widen(1.0, PERCENT_POINTS, own).high[0] == pytest.approx(52.0)


def test_a_model_of_several_trainings_elsewhere_may_be_any_of_these(records: dict[str, ModelRecord]) -> None:
    features = features_of(records["resnet18"])
    samples = [Sample(features, frozenset({word})) for word in ("short", "long")]
    others = [Sample(features_of(records[name])) for name in ("resnet50", "vgg16", "vit_b_16")]
    surface = TargetRegressor("elsewhere", [*samples, *others], np.array([70.0, 74.0, 76.0, 71.0, 81.0]), "%", False)
    asked = [Sample(features), samples[0], others[0]]
    spread = float(np.std(surface.values))
    assert surface.variances(PERCENT_POINTS, asked) == pytest.approx([(2.0 / spread) ** 2, 0.0, 0.0])


def test_what_was_measured_is_not_contradicted(records: dict[str, ModelRecord]) -> None:
    """A data set on which small models win, told by five of them."""
    values = values_of("small models win", 0)
    known = {name: values[name] for name in ("resnet18", "resnet152", "mobilenet_v3_small", "vgg16", "vit_b_16")}
    predictor = with_jobs(known, records)
    again = predictor.predict([records[name] for name in known], MINE)
    assert all(each.low <= value <= each.high for each, value in zip(again, known.values(), strict=True))  # type: ignore[operator]
    small, large = predictor.predict([records["squeezenet1_1"], records["vit_l_16"]], MINE)
    assert float(small) > float(large)


def test_two_jobs_are_enough_for_wide_intervals(records: dict[str, ModelRecord]) -> None:
    values = values_of("affine", 1)
    few = with_jobs({name: values[name] for name in ("resnet18", "resnet50")}, records)
    more = with_jobs({name: values[name] for name in list(values)[:40]}, records)
    wide, narrow = (each.predict([records["swin_t"]], MINE)[0] for each in (few, more))
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)  # type: ignore[operator]


def test_values_of_other_places_come_by_what_they_share(records: dict[str, ModelRecord]) -> None:
    predictor = with_jobs(values_of("affine", 2), records)
    surface = predictor.regressor(Condition(MINE), True)
    assert len(surface.sources) == 1
    assert len(surface.sources[0].values) == len(published_models())
    assert predictor.predict([zoo_record("resnet18")], IMAGENET)[0].training == 2 * len(published_models())


def test_a_data_set_without_jobs_has_the_order_of_the_one_most_like_it(records: dict[str, ModelRecord]) -> None:
    values = values_of("small models win", 3)
    predictor = with_jobs(values, records)
    properties = {"task": "classification", "classes": 10}
    datasets = {MINE: DataSetNode(MINE, properties), "other": DataSetNode("other", properties)}
    predictor = replace(predictor, datasets={**predictor.datasets, **datasets})
    small, large = predictor.predict([records["squeezenet1_1"], records["vit_l_16"]], "other")
    assert float(small) > float(large)
    assert "order of mine" in small.predictor


def test_nothing_at_all_is_known_of_a_target_there() -> None:
    node = DataSetNode("text", {})
    record = zoo_record("resnet18")
    job = JobNode("a", None, "pile", "resnet18", None, None, {}, 0.0, None, {"results": {"perplexity": [20.0, None]}})
    contents = replace(contents_of(record, jobs=[job]), datasets={"text": node, "pile": DataSetNode("pile", {})})
    with pytest.raises(PredictionError, match="no value of perplexity is known on text: known are values on pile"):
        fitted_predictor(contents, "perplexity").predict([record], "text")
    assert isinstance(contents, Contents)
