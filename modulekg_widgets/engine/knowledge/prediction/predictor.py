"""Predicting a property of a model from its structure, with the uncertainty of a Gaussian process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from modulekg_widgets.engine.errors import PredictionError, UnknownNameError, nearest, shown
from modulekg_widgets.engine.knowledge.contents import Contents, DataSetNode
from modulekg_widgets.engine.knowledge.prediction.datasets import is_imagenet, known_datasets
from modulekg_widgets.engine.knowledge.prediction.features import Array, Features, features_of, record_in
from modulekg_widgets.engine.knowledge.prediction.published import (
    IMAGENET,
    checked_target,
    published,
    published_records,
)
from modulekg_widgets.engine.knowledge.prediction.regressions import KERNELS, FittedRegression, fitted, left_out
from modulekg_widgets.engine.knowledge.prediction.transfer import KnownResult, gaps_on, log_odds, percent, slope
from modulekg_widgets.engine.knowledge.records import ModelRecord

PREDICTOR = KERNELS["wl-rbf"]
OF_JOBS = "acc@1"  # the target that a Job's accuracy is a value of
AT_ONCE = 200  # models; kernels grow with the square
FAR = 0.7  # of the deviation of a model that has nothing in common with any known one


@dataclass(frozen=True, slots=True)
class Prediction:
    """A predicted property in percent, with its standard deviation and the 90 % interval from `low` to `high`."""

    value: float
    std: float
    low: float
    high: float
    target: str
    dataset: str
    model: str
    predictor: str
    training: int  # the number of values that it was learnt from
    nearest: tuple[str, ...]  # the known models that are most alike, best first
    far: bool  # from everything known

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        names = ", ".join(map(shown, self.nearest))
        alike = f"far from every known model, the nearest are {names}" if self.far else f"like {names}"
        return (
            f"<{self.target} of {shown(self.model)} on {shown(self.dataset)}: {self.value:.1f} ± {self.std:.1f} %, "
            f"90 % in {self.low:.1f}…{self.high:.1f} · {alike} · {self.predictor}, {self.training} values>"
        )


@dataclass(frozen=True)
class Surface:
    """The regression over the known models on ImageNet-1K, calibrated by left-out families."""

    known: list[Features]
    values: Array
    costs: bool  # whether it goes by FLOPs, too

    def _with_costs(self, features: Sequence[Features]) -> list[Features]:
        return list(features) if self.costs else [replace(each, flops=None) for each in features]

    @cached_property
    def _families(self) -> np.ndarray:
        return np.array([each.family for each in self.known])

    @cached_property
    def _fit(self) -> FittedRegression:
        kernels = PREDICTOR.kernels(self._with_costs(self.known))
        return fitted(kernels, PREDICTOR.ridges, self.values, self._families)

    @cached_property
    def _calibration(self) -> tuple[float, float]:
        return left_out(PREDICTOR, self._with_costs(self.known), self.values, self._families).calibration(self.values)

    def values_of(self, wanted: Sequence[Features]) -> Array:
        return self._fit.values(self._across(wanted)[0])

    def ask(self, wanted: Sequence[Features]) -> Answers:
        across, own = self._across(wanted)
        raw = self._fit.deviations(across, own)
        blank = self._fit.deviations(np.zeros((1, len(self.known))), own[:1])[0]
        spread, half = self._calibration
        order = np.argsort(-across, axis=1, kind="stable")[:, :3]
        alike = [tuple(self.known[index].name for index in row) for row in order]
        return Answers(self._fit.values(across), spread * raw, half * raw, alike, raw > FAR * blank)

    def _across(self, wanted: Sequence[Features]) -> tuple[Array, Array]:
        """The kernel rows between wanted and known models, and the kernel of each wanted one with itself."""
        parts = [wanted[start : start + AT_ONCE] for start in range(0, len(wanted), AT_ONCE)]
        kernels = [PREDICTOR.kernels(self._with_costs([*part, *self.known]))[self._fit.kernel] for part in parts]
        rows = [kernel[: len(part), len(part) :] for kernel, part in zip(kernels, parts, strict=True)]
        own = [np.diag(kernel)[: len(part)] for kernel, part in zip(kernels, parts, strict=True)]
        return np.concatenate(rows), np.concatenate(own)


@dataclass(frozen=True, slots=True)
class Answers:
    """Of each wanted model: value, deviation, half of the interval, the nearest known ones, whether these are far."""

    values: Array
    deviations: Array
    halves: Array
    nearest: list[tuple[str, ...]]
    far: Array


@dataclass(frozen=True)
class Predictor:
    """What the graph and torchvision know about `target`; ask it about many models at once."""

    target: str
    datasets: dict[str, DataSetNode]
    priced: Surface = field(repr=False)  # goes by FLOPs, too
    unpriced: Surface = field(repr=False)
    runs: list[KnownResult] = field(repr=False)  # on other data sets

    def predict(self, records: Sequence[ModelRecord], dataset: str = IMAGENET) -> list[Prediction]:
        """One prediction for each record; the FLOPs are known of published and of traced models.

        Raises `UnknownNameError` for a data set that the graph does not know, and `PredictionError` where nothing is
        known of the target on it.
        """
        place = self.dataset(dataset)
        if not is_imagenet(place.name) and self.target != OF_JOBS:
            raise PredictionError(
                f"no values of {self.target} are known on {shown(place.name)!r}: ask for {OF_JOBS!r}, which the "
                f"accuracy of Jobs tells, or for {IMAGENET!r}"
            )
        wanted = [with_known_flops(record) for record in records]
        found: dict[int, Prediction] = {}
        for surface in (self.priced, self.unpriced):
            chosen = [index for index, each in enumerate(wanted) if (each.flops is not None) == surface.costs]
            if chosen:
                answers = self._predict([wanted[index] for index in chosen], place, surface)
                found.update(zip(chosen, answers, strict=True))
        return [found[index] for index in range(len(wanted))]

    def dataset(self, name: str) -> DataSetNode:
        """A data set of the graph, or ImageNet-1K; raises `UnknownNameError`."""
        if name in self.datasets:
            return self.datasets[name]
        if is_imagenet(str(name)):
            return self.datasets[IMAGENET]
        raise UnknownNameError(f"no data set is called {shown(str(name))!r}: {nearest(str(name), self.datasets)}")

    def _predict(self, wanted: list[Features], dataset: DataSetNode, surface: Surface) -> Iterator[Prediction]:
        answers = surface.ask(wanted)
        deviations, training = answers.deviations, len(surface.known)
        ends = [answers.values + sign * answers.halves for sign in (0, -1, 1)]
        if not is_imagenet(dataset.name):
            gaps, spreads = gaps_on(dataset, self.datasets[IMAGENET], wanted, self.runs)
            odds = log_odds(answers.values) + gaps
            wider = np.hypot(deviations / slope(answers.values), spreads)
            half = wider * answers.halves / deviations
            ends = [percent(odds + sign * half) for sign in (0, -1, 1)]
            deviations, training = wider * slope(ends[0]), training + len(self.runs)
        for row, each in enumerate(wanted):
            value, low, high = (float(np.clip(end[row], 0, 100)) for end in ends)
            yield Prediction(
                value, float(deviations[row]), low, high, self.target, dataset.name, each.name, PREDICTOR.title,
                training, answers.nearest[row], bool(answers.far[row]),
            )  # fmt: skip


def predict(contents: Contents, target: str, record: ModelRecord | str, dataset: str = IMAGENET) -> Prediction:
    """The `target` ("acc@1" or "acc@5", in percent) that a model would reach on a data set, from its structure.

    It is learnt from torchvision's published accuracies and the Jobs of the graph; a Job's accuracy counts as acc@1.
    `record` may be the name of a model of the graph. Raises `UnknownNameError` for an unknown target, model or data
    set, `PredictionError` where nothing is known of the target on that data set.
    """
    predictor = fitted_predictor(contents, target)
    wanted = record_in(contents, record) if isinstance(record, str) else record
    return predictor.predict([wanted], dataset)[0]


def fitted_predictor(contents: Contents, target: str = OF_JOBS) -> Predictor:
    """The regression over all that is known of `target`; good for as long as the contents stay the same.

    The best Job of a model on ImageNet-1K counts before its published figure.
    """
    names = [name for name, each in published().items() if checked_target(target) in each.values]
    records = published_records(names, {name: record_in(contents, name) for name in names if name in contents.models})
    known = {name: with_known_flops(records[name]) for name in names}
    values = {name: published()[name].values[target] for name in names}
    results = list(_results(contents)) if target == OF_JOBS else []
    own = {name: with_known_flops(record_in(contents, name)) for name in dict.fromkeys(name for _, name, _ in results)}
    best: dict[str, float] = {}
    for dataset, name, value in results:
        if is_imagenet(dataset):
            best[name], known[name] = max(value, best.get(name, 0.0)), own[name]
    values |= best
    surfaces = [_surface(known, values, costs) for costs in (True, False)]
    datasets = known_datasets(contents)
    elsewhere = [(datasets[dataset], own[name], value) for dataset, name, value in results if not is_imagenet(dataset)]
    runs = [KnownResult(place, each, _gap(each, value, surfaces)) for place, each, value in elsewhere]
    return Predictor(target, datasets, surfaces[0], surfaces[1], runs)


def with_known_flops(record: ModelRecord) -> Features:
    """The features of a record, with the published FLOPs where it is a published model that was not traced."""
    features = features_of(record)
    known = published().get(record.model.name)
    if features.flops is None and known is not None and known.describes(features.family, features.parameters):
        return replace(features, flops=known.flops)
    return features


def _results(contents: Contents) -> Iterator[tuple[str, str, float]]:
    """Data set, model and accuracy in percent of each Job that tells all three."""
    for job in contents.jobs.values():
        if job.accuracy is None or not np.isfinite(job.accuracy):
            continue
        if job.dataset in contents.datasets and job.model in contents.models:
            yield job.dataset, job.model, 100 * job.accuracy


def _surface(known: dict[str, Features], values: dict[str, float], costs: bool) -> Surface:
    chosen = [name for name in values if known[name].flops is not None or not costs]
    return Surface([known[name] for name in chosen], np.array([values[name] for name in chosen]), costs)


def _gap(features: Features, value: float, surfaces: Sequence[Surface]) -> float:
    surface = surfaces[0] if features.flops is not None else surfaces[1]
    return float((log_odds(np.array([value])) - log_odds(surface.values_of([features])))[0])
