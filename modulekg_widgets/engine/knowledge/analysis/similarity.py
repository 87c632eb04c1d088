"""Similarity of models by structure, for a search of the most similar ones, and superfamilies by it.

Half of the likeness is of labels after Weisfeiler and Leman (prediction/data/features.py), which tell kinds of
operations and their surroundings whatever they are called; half is of the classes that occur, rare ones counting more.
Against the module that defines a model as its family, the mean average precision on the 1,492 models of timm and
torchvision is 0.90, that of the labels alone 0.72, of counts of operations 0.62 (tests/knowledge/test_similarity.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modulekg_widgets.engine.knowledge.facts.contents import Contents, count_uses
from modulekg_widgets.engine.knowledge.facts.records import ModelNode, ModelRecord
from modulekg_widgets.engine.knowledge.facts.tables import data_frame, name_index
from modulekg_widgets.engine.knowledge.facts.usage import occurrences_at_level, unknown_name_error
from modulekg_widgets.engine.knowledge.prediction.data.features import features_of, find_record

COLUMNS = ["model", "similarity", "shared"]
CLASS_WEIGHT = 0.5  # the part of the likeness that is of classes
TOLERANCE = 1e-6  # two likenesses that differ by less are the same: of one plan at several widths
Array = NDArray[np.float64]


class SimilarityIndex:
    """Index of the models of a graph for similarity searches."""

    def __init__(self, contents: Contents) -> None:
        self.names = list(contents.models)
        records = [find_record(contents, name) for name in self.names]
        self._labels = _UnitVectors([_labels(record) for record in records], weighted=False)
        self._classes = _UnitVectors([_classes(record) for record in records], weighted=True)
        self._models = [record.model for record in records]
        self._uses = [count_uses([model]) for model in self._models]

    def most_similar(self, record: ModelRecord, n: int, without: str | None = None) -> pd.DataFrame:
        """Returns the `n` models most similar to a record, without the one of the given name."""
        likeness = (1 - CLASS_WEIGHT) * self._labels.cosines(_labels(record)) + CLASS_WEIGHT * self._classes.cosines(
            _classes(record)
        )
        left_out = self.names.index(without) if without in self.names else -1
        rows = [(self.names[at], *figures) for at, *figures in self._nearest(likeness, record.model, n, left_out)]
        return data_frame(rows, COLUMNS)

    def nearest_neighbors(self, n: int) -> dict[str, list[tuple[str, float]]]:
        """Returns for each model the most similar ones with their similarity."""
        matrix = self.matrix()
        found: dict[str, list[tuple[str, float]]] = {}
        for at, (name, model) in enumerate(zip(self.names, self._models, strict=True)):
            ranked = self._nearest(matrix[at], model, n, at)
            found[name] = [(self.names[other], likeness) for other, likeness, _ in ranked]
        return found

    def _nearest(self, likeness: Array, model: ModelNode, n: int, left_out: int) -> list[tuple[int, float, float]]:
        """Returns index, similarity and shared part of the `n` most similar; ties by the shared part."""
        order = [at for at in np.argsort(-likeness, kind="stable").tolist() if at != left_out]
        least = likeness[order[min(n, len(order)) - 1]] - TOLERANCE if order and n > 0 else np.inf
        uses = count_uses([model])
        near = [(at, float(likeness[at]), _shared_part(uses, self._uses[at])) for at in order if likeness[at] >= least]
        near.sort(key=lambda each: (-round(each[1] / TOLERANCE), -each[2]))
        return near[:n]

    def matrix(self) -> Array:
        """Returns the similarity of each model with each, in the order of `names`."""
        return (1 - CLASS_WEIGHT) * self._labels.products() + CLASS_WEIGHT * self._classes.products()


class _UnitVectors:
    """Counts of many models as unit vectors; if `weighted`, rare keys count more."""

    def __init__(self, counts: Sequence[Counter[str]], weighted: bool) -> None:
        from scipy.sparse import csr_array

        self._columns = {key: at for at, key in enumerate(dict.fromkeys(key for each in counts for key in each))}
        having = np.array([0.0] * len(self._columns))
        for each in counts:
            having[[self._columns[key] for key in each]] += 1
        self._weights: Array = np.log((1 + len(counts)) / (1 + having)) if weighted else np.ones(len(having))
        self._rarest = float(np.log(1 + len(counts))) if weighted else 1.0  # of what no model has
        values, places, starts = [], [], [0]
        for each in counts:
            row = self._values(each)
            length = self._length(each)
            values += [value / length for value in row.values()]
            places += list(row)
            starts.append(len(values))
        shape = (len(counts), len(self._columns))
        self._rows = csr_array((np.array(values), np.array(places, np.int64), np.array(starts)), shape=shape)

    def cosines(self, counts: Counter[str]) -> Array:
        """Returns the cosine with each of the models; keys of no model lower all of them."""
        row = np.zeros(len(self._columns))
        for at, value in self._values(counts).items():
            row[at] = value
        return np.asarray(self._rows @ row) / self._length(counts)

    def products(self) -> Array:
        """Returns the cosine of each model with each."""
        return (self._rows @ self._rows.T).toarray()

    def _values(self, counts: Counter[str]) -> dict[int, float]:
        return {self._columns[key]: float(np.log1p(count) * self._weights[self._columns[key]])
                for key, count in counts.items() if key in self._columns}  # fmt: skip

    def _length(self, counts: Counter[str]) -> float:
        others = [np.log1p(count) * self._rarest for key, count in counts.items() if key not in self._columns]
        known = self._values(counts).values()
        return float(np.sqrt(sum(value**2 for value in (*known, *others)))) or 1.0


def _labels(record: ModelRecord) -> Counter[str]:
    return features_of(record).label_rounds[-1]


def _classes(record: ModelRecord) -> Counter[str]:
    """Returns each class once; the labels account for depth."""
    return Counter(dict.fromkeys((record.nodes[key].qualified_class for key, _ in record.model.occurrences), 1))


def _shared_part(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    """The part of the first model's modules that the other has as well."""
    return sum(min(count, other.get(key, 0)) for key, count in one.items()) / max(sum(one.values()), 1)


