"""Which metrics are active at a step: each schedule is asked once, however many metrics share it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from modulekg_widgets.engine.monitoring.hooks.module_metric import ModuleMetric


class ActiveMetrics:
    """Which of `metrics` look at a step."""

    def __init__(self, metrics: Sequence[ModuleMetric]) -> None:
        self.metrics = metrics
        places: dict[object, int] = {}
        self._asked: list[Callable[[int], bool]] = []
        self._answer_of: list[int] = []  # for each metric, which answer counts
        for metric in metrics:
            place = places.setdefault((_value_or_identity(metric.schedule), metric.kind.multi_step), len(places))
            if place == len(self._asked):
                self._asked.append(metric.schedule.watches if metric.kind.multi_step else metric.schedule.due)
            self._answer_of.append(place)
        self._answers: tuple[list[bool], int] | None = None
        self._active: list[ModuleMetric] = []

    def at(self, step: int) -> list[ModuleMetric]:
        """Those that look at `step`: the very same list as before, where they are the same."""
        stopped = [metric.is_stopped for metric in self.metrics].count(True)
        answers = [watches(step) for watches in self._asked], stopped
        if answers != self._answers:
            self._answers = answers
            self._active = [
                metric
                for metric, place in zip(self.metrics, self._answer_of, strict=True)
                if answers[0][place] and not metric.is_stopped
            ]
        return self._active


def _value_or_identity(schedule: object) -> object:
    try:
        hash(schedule)
    except TypeError:
        return id(schedule)  # a schedule of the user's that cannot be compared
    return schedule
