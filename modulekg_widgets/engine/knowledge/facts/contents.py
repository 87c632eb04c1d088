"""Records of everything that a knowledge graph holds at one revision.

`Contents` has the structures by fingerprint, and models, data sets, users and jobs by name. It is what
`KnowledgeGraph.contents()` returns, what analysis and exchange read, and what `add_contents` adds to another graph.
The records are frozen and hold plain values; types of modules and the edges that follow from structures are not
stored but computed (analysis/module_types.py).

`names`, `uses` and `holders` are computed once: display names, occurrences, and models by structure. Do not change
the dictionaries of a `Contents` that a graph returned: it is shared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from modulekg_widgets.engine.identity.fingerprint import display_name
from modulekg_widgets.engine.knowledge.facts.records import ModelNode, StructureNode

_IMMUTABLE_TYPES = frozenset((str, int, float, bool, complex, bytes, type(None)))


@dataclass(frozen=True, slots=True)
class DataSetNode:
    """A data set by name; `properties` are the user's plain values."""

    name: str
    properties: dict[str, Any]


@dataclass(frozen=True, slots=True)
class UserNode:
    """A person or a program that trains, by name."""

    name: str
    properties: dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobNode:
    """One training run; `user`, `dataset` and `model` are names, None where it is not known."""

    name: str
    user: str | None
    dataset: str | None
    model: str | None
    accuracy: float | None  # a fraction
    convergence: float | None  # steps until 95 % of the way to the final value of the first metric of `history`
    history: dict[str, list[tuple[float, float]]]  # metric -> (step, value)
    started: float  # seconds since 1970, UTC
    ended: float | None
    properties: dict[str, Any]


@dataclass(frozen=True)
class Contents:
    """All stored nodes of a graph; types of modules and their edges are computed from them (module_types.py)."""

    scheme: str = "structure"
    modules: dict[str, StructureNode] = field(default_factory=dict)  # by fingerprint
    models: dict[str, ModelNode] = field(default_factory=dict)  # by name, in the order of adding
    datasets: dict[str, DataSetNode] = field(default_factory=dict)
    users: dict[str, UserNode] = field(default_factory=dict)
    jobs: dict[str, JobNode] = field(default_factory=dict)

    @cached_property
    def names(self) -> dict[str, str]:
        """The display name of every structure, `ReLU854`, with as many digits as are needed to be unique."""
        return display_names({key: node.class_name for key, node in self.modules.items()})

    @cached_property
    def uses(self) -> Counter[str]:
        """Number of occurrences of each structure over all models."""
        return count_uses(self.models.values())

    @cached_property
    def holders(self) -> dict[str, list[str]]:
        """The names of the models in which each structure occurs."""
        holders: dict[str, list[str]] = {key: [] for key in self.modules}
        for model in self.models.values():
            for fingerprint in dict.fromkeys(key for key, _ in model.occurrences):
                holders[fingerprint].append(model.name)
        return holders


def display_names(classes: dict[str, str]) -> dict[str, str]:
    """A display name for each fingerprint, given its class; no two are the same."""
    names: dict[str, str] = {}
    waiting, digits = list(classes), 3
    while waiting:
        candidates = {key: display_name(classes[key], key, digits) for key in waiting}
        uses = Counter(candidates.values())
        uses.update(names.values())  # Block1234 may also be a class called Block1 with three digits
        names.update({key: name for key, name in candidates.items() if uses[name] == 1 or digits >= 40})
        waiting = [key for key in waiting if key not in names]
        digits += 1
    return names


def slot_positions(node: StructureNode) -> dict[str, tuple[int, ...]]:
    """Returns for each child structure its positions among the slots."""
    found: dict[str, list[int]] = {}
    for position, (_, child) in enumerate(node.slots):
        if child is not None:
            found.setdefault(child, []).append(position)
    return {child: tuple(order) for child, order in found.items()}


def count_uses(models: Iterable[ModelNode]) -> Counter[str]:
    """Number of occurrences of each structure in the models, by fingerprint, over all levels."""
    uses: Counter[str] = Counter()
    for model in models:
        for (fingerprint, _), count in model.occurrences.items():
            uses[fingerprint] += count
    return uses


def copy_values(values: dict[Any, Any]) -> dict[Any, Any]:
    """Returns a copy that shares no mutable value."""
    if _IMMUTABLE_TYPES.issuperset(map(type, values.values())):
        return values.copy()
    return {key: value if _is_immutable(value) else deepcopy(value) for key, value in values.items()}


def _is_immutable(value: Any) -> bool:
    kind = type(value)
    return kind in _IMMUTABLE_TYPES or (kind is tuple and _IMMUTABLE_TYPES.issuperset(map(type, value)))
