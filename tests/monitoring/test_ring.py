"""The ring: numbers of any type reach the host as they are, in order, also when the device takes its time."""

import contextlib
import math
import sys
import threading
from typing import Any

import numpy as np
import pytest
import torch

from modulekg_widgets.engine.monitoring import transfer_ring as module
from modulekg_widgets.engine.monitoring.transfer_ring import RING_ROWS, PackedRow, TransferRing

BIG = 2**24 + 1  # the first whole number that float32 has not


def by_slot(row: PackedRow) -> dict[int, list[float]]:
    """The numbers of each slot."""
    ends = np.cumsum(row.sizes)
    return {
        slot: row.numbers[end - size : end].tolist() for slot, size, end in zip(row.slots, row.sizes, ends, strict=True)
    }


def through(*values: Any) -> list[list[float]]:
    """What comes out for values of the slots 0, 1, …"""
    ring = TransferRing()
    for slot, value in enumerate(values):
        ring.put(slot, value, 1.0)
    ring.close(7)
    (row,) = ring.take(wait=True)
    assert row.step == 7
    assert row.numbers.dtype == np.float64
    found = by_slot(row)
    return [found[slot] for slot in range(len(values))]


# ------------------------------------------------------------------ numbers

EXACT = [
    (torch.tensor(True), [1.0]),
    (torch.tensor(False), [0.0]),
    (torch.tensor(BIG), [BIG]),
    (torch.tensor(2**53 - 1), [2**53 - 1]),
    (torch.tensor(-BIG, dtype=torch.int32), [-BIG]),
    (torch.tensor(255, dtype=torch.uint8), [255.0]),
    (torch.tensor(0.1, dtype=torch.float64), [0.1]),
    (torch.tensor(0.1, dtype=torch.float32), [float(np.float32(0.1))]),
    (torch.tensor(1.5, dtype=torch.bfloat16), [1.5]),
    (torch.tensor(65504.0, dtype=torch.float16), [65504.0]),
    (torch.tensor(1e300, dtype=torch.float64), [1e300]),
    (torch.tensor(5e-324, dtype=torch.float64), [5e-324]),
    (torch.tensor([1, BIG, -3]), [1, BIG, -3]),
    (torch.tensor([True, False]), [1.0, 0.0]),
    (torch.tensor([0.5, 3e38], dtype=torch.bfloat16), [0.5, float(torch.tensor(3e38, dtype=torch.bfloat16))]),
    (torch.arange(6.0)[::2], [0.0, 2.0, 4.0]),
    (torch.arange(6.0).view(2, 3).t()[1], [1.0, 4.0]),
    (torch.ones(1).expand(3), [1.0, 1.0, 1.0]),
    (torch._neg_view(torch.tensor([1.0, -2.0])), [-1.0, 2.0]),
    (torch.zeros(0), []),
    (torch.zeros(0, dtype=torch.int64), []),
    (torch.full((), math.inf), [math.inf]),
    (0.1, [0.1]),
    (BIG, [BIG]),
    (-math.inf, [-math.inf]),
]


@pytest.mark.parametrize("at", range(len(EXACT)), ids=lambda at: str(EXACT[at][0]).replace("\n", " "))
def test_a_number_of_any_type_comes_as_it_is(at: int) -> None:
    value, expected = EXACT[at]
    assert through(value) == [expected]


def test_numbers_of_all_types_in_one_step_do_not_sway_each_other() -> None:
    assert through(*[value for value, _ in EXACT]) == [expected for _, expected in EXACT]
    assert through(*[value for value, _ in reversed(EXACT)]) == [expected for _, expected in reversed(EXACT)]


def test_pairs_of_types_do_not_sway_each_other() -> None:
    for first, one in EXACT:
        for second, other in EXACT:
            assert through(first, second) == [one, other]


def test_nan_stays_nan() -> None:
    (one,), (other,), vector = through(math.nan, torch.tensor(math.nan), torch.tensor([1.0, math.nan]))
    assert math.isnan(one)
    assert math.isnan(other)
    assert vector[0] == 1.0
    assert math.isnan(vector[1])


def test_what_is_overwritten_after_the_step_was_closed_has_left() -> None:
    ring, value = TransferRing(), torch.ones(3)
    ring.put(0, value, 1.0)
    ring.close(0)
    value.fill_(7.0)
    assert by_slot(ring.take()[0]) == {0: [1.0, 1.0, 1.0]}


def test_tensors_of_inference_mode() -> None:
    with torch.inference_mode():
        value = torch.arange(3.0)
    assert through(value, value.sum()) == [[0.0, 1.0, 2.0], [3.0]]


# ------------------------------------------------------------------ steps


def test_steps_leave_in_order_and_a_step_without_values_leaves_nothing() -> None:
    ring = TransferRing()
    for step in range(5):
        if step != 2:
            ring.put(0, torch.tensor(float(step)), float(10 + step))
        ring.close(step)
    rows = ring.take()
    assert [(row.step, by_slot(row), row.weights) for row in rows] == [
        (step, {0: [float(step)]}, [10.0 + step]) for step in (0, 1, 3, 4)
    ]
    assert ring.take(wait=True) == []


