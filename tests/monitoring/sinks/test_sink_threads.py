"""SinkThreads: everything once and in order, off the training thread, with sinks that fail, wait and come late."""

from __future__ import annotations

import gc
import logging
import threading
import time
import tracemalloc
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from modulekg_widgets.engine.errors import ModuleKGError
from modulekg_widgets.engine.monitoring.history import History
from modulekg_widgets.engine.monitoring.readings import Form, Reading, Slot
from modulekg_widgets.engine.monitoring.sinks import sink_thread as module
from modulekg_widgets.engine.monitoring.sinks.recording import load_recording
from modulekg_widgets.engine.monitoring.sinks.sink_targets import open_sink
from modulekg_widgets.engine.monitoring.sinks.sink_thread import SinkThreads
from monitoring.sinks.samples import assert_same, every_reading, remember, scalars


class Keeper:
    """A sink in memory."""

    def __init__(self, name: str = "keeper") -> None:
        self.name = name
        self.readings: list[Reading] = []
        self.threads: set[threading.Thread] = set()
        self.writes = self.flushes = self.closes = 0

    def write(self, readings: list[Reading]) -> None:
        self.threads.add(threading.current_thread())
        self.writes += 1
        self.readings += readings

    def flush(self) -> None:
        self.flushes += 1

    def close(self) -> None:
        self.closes += 1


class Raising(Keeper):
    """Takes so many readings and raises then."""

    def __init__(self, limit: int, error: BaseException | None = None) -> None:
        super().__init__("raising")
        self.limit = limit
        self.error = error or OSError("the disk is full")

    def write(self, readings: list[Reading]) -> None:
        super().write(readings)
        if len(self.readings) > self.limit:
            raise self.error


class Hanging(Keeper):
    """Takes nothing until it may."""

    def __init__(self) -> None:
        super().__init__("hanging")
        self.may = threading.Event()
        self.is_asked = threading.Event()

    def write(self, readings: list[Reading]) -> None:
        self.is_asked.set()
        self.may.wait()
        super().write(readings)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("modulekg-sink")]


