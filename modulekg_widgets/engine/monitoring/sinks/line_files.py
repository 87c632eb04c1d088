"""Line-based recordings, readable while they are written and after a crash."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from modulekg_widgets.engine.errors import RecordingError, printable
from modulekg_widgets.engine.monitoring.readings import Reading
from modulekg_widgets.engine.monitoring.run import COLUMNS
from modulekg_widgets.engine.monitoring.sinks.json_values import (
    SPECIAL_NUMBERS,
    checked_reading,
    parse_value,
    value_text,
)

# -------------------- Common parts of recorded files: header, overwrite protection and error messages


FORMAT, VERSION = "modulekg-run", 1


@contextmanager
def file_errors(path: Path, verb: str = "read") -> Iterator[None]:
    """Context manager that turns errors into `RecordingError` with the file name."""
    name = printable(str(path), 300)
    try:
        yield
    except RecordingError as error:
        raise RecordingError(f"{name}: {error}") from error
    except (OSError, ValueError) as error:  # a name with a null in it is a ValueError
        raise RecordingError(f"{name} cannot be {verb}: {printable(str(error), 300)}") from error


def is_nonempty(path: Path) -> bool:
    """True if a non-empty file exists; raises `RecordingError` if it is not a regular file."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(found.st_mode):  # a pipe or a device may have no end, or never answer
        raise RecordingError("it is not a regular file")
    return found.st_size > 0


