"""Progress of long work in a notebook: a line with a Cancel button, in the output of the cell or in a widget."""

from __future__ import annotations

import contextvars
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from modulekg_widgets.engine.errors import CancelledError
from modulekg_widgets.engine.torch_runtime.isolation.progress import Cancellation, has_listener, observe_progress
from modulekg_widgets.engine.torch_runtime.threads import PROGRESS_THREAD
from modulekg_widgets.widgets.shared.base import (
    handle_in_subshells,
    is_between_cells,
    is_main_thread,
    main_loop,
)

SHOWN_AFTER = 1.0  # seconds: shorter work shows nothing
EVERY = 0.2  # seconds between two updates
BLANK = {"text/plain": "", "text/html": ""}  # which takes no room
log = logging.getLogger(__name__)
HINT = "Cancels at the next operator. If nothing happens, interrupt the kernel."


class Progress:
    """Passes on how far work is, at most five times a second, and ends it once `cancel` was called, from any thread.

    Counts add up over attempts. The first text does not wait for a report: another thread passes it on.
    """

    def __init__(self, title: str, show: Callable[[str], None]) -> None:
        self.title = title
        self._show = show
        self._start = time.monotonic()
        self._next = self._start + SHOWN_AFTER
        self._cancelled = threading.Event()
        self._showing = threading.RLock()
        self._is_due = True  # the first text
        self._stage = "starting"
        self._earlier: dict[str, int] = {}  # by stage: what earlier attempts have done
        self._done: dict[str, int] = {}  # and the present one

    def cancel(self) -> None:
        """End the work at its next report."""
        self._cancelled.set()

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Observe the work of this thread; raises `CancelledError` once it has ended because of `cancel`."""
        first = threading.Timer(SHOWN_AFTER, contextvars.copy_context().run, [self._show_first])
        first.name, first.daemon = PROGRESS_THREAD, True
        if SHOWN_AFTER > 0:
            first.start()
        try:
            with observe_progress(self._listen):
                yield
        except Cancellation:
            raise CancelledError(f"{self.title} was cancelled. Run it again to start over.") from None
        finally:
            first.cancel()
            with self._showing:
                self._is_due = False

    def _listen(self, stage: str, done: int) -> None:
        if self._cancelled.is_set():
            raise Cancellation
        before = self._done.get(stage, 0)
        if done < before:
            self._earlier[stage] = self._earlier.get(stage, 0) + before
        self._done[stage], self._stage = done, stage
        now = time.monotonic()
        if now >= self._next:
            self._next = now + EVERY
            with self._showing:
                self._is_due = False
                self._show(self._text())

    def _show_first(self) -> None:
        with self._showing:
            if self._is_due:
                self._is_due = False
                try:
                    self._show(self._text())
                except Exception:  # the work goes on, and its own reports will say it
                    log.exception("the first line of %s was not shown", self.title)

    def _text(self) -> str:
        stage = self._stage
        count = self._earlier.get(stage, 0) + self._done.get(stage, 0)
        how_far = f"{count:,} {stage}" if stage in self._done else stage
        return f"{self.title}: {how_far}, {time.monotonic() - self._start:.0f} s"


@contextmanager
def display_progress(title: str) -> Iterator[None]:
    """Show the progress of what a cell waits for below the cell, from one second on, until it ends.

    Nothing is shown without a kernel, in other threads, where progress is shown already, and for what a page has asked
    for, as its widget shows it. Raises `CancelledError` where the user cancels.
    """
    if has_listener() or not is_main_thread() or main_loop() is None or is_between_cells():
        yield
        return
    line = _ProgressLine()
    progress = Progress(title, line.show)
    line.cancel = progress.cancel
    try:
        with progress.observing():
            yield
    finally:
        line.close()


class _ProgressLine:
    """A text with a Cancel button in the output of the cell, from the first text until `close`.

    The widgets are made once and not closed: a page may get to draw one when it is no longer needed. In Colab the
    text stands alone, since its pages load no widgets of a kernel that is busy.
    """

    _made: ClassVar[list[Any]] = []  # box, label and button

    def __init__(self) -> None:
        self.cancel: Callable[[], None] = lambda: None
        self._handle: Any = None
        self._is_plain = "google.colab" in sys.modules

    def show(self, text: str) -> None:
        if self._is_plain:
            self._write(text)
            return
        _, label, button = self._widgets()
        label.value = text
        if self._handle is None:
            button.disabled = False
            button.on_click(self._on_click)
            from IPython.display import display

            self._handle = display(self._made[0], display_id=True)

    def _write(self, text: str) -> None:
        from IPython.display import display

        data = {"text/plain": text}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def _widgets(self) -> list[Any]:
        if not self._made or self._made[0].comm is None:  # `Widget.close_all()` closes these, too
            from ipywidgets import Button, HBox, Label

            label, button = Label(), Button(description="Cancel", tooltip=HINT)
            handle_in_subshells(button.comm)  # the click is heard although the cell runs
            self._made[:] = HBox([label, button]), label, button
        return self._made

    def _on_click(self, button: Any) -> None:
        button.disabled = True
        self.cancel()

    def close(self) -> None:
        if self._handle is not None:
            self._handle.update(BLANK, raw=True)
            if not self._is_plain:
                self._widgets()[2].on_click(self._on_click, remove=True)
