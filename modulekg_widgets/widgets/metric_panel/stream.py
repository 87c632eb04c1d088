"""Stream of a MetricPanel: a thread that sends updates no faster than the page acknowledges them."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from modulekg_widgets.engine.monitoring.run import Run
from modulekg_widgets.engine.views.metric_payload import Update, UpdateReader
from modulekg_widgets.widgets.pages.pages import SavedMessage, saved_updates

PERIOD_SECONDS = 0.05  # seconds between two looks at the runs, and between two messages at least
IDLE_PERIOD_SECONDS = 0.25  # where nothing has come for a while
IDLE_AFTER_SECONDS = 5.0
UNACKNOWLEDGED_PERIOD_SECONDS = 0.1  # between two messages when the page's answers are not heard: the kernel is busy
MAX_IN_FLIGHT = 8  # messages that may be unanswered while answers are heard
ACK_TIMEOUT_SECONDS = 0.5  # seconds without an answer after which none is expected
MAX_ANSWERS = 2  # between two looks, to messages that went out one by one
READ_SECONDS = 0.015  # seconds of the thread's own time for one message

Send: TypeAlias = Callable[[dict[str, object], list[bytes]], None]

log = logging.getLogger("modulekg_widgets")


class MetricStream:
    """Polls `runs` and passes updates to `send`; calls `on_read` after each poll that has read everything.

    Both are bound methods, and held weakly: the thread ends with their owner.
    """

    def __init__(self, runs: Sequence[Run], send: Send, on_read: Callable[[UpdateReader], None]) -> None:
        self.updates = UpdateReader(runs)
        self._send = weakref.WeakMethod(send)
        self._on_read = weakref.WeakMethod(on_read)
        self._seq = self._acknowledged = self._counted = 0
        self._sent_at = self._acknowledged_at = self._news_at = -math.inf
        self._is_reset = True  # what is sent next begins anew
        self._reset_seq = 0  # the last message that began anew
        self._asked_at: float | None = None  # when the page asked for everything
        self._must_rewind = False
        self._replay: tuple[float, float | None] | None = None  # steps a second, since when
        self._thread: threading.Thread | None = None
        self._is_stopped = False
        self._has_failed = False
        self._starting = threading.Lock()
        self._wake = threading.Event()
        self._process = os.getpid()

    # -------------------------------------------------------------- from any thread

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread; a stopped stream stays stopped."""
        with self._starting:  # the page may be heard in a thread of its own
            if self._thread is None and not self._is_stopped:
                self._thread = threading.Thread(target=_run, args=(weakref.ref(self), self._wake), daemon=True)
                self._thread.name = "modulekg-metrics"
                self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for its end."""
        self._is_stopped = True
        if self._thread is None or os.getpid() != self._process:  # a forked process has the object without the thread
            return
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(5)

    def acknowledge(self, message: object, now: float | None = None) -> None:
        """Handle {"kind": "ack", "seq": n} or {"kind": "resync"} from the page."""
        message = message if isinstance(message, dict) else {}
        kind = message.get("kind")
        now = time.monotonic() if now is None else now
        if kind == "resync":
            self._asked_at = now
        elif kind == "ack" and type(message.get("seq")) is int and self._acknowledged < message["seq"] <= self._seq:
            if self._acknowledged < self._reset_seq <= message["seq"]:
                self._asked_at = None  # the page asked before it had this one, which gave it everything
            self._acknowledged, self._acknowledged_at = message["seq"], now

    def replay(self, speed: float | None) -> None:
        """Restart with `speed` recorded steps a second; None for all at once."""
        self._replay = None if speed is None or math.isinf(speed) else (speed, None)
        self._must_rewind = True
        self._wake.set()

    # -------------------------------------------------------------- in the thread

    def poll(self, now: float) -> float:
        """Send an update if there is one and the page keeps up; returns seconds until the next poll."""
        answers, self._counted = self._acknowledged - self._counted, self._acknowledged
        if not self._may_send(now, answers):
            return PERIOD_SECONDS
        must_answer = self._must_rewind or self._must_resend(now)
        if must_answer:
            self._must_rewind, self._asked_at, self._is_reset = False, None, True
            self.updates.rewind()
        update = self.updates.next(READ_SECONDS, self._due(now))
        if update is not None or must_answer:
            self._seq, self._sent_at, self._news_at = self._seq + 1, now, now
            is_reset, self._is_reset = self._is_reset, False
            if is_reset:
                self._reset_seq = self._seq
            self._send_update(update or Update({}, []), is_reset)
        looked = self._on_read()
        if looked is not None and self.updates.unread == 0:
            looked(self.updates)
        return PERIOD_SECONDS if now - self._news_at < IDLE_AFTER_SECONDS else IDLE_PERIOD_SECONDS

    def _send_update(self, update: Update, is_reset: bool) -> None:
        send = self._send()
        if send is not None:
            try:
                send({"kind": "update", "seq": self._seq, "reset": is_reset, **update.content}, update.buffers)
            except Exception:
                self._must_rewind = True  # what was lost is in none of the later messages
                raise

    def _may_send(self, now: float, answers: int) -> bool:
        """True if a message may be sent, given the acknowledgements since the last poll."""
        if self._seq - self._acknowledged < MAX_IN_FLIGHT:
            return now - self._sent_at >= PERIOD_SECONDS
        # a kernel that was busy hears the old answers faster than messages can be sent: the page is not slow
        if now - self._acknowledged_at < ACK_TIMEOUT_SECONDS and answers <= MAX_ANSWERS:
            return False
        return now - self._sent_at >= UNACKNOWLEDGED_PERIOD_SECONDS

    def _must_resend(self, now: float) -> bool:
        """True if the page has requested everything, and no such message is on its way.

        A kernel that was busy hears late what a page asked for before its first message came.
        """
        if self._asked_at is None:
            return False
        return self._acknowledged >= self._reset_seq or now - self._asked_at >= ACK_TIMEOUT_SECONDS

    def _due(self, now: float) -> float:
        """Returns the count of steps per run that may have been sent by now."""
        if self._replay is None:
            return math.inf
        speed, since = self._replay
        if since is None:
            self._replay = speed, now
            return 1
        if self.updates.unread == 0:
            self._replay = None
        return 1 + math.floor((now - since) * speed)

    def fail(self) -> None:
        """Log a failure once."""
        if not self._has_failed:
            log.warning("a MetricPanel could not be brought up to date", exc_info=True)
        self._has_failed = True


def _run(reference: weakref.ref[MetricStream], wake: threading.Event) -> None:
    """Poll in a loop, without keeping the stream alive between polls."""
    while True:
        stream = reference()
        if stream is None or stream._is_stopped:
            return
        try:
            pause = stream.poll(time.monotonic())
        except Exception:  # noqa: BLE001 - whatever goes wrong with a picture, training continues
            stream.fail()
            pause = IDLE_PERIOD_SECONDS
        del stream
        wake.wait(pause)
        wake.clear()


@saved_updates.register("MetricPanel")
def _values(panel: Any) -> Iterator[SavedMessage]:
    """Saved messages: all values, downsampled."""
    panel._choose()
    update = UpdateReader(panel.runs).next()
    if update is not None:
        content = {"kind": "update", "seq": 1, "reset": True, "saved": True, "ended": [], **update.content}
        yield SavedMessage(content, update.buffers)
