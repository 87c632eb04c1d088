"""Threads that deliver rows of a history to sinks, one per sink."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from modulekg_widgets.engine.errors import ModuleKGError, printable
from modulekg_widgets.engine.monitoring.history import History
from modulekg_widgets.engine.monitoring.readings import Reading

# -------------------- Protocol of sinks


@runtime_checkable
class Sink(Protocol):
    """Receives readings in order, in a thread of its own; an exception ends this sink alone.

    A sink that holds values back may have `flush()` as well, which lets go of them.
    """

    def write(self, readings: list[Reading]) -> None:
        """Write readings, in the order of the run."""
        ...

    def close(self) -> None:
        """Close the sink, after the last reading."""
        ...


def name_of(sink: object) -> str:
    """Returns the name of a sink in messages."""
    name = getattr(sink, "name", None)
    return name if isinstance(name, str) and name else type(sink).__name__


# ----------------------------------------


PAUSE_SECONDS = 0.05  # seconds between two deliveries
IDLE_SECONDS = 0.5  # seconds after which a thread looks for rows that nobody announced
STALL_SECONDS = 5.0  # seconds without progress after which a sink hangs
EXIT_SECONDS = 10.0  # seconds that the end of the interpreter may wait
SLICE_READINGS = 1000  # readings that are written at once
SLICE_NUMBERS = 100_000  # numbers in them

log = logging.getLogger("modulekg_widgets")


class SinkThreads:
    """Delivers the rows of a history to sinks, off the training thread.

    Each sink has a daemon thread and a cursor into the history, so that a slow one keeps nothing in memory and holds no
    other one up. A sink that raises is dropped with one warning. A process that was forked off delivers nothing.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._threads: list[SinkThread] = []
        self._pid = os.getpid()
        self._is_closed = False
        # a monitor that is forgotten, not closed, lets its threads end
        weakref.finalize(self, _end, self._threads).atexit = False

    def add(self, sink: Sink, start: int = 0) -> None:
        """Add a sink, which gets all rows from number `start`; raises `ModuleKGError` after `close`."""
        if self._is_closed:
            raise ModuleKGError("the monitor has closed its sinks: add them before it stops")
        if os.getpid() == self._pid:
            thread = SinkThread(self._history, sink, start)
            self._threads.append(thread)
            thread.start()

    def notify(self) -> None:
        """Notify the threads of new rows, in less than a microsecond."""
        if os.getpid() == self._pid:
            for thread in self._threads:
                if not thread.wake.is_set():
                    thread.wake.set()

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until all present rows are delivered; False after the timeout."""
        deadline = time.monotonic() + timeout
        working = [thread for thread in self._threads if thread.is_own_process() and thread.is_at_work]
        asked = [thread.request_flush() for thread in working]
        served = [thread.wait_flushed(number, deadline) for thread, number in zip(working, asked, strict=True)]
        return all(served)

    def close(self, timeout: float = 30.0, patience: float = STALL_SECONDS) -> None:
        """Flush and close the sinks; warns of those that do not finish in time.

        Waits for `patience` seconds without progress of a sink, `timeout` seconds in all.
        """
        self._is_closed = True
        _finish(self._threads, timeout, patience)


class SinkThread:
    """The thread of one sink, with a cursor into the history."""

    def __init__(self, history: History, sink: Sink, start: int) -> None:
        self.name = name_of(sink)
        self.wake = threading.Event()
        self.cursor = start
        self.is_at_work = True
        self._history = history
        self._sink = sink
        self._pid = os.getpid()
        self._hurries = threading.Event()  # somebody waits: no pauses
        self._is_ending = False
        self._is_given_up = False
        self._moved = time.monotonic()
        self._asked = 0
        self._served = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"modulekg-sink-{self.name}"[:60], daemon=True)

    def start(self) -> None:
        _ACTIVE.add(self)
        # at the end of the interpreter the latest comes first: before the end of what the sink writes to
        atexit.unregister(_at_exit)
        atexit.register(_at_exit)
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter ends, and no thread can start any more
            log.debug("no thread for %s: its rows are delivered at the end", self.name)

    # ------------------------------------------------- called by other threads

    def request_flush(self) -> int:
        """Request a flush; returns the number to pass to `wait_flushed`."""
        with self._changed:
            self._asked += 1
            asked = self._asked
        self._hurries.set()
        self.wake.set()
        return asked

    def wait_flushed(self, number: int, deadline: float) -> bool:
        """Wait for a requested flush; False after the deadline."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._served >= number or not self.is_at_work, max(0.0, deadline - time.monotonic())
            )
            return self._served >= number

    def request_end(self) -> None:
        """Request the end: remaining rows are delivered, then the sink is closed."""
        self._is_ending = True
        # the garbage collector may call this on our thread, inside of an event whose lock is taken then
        if self._thread is not threading.current_thread():
            self._hurries.set()
            self.wake.set()

    def wait_ended(self, deadline: float, patience: float) -> bool:
        """Wait for the end while rows make progress; False after the deadline or a stall."""
        if self._thread.ident is None:
            self._run()
        begin = time.monotonic()
        while self.is_at_work and self._thread is not threading.current_thread():
            now = time.monotonic()
            rest = min(deadline - now, max(begin, self._moved) + patience - now)
            if rest <= 0:
                return False
            self._thread.join(min(rest, 0.1))
        return True

    def abandon(self) -> None:
        """Abandon a sink that does not finish, with a warning."""
        self._is_given_up = True
        left = len(self._history) - self.cursor
        _warn(
            f"the sink {self.name} does not finish: {f'{left} rows are' if left else 'the end is'} not delivered to it"
        )

    def is_own_process(self) -> bool:
        return os.getpid() == self._pid

    # --------------------------------------------------------- the own thread

    def _run(self) -> None:
        try:
            while not self._is_ending:
                self.wake.wait(IDLE_SECONDS)
                self._deliver()
                self._hurries.wait(PAUSE_SECONDS)
            self._deliver()
        except BaseException as error:  # noqa: BLE001 - no failure of a sink may reach the training
            self._drop(error)
        else:
            self._close()
        finally:
            _ACTIVE.discard(self)
            with self._changed:
                self.is_at_work = False
                self._changed.notify_all()

    def _deliver(self) -> None:
        """Write all present rows, in slices with pauses that leave time for the training."""
        self.wake.clear()
        asked, stop = self._asked, len(self._history)
        begin = time.thread_time()
        for rows, readings in slices(self._history, self.cursor, stop):
            if self._is_given_up:
                return
            self._sink.write(readings)
            self.cursor += rows
            self._moved = time.monotonic()
            self._hurries.wait(time.thread_time() - begin)
            begin = time.thread_time()
        if asked > self._served:
            flush = getattr(self._sink, "flush", None)
            if callable(flush):
                flush()
            self._serve(asked)

    def _serve(self, asked: int) -> None:
        with self._changed:
            self._served = asked
            if self._served == self._asked and not self._is_ending:
                self._hurries.clear()
            self._changed.notify_all()

    def _close(self) -> None:
        try:
            self._sink.close()
        except BaseException as error:  # noqa: BLE001
            if not self._is_given_up:
                _warn(f"the sink {self.name} did not close: {_reason(error)}")

    def _drop(self, error: BaseException) -> None:
        self.is_at_work = False
        if not self._is_given_up:
            log.debug("the sink %s failed", self.name, exc_info=error)
            _warn(f"the sink {self.name} is dropped, training continues: {_reason(error)}")
        try:
            self._sink.close()  # what it took until then may be of use
        except BaseException:
            log.debug("the sink %s did not close", self.name, exc_info=True)


