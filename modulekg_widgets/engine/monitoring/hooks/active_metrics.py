"""Who is on duty at a step: each schedule is asked once, however many entries share it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from modulekg_widgets.engine.monitoring.hooks.module_metric import Entry


class ActiveMetrics:
    """Which of `entries` watch a step."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        places: dict[object, int] = {}
        self._asked: list[Callable[[int], bool]] = []
        self._asks: list[int] = []  # for each entry, which answer counts
        for entry in entries:
            place = places.setdefault((_value_or_identity(entry.schedule), entry.kind.multi_step), len(places))
            if place == len(self._asked):
                self._asked.append(entry.schedule.watches if entry.kind.multi_step else entry.schedule.due)
            self._asks.append(place)
        self._answers: tuple[list[bool], int] | None = None
        self._watching: list[Entry] = []

    def watching(self, step: int) -> list[Entry]:
        """Those that watch `step`: the very same list as before, where they are the same."""
        stopped = [entry.is_stopped for entry in self._entries].count(True)
        answers = [watches(step) for watches in self._asked], stopped
        if answers != self._answers:
            self._answers = answers
            self._watching = [
                entry
                for entry, ask in zip(self._entries, self._asks, strict=True)
                if answers[0][ask] and not entry.is_stopped
            ]
        return self._watching


def _value_or_identity(schedule: object) -> object:
    try:
        hash(schedule)
    except TypeError:
        return id(schedule)  # a schedule of the user's that cannot be compared
    return schedule
