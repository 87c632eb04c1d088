"""Which columns of a table say what: what a user tells of them, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from modulekg_widgets.engine.errors import PropertyError
from modulekg_widgets.engine.knowledge.jobs import checked_name
from modulekg_widgets.engine.knowledge.units import repr_of, target_named


class ResultTable(NamedTuple):
    """Where the columns of a table are, and what holds for all of its rows."""

    dataset: str | None
    target: str | None
    model: str
    value: str
    training: Sequence[str]
    unit: str | Mapping[str, str] | None
    device: str | None
    columns: Mapping[Any, str]


def result_table(
    dataset: Any, target: Any, model: Any, value: Any, training: Any, unit: Any, device: Any, columns: Any
) -> ResultTable:
    """Where the columns are, if it can be so; raises `PropertyError` or `UnknownNameError`."""
    for name, what in ((dataset, "data set"), (target, "target"), (device, "device")):
        if name is not None:
            checked_name(name, what)
    checked_name(model, "column of models")
    checked_name(value, "column of values")
    return ResultTable(
        dataset, target, model, value, columns_of(training, "training"), checked_unit(unit), device,
        names_by_column(columns, "columns"),
    )  # fmt: skip


def columns_of(columns: Any, what: str) -> tuple[str, ...]:
    """Names of columns: one text is one of them; raises `PropertyError`."""
    if isinstance(columns, str):
        return (columns,)
    if isinstance(columns, Mapping | bytes) or not isinstance(columns, Iterable):
        raise PropertyError(f"{what} is {repr_of(columns)}: give the names of columns, as a list")
    names = tuple(columns)
    for name in names:
        checked_name(name, f"column of {what}")
    return names


def names_by_column(columns: Any, what: str) -> dict[Any, str]:
    """What columns are called instead; raises `PropertyError` or `UnknownNameError`."""
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise PropertyError(f"{what} is {repr_of(columns)}: give {{'column': 'name'}}")
    for name in columns.values():
        checked_name(name, f"name of {what}")
    return dict(columns)


def checked_unit(unit: Any) -> str | dict[str, str] | None:
    """A unit, or units by target; raises `PropertyError`."""
    if unit is None or isinstance(unit, str):
        return unit
    if not isinstance(unit, Mapping) or not all(isinstance(part, str) for pair in unit.items() for part in pair):
        raise PropertyError(f"unit is {repr_of(unit)}: give a text, or {{'target': 'unit'}}")
    return {target_named(target): text for target, text in unit.items()}