# -------------------- Overlap and difference of the structures of models


SIDES = ("first", "second", "both")


def overlap(contents: Contents, shared: bool = False) -> pd.DataFrame:
    """For each two models the Jaccard index of their sets of structures: shared ones by all of both, from 0 to 1.

    Rows and columns are the names of the models in the order of adding; `shared=True` gives the number of shared
    structures instead, as integers.
    """
    names = name_index(contents.models)
    common = _shared_counts(contents)
    if shared:
        return pd.DataFrame(common, index=names, columns=names)
    sizes = common.diagonal()
    union = sizes[:, None] + sizes[None, :] - common
    return pd.DataFrame(common / np.maximum(union, 1), index=names, columns=names)


def difference(contents: Contents, a: str, b: str) -> pd.DataFrame:
    """The structures of two models with their occurrences, as `name`, `class`, `where`, `first`, `second`.

    `where` is "first" (only in `a`), "second" (only in `b`) or "both"; rows stand in this order, the most used first.
    Raises `UnknownPathError` for an unknown model.
    """
    first, second = _occurrences_in(contents, a), _occurrences_in(contents, b)
    rows = [
        (
            contents.names[key],
            contents.modules[key].class_name,
            SIDES[2 if first[key] and second[key] else int(second[key] > 0)],
            first[key],
            second[key],
        )
        for key in dict.fromkeys((*first, *second))
    ]
    rows.sort(key=lambda row: (SIDES.index(row[2]), -row[3] - row[4], row[0]))
    return data_frame(rows, ["name", "class", "where", "first", "second"])


def _shared_counts(contents: Contents) -> np.ndarray:
    """(models, models) numbers of structures that both have."""
    from scipy.sparse import csr_array

    columns: dict[str, int] = {}
    held = [
        (row, columns.setdefault(key, len(columns)))
        for row, model in enumerate(contents.models.values())
        for key in dict.fromkeys(key for key, _ in model.occurrences)
    ]
    rows, cols = np.array(held, dtype=np.int64).reshape(-1, 2).T
    holds = csr_array((np.ones(len(held), np.int64), (rows, cols)), shape=(len(contents.models), len(columns)))
    return (holds @ holds.T).toarray()


