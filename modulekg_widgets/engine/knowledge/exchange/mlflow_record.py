"""A run of MLflow as any of its stores tells it, and the job that it becomes."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any

from modulekg_widgets.engine.errors import GraphFileError, PropertyError, shown
from modulekg_widgets.engine.knowledge.contents import DataSetNode, JobNode
from modulekg_widgets.engine.knowledge.jobs import Point, accuracy_of, checked_seconds, convergence_of

STATUS = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}
ACTIVE = "active"  # the stage of what is not deleted
CONTEXT = "mlflow.data.context"  # the tag that says what a data set was given for
LONGEST_TEXT = 1 << 20  # bytes of a tag or parameter


@dataclass(slots=True)
class MLflowRun:
    """One run that is not deleted; times are in milliseconds since 1970, as stored."""

    name: str
    experiment: str
    run_name: str
    status: str
    user: str | None
    started: str | int | None
    ended: str | int | None
    params: dict[str, str]
    tags: dict[str, str]
    datasets: list[DataSetNode]  # those for training first
    history: dict[str, list[Point]]

    def job(self, accuracies: tuple[str, ...], model: str, known: Container[str] | None) -> JobNode:
        """The job; its accuracy is the last value of the first of `accuracies` that it has."""
        tags = dict(self.tags)
        trained = tags.get(model, self.params.get(model))
        started, ended = self._seconds("start_time", self.started), self._seconds("end_time", self.ended)
        datasets = [dataset.name for dataset in self.datasets]
        properties: dict[str, Any] = {
            "experiment": self.experiment,
            "run_name": tags.pop("mlflow.runName", None) or self.run_name,
            "status": self.status,
            "params": self.params,
        }
        user = tags.pop("mlflow.user", None) or self.user
        if len(datasets) > 1:
            properties["datasets"] = datasets
        began = started if started is not None else ended or 0.0
        return JobNode(
            self.name, user or None, datasets[0] if datasets else None,
            trained if trained is not None and (known is None or trained in known) else None,
            self._accuracy(accuracies), convergence_of(self.history, accuracies), self.history, began,
            None if ended is None else max(began, ended), {**properties, "tags": tags},
        )  # fmt: skip

    def _seconds(self, what: str, value: object) -> float | None:
        if value is None:
            return None
        if isinstance(value, bool) or not re.fullmatch("[0-9]{1,15}", str(value)):
            raise GraphFileError(f"{what!r} of the run {shown(self.name)!r} is no time in milliseconds")
        try:
            return checked_seconds(int(str(value)) / 1000, what)
        except PropertyError as error:
            raise GraphFileError(f"the run {shown(self.name)!r} has no time: {error}") from None

    def _accuracy(self, accuracies: tuple[str, ...]) -> float | None:
        """The last value as a fraction, if it can be an accuracy."""
        try:
            return accuracy_of(self.history, accuracies)
        except PropertyError:
            return None


def training_first(given: Iterable[tuple[str | None, DataSetNode]]) -> list[DataSetNode]:
    """Data sets by what they were given for, then by name."""
    ordered = sorted(given, key=lambda pair: (pair[0] not in ("training", "train"), pair[1].name))
    return [dataset for _, dataset in ordered]
