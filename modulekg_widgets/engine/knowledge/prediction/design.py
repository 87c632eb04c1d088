"""How alike models are as they were trained: by structure, size and cost, and the words of their training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from modulekg_widgets.engine.knowledge.prediction.features import ROUNDS, Array, Features

RARE = 2  # a word of fewer trainings tells nothing
WORDS = 40.0  # trainings that differ in so many words are e times less alike
LABELS = ROUNDS + 1  # per model: those of the operations alone, and of each round


@dataclass(frozen=True, slots=True)
class Sample:
    """A model as it was trained or called."""

    features: Features
    words: frozenset[str] = frozenset()  # of its training
    image_size: float | None = None  # pixels of a side, where it is not that of the model's own inputs


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of kernels between samples, shape (one, other) each; of a sample with itself 1, but `linear`."""

    labels: Array  # the mean of the cosines over the rounds of labels
    sizes: Array  # a bump of the distance of sizes, in deviations of the known ones
    depths: Array  # one twice as wide, of these and of the number of layers
    words: Array
    linear: Array  # in the sizes and the number of layers


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each part counts in a kernel, `both` of sizes and words together, `source` of values elsewhere."""

    labels: float = 0.0
    sizes: float = 0.0
    depths: float = 0.0
    words: float = 0.0
    both: float = 0.0
    linear: float = 0.0
    source: float = 0.0

    @property
    def active(self) -> int:
        """How much it takes into account: of likeness, a line in the sizes, and values elsewhere."""
        return (self.labels > 0) + (self.linear > 0) + (self.source > 0)

    def with_source(self, weight: float) -> Weights:
        return replace(self, source=weight)

    def kernel(self, parts: Parts) -> Array:
        """Without what comes of values elsewhere."""
        found = self.labels * parts.labels + self.sizes * parts.sizes + self.depths * parts.depths
        return found + self.words * parts.words + self.both * parts.sizes * parts.words + self.linear * parts.linear

    def own(self, linear: Array) -> Array:
        """Of samples with themselves, given that of the linear part."""
        return self.labels + self.sizes + self.depths + self.words + self.both + self.linear * linear


class Rows:
    """Samples in the form in which they are compared."""

    def __init__(self, samples: Sequence[Sample], scaled: Array, worded: Array) -> None:
        self.samples, self.scaled, self.worded = samples, scaled, worded
        models = list({id(sample.features): sample.features for sample in samples}.values())
        place = {id(each): row for row, each in enumerate(models)}
        self.models = models
        self.model_of = np.array([place[id(sample.features)] for sample in samples], np.int64)

    @property
    def linear(self) -> Array:
        return (self.scaled**2).sum(1)


class Design:
    """What samples are compared by, on the scale on which the known ones scatter.

    With `costs` by FLOPs and inputs, too, which must be known of all.
    """

    def __init__(self, known: Sequence[Sample], costs: bool) -> None:
        self.costs = costs
        sizes = self._sizes(known)
        self._middle, self._spread = sizes.mean(0), np.where(sizes.std(0) > 1e-6, sizes.std(0), 1.0)
        counts = Counter(word for sample in known for word in sample.words)
        self._words = sorted(word for word, count in counts.items() if count >= RARE)
        self.known = self.rows(known)
        self._labels = [_unit_rows(self.known.models, at) for at in range(LABELS)]

    def rows(self, samples: Sequence[Sample]) -> Rows:
        worded = [[word in sample.words for word in self._words] for sample in samples]
        scaled = (self._sizes(samples) - self._middle) / self._spread
        return Rows(samples, scaled, np.array(worded, float).reshape(len(samples), len(self._words)))

    def parts(self, rows: Rows) -> Parts:
        """Between samples and the known ones."""
        near = _squares(rows.scaled[:, 1:], self.known.scaled[:, 1:])
        apart = _squares(rows.scaled, self.known.scaled)
        differ = _squares(rows.worded, self.known.worded)
        labels = self.likeness(rows)[np.ix_(rows.model_of, self.known.model_of)]
        return Parts(
            labels, np.exp(-near / 2), np.exp(-apart / 8), np.exp(-differ / WORDS), rows.scaled @ self.known.scaled.T
        )

    def likeness(self, rows: Rows) -> Array:
        """Between the models of samples and the known models, by their labels."""
        total = np.zeros((len(rows.models), len(self.known.models)))
        for at, (columns, known) in enumerate(self._labels):
            own = self._labels[at][1] if rows is self.known else _with_columns(rows.models, at, columns)
            total += (own @ known.T).toarray()
        return total / LABELS

    def _sizes(self, samples: Sequence[Sample]) -> Array:
        """Log10 of layers and parameters, of input elements and FLOPs at the size of the picture."""
        rows = []
        for sample in samples:
            own = sample.features
            row = [own.layers, own.parameters]
            if self.costs:
                growth = (sample.image_size / own.side) ** 2 if sample.image_size is not None and own.side else 1.0
                row += [(own.elements or 1) * growth, (own.flops or 1) * growth]
            rows.append(row)
        return np.log10(np.maximum(np.array(rows, float), 1.0))


def _unit_rows(models: Sequence[Features], at: int) -> tuple[dict[str, int], Any]:
    """The labels of a round as columns, and the models' counts of them as rows of length 1."""
    columns = dict.fromkeys(key for each in models for key in each.rounds[at])
    numbered = {key: column for column, key in enumerate(columns)}
    return numbered, _with_columns(models, at, numbered)


def _with_columns(models: Sequence[Features], at: int, columns: dict[str, int]) -> Any:
    from scipy.sparse import csr_array

    values: list[float] = []
    places: list[int] = []
    starts = [0]
    for each in models:
        own = each.rounds[at]
        length = float(np.sqrt(sum(np.log1p(count) ** 2 for count in own.values()))) or 1.0
        known = [(columns[key], float(np.log1p(count)) / length) for key, count in own.items() if key in columns]
        places += [place for place, _ in known]
        values += [value for _, value in known]
        starts.append(len(places))
    shape = (len(models), max(len(columns), 1))
    return csr_array((np.array(values, float), np.array(places, np.int64), np.array(starts, np.int64)), shape=shape)


def _squares(one: Array, other: Array) -> Array:
    found = (one**2).sum(1)[:, None] + (other**2).sum(1)[None] - 2 * one @ other.T
    return np.maximum(found, 0.0)
