"""The kernel's main thread: where cells run, and where nothing may run a model while one of them does."""

from __future__ import annotations

import threading
from collections.abc import Callable


def in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def when_idle(act: Callable[[], None]) -> None:
    """Call `act` in the main thread once no cell runs; at once where there is no kernel."""
    try:
        from IPython.core.getipython import get_ipython

        loop = get_ipython().kernel.io_loop  # type: ignore[union-attr]
    except (ImportError, AttributeError):
        loop = None
    if loop is None:
        act()
    else:
        loop.add_callback(act)
