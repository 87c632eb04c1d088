"""Renamed tensors between two models: pairs of one shape and dtype whose names end alike."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from modulekg_widgets.engine.files.records import TensorRecord
from modulekg_widgets.engine.files.tensor_owners import split_name
from modulekg_widgets.engine.identity.diff import align_siblings
from modulekg_widgets.engine.identity.hierarchy import Hierarchy

MAX_SEGMENTS = 8  # of the end of a name
RecordsByName = dict[str, TensorRecord]
MatchKey = Callable[[TensorRecord], tuple]
# what a pair has in common beside the end of its names, and the least segments that this end has
MATCH_PASSES: tuple[tuple[MatchKey, int], ...] = (
    (lambda each: (each.shape, each.dtype), 0),
    (lambda each: (each.shape,), 2),  # stored in another precision
    (lambda each: (), 2),  # of another size
)
MIN_GROUP_SEGMENTS = (
    2  # segments that the ends of names have in common at least, where several are paired by their order
)


def match_renamed(ours: Sequence[TensorRecord], theirs: Sequence[TensorRecord]) -> dict[str, str]:
    """Returns the names of the right by those of the left, for tensors that lack their name on the other side.

    First those are paired whose names are the same behind one prefix, as in a checkpoint with a model in it: the prefix
    that makes most pairs of one shape. Then those whose names end alike for longest; where several of each side do, in
    their order, if there are as many of both. What has not even its last segment in common is paired where no other has
    its shape and dtype. What stands beside a pair in both modules is one, too. What is left then may differ in its
    dtype, and at last in its shape.
    """
    left, right = {each.name: each for each in ours}, {each.name: each for each in theirs}
    found = dict(_prefix_pairs(left, right)) or {one: other for other, one in _prefix_pairs(right, left)}
    for name, other in found.items():
        del left[name], right[other]
    for sort, shortest in MATCH_PASSES:
        for length in range(MAX_SEGMENTS, shortest - 1, -1):
            for name, other in _pairs(_by_suffix(left, sort, length), _by_suffix(right, sort, length), length):
                found[name] = other
                del left[name], right[other]
        for name, other in _sibling_pairs(found, left, right):
            found[name] = other
            del left[name], right[other]
    return found


def _sibling_pairs(found: Mapping[str, str], left: RecordsByName, right: RecordsByName) -> list[tuple[str, str]]:
    """Pairs of further tensors in modules with a paired tensor, as the bias beside a weight."""
    modules: dict[str, Counter[str]] = defaultdict(Counter)
    for name, other in found.items():
        if split_name(name)[1] == split_name(other)[1]:
            modules[split_name(name)[0]][split_name(other)[0]] += 1
    pairs: dict[str, str] = {}
    for name in left:
        module, own = split_name(name)
        for there, _ in modules[module].most_common() if module in modules else ():
            other = f"{there}.{own}" if there else own
            if other in right and other not in pairs:
                pairs[other] = name
                break
    return [(name, other) for other, name in pairs.items()]


def _prefix_pairs(longer: RecordsByName, shorter: RecordsByName) -> list[tuple[str, str]]:
    """Pairs for the prefix that gives most of them, the first one among equals."""
    counts = Counter(prefix for name in longer for prefix in _prefixes(name, longer[name], shorter))
    if not counts:
        return []
    prefix = max(counts, key=counts.__getitem__)
    inside = [name for name in longer if name.startswith(prefix)]  # of another size, too: a name tells as much here
    return [(name, name[len(prefix) :]) for name in inside if name[len(prefix) :] in shorter]


def _prefixes(name: str, record: TensorRecord, shorter: Mapping[str, TensorRecord]) -> Iterator[str]:
    at = name.find(".")
    for _ in range(MAX_SEGMENTS):
        if at < 0:
            return
        other = shorter.get(name[at + 1 :])
        if other is not None and other.shape == record.shape:
            yield name[: at + 1]
        at = name.find(".", at + 1)


def _pairs(ours: dict[tuple, list[str]], theirs: dict[tuple, list[str]], length: int) -> list[tuple[str, str]]:
    """Pairs in groups of equal size; groups of several need a suffix of two segments in common."""
    return [
        pair
        for key, names in ours.items()
        if len(names) == len(theirs.get(key, ())) and (len(names) == 1 or length >= MIN_GROUP_SEGMENTS)
        for pair in zip(names, theirs[key], strict=True)
    ]


def _by_suffix(records: RecordsByName, sort: MatchKey, length: int) -> dict[tuple, list[str]]:
    groups: dict[tuple, list[str]] = defaultdict(list)
    for name, each in records.items():
        segments = name.split(".")
        if len(segments) >= length:
            groups[(*sort(each), *(segments[-length:] if length else ()))].append(name)
    return groups


# -------------------- Alignment of the modules of two models: modules correspond if most of their tensors do


ModulePair = tuple[int, int]  # modules of the left and of the right


def align_modules(
    left: Hierarchy, right: Hierarchy, tensors: Iterable[tuple[str | None, str | None]]
) -> dict[int, int]:
    """The modules of the left, each with that of the right which corresponds to it.

    `tensors` are pairs by the paths of the modules that have them, None where a tensor has no counterpart. Most pairs
    of tensors decide, first on the modules that have them, then on what is around those. What has no tensors itself,
    nor inside, is paired among what is in one container, as in live models.
    """
    told: Counter[ModulePair] = Counter()
    owners: tuple[set[int], set[int]] = (set(), set())
    for ends in tensors:
        found = [None if path is None else side.find(path) for side, path in zip((left, right), ends, strict=True)]
        for own, index in zip(owners, found, strict=True):
            if index is not None:
                own.add(index)
        if found[0] is not None and found[1] is not None:
            told[found[0], found[1]] += 1
    around: Counter[ModulePair] = Counter()
    for (one, other), count in told.items():
        for places in _ancestor_pairs(left, one, right, other):
            around[places] += count
    partners: dict[int, int] = {}
    taken: set[int] = set()
    for votes in (told, around, Counter([(0, 0)])):
        for one, other in sorted(votes, key=lambda places: (-votes[places], places)):
            if one not in partners and other not in taken:
                partners[one] = other
                taken.add(other)
    _pair_without_tensors(left, right, partners, _with_tensors(left, owners[0]), _with_tensors(right, owners[1]))
    return partners


def _ancestor_pairs(left: Hierarchy, one: int, right: Hierarchy, other: int) -> Iterator[ModulePair]:
    """Yields pairs of ancestors of two modules: equal names from the inside, then from the outside, then the rest.

    What only one of both has in between is a wrapper. The root has no name: behind a prefix it is the innermost one.
    """
    ours, theirs = _ancestors(left, one), _ancestors(right, other)
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


def _ancestors(side: Hierarchy, index: int) -> list[int]:
    """Returns the ancestors of a module, the root first."""
    found = []
    while (index := side.walk.parents[index]) >= 0:
        found.append(index)
    return found[::-1]


def _with_tensors(side: Hierarchy, owners: Iterable[int]) -> set[int]:
    """Returns the modules with tensors of their own or in descendants."""
    found: set[int] = set()
    for index in owners:
        while index >= 0 and index not in found:
            found.add(index)
            index = side.walk.parents[index]
    return found


def _pair_without_tensors(
    left: Hierarchy, right: Hierarchy, partners: dict[int, int], ours: set[int], theirs: set[int]
) -> None:
    """Pair the modules without tensors among the children of paired ones, from the root down."""
    for index in range(len(left)):
        if index in partners:
            sides = ((left, index, ours), (right, partners[index], theirs))
            rest = [[child for child in side.children(at) if child not in told] for side, at, told in sides]
            partners.update((i, j) for i, j in align_siblings(left, right, *rest) if i is not None and j is not None)
