"""Runs exported by Weights & Biases as jobs, one for each run of a model of the graph.

They are read from the CSV files that its page exports: tables of runs, and charts. A table has a row for each run:
"Name", "State", "Created", "Runtime" and others of W&B's own, then the keys of the configurations, then those of the
summaries, with no word on which is which. A chart has a row for each step, and for each run and metric
"<run> - <metric>", with "__MIN" and "__MAX" of what was drawn as one point.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

from modulekg_widgets.engine.errors import GraphFileError, PropertyError, closest_match_hint, printable
from modulekg_widgets.engine.knowledge.exchange.graph_files import checked_path, read_whole
from modulekg_widgets.engine.knowledge.facts.contents import Contents, DataSetNode, JobNode, UserNode
from modulekg_widgets.engine.knowledge.facts.jobs import (
    ACCURACIES,
    ACCURACY,
    ROUNDING_TOLERANCE,
    Point,
    accuracy_fraction,
    accuracy_of,
    checked_name,
    checked_properties,
    convergence_of,
    sampled_indices,
    timestamp,
)
from modulekg_widgets.engine.knowledge.facts.property_values import Properties
from modulekg_widgets.engine.knowledge.facts.results import RESULTS, Result, as_property, results_of, unit_notes
from modulekg_widgets.engine.knowledge.facts.units import TOP_1, canonical_target
from modulekg_widgets.engine.knowledge.imports.result_tables import (
    AddedResults,
    LeftOut,
    RowResult,
    accuracy_as_fraction,
    checked_unit,
    column_names,
    names_by_column,
    unify_units,
)

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
        raise GraphFileError(f"{name!r} is not a table of comma-separated values: {printable(str(error))}") from None
    if not lines:
        raise GraphFileError(f"{name!r} is not a table of comma-separated values: it is empty")
    columns, *rows = lines
    for number, row in enumerate(rows, 2):
        if len(row) != len(columns):
            raise GraphFileError(f"{name!r} is damaged: row {number} has {len(row)} cells, the first {len(columns)}")
    found = WandbTable(str(place), columns, rows)
    if not found.is_run_table and not any(SEPARATOR in column for column in columns[1:]):
        raise PropertyError(
            f"{name!r} is not an export of W&B: neither a table of runs, with a column {NAME_COLUMN!r}, nor a chart, "
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


# -------------------- Jobs of the runs in tables and charts


WANDB = "wandb"  # the property of a job with what W&B itself says of the run
RUNNING = "running"
DATASET = "dataset"  # the column that is looked for where none was named
TRAINING = ("tag", "image_size")  # as of other results
MAX_TIME_LENGTH = 40  # characters
History = dict[str, list[Point]]
Node = TypeVar("Node", DataSetNode, UserNode)


class WandbColumns(NamedTuple):
    """Columns of a table of runs by their meaning."""

    model: str
    dataset: str | None
    accuracy: str
    targets: Mapping[str, str]
    unit: str | Mapping[str, str] | None
    training: Sequence[str]

    @property
    def accuracies(self) -> tuple[str, ...]:
        if self.accuracy == ACCURACY:
            return ACCURACIES
        plain = self.accuracy.removeprefix(SUMMARY_PREFIX)
        return (self.accuracy,) if plain == self.accuracy else (self.accuracy, plain)

    def unit_of(self, target: str) -> str | None:
        return self.unit if isinstance(self.unit, str) or self.unit is None else self.unit.get(target)


def wandb_columns(
    model: object, dataset: object, accuracy: object, targets: object, unit: object, training: object
) -> WandbColumns:
    """Returns the checked columns; raises `PropertyError` or `UnknownNameError`."""
    of_model, of_accuracy = checked_name(model, "column of models"), checked_name(accuracy, "column of accuracies")
    of_dataset = None if dataset is None else checked_name(dataset, "column of data sets")
    by_column = names_by_column(targets, "targets")
    for column in by_column:
        checked_name(column, "column of targets")
    return WandbColumns(
        of_model, of_dataset, of_accuracy, by_column, checked_unit(unit), column_names(training, "training")
    )


class _TableRun(NamedTuple):
    """A row of a table of runs, with its job, model and data set."""

    table: WandbTable
    row: list[str]
    name: str  # of the run
    job: str
    model: str
    dataset: str | None


def wandb_jobs(tables: Sequence[WandbTable], about: WandbColumns, known: Contents) -> tuple[Contents, AddedResults]:
    """The jobs of runs in tables and in charts, with their data sets and users, and what was left out.

    Raises `PropertyError` for a table without the columns that are asked for.
    """
    left_out: LeftOut = {}
    runs: dict[str, _TableRun] = {}
    names: dict[str, list[str]] = _jobs_by_run(known)
    for table in (table for table in tables if table.is_run_table):
        _check(table, about, known)
        for run in _runs_in(table, about, known, left_out):
            if run.job in runs:
                left_out[run.name] = "another row is of the same run: also export the column ID"
                continue
            if run.job in known.jobs and WANDB not in known.jobs[run.job].properties:
                left_out[run.name] = f"the graph has a job {printable(run.job)!r} that is none of W&B"
                continue
            runs[run.job] = run
            names.setdefault(run.name, [])
            if run.job not in names[run.name]:
                names[run.name].append(run.job)
    histories = _histories((table for table in tables if not table.is_run_table), names, left_out)
    _check_accuracy(tables, histories, about)
    jobs = _with_histories(_jobs_from_tables(runs, about, known, left_out), histories, about, known)
    contents = Contents(
        known.scheme,
        datasets=_new_nodes((job.dataset for job in jobs.values()), known.datasets, DataSetNode),
        users=_new_nodes((job.user for job in jobs.values()), known.users, UserNode),
        jobs=jobs,
    )
    results = [results_of(job) for job in jobs.values()]
    targets = {target for each in results for target in each}
    notes = unit_notes(targets, {**known.jobs, **jobs}.values(), known.models)
    return contents, AddedResults(sum(map(len, results)), len(jobs), left_out, notes, "run")


def _new_nodes(
    names: Iterable[str | None], known: Mapping[str, object], kind: Callable[[str, Properties], Node]
) -> dict[str, Node]:
    return {name: kind(name, {}) for name in dict.fromkeys(names) if name is not None and name not in known}


def _jobs_by_run(known: Contents) -> dict[str, list[str]]:
    """Returns the jobs of earlier imports by the name of their run."""
    found: dict[str, list[str]] = {}
    for job in known.jobs.values():
        told = job.properties.get(WANDB)
        if isinstance(told, dict) and isinstance(told.get(NAME_COLUMN), str):
            found.setdefault(told[NAME_COLUMN], []).append(job.name)
    return found


# ------------------------------------------------------------------ tables


def _check(table: WandbTable, about: WandbColumns, known: Contents) -> None:
    """Raises `PropertyError` for a missing column."""
    table.check_column(about.model, "model")
    for column in about.targets:
        table.check_column(column, "targets")
    for column in about.training:
        if column not in TRAINING:
            table.check_column(column, "training")
    if about.dataset is not None and about.dataset not in known.datasets:
        table.check_column(about.dataset, "dataset")


def _check_accuracy(tables: Sequence[WandbTable], histories: Mapping[str, History], about: WandbColumns) -> None:
    """Raises `PropertyError` if neither a table nor a chart has the accuracy."""
    metrics = {metric for history in histories.values() for metric in history}
    names = {*metrics, *(column for table in tables if table.is_run_table for column in table.columns)}
    if about.accuracy != ACCURACY and names.isdisjoint(about.accuracies):
        hint = closest_match_hint(about.accuracy, sorted(names - {*WANDB_COLUMNS}))
        raise PropertyError(f"no file has {printable(about.accuracy)!r}: {hint}; say accuracy=")


def _runs_in(table: WandbTable, about: WandbColumns, known: Contents, left_out: LeftOut) -> Iterator[_TableRun]:
    column = about.dataset or DATASET
    constant = about.dataset if not table.column_indices(column) else None
    for number, row in enumerate(table.rows, 2):
        name, model = table.cell(row, NAME_COLUMN), table.cell(row, about.model)
        if name is None:
            left_out[f"row {number}"] = "it has no name"
        elif model is None:
            left_out[name] = f"its {printable(about.model)!r} is empty: it names no model"
        elif model not in known.models:
            left_out[name] = f"no model is called {printable(model)!r}: {closest_match_hint(model, known.models)}"
        else:
            dataset = constant or table.cell(row, column)
            yield _TableRun(table, row, name, _job_name(table, row, name), model, dataset)


def _job_name(table: WandbTable, row: list[str], name: str) -> str:
    """A name that the same run has again: its id, or its name, which others may have, with a digest of its time."""
    own = table.cell(row, "ID")
    if own is not None:
        return own
    key = repr((name, table.cell(row, "Created")))
    return f"{name} {hashlib.blake2b(key.encode('utf-8', 'replace'), digest_size=4).hexdigest()}"


def _jobs_from_tables(
    runs: Mapping[str, _TableRun], about: WandbColumns, known: Contents, left_out: LeftOut
) -> dict[str, JobNode]:
    results: dict[str, dict[str, Result]] = {}
    reasons: dict[tuple[str, str], str] = {}  # by job and target
    for each in unify_units(list(_results(runs, about, left_out)), reasons):
        results.setdefault(each.row[0], {})[each.target] = each.result
    left_out |= {f"{runs[key].name}, {target}": reason for (key, target), reason in reasons.items()}
    accuracies = _accuracies(runs, about, left_out)
    found: dict[str, JobNode] = {}
    for key, run in runs.items():
        job = _job(run, about, results.get(key, {}), known.jobs.get(key))
        if isinstance(job, str):
            left_out[run.name] = job
        else:
            found[key] = replace(job, accuracy=accuracies[key]) if key in accuracies else job
    return found


def _results(runs: Mapping[str, _TableRun], about: WandbColumns, left_out: LeftOut) -> Iterator[RowResult]:
    """The values of the targets, each under its job and target."""
    for key, run in runs.items():
        for column, name in about.targets.items():
            target = canonical_target(name)
            text = run.table.cell(run.row, column, summary=True)
            value = parse_finite(text)
            if value is None:
                left_out[f"{run.name}, {target}"] = (
                    f"its {printable(column)!r} is not a finite number: {printable(repr(text), 60)}"
                )
            else:
                result = Result(value, about.unit_of(target))
                yield RowResult((key, target), run.model, run.dataset, None, (), target, result)


def _accuracies(runs: Mapping[str, _TableRun], about: WandbColumns, left_out: LeftOut) -> dict[str, float]:
    """The last accuracy of each run that has one, in percent where any of its column is above 1."""
    values: dict[str, dict[str, float]] = {}
    for key, run in runs.items():
        for column in about.accuracies:
            value = parse_number(run.table.cell(run.row, column, summary=True))
            if value is not None and value == value:
                values.setdefault(column, {})[key] = value
                break
    found: dict[str, float] = {}
    for column, own in values.items():
        percent = any(value > 1 + ROUNDING_TOLERANCE for value in own.values())
        for key, value in own.items():
            try:
                found[key] = accuracy_fraction(value, percent)
            except PropertyError as error:
                left_out[f"{runs[key].name}, {column}"] = str(error)
    return found


def _job(run: _TableRun, about: WandbColumns, results: Mapping[str, Result], old: JobNode | None) -> JobNode | str:
    """Returns the job without its history, or why it is invalid; results of an earlier import stay."""
    table, row = run.table, run.row
    training = {
        column.removeprefix(CONFIG_PREFIX): _plain(text)
        for column in about.training
        if (text := table.cell(row, column)) is not None
    }
    given = old.properties.get(RESULTS) if old is not None else None
    kept = {**(given if isinstance(given, dict) else {}), **as_property(results)}
    own = {column: text for column in WANDB_COLUMNS if (text := table.cell(row, column)) is not None}
    taken = {*WANDB_COLUMNS, *about.targets}
    rest = {column: text for column in table.columns if column not in taken and (text := table.cell(row, column))}
    properties = {
        **training,
        WANDB: {**own, NAME_COLUMN: run.name},
        "params": rest,
        **({RESULTS: kept} if kept else {}),
    }
    try:
        created, seconds = table.cell(row, "Created"), parse_finite(table.cell(row, "Runtime"))
        started = timestamp(created[:MAX_TIME_LENGTH] if created else None, "Created")
        ended = None
        if started is not None and seconds is not None and seconds >= 0 and own.get("State") != RUNNING:
            ended = timestamp(started + seconds, "the end")
        checked = checked_properties(properties)
    except PropertyError as error:
        return str(error)
    accuracy = accuracy_as_fraction(results.get(TOP_1))
    history = {} if old is None else old.history
    if accuracy is None and old is not None:
        accuracy = old.accuracy
    return JobNode(
        run.job, table.cell(row, "User"), run.dataset, run.model, accuracy,
        None if old is None else old.convergence, history, started or 0.0, ended, checked,
    )  # fmt: skip


def _plain(text: str) -> str | int | float:
    """A cell as a number where it is one: training is compared by values."""
    number = parse_finite(text)
    return text if number is None else int(number) if number.is_integer() else number


# ------------------------------------------------------------------ charts


def _histories(
    charts: Iterable[WandbTable], names: Mapping[str, Sequence[str]], left_out: LeftOut
) -> dict[str, History]:
    """The metrics of charts by job."""
    found: dict[str, History] = {}
    for chart in charts:
        for column, line in chart_lines(chart, names):
            if isinstance(line, str):
                left_out[column] = line
                continue
            run, metric, points = line
            if len(names[run]) > 1:
                left_out[column] = f"{len(names[run])} runs are called {printable(run)!r}"
            else:
                for job in names[run]:
                    found.setdefault(job, {})[metric] = points
    return found


def _with_histories(
    jobs: dict[str, JobNode], histories: Mapping[str, History], about: WandbColumns, known: Contents
) -> dict[str, JobNode]:
    """All jobs, those of the graph that charts tell of among them; an accuracy is the last of its history."""
    found = dict(jobs)
    for key, history in histories.items():
        job = found.get(key) or known.jobs[key]
        every = {**job.history, **history}
        try:
            accuracy = accuracy_of(every, about.accuracies)
        except PropertyError:  # it ends with what can be no accuracy
            accuracy = None
        found[key] = replace(
            job,
            accuracy=job.accuracy if accuracy is None else accuracy,
            convergence=convergence_of(every, about.accuracies),
            history=every,
        )
    return found
