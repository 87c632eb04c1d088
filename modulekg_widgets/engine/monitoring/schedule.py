"""Schedules of metrics as small values, and the grammar for them in configurations."""

from __future__ import annotations

import builtins
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from modulekg_widgets.engine.errors import ModuleKGError, closest_match_hint, printable

GRAMMAR = (
    "linear(interval, offset=0) · logarithmic(start, end, count) · steps(a, b, …) · range(start, stop, interval=1) · "
    "window(length, interval=length) · on(Metric, above|below, bound)"
)


class ScheduleError(ModuleKGError, ValueError):
    """An invalid schedule text, or numbers that make no schedule."""


class Schedule(Protocol):
    """Protocol of schedules; steps count from 0."""

    def due(self, step: int) -> bool:
        """True if this step has a value."""
        ...

    def watches(self, step: int) -> bool:
        """True if a metric of several steps reads this step."""
        ...

    def begins(self, step: int) -> bool:
        """True if a metric of several steps is reset at this step."""
        ...


class _SingleStep:
    """A schedule whose windows are one step long."""

    def due(self, step: int) -> bool:
        raise NotImplementedError

    def watches(self, step: int) -> bool:
        return self.due(step)

    def begins(self, step: int) -> bool:
        return self.due(step)


@dataclass(frozen=True)
class Linear(_SingleStep):
    """Steps offset, offset + interval, offset + 2 interval, …; an interval of 0 means every step from the offset on."""

    interval: int = 0
    offset: int = 0

    def due(self, step: int) -> bool:
        return step >= self.offset and (step - self.offset) % max(self.interval, 1) == 0


@dataclass(frozen=True)
class Steps(_SingleStep):
    """A fixed set of steps."""

    steps: frozenset[int]

    def due(self, step: int) -> bool:
        return step in self.steps


@dataclass(frozen=True)
class Window:
    """Windows of `length` steps that begin every `interval` steps; the value belongs to the last step of its window."""

    length: int
    interval: int

    def due(self, step: int) -> bool:
        return step >= 0 and step % self.interval == self.length - 1

    def watches(self, step: int) -> bool:
        return step >= 0 and step % self.interval < self.length

    def begins(self, step: int) -> bool:
        return step >= 0 and step % self.interval == 0


@dataclass(frozen=True)
class AnyOf(_SingleStep):
    """Union of schedules."""

    schedules: tuple[Schedule, ...]

    def due(self, step: int) -> bool:
        return any(each.due(step) for each in self.schedules)


def union(schedules: list[Schedule]) -> Schedule:
    """Returns one schedule for several."""
    return schedules[0] if len(schedules) == 1 else AnyOf(tuple(schedules))


@dataclass(eq=False)
class OnEvent(_SingleStep):
    """The step after another metric, of any module, has crossed a bound."""

    metric: str
    bound: float
    above: bool = True
    due_at: int | None = None

    def due(self, step: int) -> bool:
        return step == self.due_at

    def crossed(self, value: float) -> bool:
        """True if the value crosses the bound; NaN always does."""
        return math.isnan(value) or (value > self.bound if self.above else value < self.bound)


def events_of(schedules: Iterable[Schedule]) -> list[OnEvent]:
    """Returns the distinct events that these schedules wait for."""
    found: dict[int, OnEvent] = {}
    for each in schedules:
        parts = each.schedules if isinstance(each, AnyOf) else (each,)
        found |= {id(part): part for part in parts if isinstance(part, OnEvent)}
    return list(found.values())


EVERY_STEP = Linear()


def schedule(text: str) -> Schedule:
    """Parse a schedule.

    Parameters
    ----------
    text : str
        One of linear(interval, offset=0), logarithmic(start, end, count), steps(a, b, …), range(start, stop,
        interval=1), window(length, interval=length), on(Metric, above|below, bound); steps count from 0.

    Returns
    -------
    Schedule
        With `due(step)`, whether a value belongs to a step.

    Raises
    ------
    ScheduleError
        For a text that is none; it has the grammar.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> every_fifth = mk.monitoring.schedule("linear(5, 2)")
    >>> [step for step in range(13) if every_fifth.due(step)]
    [2, 7, 12]
    """
    match = re.fullmatch(r"\s*(\w+)\s*\(([^()]*)\)\s*", text)
    if match is None:
        raise ScheduleError(f"{printable(text)!r} is not a schedule: write {GRAMMAR}")
    name, inside = match.groups()
    maker = _MAKERS.get(name)
    if maker is None:
        raise ScheduleError(
            f"there is no schedule {printable(name)!r}: {closest_match_hint(name, _MAKERS)}; write {GRAMMAR}"
        )
    words = [word.strip() for word in inside.split(",")] if inside.strip() else []
    try:
        return maker(words)
    except (ValueError, TypeError, OverflowError) as error:
        reason = str(error) if isinstance(error, ScheduleError) else "its numbers do not fit"
        raise ScheduleError(f"{printable(text)!r} is not a schedule: {reason}; write {GRAMMAR}") from None


def is_schedule_text(text: str) -> bool:
    """True for the text of a schedule, as opposed to the name of a metric."""
    return "(" in text or text.strip() in _MAKERS


def _counts(words: list[str], least: int, most: int) -> list[int]:
    if not least <= len(words) <= most:
        raise ScheduleError(f"{len(words)} numbers were given")
    numbers = [int(word) for word in words]
    if any(number < 0 for number in numbers):
        raise ScheduleError("steps are not negative")
    return numbers


def linear(words: list[str]) -> Schedule:
    return Linear(*_counts(words, 0, 2))


def logarithmic(words: list[str]) -> Schedule:
    start, end, count = _counts(words, 3, 3)
    if end < start or not 1 <= count <= 100_000:
        raise ScheduleError("the end lies before the start, or the count is not between 1 and 100000")
    low, high = max(start, 1), max(end, 1)
    places = [low * (high / low) ** (i / max(count - 1, 1)) for i in builtins.range(count)]
    return Steps(frozenset({min(round(place), end) for place in places} | ({0} if start == 0 else set())))


def steps(words: list[str]) -> Schedule:
    return Steps(frozenset(_counts(words, 1, 1_000_000)))


def range_(words: list[str]) -> Schedule:
    start, stop, *interval = _counts(words, 2, 3)
    if interval == [0]:
        raise ScheduleError("the interval is 0")
    return Between(start, stop, *interval)


@dataclass(frozen=True)
class Between(_SingleStep):
    """Every `interval` steps from `start` on, before `stop`."""

    start: int
    stop: int
    interval: int = 1

    def due(self, step: int) -> bool:
        return self.start <= step < self.stop and (step - self.start) % self.interval == 0


def window(words: list[str]) -> Schedule:
    length, *interval = _counts(words, 1, 2)
    every = interval[0] if interval and interval[0] else length
    if not 1 <= length <= every:
        raise ScheduleError("a window has at least one step, and at most as many as lie between two beginnings")
    return Window(length, every)


def on(words: list[str]) -> Schedule:
    metric, side, bound = words
    if side not in ("above", "below"):
        raise ScheduleError(f"{printable(side)!r} stands where above or below is needed")
    if math.isnan(float(bound)):
        raise ScheduleError("no value crosses NaN")
    return OnEvent(metric, float(bound), side == "above")


_MAKERS: dict[str, Callable[[list[str]], Schedule]] = {
    "linear": linear,
    "logarithmic": logarithmic,
    "steps": steps,
    "range": range_,
    "window": window,
    "on": on,
}
