"""The thread of a MetricPanel: how fast it sends, what it does when it is not heard, and that it ends."""

from __future__ import annotations

import gc
import multiprocessing
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from modulekg_widgets.engine.monitoring.readings import Slot
from modulekg_widgets.engine.monitoring.run import Run
from modulekg_widgets.widgets.metric_reader import Updates
from modulekg_widgets.widgets.metric_stream import IN_FLIGHT, MetricStream
from widgets.metric_samples import Page, live_run, put

TICK = 0.001  # seconds of a simulated clock; a look takes as long


class Owner:
    """Has a stream, and what the stream has sent: (time, message)."""

    def __init__(self, *runs: Run) -> None:
        self.sent: list[tuple[float, dict[str, Any]]] = []
        self.page = Page()
        self.looks = 0
        self.now: float | None = None
        self.next_look = 0.0
        self.stream = MetricStream(runs, self.send, self.looked)

    def send(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        self.sent.append((time.monotonic() if self.now is None else self.now, content))
        self.page.receive(content, buffers)

    def looked(self, updates: Updates) -> None:
        self.looks += 1

    def live(self, seconds: float, each_tick: Callable[[float], None]) -> None:
        """Let a simulated clock run: something happens in the run, then the stream looks."""
        start = self.now or 1000.0
        for tick in range(round(seconds / TICK)):
            self.now = start + tick * TICK
            each_tick(self.now)
            if self.now >= self.next_look:
                self.next_look = self.now + self.stream.look(self.now) + TICK
        self.now = start + seconds

    def most_in_a_second(self) -> int:
        times = [when for when, _ in self.sent]
        return max(sum(begin <= when < begin + 0.999 for when in times) for begin in times)


@pytest.fixture
def run() -> Run:
    return live_run()


def growing(run: Run) -> Callable[[float], None]:
    """A hundred values a second."""

    def each_tick(now: float) -> None:
        if round(now / TICK) % 10 == 0:
            put(run, len(run.history), {("", "loss"): float(len(run.history))})

    return each_tick


def assert_complete(page: Page, run: Run) -> None:
    count = len(run.history)
    assert page.line("", "loss") == [(float(step), float(step)) for step in range(count)]
    assert [message["seq"] for message in page.messages] == list(range(1, len(page.messages) + 1))


def answering(owner: Owner, run: Run, delay: float) -> Callable[[float], None]:
    """A page that answers each message after `delay` seconds, beside a growing run."""
    grow = growing(run)

    def each_tick(now: float) -> None:
        grow(now)
        for when, content in owner.sent[-20:]:
            if now - TICK < when + delay <= now:
                owner.stream.heard({"kind": "ack", "seq": content["seq"]}, now)

    return each_tick


def test_a_page_that_answers_gets_twenty_messages_a_second(run: Run) -> None:
    owner = Owner(run)
    owner.live(5, answering(owner, run, 0.02))
    assert owner.most_in_a_second() == 20
    assert 95 <= len(owner.sent) <= 100
    owner.live(0.2, lambda now: None)
    assert_complete(owner.page, run)


@pytest.mark.parametrize("delay", [0.2, 0.39])
def test_at_most_eight_messages_are_unanswered_while_answers_are_heard(run: Run, delay: float) -> None:
    owner = Owner(run)
    answer = answering(owner, run, delay)
    in_flight = []

    def each_tick(now: float) -> None:
        answer(now)
        in_flight.append(sum(when + delay > now for when, _ in owner.sent))

    owner.live(10, each_tick)
    assert max(in_flight) == (IN_FLIGHT if delay > 0.35 else 4)
    owner.live(1, lambda now: None)
    assert_complete(owner.page, run)


def test_a_slow_page_gets_no_more_than_it_answers(run: Run) -> None:
    owner = Owner(run)
    owner.live(5, answering(owner, run, 1.0))
    before = len(owner.sent)
    owner.live(20, answering(owner, run, 1.0))
    assert (len(owner.sent) - before) / 20 <= IN_FLIGHT + 1  # a second's answers are for eight messages


def test_a_page_that_is_not_heard_gets_ten_messages_a_second(run: Run) -> None:
    """The kernel is busy: nobody reads the answers."""
    owner = Owner(run)
    owner.live(10, growing(run))
    early = sum(when < 1001 for when, _ in owner.sent)
    assert early <= IN_FLIGHT + 7
    rest = [when for when, _ in owner.sent if when >= 1002]
    assert 75 <= len(rest) <= 80
    owner.live(0.2, lambda now: None)
    assert_complete(owner.page, run)


def test_a_kernel_that_hears_again_goes_on_as_before(run: Run) -> None:
    owner = Owner(run)
    owner.live(5, growing(run))
    for seq in range(1, len(owner.sent) + 1):
        owner.stream.heard({"kind": "ack", "seq": seq}, owner.now)
    owner.sent.clear()
    owner.live(5, answering(owner, run, 0.02))
    assert 95 <= len(owner.sent) <= 100
    owner.live(0.2, lambda now: None)
    assert_complete(owner.page, run)


def test_answers_that_stop_are_not_waited_for(run: Run) -> None:
    owner = Owner(run)
    owner.live(2, answering(owner, run, 0.02))
    owner.sent.clear()
    owner.live(5, growing(run))
    assert 40 <= len(owner.sent) <= 60
    gaps = [b[0] - a[0] for a, b in zip(owner.sent, owner.sent[1:], strict=False)]
    assert max(gaps) <= 0.6


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "ack",
        {},
        {"kind": "ack"},
        {"kind": "ack", "seq": "3"},
        {"kind": "ack", "seq": True},
        {"kind": "ack", "seq": 10**9},
        {"kind": "ack", "seq": -1},
        {"kind": ["resync"]},
    ],
)
def test_an_answer_that_cannot_be_is_no_answer(run: Run, answer: Any) -> None:
    owner = Owner(run)
    grow = growing(run)

    def each_tick(now: float) -> None:
        grow(now)
        owner.stream.heard(answer, now)

    owner.live(4, each_tick)
    assert len([when for when, _ in owner.sent if when >= 1002]) <= 20
    assert [content["reset"] for _, content in owner.sent] == [True] + [False] * (len(owner.sent) - 1)


