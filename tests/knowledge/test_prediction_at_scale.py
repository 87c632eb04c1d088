"""What is shared, left out or computed in pieces where values are many does not change what is told."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from torch import nn

from knowledge.zoo_contents import small_contents
from modulekg_widgets.engine.knowledge.facts.records import ModelRecord, model_record
from modulekg_widgets.engine.knowledge.prediction.data import design
from modulekg_widgets.engine.knowledge.prediction.data.design import Sample
from modulekg_widgets.engine.knowledge.prediction.data.features import features_of
from modulekg_widgets.engine.knowledge.prediction.data.scales import LOG_ODDS, PERCENT_POINTS, Scale
from modulekg_widgets.engine.knowledge.prediction.predictor import Predictor, fitted_predictor
from modulekg_widgets.engine.knowledge.prediction.predictors.boosting import family_folds
from modulekg_widgets.engine.knowledge.prediction.predictors.gaussian_process import GaussianProcess
from modulekg_widgets.engine.knowledge.prediction.predictors.mixture import (
    NORMAL_QUANTILE,
    mixture_intervals,
    normal_scores,
)
from modulekg_widgets.engine.knowledge.prediction.predictors.target_regressor import (
    COST_KERNEL,
    STRUCTURE_KERNEL,
    TargetRegressor,
)
from modulekg_widgets.engine.knowledge.suggestion.known_models import suggest

TRAININGS = (frozenset(), frozenset({"in1k"}), frozenset({"in22k", "augmented"}))


@cache
def samples() -> list[Sample]:
    """Five nets each of twenty families, trained in several ways."""
    rng = np.random.default_rng(0)
    found = []
    for number in range(100):
        width, depth = int(rng.integers(4, 200)), int(rng.integers(1, 7))
        net = nn.Sequential(nn.Conv2d(3, width, 3), *(nn.Conv2d(width, width, 3) for _ in range(depth)))
        features = features_of(model_record(net, f"net {number}"), family=str(number // 5))
        found.append(Sample(features, TRAININGS[number % 3]))
    return found


def values_of(some: Sequence[Sample], seed: int = 0) -> np.ndarray:
    sizes = np.log10([sample.features.parameters for sample in some])
    return 20 + 10 * sizes + np.random.default_rng(seed).normal(size=len(some))


def with_source() -> TargetRegressor:
    """Ninety values with those of half these models, and of ten others, elsewhere."""
    elsewhere = [*samples()[:45], *samples()[90:]]
    known = samples()[:90]
    source = TargetRegressor("elsewhere", elsewhere, 0.8 * values_of(elsewhere, 1), "%", False)
    return TargetRegressor("here", known, values_of(known), "%", False, [source])


@pytest.mark.parametrize("weights", [STRUCTURE_KERNEL, COST_KERNEL])
def test_a_kernel_is_the_same_in_pieces(weights: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = design.Design(samples()[:90], False)
    across, among = made.kernel_parts(made.rows(samples()[80:])), made.known_kernel_parts(np.arange(0, 90, 2))
    whole = [weights.kernel(parts) for parts in (across, among)]
    for piece in (1, 200, 1000):
        monkeypatch.setattr(design, "MAX_BLOCK_ELEMENTS", piece)
        for parts, expected in zip((across, among), whole, strict=True):
            assert np.allclose(weights.kernel(parts), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scale", [PERCENT_POINTS, LOG_ODDS])
def test_one_student_t_is_the_mixture_of_its_halves(scale: Scale) -> None:
    rng = np.random.default_rng(0)
    centres, spreads = scale.transform(rng.uniform(0.6, 99.4, (1, 200))), rng.uniform(0.01, 5, (1, 200))
    one = mixture_intervals([scale], centres, spreads, np.ones(1), 7.5)
    halves = mixture_intervals([scale] * 2, np.repeat(centres, 2, 0), np.repeat(spreads, 2, 0), np.full(2, 0.5), 7.5)
    for name in ("values", "low", "high"):
        assert np.allclose(getattr(one, name), getattr(halves, name), rtol=1e-9, atol=1e-9)


def test_the_rest_tells_of_a_block_as_if_it_were_all_there_is() -> None:
    rng = np.random.default_rng(3)
    places, values = rng.normal(size=(12, 2)), rng.normal(size=12)
    kernels = [np.exp(-((places[:, None] - places[None]) ** 2).sum(-1) / width) for width in (0.5, 8.0)]
    block = np.array([2, 3, 7])
    rest = np.setdiff1d(np.arange(12), block)
    told = [GaussianProcess(kernel, values, 0.3).leave_block_out(block) for kernel in kernels]
    fresh = [GaussianProcess(kernel[np.ix_(rest, rest)], values[rest], 0.3) for kernel in kernels]
    for kernel, found, process in zip(kernels, told, fresh, strict=True):
        expected, variances = process.predict(kernel[np.ix_(block, rest)], np.diag(kernel)[block])
        assert np.allclose(found.values, expected, atol=1e-3)
        assert np.allclose(found.variances, variances, rtol=1e-3)
        assert found.degrees_of_freedom == process.degrees_of_freedom
    assert told[0].evidence - told[1].evidence == pytest.approx(fresh[0].evidence() - fresh[1].evidence(), abs=1e-2)


def test_a_family_of_few_values_is_told_without_what_it_has_itself() -> None:
    """Neither the scatter nor the weights of the kernels know its values."""
    known, source = samples()[:40:3], with_source()
    values = values_of(known)
    family = np.array([sample.features.family == known[4].features.family for sample in known])
    one, other = (
        TargetRegressor("here", known, each, "%", False, [source]).leave_family_out().values
        for each in (values, np.where(family, values + 20, values))
    )
    assert np.allclose(one[family], other[family], rtol=1e-6)
    assert not np.allclose(one[~family], other[~family], rtol=1e-3)


def test_intervals_of_few_values_follow_how_far_off_these_are() -> None:
    """As others tell them: on a line in the sizes less than half as wide as where values lie about it."""
    known = samples()[::20]
    line = values_of(known)
    widths = []
    for off in (0.0, 8.0):
        values = line + off * np.array([1, -1, 1, -1, 1])
        told = TargetRegressor("here", known, values, "%", False).predict(samples()[1::20])
        widths.append(float((told.high - told.low).mean()))
    assert widths[1] > 2 * widths[0]


@pytest.mark.parametrize("scale", [PERCENT_POINTS, LOG_ODDS])
def test_a_value_stands_where_the_interval_of_the_mixture_has_it(scale: Scale) -> None:
    rng = np.random.default_rng(1)
    centres, spreads = scale.transform(rng.uniform(30, 70, (3, 50))), rng.uniform(0.1, 0.5, (3, 50))
    mixture = ([scale] * 3, centres, spreads, np.array([0.5, 0.3, 0.2]), 4.5)
    told = mixture_intervals(*mixture)
    for ends, expected in ((told.low, -NORMAL_QUANTILE), (told.values, 0.0), (told.high, NORMAL_QUANTILE)):
        assert np.allclose(normal_scores(ends, *mixture), expected, atol=1e-3)
    assert np.isfinite(normal_scores(np.full(50, 99.0), *mixture)).all()


def test_values_alone_are_told_as_if_there_were_no_source() -> None:
    surface = with_source()
    folds = family_folds(surface.families)
    surface.nested_errors(surface.validation_indices, folds)  # what both share is there
    alone, other = surface.without_sources, TargetRegressor("here", surface.samples, surface.values, "%", False)
    assert alone.title == other.title
    assert np.allclose(
        alone.nested_errors(alone.validation_indices, folds), other.nested_errors(other.validation_indices, folds)
    )
    for own, expected in (
        (alone.predict(samples()), other.predict(samples())),
        (alone.leave_family_out(), other.leave_family_out()),
    ):
        assert np.allclose([own.values, own.low, own.high], [expected.values, expected.low, expected.high])


def test_what_is_known_elsewhere_is_sure_and_what_is_told_there_is_not() -> None:
    source = with_source().sources[0]
    for scale in (PERCENT_POINTS, LOG_ODDS):
        middle, spread = scale.transform(source.values).mean(), scale.transform(source.values).std()
        column, variances = source.standard_scores(scale, samples()), source.variances(scale, samples())
        told = source.predict(samples())
        assert np.allclose(column[:45] * spread + middle, scale.transform(source.values[:45]))
        assert np.allclose(column[45:90] * spread + middle, scale.transform(told.values[45:90]))
        assert (variances > 0).tolist() == [False] * 45 + [True] * 45 + [False] * 10


def test_suggesting_asks_for_what_can_be_built_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ModelRecord] = []
    predict = Predictor.predict

    def noted(self: Predictor, records: Sequence[ModelRecord], *args: Any, **options: Any) -> Any:
        asked.extend(records)
        return predict(self, records, *args, **options)

    monkeypatch.setattr(Predictor, "predict", noted)
    known = fitted_predictor(small_contents())
    found = suggest(small_contents(), max_params=3e6, n=3, predictor=known)
    assert len(found) == 3
    assert asked
    assert all(record.model.parameters <= 3e6 for record in asked)
    assert len({record.model.name for record in asked}) < 10
