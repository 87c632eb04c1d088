"""Types of modules: structures of one class whose children have the same types in the same order.

Names of children, hyper-parameters and shapes do not count. Level 1 is that skeleton as it stands. Level 2, the depth
family, counts equal children in a row once, so that a network and its deeper sisters are of one type.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain, groupby

import networkx as nx
import pandas as pd

from modulekg_widgets.engine.errors import UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.identity.fingerprint import display_name
from modulekg_widgets.engine.knowledge.analysis.containment import children
from modulekg_widgets.engine.knowledge.facts.contents import Contents, copy_values
from modulekg_widgets.engine.knowledge.facts.property_values import PropertyValue
from modulekg_widgets.engine.knowledge.facts.records import StructureNode
from modulekg_widgets.engine.knowledge.facts.tables import data_frame

LEVELS = (1, 2)
NAME_MARKS = {1: "*", 2: "**"}  # between class and digits in the name of a type: `Bottleneck*412`
_VERSION = b"module type 1"
ABSENT = "(absent)"  # stands for the value of a hyper-parameter that a module does not have

Values = dict[str, PropertyValue]
_ValueKey = tuple[str, str]
# values of one type that are equal are written alike; an int may equal a bool
_BY_EQUALITY = frozenset((str, int, bool, type(None)))
_DISTINGUISHABLE = (_BY_EQUALITY - {bool}, _BY_EQUALITY - {int})


@dataclass(frozen=True, slots=True)
class ModuleType:
    """An abstract type; its key is the same in every graph and process."""

    key: str  # a digest, in hexadecimal digits like a fingerprint
    level: int
    class_name: str
    qualified_class: str
    children: tuple[str, ...]  # the keys of the children's types; of a child that contains it, a key of the class alone
    members: tuple[str, ...]  # fingerprints
    mode: Values = field(repr=False)  # the most frequent value of each hyper-parameter over the members


def module_types(contents: Contents, level: int = 1) -> list[ModuleType]:
    """Returns the types of all modules, also those with one member, in the order of their first members."""
    return types_by_level(contents, [_checked(level)])[level]


def types_by_level(contents: Contents, levels: Iterable[int] = LEVELS) -> dict[int, list[ModuleType]]:
    """Returns the types of several levels; what they share is computed once."""
    inside = {fingerprint: tuple(children(contents, node)) for fingerprint, node in contents.modules.items()}
    order = list(_postorder(inside))
    modes: dict[tuple[str, ...], Values] = {}  # by the members: most types of leaves have the same at every level
    found: dict[int, list[ModuleType]] = {}
    for level in levels:
        skeletons, keys = _skeletons(contents, level, inside, order)
        members: dict[bytes, list[str]] = defaultdict(list)
        for fingerprint in contents.modules:
            members[keys[fingerprint]].append(fingerprint)
        found[level] = [
            _module_type(contents, level, key, skeletons[those[0]], tuple(those), modes)
            for key, those in members.items()
        ]
    return found


def type_names(contents: Contents, types: Iterable[ModuleType]) -> dict[str, str]:
    """A display name for the key of each type, `Bottleneck*412` or at level 2 `Bottleneck**412`.

    No two are the same and none is the name of a module.
    """
    names: dict[str, str] = {}
    taken = set(contents.names.values())
    waiting, digits = list(types), 3
    while waiting:
        candidates = {
            kind.key: display_name(kind.class_name + NAME_MARKS[kind.level], kind.key, digits) for kind in waiting
        }
        uses = Counter(candidates.values())
        free = {key for key, name in candidates.items() if (uses[name] == 1 and name not in taken) or digits >= 40}
        names.update({key: candidates[key] for key in candidates if key in free})
        taken.update(candidates[key] for key in free)
        waiting = [kind for kind in waiting if kind.key not in free]
        digits += 1
    return names


def most_frequent(members: Iterable[Values], weights: Iterable[int]) -> Values:
    """The most frequent value of each name; a tie goes to the larger sum of weights, then to the smaller text."""
    members, weights = list(members), list(weights)
    mode: Values = {}
    for name in dict.fromkeys(chain.from_iterable(members)):
        having = [at for at, values in enumerate(members) if name in values]
        best, count = _most_frequent_value([members[at][name] for at in having], [weights[at] for at in having])
        mode[name] = best if count >= len(members) - len(having) else ABSENT
    return mode


def _most_frequent_value(values: list[PropertyValue], weights: list[int]) -> tuple[PropertyValue, int]:
    """Returns the preferred value and its number."""
    texts = values if _is_equality_exact(values) else [value_key(value) for value in values]
    counts = Counter(texts)
    most = max(counts.values())
    best = [text for text, count in counts.items() if count == most]
    if len(best) > 1:
        sums: Counter[PropertyValue] = Counter()
        for text, weight in zip(texts, weights, strict=True):
            sums[text] += weight
        best.sort(key=lambda text: (-sums[text], value_key(text) if texts is values else text))
    return values[texts.index(best[0])], most


def _is_equality_exact(values: Collection[PropertyValue]) -> bool:
    """True if equal values of these types are also written alike."""
    kinds = set(map(type, values))
    if kinds == {tuple}:
        kinds = set(map(type, chain.from_iterable(values)))
    return any(kinds <= told_apart for told_apart in _DISTINGUISHABLE)


def is_same_value(one: object, other: object) -> bool:
    """True if two plain values have the same type and text."""
    kind = type(one)
    return kind is type(other) and (one == other if kind in _BY_EQUALITY else value_key(one) == value_key(other))


def value_key(value: object) -> _ValueKey:
    """Returns a key of a plain value: 1, 1.0 and True differ, a NaN equals itself."""
    return type(value).__name__, repr(value)


def _checked(level: PropertyValue) -> int:
    if level not in LEVELS:
        hint = closest_match_hint(str(level), map(str, LEVELS))
        raise UnknownNameError(f"there is no level {printable(str(level))!r} of types: {hint}")
    return level


def _module_type(
    contents: Contents,
    level: int,
    key: bytes,
    skeleton: Sequence[bytes],
    members: tuple[str, ...],
    modes: dict[tuple[str, ...], Values],
) -> ModuleType:
    first, mode = contents.modules[members[0]], modes.get(members)
    if mode is None:
        mode = modes[members] = dict(first.hyperparameters) if len(members) == 1 else most_frequent(
            (contents.modules[member].hyperparameters for member in members),
            (contents.uses[member] for member in members),
        )  # fmt: skip
    kept = tuple(child.hex() for child in skeleton)
    return ModuleType(key.hex(), level, first.class_name, first.qualified_class, kept, members, mode)


def _skeletons(
    contents: Contents,
    level: int,
    inside: Mapping[str, Sequence[str]],
    order: Iterable[tuple[str, Collection[str]]],
) -> tuple[dict[str, tuple[bytes, ...]], dict[str, bytes]]:
    """Returns by fingerprint the type keys of the children, and the type key of the structure."""
    keys: dict[str, bytes] = {}
    skeletons: dict[str, tuple[bytes, ...]] = {}
    known: dict[tuple[str, tuple[bytes, ...]], bytes] = {}
    for fingerprint, ring in order:
        node, inner = contents.modules[fingerprint], inside[fingerprint]
        if ring:
            found = [_digest(b"above", contents.modules[child]) if child in ring else keys[child] for child in inner]
        else:
            found = [keys[child] for child in inner]
        if level == 2:
            found = [key for key, _ in groupby(found)]
        skeletons[fingerprint] = skeleton = tuple(found)
        kind = node.qualified_class, skeleton
        if kind not in known:
            known[kind] = _digest(b"type %d" % level, node, skeleton)
        keys[fingerprint] = known[kind]
    return skeletons, keys


def _postorder(inside: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, Collection[str]]]:
    """Yields every fingerprint after those that it contains, with the cycle that it lies on."""
    done: set[str] = set()
    opened: set[str] = set()
    stack: list[str] = []
    for start in inside:
        if start in done:
            continue
        stack.append(start)
        while stack:
            key = stack[-1]
            missing = [child for child in inside[key] if child not in done]
            if not missing:
                stack.pop()
                if key not in done:
                    done.add(key)
                    yield key, ()
            elif key in opened:  # what it contains comes back to it
                yield from _postorder_with_cycles({key: found for key, found in inside.items() if key not in done})
                return
            else:
                opened.add(key)
                stack += missing


def _postorder_with_cycles(inside: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, Collection[str]]]:
    """Yields the same for contents with cycles; children outside of them count as done."""
    graph = nx.DiGraph()
    graph.add_nodes_from(inside)
    graph.add_edges_from((key, child) for key, found in inside.items() for child in found if child in inside)
    # strongly connected components are found in an order in which each comes after those that it points to
    for ring in nx.strongly_connected_components(graph):
        for fingerprint in ring:
            yield fingerprint, ring


def _digest(tag: bytes, node: StructureNode, skeleton: Iterable[bytes] = ()) -> bytes:
    name = node.qualified_class.encode("utf-8", "surrogatepass")
    head = b"%s %s %d %s" % (_VERSION, tag, len(name), name)
    return blake2b(head + b"".join(skeleton), digest_size=16).digest()


# --------------------
# Edges that follow from the structures alone: module to type (`isA`), class to base class (`subclassOf`).


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
    edges.sort(key=lambda edge: (-sizes[edge[1]], names[edge[1]], -uses[edge[0]], nodes[edge[0]]))
    rows = [(nodes[member], names[kind], differs) for member, kind, differs in edges]
    return data_frame(rows, ["node", "type", "differs"])


def is_a_edges(contents: Contents, types: Iterable[ModuleType]) -> list[tuple[str, str, Values]]:
    """The edges to those of `types` that have several members: fingerprint, key of the type, and what differs."""
    return [
        (member, kind.key, copy_values(values))
        for kind, differing in differences(contents, types)
        for member, values in zip(kind.members, differing, strict=True)
    ]


def differences(contents: Contents, types: Iterable[ModuleType]) -> Iterator[tuple[ModuleType, list[Values]]]:
    """Yields the types with several members, with the differences of each member; values are shared.

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
    """Each class of a module with every class above it: `class`, `base` (qualified names), `max_difference`.

    `max_difference` is the position of the base in the method resolution order, from 1; torch's Module is the last.
    """
    lines = dict.fromkeys((node.qualified_class, node.bases) for node in contents.modules.values())
    rows = dict.fromkeys((name, base, at) for name, bases in sorted(lines) for at, base in enumerate(bases, 1))
    return data_frame(rows, ["class", "base", "distance"])


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
    return data_frame(rows, ["family", "count", "models", "class"])


