"""Which tensors of two models are the same under other names: of one shape and dtype, with names that end alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from modulekg_widgets.engine.files.records import TensorRecord

MOST_SEGMENTS = 8  # of the end of a name
Sort = Callable[[TensorRecord], tuple]
# what a pair has in common beside the end of its names, and the least segments that this end has
SWEEPS: tuple[tuple[Sort, int], ...] = (
    (lambda each: (each.shape, each.dtype), 0),
    (lambda each: (each.shape,), 1),  # stored in another precision
    (lambda each: (), 2),  # of another size
)


def renamed_pairs(ours: Sequence[TensorRecord], theirs: Sequence[TensorRecord]) -> dict[str, str]:
    """The names of the right by those of the left, for tensors that neither has under the other's name.

    Those are paired first whose names end alike for longest; where several of each side do, in their order, if there
    are as many of both. What has not even its last segment in common is paired where no other has its shape and dtype.
    What is left then may differ in its dtype, and at last in its shape.
    """
    left, right = {each.name: each for each in ours}, {each.name: each for each in theirs}
    found: dict[str, str] = {}
    for sort, shortest in SWEEPS:
        for length in range(MOST_SEGMENTS, shortest - 1, -1):
            for name, other in _pairs(_by_end(left, sort, length), _by_end(right, sort, length), length == 0):
                found[name] = other
                del left[name], right[other]
    return found


def _pairs(ours: dict[tuple, list[str]], theirs: dict[tuple, list[str]], alone: bool) -> list[tuple[str, str]]:
    """Names of groups that are as large on both sides; if `alone`, of those of one each."""
    return [
        pair
        for key, names in ours.items()
        if len(names) == len(theirs.get(key, ())) and (len(names) == 1 or not alone)
        for pair in zip(names, theirs[key], strict=True)
    ]


def _by_end(records: dict[str, TensorRecord], sort: Sort, length: int) -> dict[tuple, list[str]]:
    groups: dict[tuple, list[str]] = defaultdict(list)
    for name, each in records.items():
        segments = name.split(".")
        if len(segments) >= length:
            groups[(*sort(each), *(segments[-length:] if length else ()))].append(name)
    return groups
