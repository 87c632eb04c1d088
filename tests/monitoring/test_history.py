"""The history: rows come back as they went in, whoever reads and writes at once, and wherever they lie."""

import gc
import logging
import os
import tempfile
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modulekg_widgets.engine.monitoring import history as module
from modulekg_widgets.engine.monitoring.history import History
from modulekg_widgets.engine.monitoring.readings import EVAL, SCALAR, TRAIN, Form, Reading, Row, Slot, flat

FORMS = [SCALAR, Form((("", 3),)), Form((("mean", None), ("counts", 4), ("std", None))), Form((("", 0),)), Form(())]
SLOTS = [Slot(f"layer{at}", "Metric", at, EVAL if at % 2 else TRAIN, FORMS[at % len(FORMS)]) for at in range(10)]


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 256)


def numbered(history: History) -> list[int]:
    return [history.slot_number(slot) for slot in SLOTS]


def append(history: History, step: int, places: list[int]) -> np.ndarray:
    """A row with recognisable numbers for these slots."""
    size = sum(SLOTS[place].form.size for place in places)
    numbers = step + np.arange(size) / 1000
    history.append(step, [numbered(history)[place] for place in places], numbers)
    return numbers


def filled(rows: int) -> tuple[History, list[tuple[int, list[int], np.ndarray]]]:
    history, expected = History(), []
    for step in range(rows):
        places = [(step * 7 + at) % len(SLOTS) for at in range(step % 5)]
        expected.append((step, places, append(history, step, places)))
    return history, expected


def same(row: Row, step: int, places: list[int], numbers: np.ndarray) -> bool:
    return (row.step, list(row.slots), list(row.numbers)) == (step, [SLOTS[place] for place in places], list(numbers))


# ------------------------------------------------------------------ what comes back


@pytest.mark.parametrize("count", [0, 1, 2, 7, 50, 500])
def test_rows_come_back_in_order(count: int) -> None:
    history, expected = filled(count)
    assert len(history) == count
    for _ in range(2):
        rows = list(history.rows())
        assert len(rows) == count
        assert all(same(row, *one) for row, one in zip(rows, expected, strict=True))


def test_any_part_comes_back() -> None:
    history, expected = filled(60)
    for start in range(0, 62, 3):
        for stop in (*range(0, 62, 7), None, 1000):
            rows = list(history.rows(start, stop))
            part = expected[start:stop]
            assert [row.step for row in rows] == [step for step, _, _ in part]
            assert all(same(row, *one) for row, one in zip(rows, part, strict=True))


@given(st.lists(st.lists(st.floats(width=64), max_size=9), max_size=60), st.integers(1, 3000))
@settings(deadline=None, max_examples=60)
def test_numbers_of_any_kind_come_back_bit_by_bit(rows: list[list[float]], chunk: int) -> None:
    history = History()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_BYTES", chunk)
        for step, numbers in enumerate(rows):
            slot = Slot("m", "M", 0, TRAIN, Form((("", len(numbers)),)))
            history.append(step, [history.slot_number(slot)], np.array(numbers, np.float64))
        found = list(history.rows())
    assert [row.step for row in found] == list(range(len(rows)))
    assert [row.numbers.tobytes() for row in found] == [np.array(numbers, np.float64).tobytes() for numbers in rows]


def test_rows_that_come_while_one_reads_wait_for_the_next_reader() -> None:
    history, expected = filled(30)
    rows = history.rows()
    seen = [next(rows).step]
    for step in range(30, 90):
        expected.append((step, [0], append(history, step, [0])))
    seen += [row.step for row in rows]
    assert seen == list(range(30))
    assert [row.step for row in history.rows(30)] == list(range(30, 90))


@pytest.mark.parametrize("step", [0, -1, -(2**63), 2**63 - 1, 2**53 + 1])
def test_steps_of_64_bits(step: int) -> None:
    history = History()
    history.append(step, [history.slot_number(SLOTS[0])], np.array([1.5]))
    assert [row.step for row in history.rows()] == [step]


