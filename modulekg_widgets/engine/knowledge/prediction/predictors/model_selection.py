"""Which predictor tells the values at a place: the one that is least off on families left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from modulekg_widgets.engine.knowledge.prediction.data.design import Sample
from modulekg_widgets.engine.knowledge.prediction.data.features import Array
from modulekg_widgets.engine.knowledge.prediction.predictors.boosting import Boosting, folds_of
from modulekg_widgets.engine.knowledge.prediction.predictors.mixture import Told, conformal
from modulekg_widgets.engine.knowledge.prediction.predictors.target_regressor import Surface


class Rival(Protocol):
    """A predictor beside the kernels, on the first scale of the values; `left_out`: as told without their folds."""

    title: str
    left_out: Array

    def told(self, samples: Sequence[Sample]) -> Array: ...


class Verdict(NamedTuple):
    """What tells a value, and by how much each predictor is off on families left out, by title."""

    title: str
    errors: Mapping[str, float]


class PredictorChoice:
    """What is known at a place, and all that may tell it.

    Kernels and boosting are compared on the values by which kernels are chosen. What takes minutes is compared, on all
    values, from when `add` brings it.
    """

    def __init__(self, surface: Surface) -> None:
        self.surface = surface
        self._added: dict[str, Rival] = {}
        self._boosting: dict[int, Boosting] = {}  # by the number of values
        self._errors: dict[int, dict[str, float]] = {}  # by the identity of a surface

    def add(self, rival: Rival) -> None:
        self._added[rival.title] = rival
        self._errors.clear()

    def ask(self, samples: Sequence[Sample]) -> tuple[Told, list[Verdict]]:
        """The values of other samples, and how each is told.

        Of a sample that was not measured elsewhere other places tell only where few values are known here.
        """
        surface = self.surface
        if not surface.has_many:
            return surface.told(samples), [Verdict(surface.title, {})] * len(samples)
        known = np.array([any(source.measured(sample) for source in surface.sources) for sample in samples], bool)
        found = Told(*(np.zeros(len(samples)) for _ in range(3)))
        verdicts: dict[int, Verdict] = {}
        for part, chosen in ((surface, np.flatnonzero(known)), (surface.alone, np.flatnonzero(~known))):
            if len(chosen):
                errors = self.errors(part)
                verdict = Verdict(min(errors, key=errors.__getitem__), errors)
                found.fill(chosen, self._told(part, verdict.title, [samples[int(at)] for at in chosen]))
                verdicts |= {int(at): verdict for at in chosen}
        return found, [verdicts[at] for at in range(len(samples))]

    def errors(self, surface: Surface) -> dict[str, float]:
        """The mean absolute error of each predictor for families left out, on the first scale; of many values."""
        if id(surface) not in self._errors:
            some = np.arange(len(surface.values)) if self._added else surface.judged
            folds = folds_of(surface.families[some])
            boosting, truth = self._boosted(some), surface.scales[0].of(surface.values)
            off = {surface.title: surface.nested_errors(some, folds), boosting.title: boosting.left_out - truth[some]}
            off |= {title: rival.left_out - truth for title, rival in self._added.items()}
            self._errors[id(surface)] = {title: float(np.abs(each).mean()) for title, each in off.items()}
        return self._errors[id(surface)]

    def _told(self, surface: Surface, title: str, samples: Sequence[Sample]) -> Told:
        if title == surface.title:
            return surface.told(samples)
        rival = self._added[title] if title in self._added else self._boosted(np.arange(len(surface.values)))
        scale = surface.scales[0]
        values = rival.told(samples)
        off = conformal(np.abs(rival.left_out - scale.of(surface.values)), surface.families)
        return Told(scale.back(values), scale.back(values - off), scale.back(values + off))

    def _boosted(self, some: np.ndarray) -> Boosting:
        if len(some) not in self._boosting:
            surface = self.surface
            values = surface.scales[0].of(surface.values[some])
            self._boosting[len(some)] = Boosting(surface.design, some, values, folds_of(surface.families[some]))
        return self._boosting[len(some)]