def waited(condition: Callable[[], object], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return bool(condition())


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def sinks(history: History) -> Iterator[SinkThreads]:
    made = SinkThreads(history)
    yield made
    made.close()
    assert waited(lambda: not threads())


def test_everything_arrives_once_and_in_order(history: History, sinks: SinkThreads) -> None:
    early, late = Keeper(), Keeper()
    sinks.add(early)
    for reading in scalars(700):
        remember(history, [reading])
        sinks.notify()
    remember(history, every_reading())
    sinks.add(late)  # what came before it was there is for it, too
    remember(history, scalars(5))
    sinks.close()
    for sink in (early, late):
        assert_same(sink.readings, [*scalars(700), *every_reading(), *scalars(5)])
        assert sink.closes == 1
        assert threading.main_thread() not in sink.threads


def test_a_sink_can_begin_in_the_middle(history: History, sinks: SinkThreads) -> None:
    remember(history, scalars(4))
    sink = Keeper()
    sinks.add(sink, start=len(history))
    remember(history, scalars(2))
    sinks.close()
    assert_same(sink.readings, scalars(2))


def test_there_is_a_thread_for_each_sink_from_its_add_to_the_close(history: History, sinks: SinkThreads) -> None:
    assert threads() == []
    sinks.notify()
    assert sinks.flush()
    assert threads() == []
    sinks.add(Keeper())
    sinks.add(Keeper())
    assert [thread.daemon for thread in threads()] == [True, True]
    sinks.close()
    assert threads() == []
    sinks.close()
    sinks.notify()
    assert sinks.flush()
    with pytest.raises(ModuleKGError, match="closed"):
        sinks.add(Keeper())
    assert threads() == []


def test_rows_arrive_while_the_training_runs_in_few_writes(history: History, sinks: SinkThreads) -> None:
    sink = Keeper()
    sinks.add(sink)
    begin = time.monotonic()
    for step in range(100):
        remember(history, [Reading("m", "M", step, 0.5)])
        sinks.notify()
        time.sleep(0.002)
    assert waited(lambda: sink.readings)
    assert sink.writes <= (time.monotonic() - begin) / module.PAUSE_SECONDS + 2
    assert waited(lambda: len(sink.readings) == 100)


def test_rows_arrive_without_a_nudge(history: History, sinks: SinkThreads) -> None:
    sink = Keeper()
    sinks.add(sink)
    remember(history, scalars(1))
    assert waited(lambda: len(sink.readings) == 3)


def test_flush_waits_for_all_rows_of_now(history: History, sinks: SinkThreads) -> None:
    kept = [Keeper(), Keeper()]
    for sink in kept:
        sinks.add(sink)
    for count in range(1, 20):
        remember(history, scalars(1, 1))
        assert sinks.flush()
        assert [len(sink.readings) for sink in kept] == [count, count]
    assert [sink.flushes for sink in kept] == [19, 19]


def test_flush_says_when_it_is_not_in_time(history: History, sinks: SinkThreads) -> None:
    sink = Hanging()
    sinks.add(sink)
    remember(history, scalars(1))
    assert not sinks.flush(0.05)
    sink.may.set()
    assert sinks.flush()
    assert len(sink.readings) == 3


def texts(recorded: pytest.WarningsRecorder) -> list[str]:
    return [str(warning.message) for warning in recorded if issubclass(warning.category, RuntimeWarning)]


def test_a_sink_that_raises_is_dropped_with_one_warning(
    history: History, sinks: SinkThreads, recwarn: pytest.WarningsRecorder
) -> None:
    raising, good = Raising(limit=2), Keeper()
    sinks.add(raising)
    sinks.add(good)
    remember(history, scalars(1, 2))
    assert sinks.flush()
    remember(history, scalars(1, 1))
    assert not sinks.flush()
    for _ in range(10):
        remember(history, scalars(1, 1))
        sinks.notify()
        assert sinks.flush()
    sinks.close()
    assert texts(recwarn) == ["the sink raising is dropped, training continues: OSError: the disk is full"]
    assert (len(raising.readings), raising.closes) == (3, 1)
    assert (len(good.readings), good.closes) == (13, 1)


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (UnprintableError(), "UnprintableError"),
        (ValueError("\x1b[2J\n" + "x" * 10_000), r"ValueError: \x1b[2J\nxxx"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_whatever_a_sink_raises(
    error: BaseException, text: str, history: History, sinks: SinkThreads, recwarn: pytest.WarningsRecorder
) -> None:
    remember(history, scalars(1))
    sinks.add(Raising(0, error))
    sinks.close()
    (message,) = texts(recwarn)
    assert message.startswith("the sink raising is dropped, training continues: ")
    assert text in message
    assert len(message) < 500


def test_a_failure_to_close_or_to_flush_is_a_failure_of_the_sink(
    history: History, sinks: SinkThreads, recwarn: pytest.WarningsRecorder
) -> None:
    closing, flushing = Keeper("closing"), Keeper("flushing")
    closing.close = flushing.flush = lambda: 1 / 0  # type: ignore[assignment]
    sinks.add(flushing)
    sinks.add(closing)
    remember(history, scalars(1))
    assert not sinks.flush()
    sinks.close()
    assert texts(recwarn) == [
        "the sink flushing is dropped, training continues: ZeroDivisionError: division by zero",
        "the sink closing did not close: ZeroDivisionError: division by zero",
    ]
    assert [len(closing.readings), len(flushing.readings)] == [3, 3]


def test_warnings_that_are_errors_are_logged(
    history: History, sinks: SinkThreads, caplog: pytest.LogCaptureFixture
) -> None:
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING, "modulekg_widgets"):
        warnings.simplefilter("error")
        sinks.add(Raising(0))
        remember(history, scalars(1))
        sinks.close()
    assert ["the disk is full" in record.getMessage() for record in caplog.records] == [True]


def test_a_full_disk_ends_one_sink(
    history: History, sinks: SinkThreads, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    full, good = open_sink(tmp_path / "full.jsonl"), open_sink(tmp_path / "good.jsonl")
    full._file.close()  # type: ignore[attr-defined]
    full._file = open("/dev/full", "wb", buffering=0)  # type: ignore[attr-defined]  # noqa: SIM115
    sinks.add(full)
    sinks.add(good)
    remember(history, scalars(50))
    sinks.close()
    (message,) = texts(recwarn)
    assert "full.jsonl is dropped" in message
    assert "No space left" in message
    assert_same(load_recording(tmp_path / "good.jsonl").readings(), scalars(50))


def test_a_sink_that_hangs_holds_up_nobody(history: History) -> None:
    hanging, good, sinks = Hanging(), Keeper(), SinkThreads(history)
    sinks.add(hanging)
    sinks.add(good)
    remember(history, scalars(100))
    assert waited(lambda: len(good.readings) == 300)
    begin = time.monotonic()
    with pytest.warns(RuntimeWarning, match="sink hanging does not finish: 300 rows"):
        sinks.close(patience=0.3)
    assert 0.3 <= time.monotonic() - begin < 10
    assert (good.closes, hanging.closes) == (1, 0)
    hanging.may.set()  # it is let go without a word
    assert waited(lambda: hanging.closes == 1)


@pytest.mark.slow
def test_a_sink_that_goes_on_is_waited_for_but_not_for_ever(history: History) -> None:
    class Slow(Keeper):
        def write(self, readings: list[Reading]) -> None:
            time.sleep(0.5)
            super().write(readings)

    remember(history, scalars(5 * module.SLICE_READINGS, 1))
    slow, sinks = Slow(), SinkThreads(history)
    sinks.add(slow)
    sinks.close(patience=2)  # which is shorter than all writes together
    assert (len(slow.readings), slow.closes) == (5 * module.SLICE_READINGS, 1)
    slow, sinks = Slow(), SinkThreads(history)
    sinks.add(slow)
    with pytest.warns(RuntimeWarning, match="does not finish: [0-9]+ rows"):
        sinks.close(timeout=0.6, patience=10)
    assert waited(lambda: slow.closes == 1)
    assert len(slow.readings) < 5 * module.SLICE_READINGS


def test_a_slow_sink_keeps_nothing_in_memory(history: History, sinks: SinkThreads) -> None:
    hanging, numbers = Hanging(), np.ones(100)
    sinks.add(hanging)
    slots = [history.slot_number(Slot("m", "V", 0, "train", Form((("", 100),))))]
    history.append(0, slots, numbers)
    assert hanging.is_asked.wait(5)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for step in range(20_000):  # 16 MB
            history.append(step, slots, numbers)
            sinks.notify()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        hanging.write = lambda readings: None  # type: ignore[assignment]
        hanging.may.set()
    assert grown < 1_000_000


@pytest.mark.slow
def test_a_forgotten_delivery_ends_its_threads(history: History) -> None:
    sink = Keeper()
    forgotten = SinkThreads(history)
    forgotten.add(sink)
    remember(history, scalars(3))
    gone = weakref.ref(forgotten)
    del forgotten
    gc.collect()
    assert gone() is None
    assert waited(lambda: not threads())
    assert (len(sink.readings), sink.closes) == (9, 1)


def test_where_no_thread_can_start_the_rows_come_at_the_close(
    history: History, sinks: SinkThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    sink = Keeper()
    monkeypatch.setattr(threading.Thread, "start", full)
    sinks.add(sink)
    remember(history, scalars(3))
    sinks.notify()
    assert not sinks.flush(0.01)
    sinks.close()
    assert (sink.readings, sink.closes) == (scalars(3), 1)


def test_a_sink_may_close_the_delivery(history: History, sinks: SinkThreads) -> None:
    sink = Keeper()
    sink.write = lambda readings: sinks.close()  # type: ignore[assignment]
    sinks.add(sink)
    remember(history, scalars(1))
    sinks.notify()
    assert waited(lambda: sink.closes == 1)


def test_many_threads_append_while_sinks_come(history: History, sinks: SinkThreads) -> None:
    kept: list[Keeper] = []

    def train(module: str) -> None:
        for step in range(300):
            remember(history, [Reading(module, "M", step, float(step))])
            sinks.notify()

    threads = [threading.Thread(target=train, args=(f"m{at}",)) for at in range(4)]
    for thread in threads:
        thread.start()
        kept.append(Keeper())
        sinks.add(kept[-1])
    for thread in threads:
        thread.join()
    sinks.close()
    expected = list(history.readings())
    for sink in kept:
        assert sink.readings == expected
    for at in range(4):
        assert [reading.step for reading in expected if reading.module == f"m{at}"] == list(range(300))
