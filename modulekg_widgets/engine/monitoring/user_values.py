"""What a user hands to a monitor: steps, and numbers of their own, which find the step that they belong to."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch

from modulekg_widgets.engine.errors import ModuleKGError, shown


class MonitorError(ModuleKGError, ValueError):
    """A call of a monitor that does not fit: a step that is no count, a number that is none."""


class LoggedSteps:
    """Which step logged numbers belong to: users log before `track`, or after it."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}  # the step at which each name was logged last
        self._follow_track: bool | None = None

    @property
    def names(self) -> set[str]:
        """What has been logged."""
        return set(self._last)

    def step_of(self, values: Mapping[str, Any], upcoming: int, tracked: int | None) -> int:
        """The step of `values`: `upcoming` to a loop that logs first, else the one that was `tracked` last.

        A name that comes again without a `track` between counts on by itself.
        """
        if self._follow_track is None:
            self._follow_track = tracked is not None
        at = tracked if self._follow_track and tracked is not None else upcoming
        again = [self._last[name] + 1 for name in values if self._last.get(name, -1) >= at]
        return max([at, *again])

    def note(self, name: str, step: int) -> None:
        self._last[name] = step


def checked_step(step: Any) -> int:
    """`step` as a number; raises `MonitorError` for what is no count."""
    try:
        count = operator.index(step)
    except TypeError:
        raise MonitorError(f"a step is a count: a {type(step).__name__} was passed") from None
    if isinstance(step, bool) or not 0 <= count < 1 << 63:
        raise MonitorError(f"a step is a count from 0 on, below 2**63: {shown(str(step))} was passed")
    return count


def logged_number(name: str, value: Any) -> float:
    """A logged value as a number, a tensor of one element read; raises `MonitorError` for what is none."""
    try:
        return float(value.detach() if isinstance(value, torch.Tensor) else value)
    except (TypeError, ValueError, RuntimeError):
        kind = type(value).__name__
        raise MonitorError(f"{shown(name)!r} is logged as a number: a {kind} was passed") from None