def test_a_step_that_does_not_fit_leaves_the_rows_alone() -> None:
    history, expected = filled(10)
    with pytest.raises(Exception, match=r"."):
        history.append(2**63, [0], np.array([1.0]))
    expected.append((10, [0], append(history, 10, [0])))
    assert len(history) == 11
    assert all(same(row, *one) for row, one in zip(history.rows(), expected, strict=True))


def test_a_row_longer_than_a_chunk() -> None:
    history = History()
    slot = Slot("m", "M", 0, TRAIN, Form((("", 10_000),)))
    for step in range(3):
        history.append(step, [history.slot_number(slot)], np.full(10_000, step, np.float64))
    assert [(row.step, set(row.numbers)) for row in history.rows()] == [(0, {0.0}), (1, {1.0}), (2, {2.0})]


def test_the_numbers_of_a_row_are_copies() -> None:
    history, numbers = History(), np.array([1.0, 2.0, 3.0])
    history.append(0, [history.slot_number(SLOTS[1])], numbers)
    numbers[:] = 7.0
    first = next(history.rows())
    vector = first.readings()[0].value
    assert isinstance(vector, np.ndarray)
    vector[:] = 9.0
    assert list(next(history.rows()).numbers) == [1.0, 2.0, 3.0]


def test_numbers_of_other_types_are_taken() -> None:
    history = History()
    for numbers in (np.array([1, 2, 3], np.int64), np.array([1, 2, 3], np.float16)[::1], np.arange(1.0, 6.0)[:3]):
        history.append(0, [history.slot_number(SLOTS[1])], numbers)
    history.append(0, [history.slot_number(SLOTS[1])], np.array([1.0, 0, 2.0, 0, 3.0, 0])[::2])
    assert [list(row.numbers) for row in history.rows()] == [[1.0, 2.0, 3.0]] * 4


# ------------------------------------------------------------------ slots and forms


def test_a_slot_has_one_number() -> None:
    history = History()
    first = [history.slot_number(slot) for slot in SLOTS]
    again = [history.slot_number(Slot(*slot[:4], Form(slot.form.parts))) for slot in SLOTS]
    assert first == again == list(range(len(SLOTS)))
    assert history.slots == SLOTS
    other = SLOTS[0]._replace(form=Form((("", 4),)))  # a vector that changed its length
    assert history.slot_number(other) == len(SLOTS)


@pytest.mark.parametrize(
    "value",
    [
        0.5,
        -0.0,
        np.array([1.0, 2.0]),
        np.array([]),
        {"mean": 1.0, "std": 2.0},
        {"low": -1.0, "high": 1.0, "total": 3.0, "sampled": 3.0, "counts": np.array([1.0, 2.0])},
        {"a": np.array([1.0]), "b": 2.0, "c": np.array([]), "d": np.array([3.0, 4.0])},
        {"ключ \ud800\x00": 1.0, "": 2.0},
    ],
    ids=str,
)
def test_a_value_of_any_form_comes_back(value: Any) -> None:
    history = History()
    form, numbers = flat(value)
    slot = Slot("m", "M", 3, EVAL, form)
    history.append(5, [history.slot_number(slot)], np.array(numbers))
    (reading,) = history.readings()
    assert reading[:3] == ("m", "M", 5)
    assert reading[4:] == (3, EVAL)
    np.testing.assert_equal(reading.value, value)
    assert type(reading.value) is type(value)


def test_readings_are_cut_out_of_a_row_in_order() -> None:
    history = History()
    parts = [1.0, np.array([2.0, 3.0]), {"a": 4.0, "b": np.array([5.0])}, np.array([]), 6.0]
    forms = [flat(part) for part in parts]
    slots = [history.slot_number(Slot("m", f"M{at}", 0, TRAIN, form)) for at, (form, _) in enumerate(forms)]
    history.append(0, slots, np.array([number for _, numbers in forms for number in numbers]))
    found = list(history.readings())
    assert [reading.metric for reading in found] == [f"M{at}" for at in range(5)]
    np.testing.assert_equal([reading.value for reading in found], parts)


def test_the_fields_of_a_reading() -> None:
    assert Reading("m", "M", 3, 1.0) == Reading("m", "M", 3, 1.0, 0, "train")