def test_a_second_value_takes_the_place_of_the_first() -> None:
    ring = TransferRing()
    ring.put(0, torch.tensor(1.0), 1.0)
    ring.put(1, torch.tensor(2.0), 2.0)
    ring.put(0, 3.0, 3.0)
    ring.close(0)
    (row,) = ring.take()
    assert by_slot(row) == {0: [3.0], 1: [2.0]}
    assert dict(zip(row.slots, row.weights, strict=True)) == {0: 3.0, 1: 2.0}


def test_slots_come_by_rank_and_say_in_which_order_they_were_made() -> None:
    ring = TransferRing()
    ring.ranks = {5: 0, 6: 1, 7: 2}
    for slot in (7, 5, 6):
        ring.put(slot, torch.tensor(float(slot)), 1.0)
    ring.close(0)
    (row,) = ring.take()
    assert row.slots == [5, 6, 7]
    assert row.arrival == [1, 2, 0]
    assert row.numbers.tolist() == [5.0, 6.0, 7.0]


def test_some_are_kept_or_all_forgotten() -> None:
    ring = TransferRing()
    for slot in range(6):
        ring.put(slot, torch.tensor(float(slot)), float(slot))
    ring.retain({1, 4, 9})
    ring.put(2, 22.0, 2.0)
    ring.close(0)
    (row,) = ring.take()
    assert by_slot(row) == {1: [1.0], 4: [4.0], 2: [22.0]}
    assert dict(zip(row.slots, row.weights, strict=True)) == {1: 1.0, 4: 4.0, 2: 2.0}
    ring.put(0, 1.0, 1.0)
    ring.clear()
    ring.close(1)
    assert ring.take(wait=True) == []


