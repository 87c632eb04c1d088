"""Files of one reading a line, which can be read while they are written and after a crash."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from modulekg_widgets.engine.errors import RecordingError, shown
from modulekg_widgets.engine.monitoring.readings import Reading
from modulekg_widgets.engine.monitoring.sinks.files import at_file, holds_something, is_recorded

LONGEST_LINE = 32 << 20  # bytes; a vector of 1.5 million numbers


@dataclass(frozen=True, slots=True)
class LineFormat:
    """How a run stands in lines: the first one, and one for each reading, all without their ends.

    `head` makes the first line from the name of the run; `name` reads it back, None where the format has no place for
    it. `name` and `reading` raise `RecordingError` for a line that is not theirs.
    """

    head: Callable[[str], str]
    name: Callable[[str], str | None]
    line: Callable[[Reading], str]
    reading: Callable[[str], Reading]


class RecordedLine(NamedTuple):
    """A reading, and its line as it stands in the file, the end included."""

    raw: bytes
    reading: Reading


class LineSink:
    """Appends to a file; each write goes to the operating system at once, so a killed process loses no earlier one.

    A recording that is there is replaced, or continued with `append`; raises `RecordingError` for any other file.
    """

    def __init__(self, path: Path, form: LineFormat, name: str, append: bool = False) -> None:
        self.name = str(path)
        self._form = form
        self._pid = os.getpid()
        with at_file(path, "written"):
            continues = is_recorded(path, lambda there: name_in(there, form)) and append
            if continues:
                _mend(path, form)
            else:
                path.write_bytes(b"")
            # unbuffered: a forked process shall have no copy of lines that it would write a second time
            self._file: BinaryIO = path.open("ab", buffering=0)
            if not continues:
                self._put([form.head(name)])

    def write(self, readings: list[Reading]) -> None:
        """Append one line for each reading; raises `OSError` when the disk does not take them."""
        if os.getpid() == self._pid:
            self._put([self._form.line(reading) for reading in readings])

    def close(self) -> None:
        self._file.close()

    def _put(self, lines: list[str]) -> None:
        encoded = [f"{line}\n".encode() for line in lines]
        if any(len(line) >= LONGEST_LINE for line in encoded):
            raise RecordingError(f"a value of more than {LONGEST_LINE >> 20} MB could not be read back")
        rest = memoryview(b"".join(encoded))
        while rest:
            rest = rest[self._file.write(rest) :]


def name_in(path: Path, form: LineFormat) -> str | None:
    """The name of a recorded run; raises `RecordingError` when the first line is none of `form`."""
    if not holds_something(path):
        raise RecordingError("it is empty or not there")
    try:
        return form.name(_text(head_of(path)))
    except RecordingError as error:
        raise RecordingError(f"line 1: {error}") from error


def head_of(path: Path) -> bytes:
    """The first line as it stands in the file."""
    with path.open("rb") as file:
        return file.readline(LONGEST_LINE)


def lines(path: Path, form: LineFormat) -> Iterator[RecordedLine]:
    """The readings of a file; a torn last line is left out.

    Raises `RecordingError` that names the line for everything that `form` does not write.
    """
    with path.open("rb") as file:
        file.readline(LONGEST_LINE)
        number = 1
        while raw := file.readline(LONGEST_LINE):
            number += 1
            try:
                reading = form.reading(_text(raw))
            except RecordingError as error:
                if not raw.endswith(b"\n") and len(raw) < LONGEST_LINE:
                    return  # whoever wrote it was stopped, or is still writing
                raise RecordingError(f"line {number}: {error}") from error
            yield RecordedLine(raw if raw.endswith(b"\n") else raw + b"\n", reading)


def _text(raw: bytes) -> str:
    if len(raw) >= LONGEST_LINE:
        raise RecordingError(f"it is longer than {LONGEST_LINE >> 20} MB")
    try:
        return raw.rstrip(b"\r\n").decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecordingError(f"no UTF-8 ({shown(str(error))})") from error


def _mend(path: Path, form: LineFormat) -> None:
    """Cut a torn last line off, or end a whole one, so that the next line stands alone."""
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(end - 1)
        if file.read() == b"\n":
            return
        file.seek(max(0, end - LONGEST_LINE))
        _, newline, tail = file.read().rpartition(b"\n")
        try:
            form.reading(_text(tail)) if newline else form.name(_text(tail))
        except RecordingError:
            file.truncate(end - len(tail))
        else:
            file.write(b"\n")
