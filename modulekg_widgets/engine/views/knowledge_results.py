"""What models reached, for the explorer: a column of values for each target, data set and device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modulekg_widgets.engine.knowledge.contents import Contents, JobNode
from modulekg_widgets.engine.knowledge.prediction.observations import DEVICE, IMAGE_SIZE
from modulekg_widgets.engine.knowledge.results import RESULTS, comparable, results_of
from modulekg_widgets.engine.knowledge.units import is_cost, repr_of
from modulekg_widgets.engine.views.payload import number, text

_LONGEST = 120  # characters of what is said of a training


def result_columns(contents: Contents) -> list[dict[str, Any]]:
    """One entry per target, unit, data set and device, those of most models first.

    Fractions are percents there, and latencies ms. The values of one are parallel lists: place of the model, value,
    image size or None, and place of the job.
    """
    places = {name: place for place, name in enumerate(contents.models)}
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for job_place, job in enumerate(contents.jobs.values()):
        if job.model not in places:
            continue
        for target, result in results_of(job).items():
            own = comparable(target, result)
            if own is None:
                continue
            key = (target, own.unit, job.dataset, _device(job))
            column = found.setdefault(key, _column(*key))
            column["model"].append(places[job.model])
            column["value"].append(number(float(f"{own.value:.6g}")))
            column["size"].append(_image_size(job))
            column["job"].append(job_place)
    return sorted(found.values(), key=lambda column: -len(set(column["model"])))


def training_text(job: JobNode) -> str:
    """How a job trained, in a line: its plain properties but for what it reached and where it was measured."""
    parts = [_said(name, value) for name, value in job.properties.items() if name not in (RESULTS, DEVICE)]
    line = ", ".join(part for part in parts if part)
    return text(line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…")


def _said(name: str, value: Any) -> str:
    if name == "tag" and isinstance(value, str):
        return value
    if isinstance(value, str):
        return f"{name} {value}"
    return f"{name} {repr_of(value)}" if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _column(target: str, unit: str | None, dataset: str | None, device: str | None) -> dict[str, Any]:
    named: Mapping[str, str | None] = {"unit": unit, "dataset": dataset, "device": device}
    return {
        "target": text(target),
        **{name: None if value is None else text(value) for name, value in named.items()},
        "cost": is_cost(target),
        **{name: [] for name in ("model", "value", "size", "job")},
    }


def _device(job: JobNode) -> str | None:
    device = job.properties.get(DEVICE)
    return device if isinstance(device, str) else None


def _image_size(job: JobNode) -> float | int | None:
    size = job.properties.get(IMAGE_SIZE)
    return size if isinstance(size, int | float) and not isinstance(size, bool) and 0 < size < 1e9 else None
