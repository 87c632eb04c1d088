"""What the engine finds out about the contents of a knowledge graph, by fingerprint, for the explorer's payload."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
LEVELS = (1, 2)  # of types


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


_known: dict[int, tuple[weakref.ref[Contents], Findings]] = {}


def findings_of(contents: Contents, go_on: Callable[[], None] = lambda: None) -> Findings:
    """All analyses that the explorer shows; of the same contents they are made once, as long as these live.

    `go_on` is called before each step, and ends all by raising.
    """
    known = _known.get(id(contents))
    if known is not None and known[0]() is contents:
        return known[1]
    found = _analysed(contents, go_on)
    key = id(contents)
    _known[key] = weakref.ref(contents, lambda _: _known.pop(key, None)), found
    return found


def _analysed(contents: Contents, go_on: Callable[[], None]) -> Findings:
    keys = {name: key for key, name in contents.names.items()}
    steps: dict[str, Callable[[], Any]] = {
        "parts": lambda: communities(contents),
        **{name: lambda name=name: _by_key(importance(contents, name), name, keys) for name in MEASURES},
        **{f"level {level}": lambda level=level: _types(contents, level, keys) for level in LEVELS},
        "nearest": lambda: SimilarModels(contents).nearest(NEAREST),
        "fit": lambda: _fit(rank_frequency(contents)),
    }
    found: dict[str, Any] = {}
    for step, make in steps.items():
        go_on()
        found[step] = make()
    parts = found["parts"]
    return Findings(
        communities={keys[name]: int(part) for name, part in zip(parts["name"], parts["community"], strict=True)},
        community_names=parts.attrs["names"],
        modularity=float(parts.attrs["modularity"]),
        importance={measure: found[measure] for measure in MEASURES},
        types=[found[f"level {level}"] for level in LEVELS],
        nearest=found["nearest"],
        fit=found["fit"],
    )


def _by_key(table: pd.DataFrame, measure: str, keys: Mapping[str, str]) -> dict[str, float]:
    return {keys[name]: value for name, value in zip(table["name"], table[measure].tolist(), strict=True)}


def _types(contents: Contents, level: int, keys: Mapping[str, str]) -> TypeLevel:
    edges = is_a(contents, level)
    nodes = [keys[name] for name in edges["node"]]
    differs = {key: ", ".join(map(str, values)) for key, values in zip(nodes, edges["differs"], strict=True)}
    return TypeLevel(level, dict(zip(nodes, edges["type"], strict=True)), differs)


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
