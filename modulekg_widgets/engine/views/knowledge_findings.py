"""What the engine finds out about the contents of a knowledge graph, by fingerprint, for the explorer's payload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from modulekg_widgets.engine.errors import MissingPackageError
from modulekg_widgets.engine.knowledge.analysis.communities import communities
from modulekg_widgets.engine.knowledge.analysis.importance import importance
from modulekg_widgets.engine.knowledge.analysis.rank_frequency import RankFrequency, rank_frequency
from modulekg_widgets.engine.knowledge.analysis.relations import is_a
from modulekg_widgets.engine.knowledge.analysis.similarity import SimilarModels
from modulekg_widgets.engine.knowledge.contents import Contents

if TYPE_CHECKING:
    import pandas as pd

MEASURES = ("pagerank", "in_degree", "closeness")
LAWS = ("power law", "log-normal")  # drawn over the ranks
NEAREST = 8  # models beside one


@dataclass(frozen=True)
class TypeLevel:
    """The isA types of one level, by fingerprint; `differs` names what sets a structure apart from its type."""

    level: int
    type_of: dict[str, str]
    differs: dict[str, str]


@dataclass(frozen=True)
class RankFit:
    """How well a power law fits the number of uses; without `powerlaw` only the reason why it is not known."""

    verdict: str
    alpha: float | None = None
    xmin: float | None = None
    comparisons: list[tuple[str, float, float]] = field(default_factory=list)  # law, likelihood ratio, p
    lines: dict[str, list[tuple[float, float]]] = field(default_factory=dict)  # law -> (count, expected rank)


@dataclass(frozen=True)
class Findings:
    """Everything that the explorer shows of structures and the contents do not say."""

    communities: dict[str, int]
    community_names: list[str]  # by number
    modularity: float
    importance: dict[str, dict[str, float]]
    types: list[TypeLevel]
    nearest: dict[str, list[tuple[str, float]]]  # model -> those most like it, and how much
    fit: RankFit


def findings_of(contents: Contents) -> Findings:
    """All analyses that the explorer shows."""
    keys = {name: key for key, name in contents.names.items()}
    parts = communities(contents)
    return Findings(
        communities={keys[name]: int(part) for name, part in zip(parts["name"], parts["community"], strict=True)},
        community_names=parts.attrs["names"],
        modularity=float(parts.attrs["modularity"]),
        importance={measure: _by_key(importance(contents, measure), measure, keys) for measure in MEASURES},
        types=[_types(contents, level, keys) for level in (1, 2)],
        nearest=_nearest(contents),
        fit=_fit(rank_frequency(contents)),
    )


def _by_key(table: pd.DataFrame, measure: str, keys: Mapping[str, str]) -> dict[str, float]:
    return {keys[name]: value for name, value in zip(table["name"], table[measure].tolist(), strict=True)}


def _types(contents: Contents, level: int, keys: Mapping[str, str]) -> TypeLevel:
    edges = is_a(contents, level)
    nodes = [keys[name] for name in edges["node"]]
    differs = {key: ", ".join(map(str, values)) for key, values in zip(nodes, edges["differs"], strict=True)}
    return TypeLevel(level, dict(zip(nodes, edges["type"], strict=True)), differs)


def _nearest(contents: Contents) -> dict[str, list[tuple[str, float]]]:
    if not contents.models:
        return {}
    models = SimilarModels(contents)
    likeness = models.matrix()
    np.fill_diagonal(likeness, -1)
    order = np.argsort(-likeness, axis=1, kind="stable")[:, : min(NEAREST, len(models.names) - 1)]
    return {
        name: [(models.names[other], float(likeness[at, other])) for other in order[at].tolist()]
        for at, name in enumerate(models.names)
    }


def _fit(ranks: RankFrequency) -> RankFit:
    try:
        found = ranks.fit
    except MissingPackageError as error:
        return RankFit(str(error))
    laws = found.comparisons
    rows = zip(laws["alternative"], laws["R"].tolist(), laws["p"].tolist(), strict=True)
    lines = {
        law: list(zip(found.counts.tolist(), found.expected[law].tolist(), strict=True))
        for law in LAWS
        if law in found.expected
    }
    return RankFit(ranks.verdict, found.alpha, found.xmin, [(str(law), ratio, p) for law, ratio, p in rows], lines)
