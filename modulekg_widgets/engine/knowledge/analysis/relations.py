"""Edges that follow from the structures alone: which type a module is of, which class derives from which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from modulekg_widgets.engine.knowledge.analysis.module_types import (
    ABSENT,
    ModuleType,
    Values,
    module_types,
    most_frequent,
    same,
    type_names,
)
from modulekg_widgets.engine.knowledge.contents import Contents, copied
from modulekg_widgets.engine.knowledge.records import StructureNode
from modulekg_widgets.engine.knowledge.tables import table


@dataclass(frozen=True, slots=True)
class IsA:
    """A module is of a type, and has other values than most of its modules."""

    fingerprint: str
    type: str  # the key of the type
    differs: dict[str, Any]


def is_a(contents: Contents, level: int = 1) -> pd.DataFrame:
    """An edge from each module to its type: `node` and `type` (display names) and `differs`; large types come first.

    Level 1: same class and same types of children in order; level 2: equal children in a row count once. A type with
    one module has no edge. `differs` maps each hyper-parameter to the value here where it is not the most frequent one
    of the type; where no hyper-parameter differs, own tensors to their shapes; else `children` (their number) or
    `slots` (their names). Raises `UnknownNameError` for another level.
    """
    types = module_types(contents, level)
    names = type_names(contents, types)
    sizes = {kind.key: len(kind.members) for kind in types}
    uses, nodes = contents.uses, contents.names
    edges = is_a_edges(contents, types)
    edges.sort(key=lambda e: (-sizes[e.type], names[e.type], -uses[e.fingerprint], nodes[e.fingerprint]))
    rows = [(nodes[edge.fingerprint], names[edge.type], edge.differs) for edge in edges]
    return table(rows, ["node", "type", "differs"])


def is_a_edges(contents: Contents, types: Iterable[ModuleType]) -> list[IsA]:
    """The edges to those of `types` that have more than one member, by fingerprint and key; nothing is shared."""
    return [
        IsA(member, kind.key, copied(values))
        for kind, differing in differences(contents, types)
        for member, values in zip(kind.members, differing, strict=True)
    ]


def differences(contents: Contents, types: Iterable[ModuleType]) -> Iterator[tuple[ModuleType, list[Values]]]:
    """Those of `types` that have more than one member, with how each member differs from most; values are shared.

    What differs among the same members, as in types of two levels, is found once.
    """
    known: dict[tuple[str, ...], list[Values]] = {}
    for kind in types:
        if len(kind.members) == 1:
            continue
        if kind.members not in known:
            known[kind.members] = _differences(contents, kind)
        yield kind, known[kind.members]


def subclass_of(contents: Contents) -> pd.DataFrame:
    """Each class of a module with every class above it: `class`, `base` (qualified names), `distance`.

    `distance` is the position of the base in the method resolution order, from 1; torch's Module is the last.
    """
    lines = dict.fromkeys((node.qualified_class, node.bases) for node in contents.modules.values())
    rows = dict.fromkeys((name, base, at) for name, bases in sorted(lines) for at, base in enumerate(bases, 1))
    return table(rows, ["class", "base", "distance"])


def families(contents: Contents) -> pd.DataFrame:
    """The models grouped by the level-2 type of their roots, as `family`, `count`, `models`, `class`; large ones first.

    `family` is the name of the type as in `is_a(level=2)`, `models` the list of names.
    """
    types = module_types(contents, level=2)
    kinds = {member: kind for kind in types for member in kind.members}
    groups: dict[str, list[str]] = defaultdict(list)
    for model in contents.models.values():
        groups[kinds[model.root].key].append(model.name)
    names = type_names(contents, types)
    classes = {kind.key: kind.class_name for kind in types}
    rows = [(names[key], len(models), models, classes[key]) for key, models in groups.items()]
    rows.sort(key=lambda row: (-row[1], row[0]))
    return table(rows, ["family", "count", "models", "class"])


def _differences(contents: Contents, kind: ModuleType) -> list[Values]:
    """How each member differs from most of them; its values are those of the contents."""
    nodes = [contents.modules[member] for member in kind.members]
    weights = [contents.uses[member] for member in kind.members]
    shapes = most_frequent((node.tensors for node in nodes), weights)
    names = [{"slots": _slots(node)} for node in nodes]
    slots = most_frequent(names, weights)["slots"]
    return [
        _others(node.hyperparameters, kind.mode) or _others(node.tensors, shapes) or _other_slots(here["slots"], slots)
        for node, here in zip(nodes, names, strict=True)
    ]


def _others(values: Values, mode: Values) -> Values:
    """The values that are not the mode's, and `ABSENT` for what is missing though most have it."""
    other = {name: value for name, value in values.items() if value is not mode[name] and not same(value, mode[name])}
    if len(values) < len(mode):
        missing = [name for name, value in mode.items() if name not in values and value != ABSENT]
        other.update(dict.fromkeys(missing, ABSENT))
    return other


def _other_slots(here: tuple[str, ...], slots: tuple[str, ...]) -> Values:
    if len(here) != len(slots):
        return {"children": len(here)}
    return {"slots": here} if here != slots else {}


def _slots(node: StructureNode) -> tuple[str, ...]:
    return tuple([name for name, child in node.slots if child is not None])
