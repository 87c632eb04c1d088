"""Kernels judged by what they tell of families left out, of some of the values where there are many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from modulekg_widgets.engine.knowledge.prediction.data.design import Parts, Weights
from modulekg_widgets.engine.knowledge.prediction.data.scales import Scale
from modulekg_widgets.engine.knowledge.prediction.predictors.process import Array, Families, Process, blocks_of


@dataclass(frozen=True, slots=True)
class KernelSetting:
    """A kernel on a scale that may tell the values, with the noise of one of them in its units."""

    scale: Scale
    weights: Weights
    noise: float
    source: int | None  # which of the sources


@dataclass(frozen=True)
class Judge:
    """Values, their families and the parts of kernels between them; `column` has values elsewhere for a setting.

    Kernels that differ in these alone share the inverse of a matrix, by the formula of Sherman and Morrison; what is
    asked of it is kept, as its blocks and its products with values are small.
    """

    parts: Parts
    values: Array
    families: Families
    scale: Scale  # on which errors count
    column: Callable[[KernelSetting], Array]
    _shared: dict[tuple[Weights, float], Process] = field(default_factory=dict, repr=False)
    _blocks: dict[tuple[Weights, float, bytes], list[Array]] = field(default_factory=dict, repr=False)
    _solved: dict[tuple[Weights, float, str, int | None], Array] = field(default_factory=dict, repr=False)
    _known: dict[KernelSetting, Array] = field(default_factory=dict, repr=False)
    _by_fold: dict[KernelSetting, Array] = field(default_factory=dict, repr=False)

    def best(self, settings: Sequence[KernelSetting], among: np.ndarray | None = None) -> KernelSetting:
        """The one with the least mean square error for families left out, of some values or all."""
        chosen = slice(None) if among is None else among
        losses = [float((self._by_family(setting)[chosen] ** 2).mean()) for setting in settings]
        return settings[int(np.argmin(losses))]

    def nested_errors(self, settings: Sequence[KernelSetting], folds: np.ndarray) -> Array:
        """How far off each value is told without its fold, by the kernel that tells the families of others best."""
        found = np.zeros(len(self.values))
        for fold in range(folds.max() + 1):
            setting = self.best(settings, folds != fold)
            if setting not in self._by_fold:
                self._by_fold[setting] = self._errors(setting, folds)
            found[folds == fold] = self._by_fold[setting][folds == fold]
        return found

    def _by_family(self, setting: KernelSetting) -> Array:
        if setting not in self._known:
            self._known[setting] = self._errors(setting, self.families)
        return self._known[setting]

    def _errors(self, setting: KernelSetting, groups: np.ndarray) -> Array:
        """How far off each value is told without its group."""
        told = self.scale.of(setting.scale.back(self._told(setting, groups)))
        return told - self.scale.of(self.values)

    def _told(self, setting: KernelSetting, groups: np.ndarray) -> Array:
        """The values without their groups, on the scale of the setting."""
        values = setting.scale.of(self.values)
        middle = float(values.mean())
        weights = self._times(setting, None, values - middle)
        sent, share = np.zeros(len(values)), 0.0
        if setting.source is not None:
            column = self.column(setting)
            sent = self._times(setting, setting.source, column)
            share = setting.weights.source / (1 + setting.weights.source * float(column @ sent))
            weights = weights - share * float(sent @ (values - middle)) * sent
        found = values.copy()
        for block, own in zip(blocks_of(groups), self._between(setting, groups), strict=True):
            found[block] -= np.linalg.solve(own - share * np.outer(sent[block], sent[block]), weights[block])
        return found

    def _times(self, setting: KernelSetting, source: int | None, values: Array) -> Array:
        """The inverse times values on the scale of a setting, those of a source or the own ones."""
        key = (setting.weights.with_source(0.0), setting.noise, setting.scale.name, source)
        if key not in self._solved:
            self._solved[key] = self._without_source(setting).solved(values)
        return self._solved[key]

    def _between(self, setting: KernelSetting, groups: np.ndarray) -> list[Array]:
        """The parts of the inverse between the members of each group."""
        key = (setting.weights.with_source(0.0), setting.noise, groups.tobytes())
        if key not in self._blocks:
            process = self._without_source(setting)
            self._blocks[key] = [process.inverse(block) for block in blocks_of(groups)]
        return self._blocks[key]

    def _without_source(self, setting: KernelSetting) -> Process:
        weights = setting.weights.with_source(0.0)
        if (weights, setting.noise) not in self._shared:
            # one kernel at a time: a matrix of many values is large
            kernel = next((known.kernel for (each, _), known in self._shared.items() if each == weights), None)
            self._shared.clear()
            kernel = weights.kernel(self.parts) if kernel is None else kernel
            self._shared[weights, setting.noise] = Process(kernel, np.zeros(len(self.values)), setting.noise)
        return self._shared[weights, setting.noise]
