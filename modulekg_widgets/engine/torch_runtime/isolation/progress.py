"""Progress of long work and its cancellation: work reports, and whoever waits for it in the same thread listens.

Work calls `report_progress` or `count_progress` as often as it likes; without a listener that is one look into a
thread-local. A listener may raise `Cancellation`, which ends the work as Ctrl-C would: copies are discarded, and the
model is as it was. What a user may wait for is `long_work`: a notebook displays it, unless somebody listens already.
What must come to its end once it has begun is `without_cancellation`.

    with observe_progress(lambda stage, done: print(stage, done)):
        mk.trace(model, x)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from modulekg_widgets.engine.errors import printable

Listener = Callable[[str, int], None]  # called with what is done, as "operators traced", and how many so far
Display = Callable[
    [str], AbstractContextManager[None]
]  # observes what has this title, and shows it where that takes long


class _Current(threading.local):
    listener: Listener | None = None
    counts: dict[str, int] | None = None  # of what is counted for the listener, by stage


_current = _Current()
_displays: list[Display] = []  # at most one


class Cancellation(BaseException):
    """The user cancelled the work; no `Exception`, so that the code of a model does not catch it."""


def report_progress(stage: str, done: int) -> None:
    """Tell the listener of this thread, if there is one, how far work is."""
    if _current.listener is not None:
        _current.listener(stage, done)


def count_progress(stage: str) -> None:
    """Tell the listener of this thread, if there is one, that one more of something is done."""
    if _current.listener is not None and _current.counts is not None:
        _current.counts[stage] = _current.counts.get(stage, 0) + 1
        _current.listener(stage, _current.counts[stage])


def has_listener() -> bool:
    """True if somebody listens in this thread."""
    return _current.listener is not None


@contextmanager
def observe_progress(listener: Listener) -> Iterator[None]:
    """Call `listener` with what this thread reports meanwhile; an outer listener hears nothing until then."""
    outer = _current.listener, _current.counts
    _current.listener, _current.counts = listener, {}
    try:
        yield
    finally:
        _current.listener, _current.counts = outer


@contextmanager
def without_cancellation() -> Iterator[None]:
    """Work that is not cancelled, as half of it would be worse than none or all; it is observed as before."""
    listener = _current.listener
    if listener is None:
        yield
        return

    def listen(stage: str, done: int) -> None:
        with suppress(Cancellation):
            listener(stage, done)

    with observe_progress(listen):
        yield


def display_with(display: Display) -> None:
    """Let `display` show the long work of this process."""
    _displays[:] = [display]


@contextmanager
def long_work(action: str, model: object) -> Iterator[None]:
    """Work on a model that may take long: displayed, unless it is a part of what is observed already."""
    if has_listener() or not _displays:
        yield
    else:
        with _displays[0](f"{action} of {printable(type(model).__name__)}"):
            yield
