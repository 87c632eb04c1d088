"""Progress of long work and its cancellation: work reports, and whoever waits for it in the same thread listens.

Work calls `report_progress` as often as it likes; without a listener that is one look into a thread-local. A listener
may raise `Cancellation`, which ends the work as Ctrl-C would: copies are discarded, and the model is as it was.

    with observe_progress(lambda stage, done: print(stage, done)):
        mk.trace(model, x)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Listener = Callable[[str, int], None]  # called with what is done, as "operators traced", and how many so far
_current = threading.local()


class Cancellation(BaseException):
    """The user cancelled the work; no `Exception`, so that the code of a model does not catch it."""


def report_progress(stage: str, done: int) -> None:
    """Tell the listener of this thread, if there is one, how far work is."""
    listener: Listener | None = getattr(_current, "listener", None)
    if listener is not None:
        listener(stage, done)


def has_listener() -> bool:
    """True if somebody listens in this thread."""
    return getattr(_current, "listener", None) is not None


@contextmanager
def observe_progress(listener: Listener) -> Iterator[None]:
    """Call `listener` with what this thread reports meanwhile; an outer listener hears nothing until then."""
    outer = getattr(_current, "listener", None)
    _current.listener = listener
    try:
        yield
    finally:
        _current.listener = outer
