"""Python's collector of garbage, paused where a lot is made that is all kept."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Within, nothing looks for cycles of garbage; afterwards it does as before, whatever is raised.

    Else it goes through all that is kept again and again while that grows: two thirds of the time of a large graph.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
