"""History of a run: rows in order, in memory at first and then in an unnamed temporary file."""

from __future__ import annotations

import bisect
import logging
import os
import struct
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np

from modulekg_widgets.engine.monitoring.readings import Reading, Row, Slot

ROW_HEADER = struct.Struct("<qII")  # step, count of slots, count of numbers
CHUNK_BYTES = 1 << 17  # bytes that stay in memory before they go to the file

log = logging.getLogger("modulekg_widgets")


class History:
    """Append-only rows in order of arrival; any thread may read and append.

    Each row is packed into bytes; full chunks of bytes go to a temporary file that ends with the process.
    """

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self._numbers: dict[Slot, int] = {}
        self._lock = threading.RLock()
        self._tail = bytearray()
        self._tail_starts: list[int] = []  # where each row of the tail begins
        self._chunks: list[tuple[int, int, int]] = []  # number of the first row, place in the file, length
        self._chunks_in_memory: dict[int, bytes] = {}  # chunks that the disk did not take
        self._file: IO[bytes] | None = None
        self._end = 0
        self._length = 0

    def __len__(self) -> int:
        """Returns the count of rows."""
        return self._length

    def slot_number(self, slot: Slot) -> int:
        """Returns the number that stands for `slot` in rows."""
        number = self._numbers.get(slot)
        if number is None:
            with self._lock:
                number = self._numbers.setdefault(slot, len(self.slots))
                if number == len(self.slots):
                    self.slots.append(slot)
        return number

    def append(self, step: int, slots: Sequence[int], numbers: np.ndarray) -> None:
        """Add the row of `step`: slots by number, and their numbers one after the other."""
        wide = np.ascontiguousarray(numbers, np.float64)
        packed = ROW_HEADER.pack(step, len(slots), len(wide)) + np.asarray(slots, np.uint32).tobytes() + wide.tobytes()
        with self._lock:
            self._tail_starts.append(len(self._tail))
            self._tail += packed
            self._length += 1
            if len(self._tail) >= CHUNK_BYTES:
                self._spill_to_disk()

    def rows(self, start: int = 0, stop: int | None = None) -> Iterator[Row]:
        """Yields the rows from number `start` to `stop`, by default all that there are at the call."""
        stop = self._length if stop is None else min(stop, self._length)
        while start < stop:
            first, block = self._block(start)
            for number, row in enumerate(self._unpacked(block), first):
                if start <= number < stop:
                    yield row
                    start = number + 1

    def readings(self, start: int = 0, stop: int | None = None) -> Iterator[Reading]:
        """Yields the readings of `rows`, one value at a time."""
        for row in self.rows(start, stop):
            yield from row.readings()

    def __del__(self) -> None:
        file: IO[bytes] | None = vars(self).get("_file")  # a constructor that raised has none
        if file is not None:
            file.close()

    def _spill_to_disk(self) -> None:
        first = self._length - len(self._tail_starts)
        block = bytes(self._tail)
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="modulekg-", buffering=0)  # noqa: SIM115 - lives as we do
            if _write_at(self._file, self._end, block) != len(block):
                raise OSError("the disk took a part only")
        except OSError as error:
            if not self._chunks_in_memory:
                log.warning("the monitor's history is kept in memory: its temporary file cannot be written (%s)", error)
            self._chunks_in_memory[first] = block
        self._chunks.append((first, self._end, len(block)))
        self._end += len(block)
        self._tail = bytearray()
        self._tail_starts = []

    def _block(self, number: int) -> tuple[int, bytes]:
        """Returns the chunk with row `number`, and the number of its first row."""
        with self._lock:
            first_of_tail = self._length - len(self._tail_starts)
            if number >= first_of_tail:
                begin = self._tail_starts[number - first_of_tail]
                return number, bytes(self._tail[begin:])
            first, place, length = self._chunks[bisect.bisect(self._chunks, (number, 1 << 62, 0)) - 1]
            if first in self._chunks_in_memory:
                return first, self._chunks_in_memory[first]
            assert self._file is not None
            return first, _read_at(self._file, place, length)

    def _unpacked(self, block: bytes) -> Iterator[Row]:
        at = 0
        while at < len(block):
            step, slots, numbers = ROW_HEADER.unpack_from(block, at)
            at += ROW_HEADER.size
            named = [self.slots[number] for number in np.frombuffer(block, np.uint32, slots, at)]
            at += 4 * slots
            yield Row(step, named, np.frombuffer(block, np.float64, numbers, at))
            at += 8 * numbers


# A process that was forked off shares the place in the file with its parent: neither moves it. Windows has no forks.


def _write_at(file: IO[bytes], place: int, block: bytes) -> int:
    if hasattr(os, "pwrite"):
        return os.pwrite(file.fileno(), block, place)
    file.seek(place)
    return file.write(block)


def _read_at(file: IO[bytes], place: int, length: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(file.fileno(), length, place)
    file.seek(place)
    return file.read(length)
