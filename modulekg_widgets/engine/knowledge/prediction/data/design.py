"""Kernels between samples (models as they were trained): by structure, size, cost and training words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from modulekg_widgets.engine.knowledge.prediction.data.features import ROUNDS, Array, Features

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MIN_WORD_COUNT = 2  # a word of fewer trainings tells nothing
WORD_SCALE = 40.0  # trainings that differ in so many words are e times less alike
MAX_BLOCK_ELEMENTS = 2**17  # elements of a kernel that are computed at once: such fit the cache of a core
MIN_COUNTED_SHARE = 0.8  # of the known models have a pass whose operators were counted: these are gone by
LABEL_ROUNDS = ROUNDS + 1  # per model: those of the operations alone, and of each round


@dataclass(frozen=True, slots=True)
class Sample:
    """A model as it was trained, or called."""

    features: Features
    words: frozenset[str] = frozenset()  # of its training
    image_size: float | None = None  # pixels of a side, where it is not that of the model's own inputs

    @property
    def pixel_ratio(self) -> float:
        """Ratio of the number of pixels to that of the model's own inputs."""
        side = self.features.image_side
        return (self.image_size / side) ** 2 if self.image_size is not None and side else 1.0


class KernelParts:
    """Parts of kernels between two sets of samples, each of shape (one, other); 1 for equal samples, but `linear`."""

    def __init__(self, one: SampleRows, other: SampleRows, likeness: Array) -> None:
        self._one, self._other, self._likeness = one, other, likeness
        self.shape = len(one.samples), len(other.samples)

    def row_blocks(self) -> Iterator[tuple[slice, KernelParts]]:
        """Yields a few rows at a time, so that large parts are never stored."""
        step = max(1, MAX_BLOCK_ELEMENTS // max(self.shape[1], 1))
        for start in range(0, self.shape[0], step):
            rows = np.arange(start, min(start + step, self.shape[0]))
            yield slice(start, start + step), KernelParts(self._one.subset(rows), self._other, self._likeness)

    @cached_property
    def labels(self) -> Array:
        """The mean of the cosines over the rounds of labels."""
        return self._likeness[np.ix_(self._one.model_of, self._other.model_of)]

    @cached_property
    def sizes(self) -> Array:
        """Gaussian kernel of the sizes, in standard deviations of the known ones."""
        return _gaussian(self._one.size_matrix[:, 1:], self._other.size_matrix[:, 1:], 2.0)

    @cached_property
    def depths(self) -> Array:
        """Gaussian kernel of sizes and number of layers, twice as wide."""
        return _gaussian(self._one.size_matrix, self._other.size_matrix, 8.0)

    @cached_property
    def words(self) -> Array:
        return _gaussian(self._one.word_matrix, self._other.word_matrix, WORD_SCALE)

    @cached_property
    def linear(self) -> Array:
        """Linear kernel of the sizes and the number of layers."""
        return self._one.size_matrix @ self._other.size_matrix.T


@dataclass(frozen=True, slots=True)
class KernelWeights:
    """Weights of the parts of a kernel; `source` weighs values under another condition."""

    labels: float = 0.0
    sizes: float = 0.0
    depths: float = 0.0
    words: float = 0.0
    sizes_and_words: float = 0.0
    linear: float = 0.0
    source: float = 0.0

    @property
    def part_count(self) -> int:
        """Number of parts in use: similarity, linear, and values of a source."""
        return (self.labels > 0) + (self.linear > 0) + (self.source > 0)

    def with_source(self, weight: float) -> KernelWeights:
        return replace(self, source=weight)

    def kernel(self, parts: KernelParts) -> Array:
        """Returns the weighted sum of the parts, without values of a source."""
        if parts.shape[0] * parts.shape[1] <= MAX_BLOCK_ELEMENTS:
            return self._kernel(parts)
        found = np.empty(parts.shape)
        for rows, piece in parts.row_blocks():
            found[rows] = self._kernel(piece)
        return found

    def _kernel(self, parts: KernelParts) -> Array:
        found = self.labels * parts.labels
        added = np.empty_like(found)
        for name in ("sizes", "depths", "words", "linear"):
            if weight := getattr(self, name):
                found += np.multiply(getattr(parts, name), weight, out=added)
        if self.sizes_and_words:
            np.multiply(parts.sizes, self.sizes_and_words, out=added)
            found += np.multiply(added, parts.words, out=added)
        return found

    def diagonal(self, linear: Array) -> Array:
        """Returns the diagonal of the kernel, given that of the linear part."""
        return self.labels + self.sizes + self.depths + self.words + self.sizes_and_words + self.linear * linear


class SampleRows:
    """Samples as matrices of sizes and words."""

    def __init__(self, samples: Sequence[Sample], scaled: Array, worded: Array) -> None:
        self.samples, self.size_matrix, self.word_matrix = samples, scaled, worded
        models = list({id(sample.features): sample.features for sample in samples}.values())
        place = {id(each): row for row, each in enumerate(models)}
        self.models = models
        self.model_of = np.array([place[id(sample.features)] for sample in samples], np.int64)

    @property
    def linear(self) -> Array:
        return (self.size_matrix**2).sum(1)

    def subset(self, some: np.ndarray) -> SampleRows:
        """Returns some of the samples."""
        found = copy(self)
        found.samples = [self.samples[int(at)] for at in some]
        found.size_matrix, found.word_matrix, found.model_of = (
            self.size_matrix[some],
            self.word_matrix[some],
            self.model_of[some],
        )
        return found


class Design:
    """Features of samples, standardized by the known ones, and the kernels between them.

    With `costs` by FLOPs and inputs, too, which must be known of all, and by how many operators a pass launches and
    what these read and write, where most were counted; of the others lines in the rest tell it.
    """

    def __init__(self, known: Sequence[Sample], costs: bool) -> None:
        self.costs = costs
        self._cost_lines = self._fit_cost_lines(known)
        sizes = self._sizes(known)
        self._middle, self._spread = sizes.mean(0), np.where(sizes.std(0) > 1e-6, sizes.std(0), 1.0)
        counts = Counter(word for sample in known for word in sample.words)
        self._words = sorted(word for word, count in counts.items() if count >= MIN_WORD_COUNT)
        self.known = self.rows(known)
        keys = dict.fromkeys(key for each in self.known.models for key in each.weights)
        self._columns = {key: column for column, key in enumerate(keys)}
        self._labels = self._label_rows(self.known.models)

    def rows(self, samples: Sequence[Sample]) -> SampleRows:
        scaled = (self._sizes(samples) - self._middle) / self._spread
        return SampleRows(samples, scaled, self._word_matrix(samples))

    def kernel_parts(self, rows: SampleRows) -> KernelParts:
        """Returns kernel parts between samples and the known ones."""
        return KernelParts(rows, self.known, self.similarity(rows))

    def known_kernel_parts(self, some: np.ndarray | None = None) -> KernelParts:
        """Returns kernel parts between known samples, all or some."""
        rows = self.known if some is None else self.known.subset(some)
        return KernelParts(rows, rows, self._known_likeness)

    @cached_property
    def _known_likeness(self) -> Array:
        return self.similarity(self.known)

    def similarity(self, rows: SampleRows) -> Array:
        """Returns the label similarity between the models of samples and the known models."""
        own = self._labels if rows is self.known else self._label_rows(rows.models)
        return (own @ self._labels.T).toarray() / LABEL_ROUNDS

    def _word_matrix(self, samples: Sequence[Sample]) -> Array:
        """Returns indicators of the training words of samples."""
        kinds = list(dict.fromkeys(sample.words for sample in samples))
        rows = np.array([[word in kind for word in self._words] for kind in kinds], float)
        place = {kind: row for row, kind in enumerate(kinds)}
        return rows.reshape(len(kinds), len(self._words))[[place[sample.words] for sample in samples]]

    def _label_rows(self, models: Sequence[Features]) -> csr_array:
        """Returns label weights as a sparse matrix, a row for each model."""
        from scipy.sparse import csr_array

        places = np.array([self._columns.get(key, -1) for each in models for key in each.weights], np.int64)
        values = np.array([weight for each in models for weight in each.weights.values()], float)
        known = places >= 0
        starts = np.concatenate([[0], np.cumsum(known)])[np.cumsum([0, *(len(each.weights) for each in models)])]
        shape = (len(models), max(len(self._columns), 1))
        return csr_array((values[known], places[known], starts), shape=shape)

    def _sizes(self, samples: Sequence[Sample]) -> Array:
        """Log10 of layers and parameters, of input elements and FLOPs at the size of the picture, and of the pass."""
        sizes = self._plain_sizes(samples)
        if self._cost_lines is None:
            return sizes
        passes = _launches_and_traffic(samples)
        return np.hstack([sizes, np.where(np.isnan(passes), _with_constant(sizes) @ self._cost_lines, passes)])

    def _plain_sizes(self, samples: Sequence[Sample]) -> Array:
        rows = []
        for sample in samples:
            own, growth = sample.features, sample.pixel_ratio
            costs = [(own.input_elements or 1) * growth, (own.flops or 1) * growth] if self.costs else []
            rows.append([own.layers, own.parameters, *costs])
        return np.log10(np.maximum(np.array(rows, float), 1.0))

    def _fit_cost_lines(self, known: Sequence[Sample]) -> Array | None:
        """Fits launches and traffic by least squares for models without counts; None if most lack them."""
        passes = _launches_and_traffic(known) if self.costs else np.empty((0, 2))
        counted = ~np.isnan(passes).any(1)
        if not counted.any() or counted.mean() < MIN_COUNTED_SHARE:
            return None
        sizes = _with_constant(self._plain_sizes(known)[counted])
        return np.asarray(np.linalg.lstsq(sizes, passes[counted], rcond=None)[0], float)


def _with_constant(rows: Array) -> Array:
    return np.hstack([np.ones((len(rows), 1)), rows])


def _launches_and_traffic(samples: Sequence[Sample]) -> Array:
    """Returns log10 of launches and memory traffic of a forward; NaN where they were not counted."""
    rows = []
    for sample in samples:
        model = sample.features.record.model
        if model.launches is None or model.traffic is None:
            rows.append([np.nan, np.nan])
            continue
        values = max(model.traffic - model.parameters, 0)  # weights are read once, whatever the picture's size
        rows.append([model.launches, values * sample.pixel_ratio + model.parameters])
    return np.log10(np.maximum(np.array(rows, float).reshape(-1, 2), 1.0))


def _gaussian(one: Array, other: Array, width: float) -> Array:
    """Returns exp(-distance² / width), computed in place."""
    found = one @ other.T
    found *= -2
    found += (one**2).sum(1)[:, None]
    found += (other**2).sum(1)[None]
    np.maximum(found, 0.0, out=found)
    found /= -width
    return np.exp(found, out=found)
