"""Differences of two models by the fingerprints of their modules: renamed, moved, changed, removed, added."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.identity.classes import class_names
from modulekg_widgets.engine.identity.hierarchy import Hierarchy
from modulekg_widgets.engine.identity.walk import nominal_class

# -------------------- Alignment of two lists of siblings, and detection of a wrapper around one of them


_MAX_ALIGNED = 2_000  # siblings; beyond it the alignment (quadratic) falls back to names
_MAX_WRAPPER_DEPTH = 6  # levels below a module that its partner's children are sought in


def align_siblings(
    left: Hierarchy, right: Hierarchy, ours: Sequence[int], theirs: Sequence[int]
) -> list[tuple[int | None, int | None]]:
    """Pairs two lists of siblings: equal structures by name or in order first, then by name and class."""
    digests, others = left.identities.digests, right.identities.digests
    if [digests[i] for i in ours] == [others[j] for j in theirs]:
        return list(zip(ours, theirs, strict=True))
    matched: dict[int, int] = {}

    def match_by(key: Callable[[Hierarchy, int], object]) -> None:
        taken = set(matched.values())
        free: dict[object, deque[int]] = {}
        for j in theirs:
            if j not in taken:
                free.setdefault(key(right, j), deque()).append(j)
        for i in ours:
            if i not in matched and free.get(key(left, i)):
                matched[i] = free[key(left, i)].popleft()

    def match_in_order() -> None:
        taken = set(matched.values())
        rest, other_rest = [i for i in ours if i not in matched], [j for j in theirs if j not in taken]
        if len(rest) + len(other_rest) <= _MAX_ALIGNED:
            keys = [digests[i] for i in rest], [others[j] for j in other_rest]
            for start, other, size in SequenceMatcher(None, *keys, autojunk=False).get_matching_blocks():
                matched.update(zip(rest[start : start + size], other_rest[other : other + size], strict=True))

    if have_positional_names(left, ours) and have_positional_names(right, theirs):
        match_in_order()  # an insertion renames all that follows
    match_by(lambda side, i: (_name(side, i), side.identities.digests[i]))
    match_in_order()
    match_by(lambda side, i: side.identities.digests[i])
    match_by(lambda side, i: (_name(side, i), _class(side, i)))
    match_by(_name)
    match_by(_class)
    taken = set(matched.values())
    aligned: list[tuple[int | None, int | None]] = [(i, matched.get(i)) for i in ours]
    return aligned + [(None, j) for j in theirs if j not in taken]


def have_positional_names(side: Hierarchy, siblings: Sequence[int]) -> bool:
    """True if the names are positions, as in `nn.Sequential`."""
    return all(side.walk.names[index] == str(position) for position, index in enumerate(siblings))


def longest_increasing_subsequence(values: list[int]) -> set[int]:
    """Returns a longest increasing subsequence: the siblings that need not move to sort the others."""
    tops: list[int] = []  # the smallest end of an increasing subsequence of each length
    before: dict[int, int | None] = {}
    for value in values:
        position = bisect_left(tops, value)
        before[value] = tops[position - 1] if position else None
        tops[position : position + 1] = [value]
    kept: set[int] = set()
    last = tops[-1] if tops else None
    while last is not None:
        kept.add(last)
        last = before[last]
    return kept


def find_wrapped(inner: Hierarchy, index: int, outer: Hierarchy, around: int) -> int:
    """Returns the module at or below `around` that has the children corresponding to those of `index`.

    That is the module below `around` with most children of the names and classes that those of `index` have, if more
    than half of them are there, and more than in `around` itself.
    """
    sought = {
        _name(inner, child): (_class(inner, child), inner.identities.digests[child]) for child in inner.children(index)
    }

    def found_in(place: int) -> int:
        return sum(
            _class(outer, child) is sought[name][0] or outer.identities.digests[child] == sought[name][1]
            for child in outer.children(place)
            if (name := _name(outer, child)) in sought
        )

    best, most = around, max(found_in(around), len(sought) // 2)
    if most == len(sought):
        return around  # all are where they were
    for place in _descendants(outer, around):
        if (found := found_in(place)) > most:
            best, most = place, found
    return best


def _descendants(side: Hierarchy, index: int) -> Iterator[int]:
    """The modules below one, level by level."""
    level = side.children(index)
    for _ in range(_MAX_WRAPPER_DEPTH):
        yield from level
        level = [child for place in level for child in side.children(place)]


def _name(side: Hierarchy, index: int) -> str:
    return side.walk.names[index]


def _class(side: Hierarchy, index: int) -> type:
    return nominal_class(side.walk.modules[index])


# ----------------------------------------


SAME, RENAMED, MOVED, CHANGED, REMOVED, ADDED = "same", "renamed", "moved", "changed", "removed", "added"


@dataclass(frozen=True, slots=True)
class Pair:
    """A module of the left model and the one of the right that corresponds to it; None where there is none."""

    left: int | None
    right: int | None
    status: str


class HierarchyDiff:
    """The correspondence of two hierarchies; every module of either stands in exactly one pair.

    Parameters
    ----------
    left, right : Hierarchy
        The modules of both.
    partners : mapping of int to int, optional
        What corresponds, by index, where something else tells it, as the tensors of files do; else structures tell.
    """

    def __init__(self, left: Hierarchy, right: Hierarchy, partners: Mapping[int, int] | None = None) -> None:
        self.left, self.right = left, right
        found = list(_pairs(left, right) if partners is None else _pairs_by_partners(left, right, partners))
        found = _in_order_of_left(left, right, found)
        self.pairs: list[Pair] = _join_moved(left, right, found) if partners is None else found
        self.left_status, self.right_status = [SAME] * len(left), [SAME] * len(right)
        for pair in self.pairs:
            if pair.left is not None:
                self.left_status[pair.left] = pair.status
            if pair.right is not None:
                self.right_status[pair.right] = pair.status
        self._wrappers = _wrappers(left, self.left_status), _wrappers(right, self.right_status)

    @property
    def structure(self) -> HierarchyDiff:
        """Itself, so that `mk.ModelGraph(…, compare=…)` reads it like a `FileDiff`."""
        return self

    @property
    def identical(self) -> bool:
        """True if the two models have the same structure."""
        return self.left.identities.digests[0] == self.right.identities.digests[0]

    @property
    def differences(self) -> list[Pair]:
        """The pairs that differ themselves, without containers of changes and parts of added or removed modules."""
        return [pair for pair in self.pairs if self._is_difference(pair)]

    @property
    def counts(self) -> dict[str, int]:
        """Number of `differences` by status."""
        found = Counter(pair.status for pair in self.differences)
        return {status: found[status] for status in (RENAMED, MOVED, CHANGED, REMOVED, ADDED) if status in found}

    def __repr__(self) -> str:
        return f"<HierarchyDiff: {self._summary()}>"

    def __str__(self) -> str:
        return "\n".join([*(self._line(pair) for pair in self.differences), self._summary()])

    def _summary(self) -> str:
        if self.identical:
            return f"same structure: {len(self.left)} modules"
        counts = self.counts
        total = sum(counts.values())
        parts = ", ".join(f"{count} {status}" for status, count in counts.items())
        return f"{total} {'difference' if total == 1 else 'differences'}: {parts}"

    def _is_difference(self, pair: Pair) -> bool:
        """True for the top of an added, removed or moved subtree, or where changes end; the page does the same."""
        if pair.status == SAME:
            return False
        if pair.status == CHANGED:
            return self._differs_itself(pair.left or 0, pair.right or 0)
        # the top of a subtree tells of all that is in it, but a wrapper only of itself
        if pair.left is not None:
            parent, status, wrappers = self.left.walk.parents[pair.left], self.left_status, self._wrappers[0]
        else:
            parent, status, wrappers = self.right.walk.parents[pair.right or 0], self.right_status, self._wrappers[1]
        return parent < 0 or status[parent] != pair.status or parent in wrappers

    def _differs_itself(self, left: int, right: int) -> bool:
        """True if the difference does not lie in the children alone."""
        below = [self.left_status[i] for i in self.left.children(left)]
        below += [self.right_status[j] for j in self.right.children(right)]
        classes = [class_names(nominal_class(side[i].module)) for side, i in ((self.left, left), (self.right, right))]
        return not any(status != SAME for status in below) or classes[0] != classes[1]

    def _line(self, pair: Pair) -> str:
        mark = {RENAMED: "~", MOVED: "~", CHANGED: "!", REMOVED: "-", ADDED: "+"}[pair.status]
        ends = [
            _describe_end(side, i) for side, i in ((self.left, pair.left), (self.right, pair.right)) if i is not None
        ]
        return f"{mark} {pair.status:8} {' → '.join(dict.fromkeys(ends))}"


def _describe_end(side: Hierarchy, index: int) -> str:
    identity = side.identities.digests[index].hex()[:6]
    return f"{printable(side.walk.path(index)) or '(root)'} {printable(side[index].class_name)} {identity}"


def _pairs(left: Hierarchy, right: Hierarchy) -> Iterator[Pair]:
    """The modules of both by their structure, from the roots down."""
    top, other_top = _inside_wrappers(left, 0, right, 0)
    yield from (Pair(i, None, REMOVED) for i in range(len(left)) if i not in _subtree(left, top))
    yield from (Pair(None, j, ADDED) for j in range(len(right)) if j not in _subtree(right, other_top))
    waiting: list[tuple[int, int, bool]] = [(top, other_top, top == other_top)]
    while waiting:
        a, b, in_place = waiting.pop()
        same = left.identities.digests[a] == right.identities.digests[b]
        named = 0 in (a, b) or left.walk.names[a] == right.walk.names[b]  # the roots have no names
        yield Pair(a, b, CHANGED if not same else RENAMED if not named else SAME if in_place else MOVED)
        inner, other = _inside_wrappers(left, a, right, b)
        yield from (Pair(i, None, REMOVED) for i in _wrapped_around(left, a, inner))
        yield from (Pair(None, j, ADDED) for j in _wrapped_around(right, b, other))
        ours, theirs = left.children(inner), right.children(other)
        aligned = align_siblings(left, right, ours, theirs)
        both = [(i, j) for i, j in aligned if i is not None and j is not None]
        kept = (
            set(theirs) if have_positional_names(left, ours) else longest_increasing_subsequence([j for _, j in both])
        )
        waiting.extend((i, j, j in kept) for i, j in both)
        yield from (
            Pair(k, None, REMOVED) for i, j in aligned if i is not None and j is None for k in _subtree(left, i)
        )
        yield from (Pair(None, k, ADDED) for i, j in aligned if j is not None and i is None for k in _subtree(right, j))


def _inside_wrappers(left: Hierarchy, a: int, right: Hierarchy, b: int) -> tuple[int, int]:
    """Returns the two indices, one of them replaced by the module that a wrapper contains."""
    if left.identities.digests[a] == right.identities.digests[b]:
        return a, b
    other = find_wrapped(left, a, right, b)
    return (a, other) if other != b else (find_wrapped(right, b, left, a), b)


def _wrapped_around(side: Hierarchy, index: int, inner: int) -> Iterator[int]:
    """The wrappers from below a module down to `inner`, and all that is in them beside it."""
    while inner != index:
        yield inner
        parent = side.walk.parents[inner]
        yield from (k for child in side.children(parent) if child != inner for k in _subtree(side, child))
        inner = parent


def _subtree(side: Hierarchy, index: int) -> range:
    return range(index, side.walk.subtree_ends[index])


def _pairs_by_partners(left: Hierarchy, right: Hierarchy, partners: Mapping[int, int]) -> Iterator[Pair]:
    """Pairs of modules by given partners; a module is renamed if its path differs."""
    for a in range(len(left)):
        if a not in partners:
            yield Pair(a, None, REMOVED)
            continue
        b = partners[a]
        same = left.identities.digests[a] == right.identities.digests[b]
        renamed = left.walk.path(a) != right.walk.path(b)
        yield Pair(a, b, CHANGED if not same else RENAMED if renamed else SAME)
    taken = set(partners.values())
    yield from (Pair(None, b, ADDED) for b in range(len(right)) if b not in taken)


def _in_order_of_left(left: Hierarchy, right: Hierarchy, pairs: list[Pair]) -> list[Pair]:
    """Sorts pairs by the left tree; modules of the right alone follow the contents of their container."""
    partners = {pair.right: pair.left for pair in pairs if pair.right is not None and pair.left is not None}

    def place(pair: Pair) -> tuple[int, int]:
        if pair.left is not None:
            return (pair.left, -1)
        around = pair.right or 0
        while around >= 0 and around not in partners:
            around = right.walk.parents[around]
        return (left.walk.subtree_ends[partners.get(around, 0)] - 1, pair.right or 0)

    return sorted(pairs, key=place)


def _wrappers(side: Hierarchy, status: Sequence[str]) -> set[int]:
    """Returns the added or removed modules that contain modules which are neither."""
    around: set[int] = set()
    for index, one in enumerate(status):
        parent = side.walk.parents[index] if one not in (REMOVED, ADDED) else -1
        while parent >= 0 and parent not in around:
            around.add(parent)
            parent = side.walk.parents[parent]
    return {index for index in around if status[index] in (REMOVED, ADDED)}


def _join_moved(left: Hierarchy, right: Hierarchy, pairs: list[Pair]) -> list[Pair]:
    """Joins a removed and an added module of the same structure to a moved one."""
    added: dict[bytes, list[Pair]] = {}
    for pair in pairs:
        if pair.status == ADDED and pair.right is not None:
            added.setdefault(right.identities.digests[pair.right], []).append(pair)
    out: list[Pair] = []
    joined: set[Pair] = set()
    for pair in pairs:
        candidates = added.get(left.identities.digests[pair.left]) if pair.status == REMOVED else None  # type: ignore[index]
        if candidates:
            partner = candidates.pop(0)
            joined.add(partner)
            pair = Pair(pair.left, partner.right, MOVED)
        out.append(pair)
    return [pair for pair in out if pair not in joined]
