"""Cross-validation of kernels by left-out families."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from modulekg_widgets.engine.knowledge.prediction.data.design import KernelParts, KernelWeights
from modulekg_widgets.engine.knowledge.prediction.data.scales import Scale
from modulekg_widgets.engine.knowledge.prediction.predictors.gaussian_process import (
    Array,
    Families,
    GaussianProcess,
    family_blocks,
)


@dataclass(frozen=True, slots=True)
class KernelSetting:
    """A kernel on a scale, with the noise of one value in units of the kernel."""

    scale: Scale
    weights: KernelWeights
    noise: float
    source: int | None  # which of the sources


@dataclass(frozen=True)
class CrossValidation:
    """Leave-one-family-out errors of kernels, with shared inverses.

    Kernels that differ in these alone share the inverse of a matrix, by the formula of Sherman and Morrison; what is
    asked of it is kept, as its blocks and its products with values are small.
    """

    parts: KernelParts
    values: Array
    families: Families
    scale: Scale  # on which errors count
    source_column: Callable[[KernelSetting], Array]
    _shared: dict[tuple[KernelWeights, float], GaussianProcess] = field(default_factory=dict, repr=False)
    _blocks: dict[tuple[KernelWeights, float, bytes], list[Array]] = field(default_factory=dict, repr=False)
    _solved: dict[tuple[KernelWeights, float, str, int | None], Array] = field(default_factory=dict, repr=False)
    _known: dict[KernelSetting, Array] = field(default_factory=dict, repr=False)
    _by_fold: dict[KernelSetting, Array] = field(default_factory=dict, repr=False)

    def best_setting(self, settings: Sequence[KernelSetting], subset: np.ndarray | None = None) -> KernelSetting:
        """Returns the setting with the least mean square error for left-out families."""
        chosen = slice(None) if subset is None else subset
        losses = [float((self._by_family(setting)[chosen] ** 2).mean()) for setting in settings]
        return settings[int(np.argmin(losses))]

    def nested_errors(self, settings: Sequence[KernelSetting], folds: np.ndarray) -> Array:
        """Returns errors of nested cross-validation: each fold is predicted by the kernel best on the others."""
        found = np.zeros(len(self.values))
        for fold in range(folds.max() + 1):
            setting = self.best_setting(settings, folds != fold)
            if setting not in self._by_fold:
                self._by_fold[setting] = self._errors(setting, folds)
            found[folds == fold] = self._by_fold[setting][folds == fold]
        return found

    def _by_family(self, setting: KernelSetting) -> Array:
        if setting not in self._known:
            self._known[setting] = self._errors(setting, self.families)
        return self._known[setting]

    def _errors(self, setting: KernelSetting, groups: np.ndarray) -> Array:
        """Returns the error of each value when its group is left out."""
        told = self.scale.transform(setting.scale.inverse(self._leave_group_out(setting, groups)))
        return told - self.scale.transform(self.values)

    def _leave_group_out(self, setting: KernelSetting, groups: np.ndarray) -> Array:
        """Returns predictions of values without their groups, on the scale of the setting."""
        values = setting.scale.transform(self.values)
        middle = float(values.mean())
        weights = self._solve(setting, None, values - middle)
        sent, share = np.zeros(len(values)), 0.0
        if setting.source is not None:
            column = self.source_column(setting)
            sent = self._solve(setting, setting.source, column)
            share = setting.weights.source / (1 + setting.weights.source * float(column @ sent))
            weights = weights - share * float(sent @ (values - middle)) * sent
        found = values.copy()
        for block, own in zip(family_blocks(groups), self._inverse_blocks(setting, groups), strict=True):
            found[block] -= np.linalg.solve(own - share * np.outer(sent[block], sent[block]), weights[block])
        return found

    def _solve(self, setting: KernelSetting, source: int | None, values: Array) -> Array:
        """Returns the inverse kernel times values of a source, or times the own values."""
        key = (setting.weights.with_source(0.0), setting.noise, setting.scale.name, source)
        if key not in self._solved:
            self._solved[key] = self._shared_process(setting).solve(values)
        return self._solved[key]

    def _inverse_blocks(self, setting: KernelSetting, groups: np.ndarray) -> list[Array]:
        """Returns the blocks of the inverse kernel for the members of each group."""
        key = (setting.weights.with_source(0.0), setting.noise, groups.tobytes())
        if key not in self._blocks:
            process = self._shared_process(setting)
            self._blocks[key] = [process.inverse_block(block) for block in family_blocks(groups)]
        return self._blocks[key]

    def _shared_process(self, setting: KernelSetting) -> GaussianProcess:
        weights = setting.weights.with_source(0.0)
        if (weights, setting.noise) not in self._shared:
            # one kernel at a time: a matrix of many values is large
            kernel = next((known.kernel for (each, _), known in self._shared.items() if each == weights), None)
            self._shared.clear()
            kernel = weights.kernel(self.parts) if kernel is None else kernel
            self._shared[weights, setting.noise] = GaussianProcess(kernel, np.zeros(len(self.values)), setting.noise)
        return self._shared[weights, setting.noise]
