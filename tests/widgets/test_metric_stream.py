"""The stream of a MetricPanel under a simulated clock: how fast it sends, and what it does when it is not heard."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from modulekg_widgets.engine.monitoring.readings import Slot
from modulekg_widgets.engine.monitoring.run import Run
from modulekg_widgets.widgets.metric_panel.stream import MAX_IN_FLIGHT
from widgets.metric_samples import TICK, Owner, Page, live_run, put


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
                owner.stream.acknowledge({"kind": "ack", "seq": content["seq"]}, now)

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
    assert max(in_flight) == (MAX_IN_FLIGHT if delay > 0.35 else 4)
    owner.live(1, lambda now: None)
    assert_complete(owner.page, run)


def test_a_slow_page_gets_no_more_than_it_answers(run: Run) -> None:
    owner = Owner(run)
    owner.live(5, answering(owner, run, 1.0))
    before = len(owner.sent)
    owner.live(20, answering(owner, run, 1.0))
    assert (len(owner.sent) - before) / 20 <= MAX_IN_FLIGHT + 1  # a second's answers are for eight messages


def test_a_page_that_is_not_heard_gets_ten_messages_a_second(run: Run) -> None:
    """The kernel is busy: nobody reads the answers."""
    owner = Owner(run)
    owner.live(10, growing(run))
    early = sum(when < 1001 for when, _ in owner.sent)
    assert early <= MAX_IN_FLIGHT + 7
    rest = [when for when, _ in owner.sent if when >= 1002]
    assert 75 <= len(rest) <= 80
    owner.live(0.2, lambda now: None)
    assert_complete(owner.page, run)


def test_a_kernel_that_hears_again_goes_on_as_before(run: Run) -> None:
    owner = Owner(run)
    owner.live(5, growing(run))
    for seq in range(1, len(owner.sent) + 1):
        owner.stream.acknowledge({"kind": "ack", "seq": seq}, owner.now)
    owner.sent.clear()
    owner.live(5, answering(owner, run, 0.02))
    assert 95 <= len(owner.sent) <= 100
    owner.live(0.2, lambda now: None)
    assert_complete(owner.page, run)


def test_old_answers_do_not_hold_up_new_values(run: Run) -> None:
    """After a minute of training the kernel hears hundreds of answers, one after the other."""
    owner = Owner(run)
    owner.live(60, growing(run))
    old, grow = iter(range(1, len(owner.sent))), growing(run)

    def each_tick(now: float) -> None:
        grow(now)
        if round(now / TICK) % 4 == 0 and (seq := next(old, None)) is not None:
            owner.stream.acknowledge({"kind": "ack", "seq": seq}, now)

    owner.sent.clear()
    owner.live(2, each_tick)
    assert 14 <= len(owner.sent) <= 20


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
        owner.stream.acknowledge(answer, now)

    owner.live(4, each_tick)
    assert len([when for when, _ in owner.sent if when >= 1002]) <= 20
    assert [content["reset"] for _, content in owner.sent] == [True] + [False] * (len(owner.sent) - 1)


def test_nothing_is_sent_when_nothing_is_new(run: Run) -> None:
    owner = Owner(run)
    owner.live(1, lambda now: None)
    assert [content["waiting"] for _, content in owner.sent] == [[0]]
    put(run, 0, {("", "loss"): 1.0})
    owner.live(1, lambda now: None)
    assert [content["seq"] for _, content in owner.sent] == [1, 2]


def test_a_resync_gets_everything_anew_once(run: Run) -> None:
    owner = Owner(run)
    owner.live(1, answering(owner, run, 0.02))
    for _ in range(5):
        owner.stream.acknowledge({"kind": "resync"}, owner.now)
    owner.live(1, answering(owner, run, 0.02))
    resets = [content["seq"] for _, content in owner.sent if content["reset"]]
    assert len(resets) == 2
    owner.live(0.2, lambda now: None)
    assert_complete(owner.page, run)


def test_a_resync_of_an_empty_run_is_answered(run: Run) -> None:
    owner = Owner(run)
    owner.stream.acknowledge({"kind": "resync"}, 1000.0)
    owner.live(0.5, lambda now: None)
    assert [content for _, content in owner.sent] == [{"kind": "update", "seq": 1, "reset": True, "waiting": [0]}]


def test_a_page_that_asked_before_its_first_message_came_has_everything(run: Run) -> None:
    """The view is made by a cell that trains: its question and the answers are heard when the cell ends."""
    owner = Owner(run)
    owner.live(5, growing(run))
    owner.stream.acknowledge({"kind": "resync"}, owner.now)
    for seq in range(1, len(owner.sent) + 1):
        owner.stream.acknowledge({"kind": "ack", "seq": seq}, owner.now)
    owner.live(2, answering(owner, run, 0.02))
    assert [content["seq"] for _, content in owner.sent if content["reset"]] == [1]
    owner.live(0.2, lambda now: None)
    assert_complete(owner.page, run)


def test_a_page_that_missed_the_first_message_gets_everything(run: Run) -> None:
    owner = Owner(run)
    owner.live(2, growing(run))
    count = len(owner.sent)
    owner.stream.acknowledge({"kind": "resync"}, owner.now)
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
    owner.stream.acknowledge({"kind": "ack", "seq": len(owner.sent)}, owner.now)
    owner.page.receive = lambda *update: None  # type: ignore[method-assign] - its memory is not the kernel's
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]

    def each_tick(now: float) -> None:
        for _ in range(10):
            run.history.append(1, slots, row)
        owner.stream._acknowledged_at = now  # answers to messages of long ago

    owner.live(5, each_tick)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert run.history._end > 40_000_000
    assert owner.stream.updates.unread > 40_000
    assert grown < 2_000_000
