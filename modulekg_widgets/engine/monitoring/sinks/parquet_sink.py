"""Parquet sink: readings in row groups; the file appears when the sink is closed.

Of a number, `value` has it and `parts` is null; of a vector or a dict, `parts` has it as JSON and `value` is NaN.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from io import RawIOBase
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np

from modulekg_widgets.engine.errors import RecordingError, printable
from modulekg_widgets.engine.monitoring.readings import Reading
from modulekg_widgets.engine.monitoring.sinks.json_values import checked_reading, parse_value, value_text
from modulekg_widgets.engine.monitoring.sinks.line_files import (
    FORMAT,
    VERSION,
    decode_text,
    encode_text,
    file_errors,
    header_name,
    is_nonempty,
    is_recorded,
)
from modulekg_widgets.engine.safe_files import AtomicFile

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

GROUP_ROWS = 1 << 13
GROUP_CHARACTERS = 1 << 22  # of the vectors and dicts in a group
BATCH_ROWS = 1 << 12  # rows that are read at once
TEXTS = ("module", "metric", "phase", "parts")
TYPES = {
    "module": "string",
    "metric": "string",
    "step": "int64",
    "value": "float64",
    "parts": "string",
    "call": "int64",
    "phase": "string",
}
Row: TypeAlias = tuple[str, str, int, float, str | None, int, str]  # as `TYPES`
Cells: TypeAlias = dict[str, Any]  # of a row that was read, by column
OPTIONS: dict[str, Any] = {
    "use_dictionary": ["module", "metric", "phase"],
    "compression": dict.fromkeys(TYPES, "snappy") | {"value": "none"},
    "store_schema": False,  # which older releases of pyarrow unpickled
    "write_page_checksum": True,
}
KEY = FORMAT.encode()  # of our header in the metadata
MAGIC = b"PAR1"
MIN_ROW_BYTES = 8  # that a row takes at least: its value is neither packed nor compressed
MAX_COMPRESSION = 32  # times that the letters may be longer than the file; Snappy reaches 21

# ------------------------------------------------------------------ writing


class ParquetSink:
    """Writes to a temporary file that replaces `path` on close; with `append` it starts with the existing rows.

    With `append`, the rows of the recording that is there come first. Raises `RecordingError` for another file, and
    where pyarrow is missing.
    """

    def __init__(self, path: Path, name: str, append: bool = False) -> None:
        self.name = str(path)
        self._pid = os.getpid()
        with file_errors(path, "written"):
            _require_pyarrow()
            import pyarrow.parquet as pq

            continues = is_recorded(path, name_in_parquet) and append
            self._new = AtomicFile(path)
            self._file = _File(self._new.open(buffering=0))
            self._writer: pq.ParquetWriter | None = pq.ParquetWriter(self._file, _schema(), **OPTIONS)
            _table([_row(Reading("", "", 0, 0.0))])  # pyarrow imports more at its first array, too late at the end
            self._rows: list[Row] = []
            self._letters = 0
            header = json.dumps(
                {"format": FORMAT, "version": VERSION, "name": name_in_parquet(path) if continues else name}
            )
            self._writer.add_key_value_metadata({KEY.decode(): header})
            if continues:
                self._copy(path)

    def write(self, readings: list[Reading]) -> None:
        """Write readings; each full row group is written at once."""
        if os.getpid() != self._pid:
            return
        for reading in readings:
            self._rows.append(_row(reading))
            self._letters += len(self._rows[-1][4] or "")
            if len(self._rows) >= GROUP_ROWS or self._letters >= GROUP_CHARACTERS:
                self._put_group()

    def close(self) -> None:
        """Write the last row group and move the file to its path."""
        if self._writer is None or os.getpid() != self._pid:
            return
        try:
            self._put_group()
            self._end()
            self._new.commit()
        finally:
            self.discard()

    def discard(self) -> None:
        """Delete the temporary file and leave the path unchanged."""
        try:
            self._end()
        finally:
            self._new.discard()

    def _copy(self, path: Path) -> None:
        try:
            for reading in parquet_readings(path):
                self.write([reading])
        except BaseException:
            self.discard()
            raise

    def _put_group(self) -> None:
        rows, self._rows, self._letters = self._rows, [], 0
        if rows and self._writer is not None:
            self._writer.write_table(_table(rows))

    def _end(self) -> None:
        writer, self._writer = self._writer, None
        try:
            if writer is not None:
                writer.close()
        finally:
            self._file.close()


class _File(RawIOBase):
    """File that is closed by its own process alone: in a fork, pyarrow would close it at garbage collection."""

    def __init__(self, file: IO[bytes]) -> None:
        self._pid = os.getpid()
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        rest = memoryview(data)
        size = rest.nbytes
        while rest and os.getpid() == self._pid:
            rest = rest[self._file.write(rest) :]
        return size


def _row(reading: Reading) -> Row:
    names, place = (encode_text(reading.module), encode_text(reading.metric)), (int(reading.call), reading.phase)
    if isinstance(reading.value, np.ndarray | dict | list | tuple):
        return (*names, int(reading.step), math.nan, value_text(reading.value), *place)
    return (*names, int(reading.step), float(reading.value), None, *place)


def _table(rows: list[Row]) -> pa.Table:
    import pyarrow as pa

    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), TYPES.values(), strict=True)]
    return pa.Table.from_arrays(columns, schema=_schema())


def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(name, getattr(pa, kind)()) for name, kind in TYPES.items()])


def _require_pyarrow() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise RecordingError("Parquet needs pyarrow: pip install 'modulekg-widgets[sinks]'") from error


# ------------------------------------------------------------------ reading


def name_in_parquet(path: Path) -> str:
    """Returns the name of a recorded run; raises `RecordingError` for another file."""
    return _named(_opened(path))


def parquet_readings(path: Path) -> Iterator[Reading]:
    """Yields the readings of a recorded file; raises `RecordingError` for another file."""
    size = path.stat().st_size
    file = _opened(path)
    _named(file)
    if file.metadata.num_rows * MIN_ROW_BYTES > size:
        raise RecordingError(f"{size:,} bytes cannot hold {file.metadata.num_rows:,} rows")
    left, number = MAX_COMPRESSION * size, 0
    try:
        for batch in file.iter_batches(BATCH_ROWS, use_threads=False):
            for row in _rows(batch):
                number += 1
                left -= sum(len(text) for text in (row["module"], row["metric"], row["parts"] or ""))
                if left < 0:
                    raise RecordingError(f"{size:,} bytes cannot hold the texts that it names")
                yield _reading(row)
    except RecordingError as error:
        raise RecordingError(f"row {number}: {error}") from error
    except Exception as error:  # a damaged file is a KeyError or a TypeError of pyarrow's as well
        raise RecordingError(f"after row {number}: no Parquet ({printable(str(error), 200)})") from error


def _opened(path: Path) -> pq.ParquetFile:
    """The file, opened by pyarrow after its footer was checked."""
    if not is_nonempty(path):
        raise RecordingError("it is empty or not there")
    _require_pyarrow()
    import pyarrow as pa
    import pyarrow.parquet as pq

    _check_footer(path)
    try:
        file = pq.ParquetFile(path, read_dictionary=list(TEXTS), page_checksum_verification=True)
        kinds = {field.name: field.type for field in file.schema_arrow}
    except Exception as error:
        raise RecordingError(f"no Parquet ({printable(str(error), 200)})") from error
    texts = pa.dictionary(pa.int32(), pa.string())
    expected = {name: texts if name in TEXTS else getattr(pa, kind)() for name, kind in TYPES.items()}
    if kinds != expected or len(file.schema_arrow) != len(expected):
        raise RecordingError(f"its columns are {printable(', '.join(kinds))}, not {', '.join(TYPES)}")
    return file


def _check_footer(path: Path) -> None:
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 8))
        tail = file.read(8)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != MAGIC or length + 12 > end:
            raise RecordingError("no Parquet, or the run that wrote it did not end")
        file.seek(end - 8 - length)
        if b"ARROW:schema" in file.read(length):  # older releases of pyarrow unpickle what is in it
            raise RecordingError("no Parquet that a sink wrote")


def _named(file: pq.ParquetFile) -> str:
    found = (file.metadata.metadata or {}).get(KEY)
    if found is None:
        raise RecordingError("no Parquet that a sink wrote: it has no header")
    return header_name(parse_value(found.decode("utf-8", "replace")))


def _rows(batch: pa.RecordBatch) -> Iterator[Cells]:
    names = batch.schema.names
    columns = [
        _texts(batch.column(at)) if name in TEXTS else batch.column(at).to_pylist() for at, name in enumerate(names)
    ]
    return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def _texts(column: pa.DictionaryArray) -> list[str | None]:
    """The strings of a column, interned."""
    known = column.dictionary.to_pylist()
    return [None if at is None else known[at] for at in column.indices.to_pylist()]


def _reading(row: Cells) -> Reading:
    if None in (row["module"], row["metric"], row["value"]):
        raise RecordingError("a cell is empty")
    value = row["value"]
    if row["parts"] is not None:
        value = parse_value(row["parts"])
        if not isinstance(value, list | dict):
            raise RecordingError(f"no vector and no dict: {printable(row['parts'])}")
    elif not math.isfinite(value):
        value = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return checked_reading(
        decode_text(row["module"]), decode_text(row["metric"]), row["step"], value, row["call"], row["phase"]
    )