def test_nothing_is_sent_when_nothing_is_new(run: Run) -> None:
    owner = Owner(run)
    owner.live(1, lambda now: None)
    assert owner.sent == []
    put(run, 0, {("", "loss"): 1.0})
    owner.live(1, lambda now: None)
    assert [content["seq"] for _, content in owner.sent] == [1]


def test_a_resync_gets_everything_anew_once(run: Run) -> None:
    owner = Owner(run)
    owner.live(1, answering(owner, run, 0.02))
    for _ in range(5):
        owner.stream.heard({"kind": "resync"}, owner.now)
    owner.live(1, answering(owner, run, 0.02))
    resets = [content["seq"] for _, content in owner.sent if content["reset"]]
    assert len(resets) == 2
    owner.live(0.2, lambda now: None)
    assert_complete(owner.page, run)


def test_a_resync_of_an_empty_run_is_answered(run: Run) -> None:
    owner = Owner(run)
    owner.stream.heard({"kind": "resync"}, 1000.0)
    owner.live(0.5, lambda now: None)
    assert [content for _, content in owner.sent] == [{"kind": "update", "seq": 1, "reset": True}]


def test_a_page_that_asked_before_its_first_message_came_has_everything(run: Run) -> None:
    """The view is made by a cell that trains: its question and the answers are heard when the cell ends."""
    owner = Owner(run)
    owner.live(5, growing(run))
    owner.stream.heard({"kind": "resync"}, owner.now)
    for seq in range(1, len(owner.sent) + 1):
        owner.stream.heard({"kind": "ack", "seq": seq}, owner.now)
    owner.live(2, answering(owner, run, 0.02))
    assert [content["seq"] for _, content in owner.sent if content["reset"]] == [1]
    owner.live(0.2, lambda now: None)
    assert_complete(owner.page, run)


