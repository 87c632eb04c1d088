"""The thread of a MetricPanel: a flood of values, failures, and that it ends."""

from __future__ import annotations

import gc
import multiprocessing
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from modulekg_widgets.engine.monitoring.readings import Slot
from modulekg_widgets.engine.monitoring.run import Run
from widgets.metric_samples import Owner, live_run, put, wait_until


@pytest.fixture
def run() -> Run:
    return live_run()


@pytest.fixture
def owner(run: Run) -> Iterator[Owner]:
    owner = Owner(run)
    yield owner
    owner.stream.stop()


def flood(run: Run, seconds: float, rate: int = 10_000) -> int:
    """Append `rate` values a second, one by one; the count."""
    slots = [run.history.slot_number(Slot(f"layer{number}", "Norm", 0, "train")) for number in range(50)]
    start, count = time.monotonic(), 0
    while (elapsed := time.monotonic() - start) < seconds:
        while count < elapsed * rate:
            run.history.append(count // 50, [slots[count % 50]], np.array([float(count)]))
            count += 1
        time.sleep(0.002)
    return count


@pytest.mark.parametrize("is_answered", [True, False])
@pytest.mark.slow
def test_a_flood_leaves_the_final_state_within_a_second(owner: Owner, run: Run, is_answered: bool) -> None:
    send = owner.send

    def answer(content: dict[str, Any], buffers: list[bytes]) -> None:
        send(content, buffers)
        owner.stream.acknowledge({"kind": "ack", "seq": content["seq"]})

    owner.answer = answer  # type: ignore[attr-defined]
    if is_answered:
        owner.stream._send = lambda: answer  # type: ignore[assignment, return-value]
    owner.stream.start()
    count = flood(run, 3)
    wait_until(lambda: owner.stream.updates.unread == 0, 1.0)
    time.sleep(0.15)
    for number in range(50):
        last = max(value for value in range(count - 50, count) if value % 50 == number)
        assert owner.page.line(f"layer{number}", "Norm")[-1] == (last // 50, last)
    assert sum(len(line) for line in owner.page.points.values()) == count
    assert owner.most_in_a_second() <= 20
    assert max(sum(content["points"]["counts"]) for _, content in owner.sent if "points" in content) < count / 3


def test_stopping_ends_the_thread_in_the_middle(owner: Owner, run: Run) -> None:
    owner.stream.start()
    writer = threading.Thread(target=flood, args=(run, 1.0))
    writer.start()
    wait_until(lambda: owner.sent)
    owner.stream.stop()
    count = len(owner.sent)
    assert not owner.stream.is_running
    writer.join()
    assert len(owner.sent) == count
    owner.stream.start()
    assert not owner.stream.is_running


@pytest.mark.slow
def test_the_thread_ends_with_its_owner(run: Run) -> None:
    owner = Owner(run)
    owner.stream.start()
    thread, alive = owner.stream._thread, weakref.ref(owner)
    put(run, 0, {("", "loss"): 1.0})
    sent = owner.sent
    wait_until(lambda: sent)
    del owner
    gc.collect()
    assert alive() is None
    assert thread is not None
    thread.join(2)
    assert not thread.is_alive()


def test_a_send_that_fails_is_told_once_and_does_not_end_the_stream(
    owner: Owner, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    working, fails = owner.stream._send, [True]

    def send(content: dict[str, Any], buffers: list[bytes]) -> None:
        if fails[0]:
            raise OSError("no way out")
        working()(content, buffers)  # type: ignore[misc]

    owner.stream._send = lambda: send  # type: ignore[assignment, return-value]
    owner.stream.start()
    for step in range(3):
        put(run, step, {("", "loss"): float(step)})
        time.sleep(0.3)
    assert ["could not be brought up to date" in record.getMessage() for record in caplog.records] == [True]
    fails[0] = False
    wait_until(lambda: owner.sent)
    assert owner.sent[0][1]["reset"] is True
    assert owner.page.line("", "loss") == [(0, 0.0), (1, 1.0), (2, 2.0)]


def test_a_forked_process_can_let_go_of_the_stream(owner: Owner, run: Run) -> None:
    """A DataLoader's worker has the objects of its parent, without the thread."""
    owner.stream.start()
    put(run, 0, {("", "loss"): 1.0})
    wait_until(lambda: owner.sent)
    worker = multiprocessing.get_context("fork").Process(target=owner.stream.stop)
    worker.start()
    worker.join(5)
    assert worker.exitcode == 0
    assert owner.stream.is_running
