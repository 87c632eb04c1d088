"""Prediction of any target of a model from known values of other models, with an interval or the reason for none.

`KnowledgeGraph.predict` and `suggest` come here. `fitted_predictor(contents, target)` collects the known values
(`Observations`) by condition: data set and device. `Predictor.predict(records)` then

1. finds the condition, and samples (features of the model, words of its training);
2. asks the applicability domain for reasons against a prediction: other inputs, size, or structure;
3. predicts by the model that was best on left-out families (model_selection.py), a Gaussian process on structure, size
   and training unless boosting or a network is better;
4. where no value is known on the data set, transfers values of the most similar one (`transfer_intervals`).

Intervals hold 90 % of values of families that were left out. `Prediction.value` is None outside of the domain unless
`extrapolate=True`. A predictor is valid for as long as the contents stay the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations
from typing import TypeVar

import numpy as np

from modulekg_widgets.engine.errors import PredictionError, UnknownNameError, a_type, closest_match_hint, printable
from modulekg_widgets.engine.knowledge.facts.contents import Contents, DataSetNode
from modulekg_widgets.engine.knowledge.facts.records import ModelRecord
from modulekg_widgets.engine.knowledge.facts.results import PERCENT, TOP_1
from modulekg_widgets.engine.knowledge.facts.units import is_share
from modulekg_widgets.engine.knowledge.prediction.applicability_domain import ApplicabilityDomain
from modulekg_widgets.engine.knowledge.prediction.data.datasets import is_imagenet, known_datasets, modality
from modulekg_widgets.engine.knowledge.prediction.data.design import Sample
from modulekg_widgets.engine.knowledge.prediction.data.features import Features, find_record
from modulekg_widgets.engine.knowledge.prediction.data.observations import (
    Condition,
    FeatureCache,
    KnownConditions,
    Observations,
    observations,
    training_image_size,
    training_words,
)
from modulekg_widgets.engine.knowledge.prediction.data.published import IMAGENET
from modulekg_widgets.engine.knowledge.prediction.data.scales import LOG_ODDS, Array
from modulekg_widgets.engine.knowledge.prediction.predictors.mixture import (
    INTERVAL_LEVEL,
    NORMAL_QUANTILE,
    PredictionIntervals,
)
from modulekg_widgets.engine.knowledge.prediction.predictors.model_selection import ModelSelection, SelectedRegressor
from modulekg_widgets.engine.knowledge.prediction.predictors.target_regressor import (
    MIN_VALUES_TO_SELECT,
    TargetRegressor,
)

# -------------------- Transfer of predictions to a data set without values, with wider intervals


MIN_DATASETS = 3  # places: two tell one distance, which is no spread
MAX_PERCENT = 100.0  # percent
Name = TypeVar("Name", str, "str | None")


def transfer_intervals(source: PredictionIntervals, known: Iterable[TargetRegressor]) -> PredictionIntervals:
    """Returns predictions for another data set in percent, widened by the spread between known data sets.

    The distances are those of the mean log-odds of the known data sets. With fewer than three of these nothing is
    known of the level: the interval is nearly all that a percentage can be. Values and ends are as near to 0 and 100
    as log-odds tell apart.
    """
    levels = [float(LOG_ODDS.transform(surface.values).mean()) for surface in known]
    source = PredictionIntervals(
        *(LOG_ODDS.inverse(LOG_ODDS.transform(each)) for each in (source.values, source.low, source.high))
    )
    if len(levels) < MIN_DATASETS:
        edge = np.full(len(source.values), MAX_PERCENT * (1 - INTERVAL_LEVEL) / 2)
        return PredictionIntervals(
            source.values, np.minimum(edge, source.low), np.maximum(MAX_PERCENT - edge, source.high)
        )
    apart = np.sqrt(np.mean([(one - other) ** 2 for one, other in permutations(levels, 2)]))
    further = NORMAL_QUANTILE * float(apart)
    return PredictionIntervals(
        source.values, _widen_end(source, source.low, -further), _widen_end(source, source.high, further)
    )


def _widen_end(told: PredictionIntervals, end: Array, further: float) -> Array:
    """Returns an end of an interval with the spread between data sets added."""
    middle, own = LOG_ODDS.transform(told.values), LOG_ODDS.transform(end)
    return LOG_ODDS.inverse(middle + np.sign(further) * np.hypot(own - middle, further))


# ----------------------------------------


MIN_SOURCE_VALUES = 10  # values
MAX_SOURCES = 2
MIN_COSTED_SHARE = 0.8  # of the values are of models whose cost is known: it is gone by


@dataclass(frozen=True, slots=True)
class Prediction:
    """A predicted value with its deviation and the 90 % interval from `low` to `high`; None where nothing is told.

    Attributes
    ----------
    value, std, low, high : float or None
        In `unit`.
    target, dataset, device, model : str
        What was asked; data set and device None where the values have none.
    unit : str or None
        Of the values, "%" for accuracies.
    predictor : str
        What told it.
    errors : mapping of str to float
        By how much it and others are off on families left out, the mean absolute error on the scale on which values are
        compared: in points of percentages, of logarithms where all are above zero. Empty where few are known.
    training : int
        How many values it was learnt from.
    nearest : tuple of str
        The known models that are most alike, the likest first.
    far : bool
        Whether the model is unlike those of which values are known.
    reason : str
        Why it is, empty where it is not.
    """

    value: float | None
    std: float | None
    low: float | None
    high: float | None
    target: str
    dataset: str | None
    model: str
    predictor: str
    training: int
    nearest: tuple[str, ...]
    far: bool
    unit: str | None = None
    device: str | None = None
    reason: str = ""
    errors: Mapping[str, float] = field(default_factory=dict)

    def __float__(self) -> float:
        if self.value is None:
            raise PredictionError(
                f"no prediction for {printable(self.model)}: {self.reason}. Pass extrapolate=True to predict anyway"
            )
        return self.value

    @property
    def numbers(self) -> tuple[float, float]:
        """Value and standard deviation; raises `PredictionError` if there is no value."""
        return float(self), self.std or 0.0

    def __repr__(self) -> str:
        where = ", ".join(printable(part) for part in (self.dataset, self.device) if part is not None)
        title = f"{printable(self.target)} of {printable(self.model)}" + (f" on {where}" if where else "")
        alike = "like " + ", ".join(map(printable, self.nearest))
        known = f"{self.predictor}{_errors_text(self.predictor, self.errors)}, {self.training} values"
        if self.value is None:
            return f"<{title}: no prediction: {self.reason} · {known}>"
        unit = f" {printable(self.unit)}" if self.unit else ""
        reason = f" · outside the known range: {self.reason}" if self.far else ""
        numbers = f"{_short(self.value)} ± {_short(self.std)}{unit}, 90 % in {_short(self.low)}…{_short(self.high)}"
        return f"<{title}: {numbers} · {alike} · {known}{reason}>"


def _errors_text(title: str, errors: Mapping[str, float]) -> str:
    if not errors:
        return ""
    others = "".join(f", {other} {_short(error)}" for other, error in errors.items() if other != title)
    return f" (off by {_short(errors[title])} on families left out{others})"


def _short(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


@dataclass(frozen=True)
class Predictor:
    """Known values of a target, and predictions for many models at once."""

    observations: Observations = field(repr=False)
    datasets: dict[str, DataSetNode]
    _selections: dict[tuple[Condition, bool], ModelSelection] = field(default_factory=dict, repr=False)
    _domains: dict[Condition, ApplicabilityDomain] = field(default_factory=dict, repr=False)
    _roots: dict[Condition, set[str]] = field(default_factory=dict, repr=False)

    @property
    def target(self) -> str:
        return self.observations.target

    @cached_property
    def _conditions(self) -> KnownConditions:
        return KnownConditions(self.observations.by_condition, self.datasets)

    def predict(
        self,
        records: Sequence[ModelRecord],
        dataset: str | None = IMAGENET,
        device: str | None = None,
        training: Mapping[str, object] | None = None,
        extrapolate: bool = False,
    ) -> list[Prediction]:
        """Returns one prediction for each record, trained as `training` describes.

        With `extrapolate` it has one nevertheless. Raises `UnknownNameError` for a data set or device that the graph
        does not know, and `PredictionError` where nothing is known of the target there, and nothing else tells it.
        """
        if not records:
            return []
        if training is not None and not isinstance(training, Mapping):
            raise PredictionError(f'training is {a_type(training)}: pass {{"tag": …, "image_size": …}}')
        words, size = training_words(training or {}), training_image_size(training or {})
        roots = [record.model.root for record in records]
        samples = [Sample(self.features(record), words, size) for record in records]
        place = self.condition(dataset, device)
        domain, measured = self._domain(place), self._measured_roots(place)
        reasons = [
            "" if root in measured else self._conditions.mismatch_reason(place, sample.features) or reason
            for root, sample, reason in zip(roots, samples, domain.reasons(samples), strict=True)
        ]
        alike = domain.nearest(samples)
        found: list[Prediction | None] = [None] * len(records)
        groups: dict[tuple[bool, str | None], list[int]] = {}
        for at, sample in enumerate(samples):
            kind = None if self._conditions.modalities(place) else modality(sample.features)
            groups.setdefault((sample.features.has_cost, kind), []).append(at)
        for (costs, kind), chosen in groups.items():
            told, verdicts, count = self._predict_at(place, [samples[at] for at in chosen], costs, kind)
            for row, at in enumerate(chosen):
                is_told = extrapolate or not reasons[at]
                value, std, low, high = (
                    float(each[row]) if is_told else None for each in (told.values, told.std, told.low, told.high)
                )
                found[at] = Prediction(
                    value,
                    std,
                    low,
                    high, self.target, place.dataset, records[at].model.name, verdicts[row].title,
                    count, alike[at], bool(reasons[at]), self.observations.unit, place.device, reasons[at],
                    verdicts[row].errors,
                )  # fmt: skip
        return [each for each in found if each is not None]

    def mismatch_reasons(self, records: Sequence[ModelRecord], dataset: str) -> dict[str, str]:
        """Returns by name the models for which known values are of other inputs or tasks, with the reason."""
        place = self.condition(dataset, None)
        domain, measured, found = self._domain(place), self._measured_roots(place), {}
        for record in records:
            features = self.features(record)
            if record.model.root in measured:
                continue
            reason = self._conditions.mismatch_reason(place, features)
            if not reason and not domain.is_same_modality(features):
                reason = f"no value is known of models for {modality(features) or 'such inputs'}"
            if reason:
                found[record.model.name] = reason
        return found

    def is_suitable(self, dataset: str, features: Features) -> bool:
        """True if a model may take the data of a data set, or has a known value on it."""
        name, root = self._known_name(dataset), features.record.model.root
        there = [place for place in self.observations.by_condition if place.dataset == name]
        return self._conditions.may_accept(Condition(name), features) or any(
            root in self._measured_roots(place) for place in there
        )

    def modalities(self, dataset: str) -> frozenset[str]:
        """Returns the possible modalities of a data set: as stated, else those of the models measured on it."""
        return self._conditions.modalities(Condition(self._known_name(dataset)))

    def _measured_roots(self, place: Condition) -> set[str]:
        """Returns the roots of the models with known values under a condition."""
        if place not in self._roots:
            pairs = self.observations.by_condition.get(place, ())
            self._roots[place] = {sample.features.record.model.root for sample, _ in pairs}
        return self._roots[place]

    def features(self, record: ModelRecord) -> Features:
        """Returns the features of a record, computed once for a model of the graph."""
        return self.observations.features.features_of(record)

    # ----------------------------------------------------------------- places

    def dataset(self, name: str) -> DataSetNode:
        """A data set of the graph, or ImageNet-1K; raises `UnknownNameError`."""
        if name in self.datasets:
            return self.datasets[name]
        if is_imagenet(str(name)):
            return self.datasets[IMAGENET]
        raise UnknownNameError(
            f"no data set is called {printable(str(name))!r}: {closest_match_hint(str(name), self.datasets)}"
        )

    def _known_name(self, dataset: str) -> str:
        """Returns the name under which values on a data set are known."""
        return IMAGENET if is_imagenet(dataset) else self.dataset(dataset).name

    def condition(self, dataset: str | None, device: str | None) -> Condition:
        """Returns the condition of a question; missing parts are filled if unique, else an error lists them."""
        places = list(self.observations.by_condition)
        if dataset is not None:
            if not isinstance(dataset, str):
                raise UnknownNameError(
                    f"no data set is called {printable(repr(dataset))}: {closest_match_hint('', self.datasets)}"
                )
            dataset = self._known_name(dataset)
        elif not any(place.dataset is None for place in places):
            dataset = (
                IMAGENET if Condition(IMAGENET) in places else _single({place.dataset for place in places}, "dataset")
            )
        there = [place for place in places if place.dataset == dataset] or places
        if device is None and there and not any(place.device is None for place in there):
            device = _single({place.device for place in there}, "device")
        devices = self.observations.devices
        if device is not None and (not isinstance(device, str) or device not in devices):
            known = f"{closest_match_hint(str(device), devices)}" if devices else "the values name none"
            raise UnknownNameError(
                f"no value of {printable(self.target)} is of the device {printable(str(device))!r}: {known}"
            )
        return Condition(dataset, None if is_share(self.target) else device)  # how much is right is so on any

    def regressor(self, place: Condition, costs: bool) -> TargetRegressor:
        """Returns the regressor of a condition, with its sources."""
        return self.selection(place, costs).regressor

    def selection(self, place: Condition, costs: bool) -> ModelSelection:
        """Returns the model selection of a condition."""
        own = self._samples(place, costs)
        costs = costs and all(sample.features.has_cost for sample, _ in own)
        if (place, costs) not in self._selections:
            sources = [self._without_sources(other, costs) for other in self._sources(place)]
            self._selections[place, costs] = ModelSelection(self._make_regressor(place, own, costs, sources))
        return self._selections[place, costs]

    def _without_sources(self, place: Condition, costs: bool) -> TargetRegressor:
        own = self._samples(place, costs)
        return self._make_regressor(place, own, costs and all(sample.features.has_cost for sample, _ in own), ())

    def _make_regressor(
        self, place: Condition, own: Sequence[tuple[Sample, float]], costs: bool, sources: Sequence[TargetRegressor]
    ) -> TargetRegressor:
        samples, values = [sample for sample, _ in own], np.array([value for _, value in own])
        return TargetRegressor(str(place), samples, values, self.observations.unit, costs, sources)

    def _samples(self, place: Condition, costs: bool) -> list[tuple[Sample, float]]:
        """Returns the values of a condition; only those of models with known cost, if most have one."""
        every = self.observations.by_condition[place]
        costed = [pair for pair in every if pair[0].features.has_cost]
        return costed if costs and len(costed) >= MIN_COSTED_SHARE * len(every) else every

    def _sources(self, place: Condition) -> list[Condition]:
        """Returns the other conditions with most common models, then with most values."""
        own = {sample.features.record.model.root for sample, _ in self.observations.by_condition[place]}

        def order(other: Condition) -> tuple[int, int]:
            roots = {sample.features.record.model.root for sample, _ in self.observations.by_condition[other]}
            return -len(own & roots), -len(self.observations.by_condition[other])

        others = [each for each in self._conditions.same_modality(place)
                  if each != place and len(self.observations.by_condition[each]) >= MIN_SOURCE_VALUES]  # fmt: skip
        return sorted(others, key=order)[:MAX_SOURCES]

    def _domain(self, place: Condition) -> ApplicabilityDomain:
        if place not in self._domains:
            own = self.observations.by_condition.get(place)
            kept = (
                own
                if own and len(own) >= MIN_SOURCE_VALUES
                else [
                    pair
                    for other in self._conditions.same_modality(place)
                    for pair in self.observations.by_condition[other]
                ]
            )
            first = {sample.features.record.model.root: sample for sample, _ in kept}
            self._domains[place] = ApplicabilityDomain(list(first.values()))
        return self._domains[place]

    def _predict_at(
        self, place: Condition, samples: Sequence[Sample], costs: bool, kind: str | None
    ) -> tuple[PredictionIntervals, list[SelectedRegressor], int]:
        if place in self.observations.by_condition:
            choice = self.selection(place, costs)
            count = len(choice.regressor.values) + sum(len(source.values) for source in choice.regressor.sources)
            return *choice.predict(samples), count
        if self.observations.unit != PERCENT:
            raise PredictionError(
                f"no value of {printable(self.target)} is known on {place}: known are values on "
                f"{'; '.join(map(str, list(self.observations.by_condition)[:8]))}"
            )
        others = self._conditions.same_modality(place, kind)
        source = self._conditions.most_similar(place, others)
        every = {other: self._without_sources(other, costs) for other in others}
        surface = every[source] if len(every[source].values) >= MIN_VALUES_TO_SELECT else self.regressor(source, costs)
        told = transfer_intervals(surface.predict(samples), every.values())
        title = f"order of {source}, where no value is known on {place}"
        return told, [SelectedRegressor(title, {})] * len(samples), len(surface.values)


def _single(names: set[Name], word: str) -> Name | None:
    if len(names) > 1:
        known = ", ".join(repr(printable(str(name))) for name in sorted(map(str, names))[:8])
        raise PredictionError(f"values are known of several: pass {word}=, one of {known}")
    return next(iter(names), None)


def predict(
    contents: Contents,
    target: str,
    record: ModelRecord | str,
    dataset: str | None = None,
    device: str | None = None,
    training: Mapping[str, object] | None = None,
    extrapolate: bool = False,
) -> Prediction:
    """Predicts `target` of a model from known values of others.

    `record` may be the name of a model of the graph; the rest is that of `Predictor.predict`. Raises
    `UnknownNameError` for an unknown target, model, data set or device, `PredictionError` where nothing tells it.
    """
    predictor = fitted_predictor(contents, target)
    wanted = find_record(contents, record) if isinstance(record, str) else record
    return predictor.predict([wanted], dataset, device, training, extrapolate)[0]


def fitted_predictor(contents: Contents, target: str = TOP_1, known: FeatureCache | None = None) -> Predictor:
    """Returns the predictor of `target`; valid while the contents stay the same. Raises `UnknownNameError`. Raises
    `UnknownNameError`.

    `known` are the features of models that predictors of other targets share.
    """
    return Predictor(observations(contents, target, known), known_datasets(contents))