def test_threads_put_at_once() -> None:
    """Threads that run the model at the same time."""
    ring, each, threads = TransferRing(), 300, 4
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    start = threading.Barrier(threads)

    def work(own: int) -> None:
        start.wait()
        for at in range(each):
            ring.put(own * each + at, float(own * each + at), float(own))

    try:
        for step in range(5):
            workers = [threading.Thread(target=work, args=(own,)) for own in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            ring.close(step)
            (row,) = ring.take()
            assert by_slot(row) == {slot: [float(slot)] for slot in range(each * threads)}
    finally:
        sys.setswitchinterval(before)


# ------------------------------------------------------------------ a device that takes its time


class Event:
    """Says when a copy is there; until then the host memory holds what must not be read."""

    def __init__(self, host: torch.Tensor, device: "Device") -> None:
        self.host, self.device = host, device
        self.on_its_way: torch.Tensor | None = None

    def record(self) -> None:
        assert self.on_its_way is None, "the memory was taken for another step before it was read"
        self.on_its_way = self.host.clone()
        self.host.fill_(-1e9)

    def query(self) -> bool:
        if self.device.is_slow and self.on_its_way is not None:
            return False
        self.synchronize(waits=False)
        return True

    def synchronize(self, waits: bool = True) -> None:
        self.device.waits += waits and self.on_its_way is not None
        if self.on_its_way is not None:
            self.host.copy_(self.on_its_way)
            self.on_its_way = None


class Device(module._DeviceRing):
    """A device whose copies arrive when it is asked to."""

    is_slow = True
    waits = 0
    made = 0

    def _row(self) -> tuple[torch.Tensor, torch.Tensor, Any]:
        on_device, on_host, _ = super()._row()
        self.made += 1
        return on_device, on_host, Event(on_host, self)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> tuple[TransferRing, Device]:
    """A ring for tensors on a slow device."""
    ring, device = TransferRing(), Device(torch.device("cpu"))
    plain = ring._pack

    def pack(where: Any, values: list[Any]) -> Any:
        if where is None:
            return plain(where, values)
        parts = [value.reshape(-1) if value.is_floating_point() else value.reshape(-1).double() for value in values]
        return device.pack(parts, sum(part.numel() for part in parts))

    monkeypatch.setattr(ring, "_pack", pack)
    return ring, device


def step(ring: TransferRing, number: int, count: int = 3) -> None:
    ring.put(0, torch.arange(count) + 100.0 * number, 1.0)
    ring.put(1, torch.tensor(number), 1.0)
    ring.put(2, float(-number), 1.0)
    ring.close(number)


def expected(number: int, count: int = 3) -> dict[int, list[float]]:
    return {0: [at + 100.0 * number for at in range(count)], 1: [float(number)], 2: [float(-number)]}


def test_nothing_waits_for_the_device(slow: tuple[TransferRing, Device]) -> None:
    ring, device = slow
    for number in range(RING_ROWS):
        step(ring, number)
        assert ring.take() == []
    assert device.waits == 0
    device.is_slow = False
    assert [by_slot(row) for row in ring.take()] == [expected(number) for number in range(RING_ROWS)]
    assert device.waits == 0


def test_values_of_a_type_leave_a_device_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `cat` would bring to one type it copies piece by piece, however many there are."""
    ring, joined, plain = TransferRing(), [], torch.cat

    def cat(parts: list[torch.Tensor], **where: Any) -> torch.Tensor:
        joined.append({part.dtype for part in parts} | {each.dtype for each in where.values()})
        return plain(parts, **where)

    monkeypatch.setattr(torch, "cat", cat)
    types = [torch.float64, torch.float32, torch.bfloat16]
    for slot in range(30):
        ring.put(slot, torch.tensor([slot, 0.5], dtype=types[slot % 3]), float(slot))
    ring.put(30, 7.0, 30.0)
    values, weights = zip(*ring._collected.values(), strict=True)
    order = ring._ordered(tuple(ring._collected))
    monkeypatch.setattr(ring, "_pack", lambda where, own: (
        (torch.tensor(own, dtype=torch.float64), len(own), None) if where is None
        else module._DeviceRing(torch.device("cpu")).pack([each.reshape(-1) for each in own], 2 * len(own))
    ))  # fmt: skip
    leaving = ring._scattered(0, order, values, weights)
    assert ring._is_complete(leaving, wait=True)
    assert by_slot(leaving.row) == {**{slot: [float(slot), 0.5] for slot in range(30)}, 30: [7.0]}
    assert dict(zip(leaving.row.slots, leaving.row.weights, strict=True)) == {slot: float(slot) for slot in range(31)}
    assert len(joined) == 3
    assert all(len(each) == 1 for each in joined)


def test_who_asks_for_the_values_waits_for_them(slow: tuple[TransferRing, Device]) -> None:
    ring, _ = slow
    for number in range(5):
        step(ring, number)
    assert [by_slot(row) for row in ring.take(wait=True)] == [expected(number) for number in range(5)]


def test_a_device_that_lags_behind_is_waited_for_and_nothing_is_lost(slow: tuple[TransferRing, Device]) -> None:
    ring, device = slow
    found = []
    for number in range(4 * RING_ROWS):
        step(ring, number)
        found += ring.take()
    assert device.waits == 3 * RING_ROWS
    found += ring.take(wait=True)
    assert [row.step for row in found] == list(range(4 * RING_ROWS))
    assert [by_slot(row) for row in found] == [expected(number) for number in range(4 * RING_ROWS)]
    assert device.made == RING_ROWS  # the memory is made once


def test_nothing_is_lost_when_nobody_takes(slow: tuple[TransferRing, Device]) -> None:
    ring, _ = slow
    for number in range(3 * RING_ROWS):
        step(ring, number)
    assert [by_slot(row) for row in ring.take(wait=True)] == [expected(number) for number in range(3 * RING_ROWS)]


def test_rows_that_grow_leave_those_on_their_way_alone(slow: tuple[TransferRing, Device]) -> None:
    ring, _ = slow
    counts = [1, 1, 50, 2, 300, 1, 7]
    for number, count in enumerate(counts):
        step(ring, number, count)
    rows = ring.take(wait=True)
    assert [by_slot(row) for row in rows] == [expected(number, count) for number, count in enumerate(counts)]


def test_a_value_that_leaves_before_the_training_overwrites_it(slow: tuple[TransferRing, Device]) -> None:
    ring, _ = slow
    value = torch.ones(4)
    ring.put(0, value, 1.0)
    ring.close(0)
    value.zero_()
    assert by_slot(ring.take(wait=True)[0]) == {0: [1.0] * 4}


def test_the_parts_that_wait_keep_the_order_of_the_steps(slow: tuple[TransferRing, Device]) -> None:
    """A step of plain numbers alone has nothing to wait for, and still comes after the one before it."""
    ring, device = slow
    step(ring, 0)
    ring.put(5, 1.0, 1.0)
    ring.close(1)
    assert ring.take() == []
    device.is_slow = False
    assert [row.step for row in ring.take()] == [0, 1]


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.bool]
)
def test_a_device_packs_all_types(dtype: torch.dtype, slow: tuple[TransferRing, Device]) -> None:
    ring, _ = slow
    value = torch.tensor([0, 1, 1]).to(dtype)
    ring.put(0, value, 1.0)
    ring.put(1, torch.tensor(BIG), 1.0)
    ring.put(2, torch.tensor(0.1, dtype=torch.float64), 1.0)
    ring.close(0)
    assert by_slot(ring.take(wait=True)[0]) == {0: [0.0, 1.0, 1.0], 1: [BIG], 2: [0.1]}


def test_two_readers_at_once_share_the_rows(slow: tuple[TransferRing, Device], monkeypatch: pytest.MonkeyPatch) -> None:
    """The panel's thread asks for the values while training continues."""
    ring, _ = slow
    both, arrive = threading.Barrier(2), Event.synchronize

    def synchronize(event: Event, waits: bool = True) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.3)
        arrive(event, waits)

    monkeypatch.setattr(Event, "synchronize", synchronize)
    step(ring, 0)
    found: list[Any] = []

    def take() -> None:
        try:
            found.append([by_slot(row) for row in ring.take(wait=True)])
        except BaseException as error:  # noqa: BLE001 - it is raised below, in the thread of the test
            found.append(error)

    readers = [threading.Thread(target=take) for _ in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(30)
    assert sorted(found, key=str) == [[], [expected(0)]]
