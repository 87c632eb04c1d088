"""Recordings: runs read from files, and files truncated where a training is resumed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from modulekg_widgets.engine.errors import RecordingError
from modulekg_widgets.engine.monitoring.history import History
from modulekg_widgets.engine.monitoring.readings import Reading, Slot, flat
from modulekg_widgets.engine.monitoring.run import Run
from modulekg_widgets.engine.monitoring.sinks.line_files import (
    LineFormat,
    file_errors,
    name_in,
    read_header,
    read_lines,
)
from modulekg_widgets.engine.monitoring.sinks.parquet_sink import ParquetSink, name_in_parquet, parquet_readings
from modulekg_widgets.engine.monitoring.sinks.sink_targets import LINE_FORMATS, PARQUET, path_of
from modulekg_widgets.engine.safe_files import atomic_writer

ROW_SLOTS = 4096  # that are put into one row
ROW_NUMBERS = 1 << 16
MAX_SLOTS = 1_000_000  # each takes memory for as long as the run


class Recording(Run):
    """A run from a file."""

    def before(self, step: int) -> Recording:
        """Returns the part of the run before `step`."""
        part = Recording(self.name)
        self.copy_to(part.history, step)
        return part

    def copy_to(self, history: History, before: int | None = None) -> None:
        """Append the rows to another history; only those before step `before` if it is given."""
        for row in self.history.rows():
            if before is None or row.step < before:
                history.append(row.step, [history.slot_number(slot) for slot in row.slots], row.numbers)


def load_recording(path: str | os.PathLike[str]) -> Recording:
    """Read a run from a file that a sink wrote.

    A torn last line, as a killed process leaves it, is left out.

    Parameters
    ----------
    path : path
        A .jsonl, .csv or .parquet file.

    Returns
    -------
    Recording
        With all that a monitor tells of its values: `get_output()`, `frame()`, `readings()`. Its name is that of the
        run, or of the file where the format (CSV) has no place for it.

    Raises
    ------
    RecordingError
        For everything that no sink writes; it names the line.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import torch
    >>> import modulekg_widgets as mk
    >>> file = Path(tempfile.mkdtemp()) / "run.jsonl"
    >>> with mk.Monitor(torch.nn.Linear(2, 2), {}, sinks=[file]) as monitor:
    ...     monitor.log({"loss": 0.5}, step=0)
    >>> mk.load_recording(file).get_output()
    {'': {'loss': {0: 0.5}}}
    """
    file = path_of(path)
    with file_errors(file):
        name, readings = _opened(file)
        recording = Recording(file.stem if name is None else name)
        _add_readings(recording.history, readings)
    return recording


def continue_file(path: str | os.PathLike[str], step: int) -> None:
    """Truncate a recorded file before `step`, atomically, so that a sink can append to it.

    The file is replaced in one move, and stays as it is when that fails. Raises `RecordingError` for a file that is
    no recording, or cannot be written.
    """
    file = path_of(path)
    with file_errors(file, "cut"):
        if file.suffix.lower() == PARQUET:
            _cut_parquet(file, step)
        else:
            _cut_lines(Path(os.path.realpath(file)), step, LINE_FORMATS[file.suffix.lower()])


def _opened(file: Path) -> tuple[str | None, Iterator[Reading]]:
    if file.suffix.lower() == PARQUET:
        return name_in_parquet(file), parquet_readings(file)
    form = LINE_FORMATS[file.suffix.lower()]
    return name_in(file, form), (reading for _, reading in read_lines(file, form))


def _add_readings(history: History, readings: Iterable[Reading]) -> None:
    filler = _RowBuilder(history)
    for reading in readings:
        filler.add(reading)
    filler.put()


class _RowBuilder:
    """Collects consecutive readings of one step into one row."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._step = 0
        self._slots: list[int] = []
        self._numbers: list[float] = []

    def add(self, reading: Reading) -> None:
        """Add a reading; raises `RecordingError` for more distinct slots than fit in memory."""
        is_full = len(self._slots) >= ROW_SLOTS or len(self._numbers) >= ROW_NUMBERS
        if is_full or reading.step != self._step:
            self.put()
        form, numbers = flat(reading.value)
        slot = Slot(reading.module, reading.metric, reading.call, reading.phase, form)
        self._step = reading.step
        self._slots.append(self._history.slot_number(slot))
        self._numbers += numbers
        if len(self._history.slots) > MAX_SLOTS:
            raise RecordingError(f"it has more than {MAX_SLOTS:,} different values")

    def put(self) -> None:
        if self._slots:
            self._history.append(self._step, self._slots, np.array(self._numbers))
        self._slots, self._numbers = [], []


def _cut_lines(file: Path, step: int, form: LineFormat) -> None:
    name_in(file, form)
    with atomic_writer(file) as kept:
        kept.write(read_header(file))
        for line, reading in read_lines(file, form):
            if reading.step < step:
                kept.write(line)


def _cut_parquet(file: Path, step: int) -> None:
    sink = ParquetSink(file, name_in_parquet(file))
    try:
        for reading in parquet_readings(file):
            if reading.step < step:
                sink.write([reading])
    except BaseException:
        sink.discard()
        raise
    sink.close()