def test_a_page_that_missed_the_first_message_gets_everything(run: Run) -> None:
    owner = Owner(run)
    owner.live(2, growing(run))
    count = len(owner.sent)
    owner.stream.heard({"kind": "resync"}, owner.now)
    owner.live(0.4, growing(run))
    assert [content["seq"] for _, content in owner.sent if content["reset"]] == [1]
    owner.live(0.4, growing(run))
    assert sum(content["reset"] for _, content in owner.sent[count:]) == 1
    owner.live(0.2, lambda now: None)
    assert_complete(owner.page, run)


def test_a_replay_gives_the_steps_in_order_at_its_speed(run: Run) -> None:
    for step in range(0, 100, 2):
        put(run, step, {("", "loss"): float(step)})
        put(run, step, {("a", "Norm"): 1.0})
    del run.is_running  # type: ignore[attr-defined] - as of a recorded run
    owner = Owner(run)
    owner.live(1, lambda now: None)
    owner.stream.replay(10)
    progress = []
    for _ in range(6):
        owner.live(1, lambda now: None)
        progress.append(len(owner.page.line("", "loss")))
    assert progress == pytest.approx([10, 20, 30, 40, 50, 50], abs=1)
    assert progress[-1] == 50
    assert len(owner.page.line("a", "Norm")) == 50
    assert owner.page.ended == {0}
    assert [content["reset"] for _, content in owner.sent].count(True) == 2


def test_while_the_page_is_behind_nothing_is_read_and_nothing_kept(run: Run) -> None:
    """The history is the only queue: what is not sent is not in memory twice."""
    owner = Owner(run)
    owner.live(2, answering(owner, run, 0.02))
    slots = [run.history.slot_number(Slot(f"layer{number}", "Norm", 0, "train")) for number in range(100)]
    row = np.zeros(100)
    owner.stream.heard({"kind": "ack", "seq": len(owner.sent)}, owner.now)
    owner.page.receive = lambda *update: None  # type: ignore[method-assign] - its memory is not the kernel's
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]

    def each_tick(now: float) -> None:
        for _ in range(10):
            run.history.append(1, slots, row)
        owner.stream._heard_at = now  # answers to messages of long ago

    owner.live(5, each_tick)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert run.history._end > 40_000_000
    assert owner.stream.updates.behind > 40_000
    assert grown < 2_000_000


# ------------------------------------------------------------------ the thread itself


@pytest.fixture
def owner(run: Run) -> Iterator[Owner]:
    owner = Owner(run)
    yield owner
    owner.stream.stop()


def wait_until(condition: Callable[[], Any], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not within the time"
        time.sleep(0.005)


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
def test_a_flood_leaves_the_final_state_within_a_second(owner: Owner, run: Run, is_answered: bool) -> None:
    send = owner.send

    def answer(content: dict[str, Any], buffers: list[bytes]) -> None:
        send(content, buffers)
        owner.stream.heard({"kind": "ack", "seq": content["seq"]})

    owner.answer = answer  # type: ignore[attr-defined]
    if is_answered:
        owner.stream._send = lambda: answer  # type: ignore[assignment, return-value]
    owner.stream.start()
    count = flood(run, 3)
    wait_until(lambda: owner.stream.updates.behind == 0, 1.0)
    time.sleep(0.15)
    for number in range(50):
        last = max(value for value in range(count - 50, count) if value % 50 == number)
        assert owner.page.line(f"layer{number}", "Norm")[-1] == (last // 50, last)
    assert sum(len(line) for line in owner.page.points.values()) == count
    assert owner.most_in_a_second() <= 20
    assert max(sum(content["points"]["counts"]) for _, content in owner.sent) < count / 3


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
