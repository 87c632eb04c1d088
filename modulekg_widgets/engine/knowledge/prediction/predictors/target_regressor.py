"""What is known of one target at one place, and what that tells of other models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import product

import numpy as np

from modulekg_widgets.engine.knowledge.prediction.data.design import Design, Parts, Sample, Weights
from modulekg_widgets.engine.knowledge.prediction.data.features import Array
from modulekg_widgets.engine.knowledge.prediction.data.scales import Scale, scales_for
from modulekg_widgets.engine.knowledge.prediction.predictors.cross_validation import Judge, KernelSetting
from modulekg_widgets.engine.knowledge.prediction.predictors.mixture import (
    NORMAL,
    Told,
    conformal,
    deviations,
    mixed,
    wider,
)
from modulekg_widgets.engine.knowledge.prediction.predictors.process import Families, Process, blocks_of

MANY = 70  # values, from which on one kernel tells more than an average of all
FAMILIES = 10  # by which intervals of many values are checked
ENOUGH = 20  # families, of which two are beyond the 90 % that hold, by which those of few values are
MOST = 3000  # values; kernel matrices grow with the square
JUDGED = 700  # of them, by which one kernel is chosen
POWER = 0.7  # of the evidence: few values are surer of a kernel than they should be
AS_TOLD = 2.0  # families as far off as told are added to those known: what published test sets, hidden but for
# 3, 5, 8, 15 or 30 of their values, ask for so that intervals hold of the rest on average
FEWEST = 3  # values that tell how far off they are
LEAST_SHARE = 0.01  # of a kernel in a mixture, as a part of the largest

STRUCTURE = Weights(labels=0.2, sizes=1.0, words=1.0, both=1.0, linear=0.3)
COSTS = Weights(labels=0.3, depths=1.0, linear=1.0)
ALONE = (*((STRUCTURE, noise) for noise in (0.1, 0.2, 0.3, 0.6)), *((COSTS, noise) for noise in (0.005, 0.02)))
WITH_SOURCE = tuple(
    (kind.with_source(10.0), noise) for kind, noise in ((STRUCTURE, 0.1), (STRUCTURE, 0.3), (COSTS, 0.02))
)
FOR_FEW = tuple(
    Weights(labels=0.3 * alike, sizes=0.3 * alike, words=0.1 * alike, both=0.3 * alike, linear=line / 4, source=source)
    for source, line, alike in product((0.0, 1.0, 10.0, 100.0), repeat=3)
)


class Surface:
    """Values of samples at one place; `sources` are other places of which the values may tell these."""

    def __init__(
        self,
        name: str,
        samples: Sequence[Sample],
        values: Array,
        unit: str | None,
        costs: bool,
        sources: Sequence[Surface] = (),
    ) -> None:
        chosen = np.arange(len(values))
        if len(values) > MOST:
            chosen = np.sort(np.random.default_rng(0).choice(len(values), MOST, replace=False))
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
        """How values are told."""
        if self.has_many:
            (setting,) = self._chosen
            kind = "structure, size and training" if setting.weights.words else "size, depth and structure"
            beside = f", and on {self.sources[setting.source].name}" if setting.source is not None else ""
            return f"Gaussian process on {kind}{beside}"
        return f"{len(self._chosen)} Gaussian processes, averaged"

    @cached_property
    def alone(self) -> Surface:
        """The same values without those of other places."""
        if not self.sources:
            return self
        found = Surface(self.name, self.samples, self.values, self.unit, self.costs)
        found.design, found.judged, found._judge = self.design, self.judged, self._judge
        return found

    def told(self, samples: Sequence[Sample]) -> Told:
        """The values of other samples, with all that is known elsewhere."""
        scale = self.scales[0]
        centres, spreads, unsure = self._standing(samples)
        own = self._mixed(centres, spreads)
        if not unsure.any():
            return own.widened(self._factor, scale)
        # left-out families are no surer elsewhere than others: only what is not of that is widened
        return self._mixed(centres, np.hypot(spreads, unsure)).widened(self._factor, scale, own)

    def _told(self, samples: Sequence[Sample]) -> Told:
        """With intervals that have not been checked on left-out families, which takes longer than the values."""
        centres, spreads, unsure = self._standing(samples)
        return self._mixed(centres, np.hypot(spreads, unsure))

    def _standing(self, samples: Sequence[Sample]) -> tuple[Array, Array, Array]:
        """Where each kernel sees samples, how far off that is, and how much further by what is not known elsewhere."""
        rows = self.design.rows(samples)
        parts, linear = self.design.parts(rows), rows.linear
        elsewhere, centres, spreads, further = self._elsewhere(samples), [], [], []
        for setting, process in zip(self._chosen, self._processes, strict=True):
            across, own = setting.weights.kernel(parts), setting.weights.own(linear)
            unsure = np.zeros(len(samples))
            if setting.source is not None:
                known, (column, variances) = self._known_column(setting), elsewhere[setting.scale, setting.source]
                across = across + setting.weights.source * np.outer(column, known)
                own = own + setting.weights.source * column**2
                unsure = np.sqrt(variances) * abs(setting.weights.source * known @ process.weights)
            values, squares = process.told(across, own)
            centres.append(values)
            spreads.append(np.sqrt(squares))
            further.append(unsure)
        return np.array(centres), np.array(spreads), np.array(further)

    def left_out(self) -> Told:
        """Each known value as told without its family; of many the kernel is that for all."""
        return self._left_out.widened(self._factor, self.scales[0])

    @cached_property
    def _left_out(self) -> Told:
        if self._is_weighed_anew:
            return self._by_others[0]
        found = [process.left_out(self.families) for process in self._processes]
        return self._mixed(np.array([values for values, _ in found]), np.sqrt([squares for _, squares in found]))

    @cached_property
    def _factor(self) -> float:
        """By how much intervals have to be wider so that they hold of left-out families what they say.

        What few values tell are scaled by how many deviations these are off as others tell them. Families are what is
        alike: each counts once, by its mean square, and the interval is that of as many, not of as many values. Of so
        many that the end of an interval does not rest on one of them, their own distribution tells.
        """
        if self.has_many:
            return conformal(self._left_out.ratios(self.values, self.scales[0]), self.families)
        if len(self.values) < FEWEST or not self._is_weighed_anew:
            return 1.0
        if len(np.unique(self.families)) >= ENOUGH:
            return conformal(self._left_out.ratios(self.values, self.scales[0]), self.families, 0.0)
        off = self._by_others[1]
        squares = [float(np.mean(off[block] ** 2)) for block in blocks_of(self.families)]
        freedom = AS_TOLD + len(squares)
        return float(np.sqrt((AS_TOLD + sum(squares)) / freedom)) * wider(freedom, self._processes[0].freedom)

    @property
    def _is_weighed_anew(self) -> bool:
        """Whether kernels are weighed without each family: it takes little where values are few."""
        return len(self.values) < MANY and len(np.unique(self.families)) > 1

    @cached_property
    def _by_others(self) -> tuple[Told, Array]:
        """Each value as told by other families, with kernels weighed by these, and how many deviations it is off."""
        settings, processes = self._candidates()
        told, off = Told(*(np.zeros(len(self.values)) for _ in range(3))), np.zeros(len(self.values))
        for block in blocks_of(self.families):
            every = [process.without(block) for process in processes]
            others = np.delete(self.values, block)
            kept, shares = self._shares(settings, [each.evidence for each in every], others)
            chosen = [every[at] for at in kept]
            mixture = (
                [settings[at].scale for at in kept],
                np.array([each.values for each in chosen]),
                np.sqrt([each.variances for each in chosen]),
                shares,
                chosen[0].freedom,
            )
            told.fill(block, mixed(*mixture))
            off[block] = deviations(self.values[block], *mixture)
        return told, off

    # --------------------------------------------------------------- kernels

    @property
    def has_many(self) -> bool:
        return len(self.values) >= MANY and len(np.unique(self.families)) >= FAMILIES

    def _settings(self) -> Iterator[KernelSetting]:
        for weights, noise in WITH_SOURCE if self.has_many else ():
            for scale, source in product(self.scales, range(len(self.sources))):
                yield KernelSetting(scale, weights, noise, source)
        for number, scale in enumerate(self.scales):
            for source in range(len(self.sources)):
                for weights in () if self.has_many else FOR_FEW:
                    if weights.source:
                        yield KernelSetting(scale, weights, 1.0, source)
            for weights, noise in ALONE if self.has_many and number == 0 and not self.sources else ():
                yield KernelSetting(scale, weights, noise, None)
            for weights in () if self.has_many else FOR_FEW:
                if not weights.source:
                    yield KernelSetting(scale, weights, 1.0, None)

    def _process(self, setting: KernelSetting, parts: Parts) -> Process:
        """The values on the scale of a setting, with its kernel."""
        kernel = setting.weights.kernel(parts)
        if setting.source is not None:
            known = self._known_column(setting)
            kernel += np.outer(setting.weights.source * known, known)
        return Process(kernel, setting.scale.of(self.values), setting.noise, setting.scale.scatter**2)

    @cached_property
    def _weighed(self) -> tuple[list[KernelSetting], list[Process], Array]:
        """The kernels that count, their processes and shares."""
        if self.has_many:
            best = self._judge.best(list(self._settings()))
            return [best], [self._process(best, self.design.known_parts())], np.ones(1)
        settings, processes = self._candidates()
        kept, shares = self._shares(settings, [process.evidence() for process in processes], self.values)
        return [settings[at] for at in kept], [processes[at] for at in kept], shares

    def _candidates(self) -> tuple[list[KernelSetting], list[Process]]:
        settings, parts = list(self._settings()), self.design.known_parts()
        return settings, [self._process(setting, parts) for setting in settings]

    def _shares(self, settings: list[KernelSetting], evidence: list[float], values: Array) -> tuple[np.ndarray, Array]:
        """The places of kernels that count by their evidence of values, and how much these do."""
        steep = {scale: float(np.log(scale.steepness(values)).sum()) for scale in self.scales}
        surely = np.array([each + steep[setting.scale] for setting, each in zip(settings, evidence, strict=True)])
        counts = Counter(each.weights.active for each in settings)
        before = np.array([1 / counts[each.weights.active] for each in settings])  # as likely with any number of parts
        likely = before * np.exp(POWER * (surely - surely.max()))
        likely /= likely.sum()
        kept = np.flatnonzero(likely > LEAST_SHARE * likely.max())
        return kept, likely[kept] / likely[kept].sum()

    @cached_property
    def judged(self) -> np.ndarray:
        """Some of the values: what tells these best tells all best."""
        every = np.arange(len(self.values))
        if len(every) <= JUDGED:
            return every
        return np.sort(np.random.default_rng(1).choice(every, JUDGED, replace=False))

    @cached_property
    def _judge(self) -> Judge:
        return self._judge_of(self.judged)

    def _judge_of(self, some: np.ndarray) -> Judge:
        return Judge(
            self.design.known_parts(some),
            self.values[some],
            self.families[some],
            self.scales[0],
            lambda setting: self._known_column(setting)[some],
        )

    def nested_errors(self, some: np.ndarray, folds: np.ndarray) -> Array:
        """How far off some values are told without their folds, on the first scale; kernels are chosen without these.

        For `judged` it takes little beyond what the choice of the kernel has taken.
        """
        judge = self._judge if some is self.judged else self._judge_of(some)
        return judge.nested_errors(list(self._settings()), folds)

    @property
    def _chosen(self) -> list[KernelSetting]:
        return self._weighed[0]

    @property
    def _processes(self) -> list[Process]:
        return self._weighed[1]

    def _mixed(self, centres: Array, spreads: Array) -> Told:
        freedom = self._processes[0].freedom
        return mixed([each.scale for each in self._chosen], centres, spreads, self._weighed[2], freedom)

    # --------------------------------------------------------------- sources

    def _known_column(self, setting: KernelSetting) -> Array:
        assert setting.source is not None
        key = (setting.scale.name, setting.source)
        if key not in self._columns:
            self._columns[key] = self.sources[setting.source].column(setting.scale, self.samples)
        return self._columns[key]

    @cached_property
    def _columns(self) -> dict[tuple[str, int], Array]:
        return {}

    def _elsewhere(self, samples: Sequence[Sample]) -> dict[tuple[Scale, int], tuple[Array, Array]]:
        """What each source that counts has of samples on a scale: values, with their variances beyond those of known.

        How far off values are that are known here tells already how far off those of their models elsewhere are.
        """
        asked = {(each.scale, each.source) for each in self._chosen if each.source is not None}
        return {
            (scale, at): (self.sources[at].column(scale, samples), self._beyond(scale, at, samples))
            for scale, at in asked
        }

    def _beyond(self, scale: Scale, at: int, samples: Sequence[Sample]) -> Array:
        """How much larger the variances of samples in a source are than those of the known ones on average."""
        source = self.sources[at]
        found = source.variances(scale, samples)
        if not found.any():
            return found
        known = source.variances(scale, self.samples, is_checked=False)
        return np.maximum(found - known.mean(), 0.0)

    def column(self, scale: Scale, samples: Sequence[Sample]) -> Array:
        """The values of samples here, in deviations of all on a scale, as known or as told."""
        middle, spread = self._level(scale)
        measured = [self.measured(sample) for sample in samples]
        values = np.array([scale.of(np.array(own)).mean() if own else 0.0 for own in measured])
        unknown = [at for at, own in enumerate(measured) if not own]
        if unknown:
            values[unknown] = scale.of(self._told([samples[at] for at in unknown]).values)
        return (values - middle) / spread

    def variances(self, scale: Scale, samples: Sequence[Sample], is_checked: bool = True) -> Array:
        """Those of the values in `column`: of known ones how far those lie apart that a sample may be one of.

        Those of others are checked on left-out families, or not: few are of families of which nothing is known.
        """
        _, spread = self._level(scale)
        measured = [self.measured(sample) for sample in samples]
        found = np.array([float(np.var(scale.of(np.array(own)) / spread)) if own else 0.0 for own in measured])
        unknown = [at for at, own in enumerate(measured) if not own]
        if unknown:
            tell = self.told if is_checked else self._told
            told = tell([samples[at] for at in unknown])
            found[unknown] = ((scale.of(told.high) - scale.of(told.low)) / (2 * NORMAL * spread)) ** 2
        return found

    def _level(self, scale: Scale) -> tuple[float, float]:
        """Mean and deviation of all values on a scale."""
        every = scale.of(self.values)
        return float(every.mean()), max(float(every.std()), 1e-9)

    @cached_property
    def _by_model(self) -> dict[str, list[tuple[Sample, float]]]:
        found: dict[str, list[tuple[Sample, float]]] = {}
        for sample, value in zip(self.samples, self.values, strict=True):
            found.setdefault(sample.features.record.model.root, []).append((sample, float(value)))
        return found

    def measured(self, sample: Sample) -> list[float]:
        """What is known of the very model, trained and called so; of one of which nobody says how, all."""
        known = self._by_model.get(sample.features.record.model.root, [])
        return [value for other, value in known if _is_same(sample, other)]


def _is_same(sample: Sample, other: Sample) -> bool:
    is_trained_so = not sample.words or sample.words == other.words
    return is_trained_so and (None in (sample.image_size, other.image_size) or sample.image_size == other.image_size)
