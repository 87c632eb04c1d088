"""Lines beside a column of boxes: where each runs, so that no two lie on each other and none crosses a box."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_LANES = 40  # beside each other
MOST_TRACKS = 400  # edges that are drawn there


@dataclass(slots=True)
class Track:
    """All edges of one source that do not lead to the box below it: one line that branches."""

    source: int  # row
    targets: list[int]  # rows, from the top
    lane: int = -1


@dataclass(slots=True)
class Tracks:
    """What is drawn beside the rows, and how many edges are not."""

    drawn: list[Track] = field(default_factory=list)
    left_out: int = 0
    lanes: int = 0

    def ports(self) -> dict[int, list[Track]]:
        """Of each row the tracks that touch it, from the top: those that end there, the nearest first, then its own."""
        found: dict[int, list[Track]] = {}
        for track in sorted(self.drawn, key=lambda track: track.lane):
            for row in track.targets:
                found.setdefault(row, []).append(track)
        for track in self.drawn:
            found.setdefault(track.source, []).append(track)
        return found


def tracks_of(edges: Sequence[tuple[int, int]]) -> Tracks:
    """`edges` (row, row) as tracks, the short ones near the column; those that are beyond the limits are counted."""
    targets: dict[int, set[int]] = {}
    for source, target in edges:
        targets.setdefault(source, set()).add(target)
    tracks = [Track(source, sorted(rows)) for source, rows in targets.items()]
    lanes: list[list[tuple[int, int]]] = []  # of each lane the rows that are taken, from the top
    result, count = Tracks(), 0
    for track in sorted(tracks, key=lambda track: (_span(track)[1] - _span(track)[0], track.source)):
        track.lane = _lane(lanes, _span(track)) if count + len(track.targets) <= MOST_TRACKS else -1
        if track.lane < 0:
            result.left_out += len(track.targets)
            continue
        count += len(track.targets)
        result.drawn.append(track)
    result.lanes = len(lanes)
    return result


def _span(track: Track) -> tuple[int, int]:
    return min(track.source, track.targets[0]), max(track.source, track.targets[-1])


def _lane(lanes: list[list[tuple[int, int]]], span: tuple[int, int]) -> int:
    for lane, taken in enumerate(lanes):
        at = bisect_left(taken, span)
        if (at == 0 or taken[at - 1][1] < span[0]) and (at == len(taken) or span[1] < taken[at][0]):
            taken.insert(at, span)
            return lane
    if len(lanes) == MOST_LANES:
        return -1
    lanes.append([span])
    return len(lanes) - 1
