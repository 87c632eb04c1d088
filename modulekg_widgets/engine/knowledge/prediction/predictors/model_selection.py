"""Selection of the predictor with the least error on left-out families, for each condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from modulekg_widgets.engine.knowledge.prediction.data.design import Sample
from modulekg_widgets.engine.knowledge.prediction.data.features import Array
from modulekg_widgets.engine.knowledge.prediction.predictors.boosting import BoostingRegressor, family_folds
from modulekg_widgets.engine.knowledge.prediction.predictors.mixture import PredictionIntervals, conformal_ratio
from modulekg_widgets.engine.knowledge.prediction.predictors.target_regressor import TargetRegressor


class CandidateRegressor(Protocol):
    """A predictor beside the kernels, on the first scale of the values, with its out-of-fold predictions."""

    title: str
    out_of_fold: Array

    def predict(self, samples: Sequence[Sample]) -> Array: ...


class SelectedRegressor(NamedTuple):
    """The selected predictor of a value, and the error of each predictor on left-out families, by title."""

    title: str
    errors: Mapping[str, float]


class ModelSelection:
    """All predictors of one target under one condition, with their errors.

    Kernels and boosting are compared on the values by which kernels are chosen. What takes minutes is compared, on all
    values, from when `add` brings it.
    """

    def __init__(self, regressor: TargetRegressor) -> None:
        self.regressor = regressor
        self._added: dict[str, CandidateRegressor] = {}
        self._boosting: dict[int, BoostingRegressor] = {}  # by the number of values
        self._errors: dict[int, dict[str, float]] = {}  # by the identity of a surface

    def add(self, candidate: CandidateRegressor) -> None:
        self._added[candidate.title] = candidate
        self._errors.clear()

    def predict(self, samples: Sequence[Sample]) -> tuple[PredictionIntervals, list[SelectedRegressor]]:
        """Predicts the values of samples, and returns the predictor of each.

        Of a sample that was not measured elsewhere other places tell only where few values are known here.
        """
        surface = self.regressor
        if not surface.has_many_values:
            return surface.predict(samples), [SelectedRegressor(surface.title, {})] * len(samples)
        known = np.array([any(source.known_values(sample) for source in surface.sources) for sample in samples], bool)
        found = PredictionIntervals(*(np.zeros(len(samples)) for _ in range(3)))
        verdicts: dict[int, SelectedRegressor] = {}
        for part, chosen in ((surface, np.flatnonzero(known)), (surface.without_sources, np.flatnonzero(~known))):
            if len(chosen):
                errors = self.errors(part)
                verdict = SelectedRegressor(min(errors, key=errors.__getitem__), errors)
                found.assign(chosen, self._predict_with(part, verdict.title, [samples[int(at)] for at in chosen]))
                verdicts |= {int(at): verdict for at in chosen}
        return found, [verdicts[at] for at in range(len(samples))]

    def errors(self, regressor: TargetRegressor) -> dict[str, float]:
        """Returns the mean absolute error of each predictor for left-out families, on the first scale."""
        if id(regressor) not in self._errors:
            some = np.arange(len(regressor.values)) if self._added else regressor.validation_indices
            folds = family_folds(regressor.families[some])
            boosting, truth = self._boosting_on(some), regressor.scales[0].transform(regressor.values)
            off = {
                regressor.title: regressor.nested_errors(some, folds),
                boosting.title: boosting.out_of_fold - truth[some],
            }
            off |= {title: rival.out_of_fold - truth for title, rival in self._added.items()}
            self._errors[id(regressor)] = {title: float(np.abs(each).mean()) for title, each in off.items()}
        return self._errors[id(regressor)]

    def _predict_with(self, surface: TargetRegressor, title: str, samples: Sequence[Sample]) -> PredictionIntervals:
        if title == surface.title:
            return surface.predict(samples)
        rival = self._added[title] if title in self._added else self._boosting_on(np.arange(len(surface.values)))
        scale = surface.scales[0]
        values = rival.predict(samples)
        off = conformal_ratio(np.abs(rival.out_of_fold - scale.transform(surface.values)), surface.families)
        return PredictionIntervals(scale.inverse(values), scale.inverse(values - off), scale.inverse(values + off))

    def _boosting_on(self, some: np.ndarray) -> BoostingRegressor:
        if len(some) not in self._boosting:
            surface = self.regressor
            values = surface.scales[0].transform(surface.values[some])
            self._boosting[len(some)] = BoostingRegressor(
                surface.design, some, values, family_folds(surface.families[some])
            )
        return self._boosting[len(some)]
