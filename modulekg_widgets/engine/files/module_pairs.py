"""Which modules of two models correspond where their tensors tell it: those that have the tensors of one pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from modulekg_widgets.engine.identity.hierarchy import Hierarchy
from modulekg_widgets.engine.identity.siblings import align

Places = tuple[int, int]  # modules of the left and of the right


def module_pairs(left: Hierarchy, right: Hierarchy, tensors: Iterable[tuple[str | None, str | None]]) -> dict[int, int]:
    """The modules of the left, each with that of the right which corresponds to it.

    `tensors` are pairs by the paths of the modules that have them, None where a tensor has no counterpart. Most pairs
    of tensors decide, first on the modules that have them, then on what is around those. What has no tensors itself,
    nor inside, is paired among what is in one container, as in live models.
    """
    told: Counter[Places] = Counter()
    owners: tuple[set[int], set[int]] = (set(), set())
    for ends in tensors:
        found = [None if path is None else side.find(path) for side, path in zip((left, right), ends, strict=True)]
        for own, index in zip(owners, found, strict=True):
            if index is not None:
                own.add(index)
        if found[0] is not None and found[1] is not None:
            told[found[0], found[1]] += 1
    around: Counter[Places] = Counter()
    for (one, other), count in told.items():
        for places in _around(left, one, right, other):
            around[places] += count
    partners: dict[int, int] = {}
    taken: set[int] = set()
    for votes in (told, around, Counter([(0, 0)])):
        for one, other in sorted(votes, key=lambda places: (-votes[places], places)):
            if one not in partners and other not in taken:
                partners[one] = other
                taken.add(other)
    _add_without_tensors(left, right, partners, _with_tensors(left, owners[0]), _with_tensors(right, owners[1]))
    return partners


def _around(left: Hierarchy, one: int, right: Hierarchy, other: int) -> Iterator[Places]:
    """What is around two modules, paired: by equal names from the inside, then from the outside, the rest in between.

    What only one of both has in between is a wrapper. The root has no name: behind a prefix it is the innermost one.
    """
    ours, theirs = _chain(left, one), _chain(right, other)
    names, others = left.walk.names, right.walk.names
    while len(ours) > 1 and len(theirs) > 1 and names[ours[-1]] == others[theirs[-1]]:
        yield ours.pop(), theirs.pop()
    shared = 1
    while shared < min(len(ours), len(theirs)) and names[ours[shared]] == others[theirs[shared]]:
        shared += 1
    if shared > 1:
        yield from zip(ours[:shared], theirs[:shared], strict=True)
        del ours[:shared], theirs[:shared]
    yield from zip(reversed(ours), reversed(theirs), strict=False)


def _chain(side: Hierarchy, index: int) -> list[int]:
    """The modules around one, the root first."""
    found = []
    while (index := side.walk.parents[index]) >= 0:
        found.append(index)
    return found[::-1]


def _with_tensors(side: Hierarchy, owners: Iterable[int]) -> set[int]:
    """The modules that have tensors themselves or inside."""
    found: set[int] = set()
    for index in owners:
        while index >= 0 and index not in found:
            found.add(index)
            index = side.walk.parents[index]
    return found


def _add_without_tensors(
    left: Hierarchy, right: Hierarchy, partners: dict[int, int], ours: set[int], theirs: set[int]
) -> None:
    """Pair what no tensor tells of, from the outside in."""
    for index in range(len(left)):
        if index in partners:
            sides = ((left, index, ours), (right, partners[index], theirs))
            rest = [[child for child in side.children(at) if child not in told] for side, at, told in sides]
            partners.update((i, j) for i, j in align(left, right, *rest) if i is not None and j is not None)
