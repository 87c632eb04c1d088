"""Reader of CSV files that the page of Weights & Biases exports: tables of runs, and charts.

A table has a row for each run: "Name", "State", "Created", "Runtime" and others of W&B's own, then the keys of the
configurations, then those of the summaries, with no word on which is which. A chart has a row for each step, and for
each run and metric "<run> - <metric>", with "__MIN" and "__MAX" of what was drawn as one point.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cached_property

from modulekg_widgets.engine.errors import GraphFileError, PropertyError, closest_match_hint, printable
from modulekg_widgets.engine.knowledge.exchange.graph_files import checked_path, read_whole
from modulekg_widgets.engine.knowledge.facts.jobs import Point, sampled_indices

NAME_COLUMN = "Name"
# the columns of W&B's own, some of which are there only when somebody asked for them
WANDB_COLUMNS = (
    "ID", NAME_COLUMN, "Agent", "State", "Notes", "User", "Tags", "Created", "Runtime", "Sweep", "Group", "Job Type",
    "Hostname", "GPU Type", "GPU Count", "Commit", "GitHub", "End Time", "Updated", "Report", "Description",
)  # fmt: skip
CONFIG_PREFIX, SUMMARY_PREFIX = "config.", "summary."
STEP_COLUMN, RUN_STEP, TIME_COLUMNS = "Step", "_step", ("Relative Time (Process)", "Relative Time (Wall)", "Wall Time")
SEPARATOR, BOUND_SUFFIXES = " - ", ("__MIN", "__MAX")
MAX_CELLS = 20_000_000


@dataclass(frozen=True)
class WandbTable:
    """The cells of one file; all rows have the length of the first line."""

    name: str
    columns: list[str]
    rows: list[list[str]]

    @property
    def is_run_table(self) -> bool:
        return NAME_COLUMN in self.columns

    @cached_property
    def _indices_by_column(self) -> dict[str, list[int]]:
        """Indices by column name; a key of both configuration and summary has two."""
        found: dict[str, list[int]] = {}
        for place, column in enumerate(self.columns):
            found.setdefault(column, []).append(place)
        return found

    def column_indices(self, column: str, summary: bool = False) -> list[int]:
        """Returns the indices of a column, the best match first; `config.` or `summary.` selects one."""
        if column in self._indices_by_column:
            found = self._indices_by_column[column]
        elif column.startswith((CONFIG_PREFIX, SUMMARY_PREFIX)):
            summary = column.startswith(SUMMARY_PREFIX)
            found = self._indices_by_column.get(column.partition(".")[2], [])
        else:
            found = []
        return found[::-1] if summary else found

    def cell(self, row: list[str], column: str, summary: bool = False) -> str | None:
        """Returns the text of a cell; None if it is empty or missing."""
        return next((text for place in self.column_indices(column, summary) if (text := row[place].strip())), None)

    def check_column(self, column: str, what: str) -> None:
        """Raises `PropertyError` if the column is missing."""
        if not self.column_indices(column):
            names = [name for name in self.columns if name not in WANDB_COLUMNS]
            raise PropertyError(
                f"{printable(self.name)!r} has no column {printable(column)!r}: {closest_match_hint(column, names)}; "
                f"say {what}="
            )


def read_wandb_table(path: str | os.PathLike[str]) -> WandbTable:
    """The table of a file; raises `GraphFileError` for what is no CSV, `PropertyError` for one of another kind."""
    place = checked_path(path)
    name = printable(str(place))
    try:
        content = read_whole(place)
        if content.count(b",") + content.count(b"\n") > MAX_CELLS:
            raise GraphFileError(f"it has more than {MAX_CELLS:,} cells")
        lines = [row for row in csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True) if row]
    except (GraphFileError, UnicodeDecodeError, csv.Error) as error:
        raise GraphFileError(f"{name!r} is no table of comma-separated values: {printable(str(error))}") from None
    if not lines:
        raise GraphFileError(f"{name!r} is no table of comma-separated values: it is empty")
    columns, *rows = lines
    for number, row in enumerate(rows, 2):
        if len(row) != len(columns):
            raise GraphFileError(f"{name!r} is damaged: row {number} has {len(row)} cells, the first {len(columns)}")
    found = WandbTable(str(place), columns, rows)
    if not found.is_run_table and not any(SEPARATOR in column for column in columns[1:]):
        raise PropertyError(
            f"{name!r} is no export of W&B: neither a table of runs, with a column {NAME_COLUMN!r}, nor a chart, "
            "with columns "
            f"'<run>{SEPARATOR}<metric>'"
        )
    return found


def parse_number(text: str | None) -> float | None:
    """The number that a cell holds, NaN and infinities among them."""
    try:
        return None if text is None or "_" in text else float(text)
    except ValueError:
        return None


def parse_finite(text: str | None) -> float | None:
    found = parse_number(text)
    return found if found is not None and math.isfinite(found) else None


def chart_lines(chart: WandbTable, runs: Container[str]) -> Iterator[tuple[str, tuple[str, str, list[Point]] | str]]:
    """Yields each line of a chart: run, metric and points by step, or the reason why it is left out."""
    columns = set(chart.columns)
    for place, column in enumerate(chart.columns[1:], 1):
        if column[-5:] in BOUND_SUFFIXES and column[:-5] in columns:
            continue
        run, metric = _split_column(column, runs)
        if run is None:
            yield column, f"no run is called {printable(column.partition(SEPARATOR)[0])!r}"
        elif metric != RUN_STEP:
            points = _points(chart, place, f"{run}{SEPARATOR}{RUN_STEP}")
            yield column, points if isinstance(points, str) else (run, metric, points)


def _split_column(column: str, runs: Container[str]) -> tuple[str | None, str]:
    """Returns run and metric of a column; the longest matching name of a run counts."""
    at = column.rfind(SEPARATOR)
    while at >= 0:
        if column[:at] in runs:
            return column[:at], column[at + len(SEPARATOR) :]
        at = column.rfind(SEPARATOR, 0, at)
    return None, ""


def _points(chart: WandbTable, place: int, own_step: str) -> list[Point] | str:
    """Returns the points of a column by the run's own steps if the chart has them, else by its axis."""
    steps = chart.column_indices(own_step)
    axis = steps[0] if steps else 0
    if not steps and chart.columns[0] in TIME_COLUMNS:
        return f"the chart is drawn over {chart.columns[0]!r}: export it over {STEP_COLUMN!r}"
    points: list[Point] = []
    for number, row in enumerate(chart.rows, 2):
        if not row[place].strip():
            continue
        step, value = parse_finite(row[axis]), parse_number(row[place])
        if step is None or value is None:
            return f"row {number} holds {printable(row[axis], 40)!r}, {printable(row[place], 40)!r}: no step and number"
        points.append((step, value))
    points.sort(key=lambda point: point[0])
    return [points[at] for at in sampled_indices(len(points))] or "it is empty"