def _differences(contents: Contents, kind: ModuleType) -> list[Values]:
    """Returns the differences of each member from most of them; values are those of the contents."""
    nodes = [contents.modules[member] for member in kind.members]
    weights = [contents.uses[member] for member in kind.members]
    shapes = most_frequent((node.tensors for node in nodes), weights)
    names = [{"slots": _slots(node)} for node in nodes]
    slots = most_frequent(names, weights)["slots"]
    return [
        _differing_values(node.hyperparameters, kind.mode)
        or _differing_values(node.tensors, shapes)
        or _differing_slots(here["slots"], slots)
        for node, here in zip(nodes, names, strict=True)
    ]


def _differing_values(values: Values, mode: Values) -> Values:
    """Returns the values other than the mode's, and `ABSENT` for missing ones."""
    other = {
        name: value
        for name, value in values.items()
        if value is not mode[name] and not is_same_value(value, mode[name])
    }
    if len(values) < len(mode):
        missing = [name for name, value in mode.items() if name not in values and value != ABSENT]
        other.update(dict.fromkeys(missing, ABSENT))
    return other


def _differing_slots(here: tuple[str, ...], slots: tuple[str, ...]) -> Values:
    if len(here) != len(slots):
        return {"children": len(here)}
    return {"slots": here} if here != slots else {}


def _slots(node: StructureNode) -> tuple[str, ...]:
    return tuple([name for name, child in node.slots if child is not None])
