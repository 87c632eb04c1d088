"""Sinks of a monitor: opened, closed and continued together with it."""

from __future__ import annotations

import os
from pathlib import Path

from modulekg_widgets.engine.monitoring.history import History
from modulekg_widgets.engine.monitoring.sinks.recording import continue_file, load_recording
from modulekg_widgets.engine.monitoring.sinks.sink_targets import open_sink
from modulekg_widgets.engine.monitoring.sinks.sink_thread import SinkThreads


class SinkSet:
    """Sends the rows of a history to sinks; of several ranks only the first one does (`is_sender`)."""

    def __init__(self, history: History, name: str, is_sender: bool) -> None:
        self._history = history
        self._name = name
        self._is_sender = is_sender
        self._targets: list[object] = []
        self._threads: SinkThreads | None = SinkThreads(history)
        self._resumed: Path | None = None

    def resume(self, path: Path, start: int | None) -> int:
        """Load the part of a recorded file before step `start`; returns the step to continue with."""
        recorded = load_recording(path)
        if start is None:
            start = max((row.step for row in recorded.history.rows()), default=-1) + 1
        recorded.copy_to(self._history, before=start)
        self._resumed = path
        if self._is_sender:
            continue_file(path, start)
        return start

    def add(self, target: object) -> None:
        """Add a sink; it gets all rows, unless it is the resumed file."""
        self._send_to(target, is_continued=self._resumed is not None and self._has_recorded_rows(target))
        self._targets.append(target)

    def open(self) -> None:
        """Reopen all sinks after `close`, at the row where they ended."""
        if self._threads is None:
            self._threads = SinkThreads(self._history)
            for target in self._targets:
                self._send_to(target, is_continued=True)

    def notify(self) -> None:
        """Notify the threads of new rows."""
        if self._threads is not None:
            self._threads.notify()

    def close(self) -> None:
        """Flush and close the sinks."""
        delivery, self._threads = self._threads, None
        if delivery is not None:
            delivery.close()

    def _has_recorded_rows(self, target: object) -> bool:
        """True if a target already has the rows of the resumed file: it is that file, or no file."""
        assert self._resumed is not None
        return not isinstance(target, str | os.PathLike) or Path(target).resolve() == self._resumed.resolve()

    def _send_to(self, target: object, is_continued: bool) -> None:
        if self._is_sender and self._threads is not None:
            sink = open_sink(target, self._name, append=is_continued)
            self._threads.add(sink, len(self._history) if is_continued else 0)
            self._threads.notify()
