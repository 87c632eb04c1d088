"""Which of two lists of siblings correspond, and what stands around one of the lists alone: a wrapper."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher

from modulekg_widgets.engine.identity.hierarchy import Hierarchy
from modulekg_widgets.engine.identity.walk import nominal_class

_LONGEST_ALIGNED = 2_000  # siblings; beyond it the alignment (quadratic) falls back to names
_DEEPEST_WRAPPED = 6  # levels below a module that its partner's children are sought in


def align(
    left: Hierarchy, right: Hierarchy, ours: Sequence[int], theirs: Sequence[int]
) -> list[tuple[int | None, int | None]]:
    """Pair two lists of siblings: what is the same, by name or in order; then by name and class."""
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
        if len(rest) + len(other_rest) <= _LONGEST_ALIGNED:
            keys = [digests[i] for i in rest], [others[j] for j in other_rest]
            for start, other, size in SequenceMatcher(None, *keys, autojunk=False).get_matching_blocks():
                matched.update(zip(rest[start : start + size], other_rest[other : other + size], strict=True))

    if are_numbered(left, ours) and are_numbered(right, theirs):
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


def are_numbered(side: Hierarchy, siblings: Sequence[int]) -> bool:
    """Whether the names are but positions, as in `nn.Sequential`."""
    return all(side.walk.names[index] == str(position) for position, index in enumerate(siblings))


def in_order(values: list[int]) -> set[int]:
    """A longest increasing subsequence: the siblings that need not move for the others to come into order."""
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


def wrapped(inner: Hierarchy, index: int, outer: Hierarchy, around: int) -> int:
    """Where inside of a module the children of its partner stand: in itself, or in one that is wrapped around them.

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
    for place in _inside(outer, around):
        if (found := found_in(place)) > most:
            best, most = place, found
    return best


def _inside(side: Hierarchy, index: int) -> Iterator[int]:
    """What is below a module, level by level."""
    level = side.children(index)
    for _ in range(_DEEPEST_WRAPPED):
        yield from level
        level = [child for place in level for child in side.children(place)]


def _name(side: Hierarchy, index: int) -> str:
    return side.walk.names[index]


def _class(side: Hierarchy, index: int) -> type:
    return nominal_class(side.walk.modules[index])
