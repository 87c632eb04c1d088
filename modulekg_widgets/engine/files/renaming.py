"""Which tensors of two models are the same under other names: of one shape and dtype, with names that end alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from modulekg_widgets.engine.files.records import TensorRecord

MOST_SEGMENTS = 8  # of the end of a name


def renamed_pairs(ours: Sequence[TensorRecord], theirs: Sequence[TensorRecord]) -> dict[str, str]:
    """The names of the right by those of the left, for tensors that neither has under the other's name.

    Those are paired first whose names end alike for longest; where several of each side do, in their order, if there
    are as many of both. What has not even its last segment in common is paired where no other has its shape and dtype.
    """
    left, right = {each.name: each for each in ours}, {each.name: each for each in theirs}
    found: dict[str, str] = {}
    for length in range(MOST_SEGMENTS, -1, -1):
        groups = _by_end(left, length), _by_end(right, length)
        for key, names in groups[0].items():
            others = groups[1].get(key, ())
            if len(names) == len(others) and (length or len(names) == 1):
                for name, other in zip(names, others, strict=True):
                    found[name] = other
                    del left[name], right[other]
    return found


def _by_end(records: dict[str, TensorRecord], length: int) -> dict[tuple, list[str]]:
    groups: dict[tuple, list[str]] = defaultdict(list)
    for name, each in records.items():
        segments = name.split(".")
        if len(segments) >= length:
            groups[(each.shape, each.dtype, *(segments[-length:] if length else ()))].append(name)
    return groups
