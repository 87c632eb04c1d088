"""The pictures that come with the player itself: a kernel that goes on to further cells may answer no questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate

from modulekg_widgets.engine.playback.feature_maps import Maps
from modulekg_widgets.engine.playback.player import Playback
from modulekg_widgets.engine.playback.summaries import Top

BUDGET = 512 << 10  # bytes of all of them
FEWER = (64, 32, 16, 8, 4)  # channels of a small picture, the most that fit into the budget


@dataclass(frozen=True, slots=True)
class FirstPicture:
    """The first page of the pictures of an output, which several steps may have given.

    `is_whole` where a question would bring the same.
    """

    steps: tuple[int, ...]
    maps: Maps
    top: Top | None
    is_whole: bool


def first_pictures(played: Playback, index: int) -> list[FirstPicture]:
    """Small pictures of all outputs as far as there is room; fine ones of step `index`, and then of the others."""
    steps: dict[int, list[int]] = {}
    for step in played.steps:
        if step.value is not None and step.value in played.sketches:
            steps.setdefault(step.value, []).append(step.index)
    order = sorted(steps, key=lambda value: (index not in steps[value], steps[value]))
    small = _fitting({value: played.sketches[value] for value in order})
    room = BUDGET - sum(len(maps.pixels) for maps in small.values())
    found: list[FirstPicture] = []
    for value, maps in small.items():
        own = tuple(steps[value])
        picture = FirstPicture(own, maps, None, _is_whole(played, maps, played.sketches[value]))
        fine = None if picture.is_whole else played.picture(own[0], played.sample, 0, may_run=False)
        more = 0 if fine is None else len(fine[0].pixels) - len(maps.pixels)
        if fine is not None and more <= room:
            room -= more
            picture = FirstPicture(own, fine[0], fine[1], True)
        found.append(picture)
    return found


def _fitting(every: Mapping[int, Maps]) -> dict[int, Maps]:
    """The pictures with as many channels as there is room for; of the last ones none where it does not suffice."""
    found: dict[int, Maps] = {}
    for most in FEWER:
        found = {value: _with_channels(maps, most) for value, maps in every.items()}
        if sum(len(maps.pixels) for maps in found.values()) <= BUDGET:
            return found
    sums = accumulate(len(maps.pixels) for maps in found.values())
    return dict(entry for entry, bytes_so_far in zip(found.items(), sums, strict=True) if bytes_so_far <= BUDGET)


def _with_channels(maps: Maps, most: int) -> Maps:
    if maps.form != "channels" or len(maps.ranges) <= most:
        return maps
    return replace(maps, ranges=maps.ranges[:most], pixels=maps.pixels[: most * maps.width * maps.height])


def _is_whole(played: Playback, maps: Maps, sketch: Maps) -> bool:
    """Whether nothing is averaged or left out, and the largest outputs are known, which those of the first item are."""
    is_as_fine = maps.form not in ("channels", "heat") or maps.sizes == (maps.height, maps.width)
    return is_as_fine and len(maps.ranges) == len(sketch.ranges) and played.sample == 0
