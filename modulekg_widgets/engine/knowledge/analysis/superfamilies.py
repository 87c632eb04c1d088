"""Families of models by class, and superfamilies: clusters of families of similar structure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.knowledge.analysis.similarity import SimilarityIndex
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.facts.records import ModelNode

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