def _occurrences_in(contents: Contents, name: str) -> Counter[str]:
    if not isinstance(name, str) or name not in contents.models:
        raise unknown_name_error("model", name, contents.models)
    return occurrences_at_level(contents.models[name], None)


# -------------------- Families of models by class, and superfamilies: clusters of families of similar structure


MAX_SUPERFAMILIES = 40  # superfamilies: as many circles with names as a reader takes in
MAX_LINKS = 2  # from each to those that are most like it
MIN_LINK = 0.05


@dataclass(frozen=True)
class Superfamilies:
    """Families by the class of the model, in the order of the graph, and the superfamily of each.

    `links` join superfamilies that are alike: positions of two, and their likeness from 0 to 1.
    """

    families: dict[str, list[str]]
    superfamily_of: list[int]
    names: list[str]
    links: list[tuple[int, int, float]]


def superfamilies(contents: Contents, most: int = MAX_SUPERFAMILIES) -> Superfamilies:
    """Returns families by class, and at most `most` superfamilies of similar families.

    The likeness is that of `similar`, between the models of middle size. Superfamilies are clusters after Ward; where
    there are no more families than that, each is one of its own.
    """
    families = families_of(contents)
    if not families:
        return Superfamilies({}, [], [], [])
    likeness = _likeness(contents, list(families.values()))
    of = _clusters(likeness, most)
    return Superfamilies(families, of, _names(families, of), _links(likeness, of))


def families_of(contents: Contents) -> dict[str, list[str]]:
    """The names of the models by the class of their root."""
    families: dict[str, list[str]] = {}
    for model in contents.models.values():
        families.setdefault(contents.modules[model.root].class_name, []).append(model.name)
    return families


def _likeness(contents: Contents, families: Sequence[list[str]]) -> NDArray[np.float64]:
    middle = (sorted((contents.models[name] for name in names), key=_size)[len(names) // 2] for names in families)
    chosen = replace(contents, models={model.name: model for model in middle})
    return SimilarityIndex(chosen).matrix()


def _size(model: ModelNode) -> int:
    return model.parameters


def _clusters(likeness: NDArray[np.float64], most: int) -> list[int]:
    """Returns the cluster of each family, numbered in order of appearance."""
    if len(likeness) <= most:
        return list(range(len(likeness)))
    from scipy.cluster.hierarchy import fcluster, ward
    from scipy.spatial.distance import squareform

    distance = np.clip(1 - (likeness + likeness.T) / 2, 0, None)
    np.fill_diagonal(distance, 0)
    found = fcluster(ward(squareform(distance, checks=False)), most, "maxclust")
    numbers = {label: at for at, label in enumerate(dict.fromkeys(found.tolist()))}
    return [numbers[label] for label in found.tolist()]


def _names(families: dict[str, list[str]], of: Sequence[int]) -> list[str]:
    """Returns the largest family and the number of others: "ResNet + 21 more"."""
    inside: dict[int, list[str]] = {}
    for family, cluster in zip(families, of, strict=True):
        inside.setdefault(cluster, []).append(family)
    largest = (max(inside[cluster], key=lambda name: len(families[name])) for cluster in sorted(inside))
    counts = (len(inside[cluster]) - 1 for cluster in sorted(inside))
    taken: set[str] = set()
    names: list[str] = []
    for name, others in zip(largest, counts, strict=True):
        own = f"{name} + {others} more" if others else name
        while own in taken:  # a class may be called so
            own += "′"
        taken.add(own)
        names.append(own)
    return names


def _links(likeness: NDArray[np.float64], of: Sequence[int]) -> list[tuple[int, int, float]]:
    count = max(of) + 1
    belongs = np.zeros((count, len(of)))
    belongs[of, np.arange(len(of))] = 1
    belongs /= belongs.sum(axis=1, keepdims=True)
    mean = belongs @ likeness @ belongs.T
    found: dict[tuple[int, int], float] = {}
    for one in range(count):
        others = [other for other in np.argsort(-mean[one], kind="stable").tolist() if other != one][:MAX_LINKS]
        for other in others:
            if mean[one, other] >= MIN_LINK:
                found[min(one, other), max(one, other)] = float(mean[one, other])
    return [(one, other, weight) for (one, other), weight in sorted(found.items())]
