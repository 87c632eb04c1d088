"""Long work in the main thread, sliced between cells."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from modulekg_widgets.engine.errors import ModuleKGError
from modulekg_widgets.engine.playback.steps import error_text
from modulekg_widgets.widgets.shared.base import main_loop, when_idle

SLICE_SECONDS = 0.1  # seconds; a cell that is run meanwhile, and any message, has its turn after at most one of them
CANCELLED = "cancelled"
INTERRUPTED = "interrupted"
Step = TypeVar("Step")


class SlicedWork(Generic[Step]):
    """Runs the steps of an iterator in short slices while the kernel is idle.

    `tell` is called with the last step of each slice, and `end` once, with "" or why the work did not come to its end.
    Without a kernel all is done at once.
    """

    def __init__(
        self, steps: Iterator[Step], on_progress: Callable[[Step], None], on_end: Callable[[str], None]
    ) -> None:
        self._steps, self._tell, self._end = steps, on_progress, on_end
        self._cancelled = threading.Event()

    def start(self) -> None:
        """Start when no cell runs."""
        when_idle(self._slice)

    def cancel(self) -> None:
        """Stop after the present step; from any thread."""
        self._cancelled.set()

    def _slice(self) -> None:
        until = time.monotonic() + SLICE_SECONDS
        try:
            for step in self._steps:
                if self._cancelled.is_set():
                    break
                if time.monotonic() >= until and main_loop() is not None:
                    self._tell(step)
                    when_idle(self._slice)
                    return
            why = CANCELLED if self._cancelled.is_set() else ""
        except ModuleKGError as error:
            why = str(error)
        except KeyboardInterrupt:
            why = INTERRUPTED
        except Exception as error:  # noqa: BLE001 - the page waits for an end
            why = error_text(error)
        self._steps = iter(())  # lets go of what they held
        self._end(why)
