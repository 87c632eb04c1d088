"""Types of modules: all structures of one class whose children, and theirs, are of the same types in the same order.

Names of children, hyper-parameters and shapes do not count. Level 1 is that skeleton as it stands. Level 2, the depth
family, counts equal children in a row once, so that a network and its deeper sisters are of one type.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain, groupby
from typing import Any

import networkx as nx

from modulekg_widgets.engine.errors import UnknownNameError, nearest, shown
from modulekg_widgets.engine.identity.fingerprint import display_name
from modulekg_widgets.engine.knowledge.analysis.containment import children
from modulekg_widgets.engine.knowledge.contents import Contents
from modulekg_widgets.engine.knowledge.records import StructureNode

LEVELS = (1, 2)
MARKS = {1: "*", 2: "**"}  # between class and digits in the name of a type: `Bottleneck*412`
_VERSION = b"module type 1"
ABSENT = "(absent)"  # stands for the value of a hyper-parameter that a module does not have

Values = dict[str, Any]
_Written = tuple[str, str]
# values of one type that are equal are written alike; an int may equal a bool
_BY_EQUALITY = frozenset((str, int, bool, type(None)))
_TOLD_APART = (_BY_EQUALITY - {bool}, _BY_EQUALITY - {int})


@dataclass(frozen=True, slots=True)
class ModuleType:
    """An abstract type; the same key in every graph and process."""

    key: str  # a digest, in hexadecimal digits like a fingerprint
    level: int
    class_name: str
    qualified_class: str
    children: tuple[str, ...]  # the keys of the children's types; of a child that contains it, a key of the class alone
    members: tuple[str, ...]  # fingerprints
    mode: Values = field(repr=False)  # the most frequent value of each hyper-parameter over the members


def module_types(contents: Contents, level: int = 1) -> list[ModuleType]:
    """The types of all modules, also those with one member, in the order of their first members."""
    return types_by_level(contents, [_checked(level)])[level]


def types_by_level(contents: Contents, levels: Iterable[int] = LEVELS) -> dict[int, list[ModuleType]]:
    """The same for several levels; what they have in common is computed once."""
    inside = {fingerprint: tuple(children(contents, node)) for fingerprint, node in contents.modules.items()}
    order = list(_contents_first(inside))
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
        candidates = {kind.key: display_name(kind.class_name + MARKS[kind.level], kind.key, digits) for kind in waiting}
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
        best, count = _winner([members[at][name] for at in having], [weights[at] for at in having])
        mode[name] = best if count >= len(members) - len(having) else ABSENT
    return mode


def _winner(values: list[Any], weights: list[int]) -> tuple[Any, int]:
    """The value that is to be preferred, and how often it is there."""
    texts = values if _equal_means_same(values) else [written(value) for value in values]
    counts = Counter(texts)
    most = max(counts.values())
    best = [text for text, count in counts.items() if count == most]
    if len(best) > 1:
        sums: Counter[Any] = Counter()
        for text, weight in zip(texts, weights, strict=True):
            sums[text] += weight
        best.sort(key=lambda text: (-sums[text], written(text) if texts is values else text))
    return values[texts.index(best[0])], most


def _equal_means_same(values: Collection[Any]) -> bool:
    """Whether those that are equal are written alike, which takes much less time to find out than to write them."""
    kinds = set(map(type, values))
    if kinds == {tuple}:
        kinds = set(map(type, chain.from_iterable(values)))
    return any(kinds <= told_apart for told_apart in _TOLD_APART)


def same(one: Any, other: Any) -> bool:
    """Whether two plain values are written alike."""
    kind = type(one)
    return kind is type(other) and (one == other if kind in _BY_EQUALITY else written(one) == written(other))


def written(value: Any) -> _Written:
    """What tells plain values apart: 1, 1.0 and True differ, a NaN equals itself."""
    return type(value).__name__, repr(value)


def _checked(level: Any) -> int:
    if level not in LEVELS:
        hint = nearest(str(level), map(str, LEVELS))
        raise UnknownNameError(f"there is no level {shown(str(level))!r} of types: {hint}")
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
    """By fingerprint, the keys of the types of the children and the key of its own type."""
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


def _contents_first(inside: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, Collection[str]]]:
    """Every fingerprint after those that it contains, and those that contain it in turn (a cycle)."""
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
                yield from _with_cycles({key: found for key, found in inside.items() if key not in done})
                return
            else:
                opened.add(key)
                stack += missing


def _with_cycles(inside: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, Collection[str]]]:
    """The same for contents with cycles; children that are not among them count as done."""
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