def slices(history: History, start: int, stop: int) -> Iterator[tuple[int, list[Reading]]]:
    """Yields readings of whole rows in portions, with the count of rows."""
    count, numbers = 0, 0
    readings: list[Reading] = []
    for row in history.rows(start, stop):
        count += 1
        numbers += len(row.numbers)
        readings += row.readings()
        if len(readings) >= SLICE_READINGS or numbers >= SLICE_NUMBERS:
            yield count, readings
            count, numbers, readings = 0, 0, []
    if count:
        yield count, readings


_ACTIVE: set[SinkThread] = set()


def _end(threads: Iterable[SinkThread]) -> None:
    for thread in threads:
        if thread.is_own_process():
            thread.request_end()


def _finish(threads: Iterable[SinkThread], timeout: float, patience: float) -> None:
    ours = [thread for thread in threads if thread.is_own_process() and thread.is_at_work]
    deadline = time.monotonic() + timeout
    _end(ours)
    for thread in ours:
        if not thread.wait_ended(deadline, patience):
            thread.abandon()


def _at_exit() -> None:
    _finish(list(_ACTIVE), EXIT_SECONDS, STALL_SECONDS)


def _warn(text: str) -> None:
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    except RuntimeWarning:  # raised where warnings are errors, which nobody could catch on a thread
        log.warning("%s", text)


def _reason(error: BaseException) -> str:
    return printable("".join(traceback.format_exception_only(error)).strip(), 300)
