"""Update of a MetricPanel: series by number, and their new points, downsampled and packed."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.monitoring.readings import SCALAR, Form, Row, Slot
from modulekg_widgets.engine.monitoring.run import Alert, Run
from modulekg_widgets.engine.views.payload import text
from modulekg_widgets.engine.views.schema import Payload

MAX_SERIES = 4000  # of a panel; what comes after them is left out
MAX_POINTS = 2000  # of a series: in the browser, and in one message
MAX_MESSAGE_POINTS = 200_000  # points of all series
MAX_HISTOGRAMS = 50  # of a series in one message
MIN_POINTS = 4

NUMBER, VECTOR, HISTOGRAM = "number", "vector", "histogram"
HISTOGRAM_HEAD = ("low", "high", "total", "sampled")
HISTOGRAM_KEYS = {*HISTOGRAM_HEAD, "counts"}

T = TypeVar("T")
SeriesKey: TypeAlias = tuple[int, str, str, int, str, bool]  # run, module, metric, call, phase, "is a histogram"


class Series(NamedTuple):
    """One line, or one sequence of histograms: the values of a metric of a module in a run."""

    run: int
    module: str
    metric: str
    call: int
    phase: str
    form: str  # "number", "vector" or "histogram"


def phase_with_values(phase: str, series: Iterable[Series], metric: str) -> str:
    """Returns the phase to draw: the other one if only that has series of the metric."""
    found = {one.phase for one in series if one.metric == metric}
    return phase if phase in found or len(found) != 1 else found.pop()


class Update(NamedTuple):
    """A message: its JSON content and its binary buffers."""

    content: Payload
    buffers: list[bytes]


class SeriesPart(NamedTuple):
    """Location of one series in the numbers of a value."""

    metric: str
    form: str
    start: int
    length: int
    head: tuple[int, ...] = ()  # of a histogram: where low, high, total and sampled lie


def series_parts(metric: str, form: Form) -> list[SeriesPart]:
    """Returns the series of a value: one per number, vector or histogram, and per key of another dict."""
    if form is SCALAR:
        return [SeriesPart(metric, NUMBER, 0, 1)]
    sizes = [1 if length is None else length for _, length in form.parts]
    starts = np.concatenate([[0], np.cumsum(sizes, dtype=int)]).tolist()
    places = {key: start for (key, _), start in zip(form.parts, starts, strict=False)}
    if set(places) == HISTOGRAM_KEYS and len(form.parts) == len(HISTOGRAM_KEYS):
        head = tuple(places[key] for key in HISTOGRAM_HEAD)
        bins = dict(form.parts)["counts"] or 1
        return [SeriesPart(metric, HISTOGRAM, places["counts"], bins, head)]
    return [
        SeriesPart(f"{metric}.{key}" if key else metric, NUMBER if length is None else VECTOR, start, size)
        for (key, length), start, size in zip(form.parts, starts, sizes, strict=False)
    ]


class SeriesCatalog:
    """Series of a panel, numbered in order of arrival."""

    def __init__(self) -> None:
        self.series: list[Series] = []
        self.latest: list[float] = []  # of each series; NaN for a histogram
        self._numbers: dict[SeriesKey, int] = {}
        self._left_out: set[SeriesKey] = set()

    @property
    def omitted(self) -> int:
        """The count of series beyond the limit of the panel."""
        return len(self._left_out)

    def number(self, series: Series) -> int | None:
        """Returns the number of `series`, adding it if it is new; None if the panel is full."""
        key = (*series[:5], series.form == HISTOGRAM)
        known = self._numbers.get(key)
        if known is not None:
            return known
        if len(self.series) >= MAX_SERIES:
            self._left_out.add(key)
            return None
        self._numbers[key] = len(self.series)
        self.series.append(series)
        self.latest.append(math.nan)
        return self._numbers[key]

    def entries(self, start: int) -> list[list[int | str]]:
        """Returns the series from number `start`, as they are sent."""
        return [[s.run, text(s.module), text(s.metric), s.call, s.phase, s.form] for s in self.series[start:]]


class RowLayout:
    """Location of the series in the numbers of a row, for all rows with the same slots."""

    def __init__(self, parts: Iterable[tuple[int, SeriesPart]]) -> None:
        found = list(parts)
        scalars = [(series, part.start) for series, part in found if part.form == NUMBER]
        vectors = [(series, part) for series, part in found if part.form == VECTOR]
        self.series = np.array([s for s, _ in scalars] + [s for s, _ in vectors], np.int64)
        self.histograms = [(series, part) for series, part in found if part.form == HISTOGRAM]
        self._scalars = np.array([start for _, start in scalars], np.int64)
        self._edges = np.array([(p.start, p.start + p.length) for _, p in vectors], np.int64).ravel()
        self._lengths = np.array([part.length for _, part in vectors], np.float64)

    def values(self, numbers: np.ndarray) -> np.ndarray:
        """Converts (rows, numbers) to (rows, series), with the means of vectors."""
        chosen = numbers[:, self._scalars]
        if not len(self._edges):
            return chosen
        # reduceat takes no edge at the end of the array
        padded = np.pad(numbers, ((0, 0), (0, 1)))
        with np.errstate(all="ignore"):
            means = np.add.reduceat(padded, self._edges, axis=1)[:, ::2] / self._lengths
        means[:, self._lengths == 0] = math.nan
        return np.concatenate([chosen, means], axis=1)


class SeriesPoints(NamedTuple):
    """Points grouped by series: `series` and `counts` in parallel, `steps` and `values` concatenated."""

    series: np.ndarray
    counts: np.ndarray
    steps: np.ndarray
    values: np.ndarray

    def downsampled(self, limit: int) -> SeriesPoints:
        """Returns at most `limit` points of each series."""
        if not len(self.counts) or self.counts.max() <= limit:
            return self
        starts = np.cumsum(self.counts) - self.counts
        kept = [
            start + min_max_positions(self.values[start : start + count], limit)
            for start, count in zip(starts, self.counts, strict=True)
        ]
        where = np.concatenate(kept)
        counts = np.array([len(places) for places in kept], np.int64)
        return SeriesPoints(self.series, counts, self.steps[where], self.values[where])

    def packed(self) -> tuple[dict[str, list[int]], bytes]:
        """Returns the section `points` of a message, and its buffer: per series the steps, then the values."""
        total, starts = len(self.steps), np.cumsum(self.counts) - self.counts
        place = np.arange(total) + np.repeat(starts, self.counts)
        numbers = np.empty(2 * total, "<f8")
        numbers[place] = self.steps
        numbers[place + np.repeat(self.counts, self.counts)] = self.values
        return {"series": self.series.tolist(), "counts": self.counts.tolist()}, numbers.tobytes()


def min_max_positions(values: np.ndarray, limit: int) -> np.ndarray:
    """Positions after min-max downsampling: per bucket least, greatest and first NaN, and the last value."""
    count = len(values)
    if count <= limit:
        return np.arange(count)
    nan = np.isnan(values)
    has_nan = bool(nan.any())
    buckets = max(1, (limit - 1) // (3 if has_nan else 2))
    width = math.ceil(count / buckets)
    buckets = math.ceil(count / width)
    starts = np.arange(buckets) * width
    fill = (0, buckets * width - count)

    def first(wanted: np.ndarray, filler: float) -> np.ndarray:
        return starts + np.pad(wanted, fill, constant_values=filler).reshape(buckets, width).argmax(axis=1)

    least = first(-np.where(nan, math.inf, values), -math.inf)
    greatest = first(np.where(nan, -math.inf, values), -math.inf)
    lost = first(nan.astype(np.float64), 0.0) if has_nan else least
    return np.unique(np.concatenate([least, greatest, lost[nan[lost]], [count - 1]]))


class RowBatch:
    """Rows between two messages, grouped by layout."""

    def __init__(self) -> None:
        self.count = 0
        self._rows: dict[RowLayout, tuple[list[int], list[int], list[np.ndarray]]] = {}

    def add(self, layout: RowLayout, row: Row) -> None:
        order, steps, numbers = self._rows.setdefault(layout, ([], [], []))
        order.append(self.count)
        steps.append(row.step)
        numbers.append(row.numbers)
        self.count += 1

    def points(self) -> SeriesPoints:
        """Returns all points, grouped by series in order of arrival."""
        rows = [(layout, *columns) for layout, columns in self._rows.items() if len(layout.series)]
        if not rows:
            nothing = np.empty(0, np.int64)
            return SeriesPoints(nothing, nothing, np.empty(0), np.empty(0))
        series = np.concatenate([np.repeat(layout.series, len(order)) for layout, order, _, _ in rows])
        order = np.concatenate([np.tile(np.array(order), len(layout.series)) for layout, order, _, _ in rows])
        steps = np.concatenate([np.tile(np.array(steps, np.float64), len(r.series)) for r, _, steps, _ in rows])
        values = np.concatenate([layout.values(_table(numbers)).T.ravel() for layout, _, _, numbers in rows])
        points = SeriesPoints(
            np.concatenate([layout.series for layout, *_ in rows]),
            np.concatenate([np.full(len(layout.series), len(order)) for layout, order, _, _ in rows]),
            steps,
            values,
        )
        if len(np.unique(points.series)) == len(points.series):
            return points
        # a series in rows of two kinds: sorting is the slow part
        sorting = np.lexsort((order, series))
        numbers, counts = np.unique(series, return_counts=True)
        return SeriesPoints(numbers, counts, steps[sorting], values[sorting])

    def histograms(self, limit: int = MAX_HISTOGRAMS) -> list[tuple[int, int, np.ndarray]]:
        """Returns (series, step, numbers) of at most `limit` histograms per series, with the last one."""
        found: dict[int, list[tuple[int, int, np.ndarray]]] = {}
        for layout, (_, steps, numbers) in self._rows.items():
            for series, part in layout.histograms:
                places = [*part.head, *range(part.start, part.start + part.length)]
                own = found.setdefault(series, [])
                own.extend((series, step, row[places]) for step, row in zip(steps, numbers, strict=True))
        return [one for own in found.values() for one in evenly_spaced(own, limit)]


def _table(numbers: Sequence[np.ndarray]) -> np.ndarray:
    """(rows, numbers): np.stack, for many short rows faster."""
    return np.concatenate(numbers).reshape(len(numbers), -1)


def evenly_spaced(items: Sequence[T], limit: int) -> list[T]:
    """Returns at most `limit` items at even distances, with the last one."""
    if len(items) <= limit:
        return list(items)
    stride = math.ceil(len(items) / limit)
    return list(items[::-1][::stride])[::-1]


def packed_histograms(found: Sequence[tuple[int, int, np.ndarray]]) -> tuple[dict[str, list[int]], bytes]:
    """Returns the section `histograms` of a message, and its buffer of heads and counts."""
    section = {
        "series": [series for series, _, _ in found],
        "steps": [step for _, step, _ in found],
        "bins": [len(numbers) - len(HISTOGRAM_HEAD) for _, _, numbers in found],
    }
    return section, b"".join(numbers.astype("<f8").tobytes() for _, _, numbers in found)


# -------------------- Readers of runs for a MetricPanel: positions in the histories, and updates with the new rows


MAX_ALERTS = 1000
MAX_LAYOUTS = 1000

log = logging.getLogger("modulekg_widgets")


class RunReader:
    """Position of a panel in the history of one run."""

    def __init__(self, number: int, run: Run, catalog: SeriesCatalog) -> None:
        self.run = run
        self.is_broken = self._was_running = False
        self.number = number
        self._catalog = catalog
        self._layouts: dict[tuple[int, ...], RowLayout] = {}
        self._slots: list[Slot] = []  # of the row before, and its layout: most rows are alike
        self._layout = RowLayout(())
        self.rewind()

    def rewind(self) -> None:
        """Restart at the first row."""
        self.read_rows = self.alerts_read = 0
        self._steps, self._step = 0, None
        self._rows: Iterator[Row] = iter(())
        self._next_row: Row | None = None

    @property
    def unread(self) -> int:
        """The count of unread rows."""
        return 0 if self.is_broken else max(0, len(self.run.history) - self.read_rows)

    def read(self, batch: RowBatch, deadline: float, due: float = math.inf) -> bool:
        """Read rows into the batch until none is left or `due` steps are read; False after `deadline`."""
        while (row := self._next()) is not None:
            if row.step != self._step:
                if self._steps >= due:
                    self._next_row = row
                    return True
                self._step, self._steps = row.step, self._steps + 1
            batch.add(self._layout_of(row.slots), row)
            self.read_rows += 1
            if time.thread_time() > deadline:
                return False
        return True

    def alerts(self) -> list[Alert]:
        """Returns the new alerts of steps that are read."""
        found = self.run.alerts[self.alerts_read :]
        if self.unread > 0:
            found = list(takewhile(lambda alert: self._step is not None and alert.step <= self._step, found))
        self.alerts_read += len(found)
        return found

    def has_ended(self) -> bool:
        """True if all rows are read and no more can come: a recording, or a monitor that has stopped.

        There may be none: a training that failed before its first step has ended, too.
        """
        is_running = getattr(self.run, "is_running", None)
        self._was_running |= is_running is True
        has_run = self._was_running or is_running is None or getattr(self.run, "has_ended", False)
        return self.unread == 0 and not is_running and has_run

    def is_waiting(self) -> bool:
        """True if a monitor runs and has no value yet."""
        return self.unread == 0 and self.read_rows == 0 and getattr(self.run, "is_running", None) is True

    def _next(self) -> Row | None:
        if self._next_row is not None:
            row, self._next_row = self._next_row, None
            return row
        row = next(self._rows, None)
        if row is None and self.unread > 0:
            self._rows = self.run.history.rows(self.read_rows)
            row = next(self._rows, None)
        return row

    def _layout_of(self, slots: Sequence[Slot]) -> RowLayout:
        if slots != self._slots:
            self._slots = list(slots)
            key = tuple(map(id, slots))  # the history keeps its slots, so an id stays theirs
            if key not in self._layouts:
                if len(self._layouts) >= MAX_LAYOUTS:
                    self._layouts.clear()
                self._layouts[key] = RowLayout(self._series_parts(slots))
            self._layout = self._layouts[key]
        return self._layout

    def _series_parts(self, slots: Sequence[Slot]) -> Iterator[tuple[int, SeriesPart]]:
        start = 0
        for slot in slots:
            for part in series_parts(slot.metric, slot.form):
                series = Series(self.number, slot.module, part.metric, slot.call, slot.phase, part.form)
                number = self._catalog.number(series)
                if number is not None:
                    head = tuple(start + place for place in part.head)
                    yield number, part._replace(start=start + part.start, head=head)
            start += slot.form.size


def _read_safely(reader: RunReader, batch: RowBatch, deadline: float, due: float) -> bool:
    """Read a run; one that fails is logged and skipped from then on."""
    try:
        return reader.read(batch, deadline, due)
    except Exception:
        log.warning("the run %s can be read no further", printable(reader.run.name), exc_info=True)
        reader.is_broken = True
        return True


class UpdateReader:
    """Makes the messages of a panel, each with everything since the previous one."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.catalog = SeriesCatalog()
        self._readers = [RunReader(number, run, self.catalog) for number, run in enumerate(runs)]
        self.rewind()

    def rewind(self) -> None:
        """Restart all runs at their first row."""
        for reader in self._readers:
            reader.rewind()
        self._series = self._alerts = 0  # counts of those that have been sent
        self._ended: set[int] = set()
        self._waiting: set[int] = set()
        self._backlog = 0  # rows that were to read when reading them began to take more than one message

    @property
    def unread(self) -> int:
        """The count of unread rows."""
        return sum(reader.unread for reader in self._readers)

    def next(self, seconds: float = math.inf, due: float = math.inf) -> Update | None:
        """Returns an update with at most `due` steps, read for at most `seconds`; None if there is nothing new."""
        batch, share = self.read(seconds, due)
        content: Payload = {}
        buffers: list[bytes] = []
        self._add_points(batch, share, content, buffers)
        self._add_texts(content)
        return Update(content, buffers) if content else None

    def read(self, seconds: float = math.inf, due: float = math.inf) -> tuple[RowBatch, float]:
        """Returns the new rows, and their share of all unread ones if one call cannot read these."""
        backlog, batch = self._backlog or self.unread, RowBatch()
        waiting = [reader for reader in self._readers if reader.unread > 0]
        complete = [_read_safely(r, batch, time.thread_time() + seconds / len(waiting), due) for r in waiting]
        shared = self._backlog or not all(complete)
        self._backlog = 0 if all(complete) else backlog
        return batch, min(1.0, batch.count / backlog) if shared else 1.0

    def latest(self, metric: str, phase: str) -> dict[str, float]:
        """Returns the latest value of `metric` by module, of the first run that has it.

        Where the metric has none in `phase`, it is that of the other one.
        """
        series = [(s, value) for s, value in zip(self.catalog.series, self.catalog.latest, strict=True)]
        if not metric:
            metric = next((s.metric for s, _ in series if s.module and s.form != HISTOGRAM and s.phase == phase), "")
        fitting = [(s, v) for s, v in series if s.metric == metric and s.form != HISTOGRAM]
        phase = phase_with_values(phase, self.catalog.series, metric)
        found = [(s, v) for s, v in fitting if s.phase == phase]
        return {s.module: value for s, value in found if s.run == found[0][0].run}

    def _add_points(self, batch: RowBatch, share: float, content: Payload, buffers: list[bytes]) -> None:
        points = batch.points()
        self._note_latest(points)
        most = min(math.ceil(MAX_POINTS * share), MAX_MESSAGE_POINTS // max(1, len(points.series)))
        thinned = points.downsampled(max(MIN_POINTS, most))
        histograms = batch.histograms(max(1, math.ceil(MAX_HISTOGRAMS * share)))
        if len(points.series) or histograms:
            content["points"], numbers = thinned.packed()
            buffers.append(numbers)
        if histograms:
            content["histograms"], numbers = packed_histograms(histograms)
            buffers.append(numbers)

    def _note_latest(self, points: SeriesPoints) -> None:
        ends = points.values[points.counts.cumsum() - 1].tolist()
        for series, value in zip(points.series.tolist(), ends, strict=True):
            self.catalog.latest[series] = value

    def _add_texts(self, content: Payload) -> None:
        entries = self.catalog.entries(self._series)
        if entries:
            content["catalog"] = {"from": self._series, "entries": entries}
            self._series += len(entries)
        found = [(r.number, alert) for r in self._readers for alert in r.alerts()][: MAX_ALERTS - self._alerts]
        if found:
            alerts = [[n, text(a.module), text(a.metric), int(a.step), text(a.text)] for n, a in found]
            content["alerts"] = {"from": self._alerts, "entries": alerts}
            self._alerts += len(alerts)
        ended = {reader.number for reader in self._readers if reader.has_ended()}
        if ended - self._ended:
            content["ended"] = sorted(ended - self._ended)
        self._ended = ended  # a monitor may start again, and end again
        waiting = {reader.number for reader in self._readers if reader.is_waiting()}
        if waiting - self._waiting:
            content["waiting"] = sorted(waiting - self._waiting)
        self._waiting = waiting
