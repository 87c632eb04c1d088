"""What differs between two models, by fingerprint."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from modulekg_widgets.engine.errors import shown
from modulekg_widgets.engine.identity.hierarchy import Hierarchy
from modulekg_widgets.engine.identity.walk import nominal_class

SAME, RENAMED, MOVED, CHANGED, REMOVED, ADDED = "same", "renamed", "moved", "changed", "removed", "added"
_LONGEST_ALIGNED = 2_000  # siblings; beyond it the alignment (quadratic) falls back to names


@dataclass(frozen=True, slots=True)
class Pair:
    """A module of the left model and the one of the right that corresponds to it; None where there is none."""

    left: int | None
    right: int | None
    status: str


class HierarchyDiff:
    """The correspondence of two hierarchies; every module of either stands in exactly one pair."""

    def __init__(self, left: Hierarchy, right: Hierarchy) -> None:
        self.left, self.right = left, right
        self.pairs: list[Pair] = _with_moved(left, right, list(_pairs(left, right)))
        self.left_status, self.right_status = [SAME] * len(left), [SAME] * len(right)
        for pair in self.pairs:
            if pair.left is not None:
                self.left_status[pair.left] = pair.status
            if pair.right is not None:
                self.right_status[pair.right] = pair.status

    @property
    def identical(self) -> bool:
        """Whether the two models have the same structure."""
        return self.left.identities.digests[0] == self.right.identities.digests[0]

    @property
    def differences(self) -> list[Pair]:
        """The places that differ themselves, each once: no containers of changes, no insides of what came or went."""
        return [pair for pair in self.pairs if self._is_place(pair)]

    @property
    def counts(self) -> dict[str, int]:
        """How many of the `differences` have each status."""
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

    def _is_place(self, pair: Pair) -> bool:
        """Whether it is the top of what is new, gone or moved, or where changes end; the front end asks the same."""
        if pair.status == SAME:
            return False
        if pair.status == CHANGED:
            return self._changed_itself(pair.left or 0, pair.right or 0)
        # the top of a subtree tells of all that is in it
        if pair.left is not None:
            parent, status = self.left.walk.parents[pair.left], self.left_status
        else:
            parent, status = self.right.walk.parents[pair.right or 0], self.right_status
        return parent < 0 or status[parent] != pair.status

    def _changed_itself(self, left: int, right: int) -> bool:
        """Whether the difference does not lie in the children alone."""
        below = [self.left_status[i] for i in self.left.children(left)]
        below += [self.right_status[j] for j in self.right.children(right)]
        ends = [side[i].module for side, i in ((self.left, left), (self.right, right))]
        return not any(status != SAME for status in below) or nominal_class(ends[0]) is not nominal_class(ends[1])

    def _line(self, pair: Pair) -> str:
        mark = {RENAMED: "~", MOVED: "~", CHANGED: "!", REMOVED: "-", ADDED: "+"}[pair.status]
        ends = [_end(side, i) for side, i in ((self.left, pair.left), (self.right, pair.right)) if i is not None]
        return f"{mark} {pair.status:8} {' → '.join(dict.fromkeys(ends))}"


def _end(side: Hierarchy, index: int) -> str:
    identity = side.identities.digests[index].hex()[:6]
    return f"{shown(side.walk.path(index)) or '(root)'} {shown(side[index].class_name)} {identity}"


def _pairs(left: Hierarchy, right: Hierarchy) -> Iterator[Pair]:
    waiting: list[tuple[int | None, int | None, bool]] = [(0, 0, False)]
    while waiting:
        a, b, in_place = waiting.pop()
        if a is None:
            yield Pair(None, b, ADDED)
            waiting.extend((None, c, True) for c in reversed(right.children(b)))  # type: ignore[arg-type]
        elif b is None:
            yield Pair(a, None, REMOVED)
            waiting.extend((c, None, True) for c in reversed(left.children(a)))
        else:
            same = left.identities.digests[a] == right.identities.digests[b]
            # the two roots have no names
            named = left.walk.names[a] == right.walk.names[b]
            yield Pair(a, b, CHANGED if not same else RENAMED if not named else SAME if in_place or a == 0 else MOVED)
            ours, theirs = left.children(a), right.children(b)
            aligned = _align(left, right, ours, theirs)
            kept = (
                set(theirs)
                if _numbered(left, ours)
                else _in_order([j for i, j in aligned if i is not None and j is not None])
            )
            waiting.extend((i, j, j in kept) for i, j in reversed(aligned))


def _in_order(values: list[int]) -> set[int]:
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


def _align(
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

    if _numbered(left, ours) and _numbered(right, theirs):
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


def _numbered(side: Hierarchy, siblings: Sequence[int]) -> bool:
    """Whether the names are but positions, as in `nn.Sequential`."""
    return all(side.walk.names[index] == str(position) for position, index in enumerate(siblings))


def _name(side: Hierarchy, index: int) -> object:
    return side.walk.names[index]


def _class(side: Hierarchy, index: int) -> object:
    return nominal_class(side.walk.modules[index])


def _with_moved(left: Hierarchy, right: Hierarchy, pairs: list[Pair]) -> list[Pair]:
    """Join what is gone here with what is new there where the structure is the same."""
    added: dict[bytes, list[Pair]] = {}
    for pair in pairs:
        if pair.status == ADDED and pair.right is not None:
            added.setdefault(right.identities.digests[pair.right], []).append(pair)
    out, joined = [], set()
    for pair in pairs:
        candidates = added.get(left.identities.digests[pair.left]) if pair.status == REMOVED else None  # type: ignore[index]
        if candidates:
            partner = candidates.pop(0)
            joined.add(partner)
            pair = Pair(pair.left, partner.right, MOVED)
        out.append(pair)
    return [pair for pair in out if pair not in joined]
