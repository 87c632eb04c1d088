"""What is shared, left out or computed in pieces where values are many does not change what is told."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from torch import nn

from knowledge.zoo_contents import small_contents
from modulekg_widgets.engine.knowledge.prediction import design
from modulekg_widgets.engine.knowledge.prediction.boosting import folds_of
from modulekg_widgets.engine.knowledge.prediction.design import Sample
from modulekg_widgets.engine.knowledge.prediction.features import features_of
from modulekg_widgets.engine.knowledge.prediction.mixture import mixed
from modulekg_widgets.engine.knowledge.prediction.predictor import Predictor, fitted_predictor
from modulekg_widgets.engine.knowledge.prediction.scales import LOG_ODDS, POINTS, Scale
from modulekg_widgets.engine.knowledge.prediction.surface import COSTS, STRUCTURE, Surface
from modulekg_widgets.engine.knowledge.records import ModelRecord, model_record
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


def with_source() -> Surface:
    """Ninety values with those of half these models, and of ten others, elsewhere."""
    elsewhere = [*samples()[:45], *samples()[90:]]
    known = samples()[:90]
    source = Surface("elsewhere", elsewhere, 0.8 * values_of(elsewhere, 1), "%", False)
    return Surface("here", known, values_of(known), "%", False, [source])


@pytest.mark.parametrize("weights", [STRUCTURE, COSTS])
def test_a_kernel_is_the_same_in_pieces(weights: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = design.Design(samples()[:90], False)
    across, among = made.parts(made.rows(samples()[80:])), made.known_parts(np.arange(0, 90, 2))
    whole = [weights.kernel(parts) for parts in (across, among)]
    for piece in (1, 200, 1000):
        monkeypatch.setattr(design, "PIECE", piece)
        for parts, expected in zip((across, among), whole, strict=True):
            assert np.allclose(weights.kernel(parts), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scale", [POINTS, LOG_ODDS])
def test_one_student_t_is_the_mixture_of_its_halves(scale: Scale) -> None:
    rng = np.random.default_rng(0)
    centres, spreads = scale.of(rng.uniform(0.6, 99.4, (1, 200))), rng.uniform(0.01, 5, (1, 200))
    one = mixed([scale], centres, spreads, np.ones(1), 7.5)
    halves = mixed([scale] * 2, np.repeat(centres, 2, 0), np.repeat(spreads, 2, 0), np.full(2, 0.5), 7.5)
    for name in ("values", "low", "high"):
        assert np.allclose(getattr(one, name), getattr(halves, name), rtol=1e-9, atol=1e-9)


def test_values_alone_are_told_as_if_there_were_no_source() -> None:
    surface = with_source()
    folds = folds_of(surface.families)
    surface.nested_errors(surface.judged, folds)  # what both share is there
    alone, other = surface.alone, Surface("here", surface.samples, surface.values, "%", False)
    assert alone.title == other.title
    assert np.allclose(alone.nested_errors(alone.judged, folds), other.nested_errors(other.judged, folds))
    for own, expected in ((alone.told(samples()), other.told(samples())), (alone.left_out(), other.left_out())):
        assert np.allclose([own.values, own.low, own.high], [expected.values, expected.low, expected.high])


def test_what_is_known_elsewhere_is_sure_and_what_is_told_there_is_not() -> None:
    source = with_source().sources[0]
    for scale in (POINTS, LOG_ODDS):
        middle, spread = scale.of(source.values).mean(), scale.of(source.values).std()
        column, variances = source.column(scale, samples()), source.variances(scale, samples())
        told = source.told(samples())
        assert np.allclose(column[:45] * spread + middle, scale.of(source.values[:45]))
        assert np.allclose(column[45:90] * spread + middle, scale.of(told.values[45:90]))
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
