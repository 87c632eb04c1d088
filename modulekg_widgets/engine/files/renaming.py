"""Which tensors of two models are the same under other names: of one shape and dtype, with names that end alike."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from modulekg_widgets.engine.files.owners import named
from modulekg_widgets.engine.files.records import TensorRecord

MOST_SEGMENTS = 8  # of the end of a name
Records = dict[str, TensorRecord]
Sort = Callable[[TensorRecord], tuple]
# what a pair has in common beside the end of its names, and the least segments that this end has
SWEEPS: tuple[tuple[Sort, int], ...] = (
    (lambda each: (each.shape, each.dtype), 0),
    (lambda each: (each.shape,), 2),  # stored in another precision
    (lambda each: (), 2),  # of another size
)
SEVERAL = 2  # segments that the ends of names have in common at least, where several are paired by their order


def renamed_pairs(ours: Sequence[TensorRecord], theirs: Sequence[TensorRecord]) -> dict[str, str]:
    """The names of the right by those of the left, for tensors that neither has under the other's name.

    First those are paired whose names are the same behind one prefix, as in a checkpoint with a model in it: the prefix
    that makes most pairs of one shape. Then those whose names end alike for longest; where several of each side do, in
    their order, if there are as many of both. What has not even its last segment in common is paired where no other has
    its shape and dtype. What stands beside a pair in both modules is one, too. What is left then may differ in its
    dtype, and at last in its shape.
    """
    left, right = {each.name: each for each in ours}, {each.name: each for each in theirs}
    found = dict(_behind_a_prefix(left, right)) or {one: other for other, one in _behind_a_prefix(right, left)}
    for name, other in found.items():
        del left[name], right[other]
    for sort, shortest in SWEEPS:
        for length in range(MOST_SEGMENTS, shortest - 1, -1):
            for name, other in _pairs(_by_end(left, sort, length), _by_end(right, sort, length), length):
                found[name] = other
                del left[name], right[other]
        for name, other in _beside(found, left, right):
            found[name] = other
            del left[name], right[other]
    return found


def _beside(found: Mapping[str, str], left: Records, right: Records) -> list[tuple[str, str]]:
    """The further tensors of modules of which one was found, as a bias beside its weight."""
    modules: dict[str, Counter[str]] = defaultdict(Counter)
    for name, other in found.items():
        if named(name)[1] == named(other)[1]:
            modules[named(name)[0]][named(other)[0]] += 1
    pairs: dict[str, str] = {}
    for name in left:
        module, own = named(name)
        for there, _ in modules[module].most_common() if module in modules else ():
            other = f"{there}.{own}" if there else own
            if other in right and other not in pairs:
                pairs[other] = name
                break
    return [(name, other) for other, name in pairs.items()]


def _behind_a_prefix(longer: Records, shorter: Records) -> list[tuple[str, str]]:
    """The pairs for the prefix that makes most of them, of several that make as many for the first."""
    counts = Counter(prefix for name in longer for prefix in _prefixes(name, longer[name], shorter))
    if not counts:
        return []
    prefix = max(counts, key=counts.__getitem__)
    inside = [name for name in longer if name.startswith(prefix)]  # of another size, too: a name tells as much here
    return [(name, name[len(prefix) :]) for name in inside if name[len(prefix) :] in shorter]


def _prefixes(name: str, record: TensorRecord, shorter: Mapping[str, TensorRecord]) -> Iterator[str]:
    at = name.find(".")
    for _ in range(MOST_SEGMENTS):
        if at < 0:
            return
        other = shorter.get(name[at + 1 :])
        if other is not None and other.shape == record.shape:
            yield name[: at + 1]
        at = name.find(".", at + 1)


def _pairs(ours: dict[tuple, list[str]], theirs: dict[tuple, list[str]], length: int) -> list[tuple[str, str]]:
    """Names of groups that are as large on both sides, and of one each where the ends of names say little."""
    return [
        pair
        for key, names in ours.items()
        if len(names) == len(theirs.get(key, ())) and (len(names) == 1 or length >= SEVERAL)
        for pair in zip(names, theirs[key], strict=True)
    ]


def _by_end(records: Records, sort: Sort, length: int) -> dict[tuple, list[str]]:
    groups: dict[tuple, list[str]] = defaultdict(list)
    for name, each in records.items():
        segments = name.split(".")
        if len(segments) >= length:
            groups[(*sort(each), *(segments[-length:] if length else ()))].append(name)
    return groups