# ------------------------------------------------------------------ threads


def run_all(works: list[Callable[[], None]]) -> None:
    failed: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is raised below, in the thread of the test
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if failed:
        raise failed[0]


def test_threads_append_and_read_at_once() -> None:
    history, writers, each = History(), 3, 400
    slots = [history.slot_number(Slot(f"writer{at}", "M", 0, TRAIN, Form((("", 2),)))) for at in range(writers)]
    done = threading.Event()
    seen: list[list[tuple[str, int, float]]] = [[] for _ in range(2)]

    def write(at: int) -> None:
        for step in range(each):
            history.append(step, [slots[at]], np.array([step, at], np.float64))

    def read(at: int) -> None:
        cursor = 0
        while True:
            is_last = done.is_set()
            for row in history.rows(cursor):
                assert list(row.numbers) == [row.step, slots.index(history.slot_number(row.slots[0]))]
                seen[at].append((row.slots[0].module, row.step, row.numbers[1]))
                cursor += 1
            if is_last:
                return

    def write_all() -> None:
        run_all([lambda at=at: write(at) for at in range(writers)])
        done.set()

    run_all([write_all, lambda: read(0), lambda: read(1)])
    assert len(history) == writers * each
    assert seen[0] == seen[1] == [(row.slots[0].module, row.step, row.numbers[1]) for row in history.rows()]
    for at in range(writers):
        assert [step for name, step, _ in seen[0] if name == f"writer{at}"] == list(range(each))


def test_threads_that_name_the_same_slots_agree() -> None:
    history = History()
    found: list[list[int]] = [[] for _ in range(4)]
    slots = [Slot(f"m{at}", "M", 0, TRAIN) for at in range(300)]
    run_all([lambda own=own: own.extend(history.slot_number(slot) for slot in slots) for own in found])
    assert found == [found[0]] * 4
    assert sorted(found[0]) == list(range(300))
    assert [history.slots[number] for number in found[0]] == slots


# ------------------------------------------------------------------ the file


class Full:
    """Writes to a disk that takes no more after some blocks."""

    def __init__(self, takes: int, part: bool) -> None:
        self.takes, self.part = takes, part
        self.write_at = module._write_at

    def __call__(self, file: Any, place: int, block: bytes) -> int:
        self.takes -= 1
        if self.takes >= 0:
            return self.write_at(file, place, block)
        if self.part:
            return self.write_at(file, place, block[: len(block) // 2])
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("part", [True, False])
@pytest.mark.parametrize("takes", [0, 1, 3])
def test_a_full_disk_leaves_the_rows_in_memory(
    takes: int, part: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_write_at", Full(takes, part))
    with caplog.at_level(logging.WARNING, "modulekg_widgets"):
        history, expected = filled(100)
    assert all(same(row, *one) for row, one in zip(history.rows(), expected, strict=True))
    assert len(caplog.records) == 1
    assert "is kept in memory" in caplog.text


def test_no_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(module.tempfile, "TemporaryFile", refuse)
    history, expected = filled(100)
    assert all(same(row, *one) for row, one in zip(history.rows(), expected, strict=True))


def test_old_rows_lie_on_the_disk_and_the_file_has_no_name(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    history, _ = filled(500)
    assert history._file is not None
    size = os.fstat(history._file.fileno()).st_size
    assert size > 5000
    assert len(history._tail) <= 512
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_a_forgotten_history_gives_its_file_back_without_a_word() -> None:
    history, _ = filled(100)
    assert history._file is not None
    number = history._file.fileno()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        del history
        gc.collect()
    assert [str(warning.message) for warning in said] == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_a_fork_that_reads_does_not_move_the_place_where_the_parent_writes() -> None:
    history, expected = filled(200)
    rows = history.rows(0, 200)
    child = os.fork()
    if child == 0:
        os._exit(0 if sum(1 for _ in history.rows()) == 200 else 1)
    for step in range(200, 400):
        expected.append((step, [1], append(history, step, [1])))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [row.step for row in rows] == list(range(200))
    assert all(same(row, *one) for row, one in zip(history.rows(), expected, strict=True))
