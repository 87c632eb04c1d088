"""Readings of every form, for all that writes and reads them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from modulekg_widgets.engine.monitoring.history import History
from modulekg_widgets.engine.monitoring.readings import Reading, Slot, flat
from modulekg_widgets.engine.monitoring.sinks.sink_targets import open_sink

KINDS = (".jsonl", ".csv", ".parquet")
HISTOGRAM = {"low": -1.0, "high": 3.0, "total": 10.0, "sampled": 10.0, "counts": np.array([1.0, 2.0, 3.0, 4.0])}

NAMES = [
    "layer1.0.conv", "", "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n", "'=1", "''", '"', '"quoted"', "a,b",
    "a;b", 'a","b', "\ud800", "a\udfffb", "\0", "\x1b[2J", "\u2028", "é", "名", "🙂", "＝1", " padded ", "\\ud800",
    "{}", "[1]", "NaN", "null", "x" * 500, "<b>", "%s", "module", "\ufeff",
]  # fmt: skip
NUMBERS = [
    0.0, -0.0, 1.0, 0.1, 1 / 3, -2.5e-300, 5e-324, 1.7976931348623157e308, 2.0**53 + 2, math.nan, math.inf, -math.inf,
]  # fmt: skip
VECTORS = [
    np.array([]), np.array([0.1]), np.array([1.0, -2.0, 3e-7]), np.array([math.nan, math.inf, -math.inf, 0.0]),
    np.arange(40) / 7,
]  # fmt: skip
DICTS = [{}, {"mean": 0.5, "std": math.nan}, {"=a": 1.0, "\ud800": VECTORS[3], "": 2.0}, HISTOGRAM]


def every_reading() -> list[Reading]:
    """Each name, number, vector and dict, in both phases and in several calls, at steps that grow."""
    found = [Reading(name, other, 0, 1.5) for name, other in zip(NAMES, reversed(NAMES), strict=True)]
    found += [Reading("layer", "Value", at + 1, value) for at, value in enumerate([*NUMBERS, *VECTORS, *DICTS])]
    found += [Reading("layer", "Value", 1000, float(call), call, "eval") for call in range(4)]
    return [*found, Reading("", "loss", (1 << 63) - 1, 0.25)]


def assert_same(found: Iterable[Reading], expected: Iterable[Reading]) -> None:
    """Equal in order, with NaN equal to NaN and bits equal to bits."""
    found, expected = list(found), list(expected)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one._replace(value=0.0) == other._replace(value=0.0)
        assert type(one.value) is type(other.value)
        np.testing.assert_equal(one.value, other.value)


def record(path: Path, readings: list[Reading], name: str | None = None) -> Path:
    """A file with these readings."""
    sink = open_sink(path, name)
    sink.write(readings)
    sink.close()
    return path


def remember(history: History, readings: Iterable[Reading]) -> None:
    """One row for each reading."""
    for reading in readings:
        form, numbers = flat(reading.value)
        slot = Slot(reading.module, reading.metric, reading.call, reading.phase, form)
        history.append(reading.step, [history.slot_number(slot)], np.array(numbers))


def scalars(steps: int, modules: int = 3) -> list[Reading]:
    """As many readings of each module as there are steps."""
    return [Reading(f"layer{at}", "WeightNorm", step, step + at / 8) for step in range(steps) for at in range(modules)]
