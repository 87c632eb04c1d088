"""Measured values with their goals: printed as a table, and kept as a file."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Goal = tuple[str, float, bool]  # unit, goal, whether less is better


def collected(goals: Mapping[str, Goal], name: str) -> Iterator[dict[str, float]]:
    """A dict to be filled by the names of `goals`; then the table, and a file in $MODULEKG_BENCHMARKS or beside."""
    measured: dict[str, float] = {}
    yield measured
    rows: list[dict[str, Any]] = []
    print(f"\n{'measure':<48} {'value':>10} {'goal':>8}")
    for measure, value in measured.items():
        unit, goal, less = goals[measure]
        reached = value <= goal if less else value >= goal
        rows.append({"measure": measure, "value": round(value, 1), "unit": unit, "goal": goal, "reached": reached})
        print(f"{measure:<48} {value:>10.1f} {'≤' if less else '≥'} {goal:<6} {unit:<12}{'' if reached else 'MISSED'}")
    file = Path(os.environ.get("MODULEKG_BENCHMARKS") or Path(tempfile.gettempdir()) / f"{name}.json")
    file.write_text(json.dumps(rows, indent=2), "utf-8")


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return statistics.quantiles(values, n=20, method="inclusive")[-1]
