"""Regression of one target under one condition, from values of models and from related conditions.

A `TargetRegressor` has samples with values. With few values it averages many Gaussian processes, weighted by their
evidence; from `MIN_VALUES_TO_SELECT` values of enough families on, one kernel is chosen by cross-validation over
families. `sources` are regressors of other conditions whose predictions enter the kernels as features.

`predict(samples)` returns values with 90 % intervals, which are widened until they hold for left-out families.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import numpy as np

from modulekg_widgets.engine.knowledge.prediction.data.design import Design, KernelParts, KernelWeights, Sample
from modulekg_widgets.engine.knowledge.prediction.data.scales import Scale, scales_for
from modulekg_widgets.engine.knowledge.prediction.predictors.gaussian_process import (
    Array,
    Families,
    GaussianProcess,
    family_blocks,
)
from modulekg_widgets.engine.knowledge.prediction.predictors.mixture import (
    NORMAL_QUANTILE,
    PredictionIntervals,
    conformal_ratio,
    mixture_intervals,
    normal_scores,
    width_ratio,
)

# -------------------- Cross-validation of kernels by left-out families


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


# -------------------- Regression of one target


MIN_VALUES_TO_SELECT = 70  # values, from which on one kernel tells more than an average of all
MIN_FAMILIES_TO_SELECT = 10  # by which intervals of many values are checked
MIN_FAMILIES_FOR_CONFORMAL = (
    20  # families, of which two are beyond the 90 % that hold, by which those of few values are
)
MAX_VALUES = 3000  # values; kernel matrices grow with the square
MAX_VALIDATION_VALUES = 700  # of them, by which one kernel is chosen
EVIDENCE_POWER = 0.7  # of the evidence: few values are surer of a kernel than they should be
PRIOR_FAMILIES = 2.0  # families as far off as told are added to those known: what published test sets, hidden but for
# 3, 5, 8, 15 or 30 of their values, ask for so that intervals hold of the rest on average
MIN_CALIBRATION_VALUES = 3  # values that tell how far off they are
MIN_KERNEL_SHARE = 0.01  # of a kernel in a mixture, as a part of the largest

STRUCTURE_KERNEL = KernelWeights(labels=0.2, sizes=1.0, words=1.0, sizes_and_words=1.0, linear=0.3)
COST_KERNEL = KernelWeights(labels=0.3, depths=1.0, linear=1.0)
KERNELS = (
    *((STRUCTURE_KERNEL, noise) for noise in (0.1, 0.2, 0.3, 0.6)),
    *((COST_KERNEL, noise) for noise in (0.005, 0.02)),
)
SOURCE_KERNELS = tuple(
    (kind.with_source(10.0), noise)
    for kind, noise in ((STRUCTURE_KERNEL, 0.1), (STRUCTURE_KERNEL, 0.3), (COST_KERNEL, 0.02))
)
FEW_VALUES_KERNELS = tuple(
    KernelWeights(
        labels=0.3 * alike,
        sizes=0.3 * alike,
        words=0.1 * alike,
        sizes_and_words=0.3 * alike,
        linear=line / 4,
        source=source,
    )
    for source, line, alike in product((0.0, 1.0, 10.0, 100.0), repeat=3)
)


class TargetRegressor:
    """Values of samples under one condition; `sources` are regressors of related conditions."""

    def __init__(
        self,
        name: str,
        samples: Sequence[Sample],
        values: Array,
        unit: str | None,
        costs: bool,
        sources: Sequence[TargetRegressor] = (),
    ) -> None:
        chosen = np.arange(len(values))
        if len(values) > MAX_VALUES:
            chosen = np.sort(np.random.default_rng(0).choice(len(values), MAX_VALUES, replace=False))
        self.samples, self.values = [samples[int(at)] for at in chosen], np.asarray(values, float)[chosen]
        self.name, self.unit, self.costs, self.sources = name, unit, costs, list(sources)
        self.scales = scales_for(self.values, unit)

    @cached_property
    def families(self) -> Families:
        return np.array([sample.features.family for sample in self.samples])

    @cached_property
    def design(self) -> Design:
        return Design(self.samples, self.costs)

    @property
    def title(self) -> str:
        """Short description of the method."""
        if self.has_many_values:
            (setting,) = self._chosen
            kind = "structure, size and training" if setting.weights.words else "size, depth and structure"
            further = f", and on {self.sources[setting.source].name}" if setting.source is not None else ""
            return f"Gaussian process on {kind}{further}"
        return f"{len(self._chosen)} Gaussian processes, averaged"

    @cached_property
    def without_sources(self) -> TargetRegressor:
        """The same values without those of sources."""
        if not self.sources:
            return self
        found = TargetRegressor(self.name, self.samples, self.values, self.unit, self.costs)
        found.design, found.validation_indices, found._cross_validation = (
            self.design,
            self.validation_indices,
            self._cross_validation,
        )
        return found

    def predict(self, samples: Sequence[Sample]) -> PredictionIntervals:
        """Predicts other samples, with the values of sources."""
        scale = self.scales[0]
        centres, spreads, unsure = self._kernel_predictions(samples)
        own = self._mixture(centres, spreads)
        if not unsure.any():
            return own.widen(self._width_factor, scale)
        # left-out families are no surer elsewhere than others: only what is not of that is widened
        return self._mixture(centres, np.hypot(spreads, unsure)).widen(self._width_factor, scale, own)

    def _predict_unchecked(self, samples: Sequence[Sample]) -> PredictionIntervals:
        """Predicts with intervals that are not checked on left-out families, which is faster."""
        centres, spreads, unsure = self._kernel_predictions(samples)
        return self._mixture(centres, np.hypot(spreads, unsure))

    def _kernel_predictions(self, samples: Sequence[Sample]) -> tuple[Array, Array, Array]:
        """Returns predictions of each kernel, their deviations, and the uncertainty of source values."""
        rows = self.design.rows(samples)
        parts, linear = self.design.kernel_parts(rows), rows.linear
        elsewhere, centres, spreads, further = self._source_values(samples), [], [], []
        for setting, process in zip(self._chosen, self._processes, strict=True):
            across, own = setting.weights.kernel(parts), setting.weights.diagonal(linear)
            unsure = np.zeros(len(samples))
            if setting.source is not None:
                known, (column, variances) = self._source_column(setting), elsewhere[setting.scale, setting.source]
                across = across + setting.weights.source * np.outer(column, known)
                own = own + setting.weights.source * column**2
                unsure = np.sqrt(variances) * abs(setting.weights.source * known @ process.weights)
            values, squares = process.predict(across, own)
            centres.append(values)
            spreads.append(np.sqrt(squares))
            further.append(unsure)
        return np.array(centres), np.array(spreads), np.array(further)

    def leave_family_out(self) -> PredictionIntervals:
        """Predicts each known value without its family."""
        return self._leave_family_out.widen(self._width_factor, self.scales[0])

    @cached_property
    def _leave_family_out(self) -> PredictionIntervals:
        if self._reweights_kernels:
            return self._reweighted_leave_out[0]
        found = [process.leave_family_out(self.families) for process in self._processes]
        return self._mixture(np.array([values for values, _ in found]), np.sqrt([squares for _, squares in found]))

    @cached_property
    def _width_factor(self) -> float:
        """Factor by which intervals are widened to hold for left-out families.

        What few values tell are scaled by how many deviations these are off as others tell them. Families are what is
        alike: each counts once, by its mean square, and the interval is that of as many, not of as many values. Of so
        many that the end of an interval does not rest on one of them, their own distribution tells.
        """
        if self.has_many_values:
            return conformal_ratio(self._leave_family_out.error_ratios(self.values, self.scales[0]), self.families)
        if len(self.values) < MIN_CALIBRATION_VALUES or not self._reweights_kernels:
            return 1.0
        if len(np.unique(self.families)) >= MIN_FAMILIES_FOR_CONFORMAL:
            return conformal_ratio(self._leave_family_out.error_ratios(self.values, self.scales[0]), self.families, 0.0)
        off = self._reweighted_leave_out[1]
        squares = [float(np.mean(off[block] ** 2)) for block in family_blocks(self.families)]
        freedom = PRIOR_FAMILIES + len(squares)
        return float(np.sqrt((PRIOR_FAMILIES + sum(squares)) / freedom)) * width_ratio(
            freedom, self._processes[0].degrees_of_freedom
        )

    @property
    def _reweights_kernels(self) -> bool:
        """True if kernels are weighted anew without each family, which is fast for few values."""
        return len(self.values) < MIN_VALUES_TO_SELECT and len(np.unique(self.families)) > 1

    @cached_property
    def _reweighted_leave_out(self) -> tuple[PredictionIntervals, Array]:
        """Predictions of each value from other families, and normal scores of the errors."""
        settings, processes = self._candidates()
        told, off = PredictionIntervals(*(np.zeros(len(self.values)) for _ in range(3))), np.zeros(len(self.values))
        for block in family_blocks(self.families):
            every = [process.leave_block_out(block) for process in processes]
            others = np.delete(self.values, block)
            kept, shares = self._shares(settings, [each.evidence for each in every], others)
            chosen = [every[at] for at in kept]
            mixture = (
                [settings[at].scale for at in kept],
                np.array([each.values for each in chosen]),
                np.sqrt([each.variances for each in chosen]),
                shares,
                chosen[0].degrees_of_freedom,
            )
            told.assign(block, mixture_intervals(*mixture))
            off[block] = normal_scores(self.values[block], *mixture)
        return told, off

    # --------------------------------------------------------------- kernels

    @property
    def has_many_values(self) -> bool:
        return len(self.values) >= MIN_VALUES_TO_SELECT and len(np.unique(self.families)) >= MIN_FAMILIES_TO_SELECT

    def _settings(self) -> Iterator[KernelSetting]:
        for weights, noise in SOURCE_KERNELS if self.has_many_values else ():
            for scale, source in product(self.scales, range(len(self.sources))):
                yield KernelSetting(scale, weights, noise, source)
        for number, scale in enumerate(self.scales):
            for source in range(len(self.sources)):
                for weights in () if self.has_many_values else FEW_VALUES_KERNELS:
                    if weights.source:
                        yield KernelSetting(scale, weights, 1.0, source)
            for weights, noise in KERNELS if self.has_many_values and number == 0 and not self.sources else ():
                yield KernelSetting(scale, weights, noise, None)
            for weights in () if self.has_many_values else FEW_VALUES_KERNELS:
                if not weights.source:
                    yield KernelSetting(scale, weights, 1.0, None)

    def _process(self, setting: KernelSetting, parts: KernelParts) -> GaussianProcess:
        """The values on the scale of a setting, with its kernel."""
        kernel = setting.weights.kernel(parts)
        if setting.source is not None:
            known = self._source_column(setting)
            kernel += np.outer(setting.weights.source * known, known)
        return GaussianProcess(kernel, setting.scale.transform(self.values), setting.noise, setting.scale.prior_std**2)

    @cached_property
    def _kernel_mixture(self) -> tuple[list[KernelSetting], list[GaussianProcess], Array]:
        """The kernels in use, their processes and their shares."""
        if self.has_many_values:
            best = self._cross_validation.best_setting(list(self._settings()))
            return [best], [self._process(best, self.design.known_kernel_parts())], np.ones(1)
        settings, processes = self._candidates()
        kept, shares = self._shares(settings, [process.evidence() for process in processes], self.values)
        return [settings[at] for at in kept], [processes[at] for at in kept], shares

    def _candidates(self) -> tuple[list[KernelSetting], list[GaussianProcess]]:
        settings, parts = list(self._settings()), self.design.known_kernel_parts()
        return settings, [self._process(setting, parts) for setting in settings]

    def _shares(self, settings: list[KernelSetting], evidence: list[float], values: Array) -> tuple[np.ndarray, Array]:
        """Returns the indices of kernels with enough evidence, and their shares."""
        steep = {scale: float(np.log(scale.derivative(values)).sum()) for scale in self.scales}
        surely = np.array([each + steep[setting.scale] for setting, each in zip(settings, evidence, strict=True)])
        counts = Counter(each.weights.part_count for each in settings)
        before = np.array(
            [1 / counts[each.weights.part_count] for each in settings]
        )  # as likely with any number of parts
        likely = before * np.exp(EVIDENCE_POWER * (surely - surely.max()))
        likely /= likely.sum()
        kept = np.flatnonzero(likely > MIN_KERNEL_SHARE * likely.max())
        return kept, likely[kept] / likely[kept].sum()

    @cached_property
    def validation_indices(self) -> np.ndarray:
        """Indices of the values on which kernels are chosen."""
        every = np.arange(len(self.values))
        if len(every) <= MAX_VALIDATION_VALUES:
            return every
        return np.sort(np.random.default_rng(1).choice(every, MAX_VALIDATION_VALUES, replace=False))

    @cached_property
    def _cross_validation(self) -> CrossValidation:
        return self._cross_validation_of(self.validation_indices)

    def _cross_validation_of(self, some: np.ndarray) -> CrossValidation:
        return CrossValidation(
            self.design.known_kernel_parts(some),
            self.values[some],
            self.families[some],
            self.scales[0],
            lambda setting: self._source_column(setting)[some],
        )

    def nested_errors(self, some: np.ndarray, folds: np.ndarray) -> Array:
        """Returns errors of some values without their folds, on the first scale, with kernels chosen without them.

        For `judged` it takes little beyond what the choice of the kernel has taken.
        """
        judge = self._cross_validation if some is self.validation_indices else self._cross_validation_of(some)
        return judge.nested_errors(list(self._settings()), folds)

    @property
    def _chosen(self) -> list[KernelSetting]:
        return self._kernel_mixture[0]

    @property
    def _processes(self) -> list[GaussianProcess]:
        return self._kernel_mixture[1]

    def _mixture(self, centres: Array, spreads: Array) -> PredictionIntervals:
        freedom = self._processes[0].degrees_of_freedom
        return mixture_intervals(
            [each.scale for each in self._chosen], centres, spreads, self._kernel_mixture[2], freedom
        )

    # --------------------------------------------------------------- sources

    def _source_column(self, setting: KernelSetting) -> Array:
        assert setting.source is not None
        key = (setting.scale.name, setting.source)
        if key not in self._source_columns:
            self._source_columns[key] = self.sources[setting.source].standard_scores(setting.scale, self.samples)
        return self._source_columns[key]

    @cached_property
    def _source_columns(self) -> dict[tuple[str, int], Array]:
        return {}

    def _source_values(self, samples: Sequence[Sample]) -> dict[tuple[Scale, int], tuple[Array, Array]]:
        """Returns values and excess variances of samples in each source in use, by scale.

        How far off values are that are known here tells already how far off those of their models elsewhere are.
        """
        asked = {(each.scale, each.source) for each in self._chosen if each.source is not None}
        return {
            (scale, at): (self.sources[at].standard_scores(scale, samples), self._excess_variances(scale, at, samples))
            for scale, at in asked
        }

    def _excess_variances(self, scale: Scale, at: int, samples: Sequence[Sample]) -> Array:
        """Returns the variances of samples in a source beyond the mean of the known ones."""
        source = self.sources[at]
        found = source.variances(scale, samples)
        if not found.any():
            return found
        known = source.variances(scale, self.samples, is_checked=False)
        return np.maximum(found - known.mean(), 0.0)

    def standard_scores(self, scale: Scale, samples: Sequence[Sample]) -> Array:
        """Returns the values of samples in standard deviations on a scale, known or predicted."""
        middle, spread = self._level(scale)
        measured = [self.known_values(sample) for sample in samples]
        values = np.array([scale.transform(np.array(own)).mean() if own else 0.0 for own in measured])
        unknown = [at for at, own in enumerate(measured) if not own]
        if unknown:
            values[unknown] = scale.transform(self._predict_unchecked([samples[at] for at in unknown]).values)
        return (values - middle) / spread

    def variances(self, scale: Scale, samples: Sequence[Sample], is_checked: bool = True) -> Array:
        """Returns variances of `standard_scores`, of known values by the spread of repeated measurements.

        Those of others are checked on left-out families, or not: few are of families of which nothing is known.
        """
        _, spread = self._level(scale)
        measured = [self.known_values(sample) for sample in samples]
        found = np.array([float(np.var(scale.transform(np.array(own)) / spread)) if own else 0.0 for own in measured])
        unknown = [at for at, own in enumerate(measured) if not own]
        if unknown:
            tell = self.predict if is_checked else self._predict_unchecked
            told = tell([samples[at] for at in unknown])
            found[unknown] = (
                (scale.transform(told.high) - scale.transform(told.low)) / (2 * NORMAL_QUANTILE * spread)
            ) ** 2
        return found

    def _level(self, scale: Scale) -> tuple[float, float]:
        """Mean and deviation of all values on a scale."""
        every = scale.transform(self.values)
        return float(every.mean()), max(float(every.std()), 1e-9)

    @cached_property
    def _by_model(self) -> dict[str, list[tuple[Sample, float]]]:
        found: dict[str, list[tuple[Sample, float]]] = {}
        for sample, value in zip(self.samples, self.values, strict=True):
            found.setdefault(sample.features.record.model.root, []).append((sample, float(value)))
        return found

    def known_values(self, sample: Sample) -> list[float]:
        """Returns the known values of the same model, trained and called alike; all if the training is unknown."""
        known = self._by_model.get(sample.features.record.model.root, [])
        return [value for other, value in known if _is_same(sample, other)]


def _is_same(sample: Sample, other: Sample) -> bool:
    is_trained_so = not sample.words or sample.words == other.words
    return is_trained_so and (None in (sample.image_size, other.image_size) or sample.image_size == other.image_size)
