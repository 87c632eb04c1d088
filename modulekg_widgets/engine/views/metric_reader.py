"""Where a MetricPanel stands in its runs, and the update that brings it to the end of them."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from modulekg_widgets.engine.errors import shown
from modulekg_widgets.engine.monitoring.readings import Row, Slot
from modulekg_widgets.engine.monitoring.run import Alert, Run
from modulekg_widgets.engine.views.metric_update import (
    HISTOGRAM,
    LEAST_POINTS,
    MOST_HISTOGRAMS,
    MOST_IN_MESSAGE,
    MOST_POINTS,
    Batch,
    Catalog,
    Points,
    RowLayout,
    Series,
    SeriesPart,
    Update,
    packed_histograms,
    parts,
    phase_with_values,
)
from modulekg_widgets.engine.views.payload import text

MOST_ALERTS = 1000
REMEMBERED_LAYOUTS = 1000

log = logging.getLogger("modulekg_widgets")


class RunReader:
    """Where a panel stands in the history of one run."""

    def __init__(self, number: int, run: Run, catalog: Catalog) -> None:
        self.run = run
        self.is_broken = self._was_running = False
        self.number = number
        self._catalog = catalog
        self._layouts: dict[tuple[int, ...], RowLayout] = {}
        self._slots: list[Slot] = []  # of the row before, and its layout: most rows are alike
        self._layout = RowLayout(())
        self.rewind()

    def rewind(self) -> None:
        """Begin again with the first row."""
        self.read_rows = self.alerts_read = 0
        self._steps, self._step = 0, None
        self._rows: Iterator[Row] = iter(())
        self._held: Row | None = None

    @property
    def behind(self) -> int:
        """The count of rows that are still to read."""
        return 0 if self.is_broken else max(0, len(self.run.history) - self.read_rows)

    def read(self, batch: Batch, deadline: float, due: float = math.inf) -> bool:
        """Put rows into the batch until none is left or `due` steps are read; False: the clock passed `deadline`."""
        while (row := self._next()) is not None:
            if row.step != self._step:
                if self._steps >= due:
                    self._held = row
                    return True
                self._step, self._steps = row.step, self._steps + 1
            batch.add(self._layout_of(row.slots), row)
            self.read_rows += 1
            if time.thread_time() > deadline:
                return False
        return True

    def alerts(self) -> list[Alert]:
        """The alerts that have come since the last look, none of a step that is still to read."""
        found = self.run.alerts[self.alerts_read :]
        if self.behind > 0:
            found = list(takewhile(lambda alert: self._step is not None and alert.step <= self._step, found))
        self.alerts_read += len(found)
        return found

    def has_ended(self) -> bool:
        """Whether all is read, and no more comes: a recorded run, or a monitor that was seen to run and has stopped."""
        is_running = getattr(self.run, "is_running", None)
        self._was_running |= is_running is True
        return self.behind == 0 and self.read_rows > 0 and not is_running and (self._was_running or is_running is None)

    def _next(self) -> Row | None:
        if self._held is not None:
            row, self._held = self._held, None
            return row
        row = next(self._rows, None)
        if row is None and self.behind > 0:
            self._rows = self.run.history.rows(self.read_rows)
            row = next(self._rows, None)
        return row

    def _layout_of(self, slots: Sequence[Slot]) -> RowLayout:
        if slots != self._slots:
            self._slots = list(slots)
            key = tuple(map(id, slots))  # the history keeps its slots, so an id stays theirs
            if key not in self._layouts:
                if len(self._layouts) >= REMEMBERED_LAYOUTS:
                    self._layouts.clear()
                self._layouts[key] = RowLayout(self._placed(slots))
            self._layout = self._layouts[key]
        return self._layout

    def _placed(self, slots: Sequence[Slot]) -> Iterator[tuple[int, SeriesPart]]:
        start = 0
        for slot in slots:
            for part in parts(slot.metric, slot.form):
                series = Series(self.number, slot.module, part.metric, slot.call, slot.phase, part.form)
                number = self._catalog.number(series)
                if number is not None:
                    head = tuple(start + place for place in part.head)
                    yield number, part._replace(start=start + part.start, head=head)
            start += slot.form.size


def _read(reader: RunReader, batch: Batch, deadline: float, due: float) -> bool:
    """What `reader.read` says; a run that cannot be read is left as it is, and the others are shown."""
    try:
        return reader.read(batch, deadline, due)
    except Exception:
        log.warning("the run %s can be read no further", shown(reader.run.name), exc_info=True)
        reader.is_broken = True
        return True


class Updates:
    """Makes the messages of a panel: each holds what has come since the one before."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.catalog = Catalog()
        self._readers = [RunReader(number, run, self.catalog) for number, run in enumerate(runs)]
        self.rewind()

    def rewind(self) -> None:
        """Begin again with the first row of each run."""
        for reader in self._readers:
            reader.rewind()
        self._series = self._alerts = 0  # counts of those that have been sent
        self._ended: set[int] = set()
        self._backlog = 0  # rows that were to read when reading them began to take more than one message

    @property
    def behind(self) -> int:
        """The count of rows that are still to read."""
        return sum(reader.behind for reader in self._readers)

    def next(self, seconds: float = math.inf, due: float = math.inf) -> Update | None:
        """What has come since the last call, up to `due` steps and read for `seconds` at most; None: nothing."""
        batch, share = self.read(seconds, due)
        content: dict[str, Any] = {}
        buffers: list[bytes] = []
        self._add_points(batch, share, content, buffers)
        self._add_texts(content)
        return Update(content, buffers) if content else None

    def read(self, seconds: float = math.inf, due: float = math.inf) -> tuple[Batch, float]:
        """The rows that have come, and their share of all that wait: below 1 where one call cannot read them."""
        backlog, batch = self._backlog or self.behind, Batch()
        waiting = [reader for reader in self._readers if reader.behind > 0]
        complete = [_read(r, batch, time.thread_time() + seconds / len(waiting), due) for r in waiting]
        shared = self._backlog or not all(complete)
        self._backlog = 0 if all(complete) else backlog
        return batch, min(1.0, batch.count / backlog) if shared else 1.0

    def latest(self, metric: str, phase: str) -> dict[str, float]:
        """The latest value of `metric` of each module in the first run that has it; "" is the first of a module.

        Where the metric has none in `phase`, it is that of the other one.
        """
        series = [(s, value) for s, value in zip(self.catalog.series, self.catalog.latest, strict=True)]
        if not metric:
            metric = next((s.metric for s, _ in series if s.module and s.form != HISTOGRAM and s.phase == phase), "")
        fitting = [(s, v) for s, v in series if s.metric == metric and s.form != HISTOGRAM]
        phase = phase_with_values(phase, self.catalog.series, metric)
        found = [(s, v) for s, v in fitting if s.phase == phase]
        return {s.module: value for s, value in found if s.run == found[0][0].run}

    def _add_points(self, batch: Batch, share: float, content: dict[str, Any], buffers: list[bytes]) -> None:
        points = batch.points()
        self._note_latest(points)
        most = min(math.ceil(MOST_POINTS * share), MOST_IN_MESSAGE // max(1, len(points.series)))
        thinned = points.thinned(max(LEAST_POINTS, most))
        histograms = batch.histograms(max(1, math.ceil(MOST_HISTOGRAMS * share)))
        if len(points.series) or histograms:
            content["points"], numbers = thinned.packed()
            buffers.append(numbers)
        if histograms:
            content["histograms"], numbers = packed_histograms(histograms)
            buffers.append(numbers)

    def _note_latest(self, points: Points) -> None:
        ends = points.values[points.counts.cumsum() - 1].tolist()
        for series, value in zip(points.series.tolist(), ends, strict=True):
            self.catalog.latest[series] = value

    def _add_texts(self, content: dict[str, Any]) -> None:
        entries = self.catalog.entries(self._series)
        if entries:
            content["catalog"] = {"from": self._series, "entries": entries}
            self._series += len(entries)
        found = [(r.number, alert) for r in self._readers for alert in r.alerts()][: MOST_ALERTS - self._alerts]
        if found:
            alerts = [[n, text(a.module), text(a.metric), int(a.step), text(a.text)] for n, a in found]
            content["alerts"] = {"from": self._alerts, "entries": alerts}
            self._alerts += len(alerts)
        ended = {reader.number for reader in self._readers if reader.has_ended()}
        if ended - self._ended:
            content["ended"] = sorted(ended - self._ended)
        self._ended = ended  # a monitor may start again, and end again