def is_recorded(path: Path, name_in: Callable[[Path], str | None]) -> bool:
    """True if a recording exists that `name_in` accepts; raises `RecordingError` for any other file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not is_nonempty(path):
        return False
    try:
        name_in(path)
    except RecordingError as error:
        raise RecordingError(
            f"a file that is not a recording is not written over: pass another path ({error})"
        ) from error
    return True


def header_name(found: object) -> str:
    """Returns the run name in a parsed header; raises `RecordingError` for another header."""
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise RecordingError(f'it does not begin with {{"format": "{FORMAT}", …}}: record a run with a sink')
    version, name = found.get("version"), found.get("name")
    if type(version) is not int or version != VERSION:
        raise RecordingError(f"its version is {printable(repr(version))}; this release reads {VERSION}")
    if type(name) is not str:
        raise RecordingError("its name is not text")
    return name


# ----------------------------------------


MAX_LINE_BYTES = 32 << 20  # bytes; a vector of 1.5 million numbers


@dataclass(frozen=True, slots=True)
class LineFormat:
    """Format of a line-based recording: functions for the header and for one reading, without line ends.

    `svg_header` makes the first line from the name of the run; `name` reads it back, None where the format has no
    place for it. `name` and `reading` raise `RecordingError` for a line that is not theirs.
    """

    head: Callable[[str], str]
    name: Callable[[str], str | None]
    line: Callable[[Reading], str]
    reading: Callable[[str], Reading]


class LineSink:
    """Appends to a file, unbuffered, so that a killed process loses no completed write.

    A recording that is there is replaced, or continued with `append`; raises `RecordingError` for any other file.
    """

    def __init__(self, path: Path, form: LineFormat, name: str, append: bool = False) -> None:
        self.name = str(path)
        self._form = form
        self._pid = os.getpid()
        with file_errors(path, "written"):
            continues = is_recorded(path, lambda there: name_in(there, form)) and append
            if continues:
                _repair_end(path, form)
            else:
                path.write_bytes(b"")
            # unbuffered: a forked process shall have no copy of lines that it would write a second time
            self._file: BinaryIO = path.open("ab", buffering=0)
            if not continues:
                self._put([form.head(name)])

    def write(self, readings: list[Reading]) -> None:
        """Append one line per reading; raises `OSError` if the disk is full."""
        if os.getpid() == self._pid:
            self._put([self._form.line(reading) for reading in readings])

    def close(self) -> None:
        self._file.close()

    def _put(self, lines: list[str]) -> None:
        encoded = [f"{line}\n".encode() for line in lines]
        if any(len(line) >= MAX_LINE_BYTES for line in encoded):
            raise RecordingError(f"a value of more than {MAX_LINE_BYTES >> 20} MB could not be read back")
        rest = memoryview(b"".join(encoded))
        while rest:
            rest = rest[self._file.write(rest) :]


def name_in(path: Path, form: LineFormat) -> str | None:
    """Returns the name of a recorded run; raises `RecordingError` if the first line is no header of `form`."""
    if not is_nonempty(path):
        raise RecordingError("it is empty or not there")
    try:
        return form.name(_text(read_header(path)))
    except RecordingError as error:
        raise RecordingError(f"line 1: {error}") from error


def read_header(path: Path) -> bytes:
    """Returns the raw first line."""
    with path.open("rb") as file:
        return file.readline(MAX_LINE_BYTES)


def read_lines(path: Path, form: LineFormat) -> Iterator[tuple[bytes, Reading]]:
    """Yields the lines of a file, each with its end and its reading; an incomplete last line is skipped.

    Raises `RecordingError` that names the line for everything that `form` does not write.
    """
    with path.open("rb") as file:
        file.readline(MAX_LINE_BYTES)
        number = 1
        while raw := file.readline(MAX_LINE_BYTES):
            number += 1
            try:
                reading = form.reading(_text(raw))
            except RecordingError as error:
                if not raw.endswith(b"\n") and len(raw) < MAX_LINE_BYTES:
                    return  # whoever wrote it was stopped, or is still writing
                raise RecordingError(f"line {number}: {error}") from error
            yield raw if raw.endswith(b"\n") else raw + b"\n", reading


def _text(raw: bytes) -> str:
    if len(raw) >= MAX_LINE_BYTES:
        raise RecordingError(f"it is longer than {MAX_LINE_BYTES >> 20} MB")
    try:
        return raw.rstrip(b"\r\n").decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecordingError(f"no UTF-8 ({printable(str(error))})") from error


def _repair_end(path: Path, form: LineFormat) -> None:
    """Cut off an incomplete last line, or complete its line end."""
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(end - 1)
        if file.read() == b"\n":
            return
        file.seek(max(0, end - MAX_LINE_BYTES))
        _, newline, tail = file.read().rpartition(b"\n")
        try:
            form.reading(_text(tail)) if newline else form.name(_text(tail))
        except RecordingError:
            file.truncate(end - len(tail))
        else:
            file.write(b"\n")


# --------------------
# JSON Lines format: a header, then one strict JSON object per reading, with NaN and infinities as strings.


REQUIRED_FIELDS = {"module", "metric", "step", "value"}
FIELDS = REQUIRED_FIELDS | {"call", "phase"}


def _head(name: str) -> str:
    return json.dumps({"format": FORMAT, "version": VERSION, "name": name})


def _header_name(line: str) -> str:
    return header_name(parse_value(line))


def _json_line(reading: Reading) -> str:
    # escaped to ASCII, in which a lone surrogate in a name survives
    return (
        f'{{"module":{json.dumps(reading.module)},"metric":{json.dumps(reading.metric)},"step":{int(reading.step)},'
        f'"value":{value_text(reading.value)},"call":{int(reading.call)},"phase":"{reading.phase}"}}'
    )


def _json_reading(line: str) -> Reading:
    found = parse_value(line)
    if not isinstance(found, dict) or not found.keys() >= REQUIRED_FIELDS or not found.keys() <= FIELDS:
        raise RecordingError(f"no reading, which has {', '.join(sorted(FIELDS))}: {printable(line)}")
    return checked_reading(**found)


JSONL = LineFormat(_head, _header_name, _json_line, _json_reading)


# -------------------- CSV format: one line per reading, with no cell that a spreadsheet would run as a formula


HEADER = ",".join(COLUMNS)
# what spreadsheets run: ASCII, and the full-width forms that some of them read as the same
FORMULA_PREFIXES = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "'")
CELL_PATTERN = r'("[^"]*(?:""[^"]*)*"|[^",]*)'
ROW_PATTERN = re.compile(",".join([CELL_PATTERN] * len(COLUMNS)))
INTEGER_PATTERN = re.compile(r"-?[0-9]{1,19}", re.ASCII)

# ------------------------------------------------------------ text in cells


def encode_text(text: str) -> str:
    """Returns `text` on one line: as it is, or as a JSON string if it is not printable or looks like one."""
    return text if text.isprintable() and not text.startswith('"') else json.dumps(text)


def decode_text(found: str) -> str:
    """Returns the text that `encode_text` encoded."""
    if not found.startswith('"'):
        return found
    text = parse_value(found)
    if not isinstance(text, str):
        raise RecordingError(f"no text: {printable(found)}")
    return text


def _cell(text: str) -> str:
    made = encode_text(text)
    return _quoted(f"'{made}" if made.startswith(FORMULA_PREFIXES) else made)


def _from_cell(found: str) -> str:
    return decode_text(found.removeprefix("'"))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text


def _unquoted(found: str) -> str:
    return found[1:-1].replace('""', '"') if found.startswith('"') else found


# --------------------------------------------------------------------- rows


def _check_csv_columns(line: str) -> None:
    if line != HEADER:
        raise RecordingError(f"it does not begin with the columns {HEADER}: {printable(line)}")


def _csv_line(reading: Reading) -> str:
    value = value_text(reading.value)
    bare = value.strip('"') if value[0] == '"' else value
    return (
        f"{_cell(reading.module)},{_cell(reading.metric)},{int(reading.step)},{_quoted(bare)},"
        f"{int(reading.call)},{reading.phase}"
    )


def _csv_reading(line: str) -> Reading:
    found = ROW_PATTERN.fullmatch(line)
    if found is None:
        raise RecordingError(f"no row of {len(COLUMNS)} cells: {printable(line)}")
    module, metric, step, value, call, phase = map(_unquoted, found.groups())
    number = value if value in SPECIAL_NUMBERS else parse_value(value)
    return checked_reading(_from_cell(module), _from_cell(metric), _integer(step), number, _integer(call), phase)


def _integer(found: str) -> int:
    if not INTEGER_PATTERN.fullmatch(found):
        raise RecordingError(f"a step and a call are whole numbers, not {printable(found)!r}")
    return int(found)


CSV = LineFormat(lambda name: HEADER, _check_csv_columns, _csv_line, _csv_reading)
