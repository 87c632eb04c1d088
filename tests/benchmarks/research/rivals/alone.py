"""Work in a forked process of its own: what was done before makes it no faster, and it has an end."""

from __future__ import annotations

import gc
import os
import pickle
import re
import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

LIMIT = 60  # seconds of CPU time
GRACE = 2  # times as much until it is ended: by a rougher count, and programs that it calls by counts of their own
COLORS = re.compile(r"\x1b\[\d*m")
FOLDERS = re.compile(r"/\S*/")
PATIENCE = 900  # seconds that these may take on a busy machine


def cpu_seconds() -> float:
    """Of this process and of all that it has waited for, as graphviz."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def said(error: BaseException) -> str:
    """The first line of an error, or of the one that caused it."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = FOLDERS.sub("…/", COLORS.sub("", str(error))).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:160]}"


def too_long() -> dict[str, Any]:
    return {"error": f"over {LIMIT} s"}


def answered(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `work` gives, its error, or that it took too long: also where only a program that it called was ended."""
    begin = cpu_seconds()
    try:
        answer = work()
    except BaseException as error:  # noqa: BLE001 - whatever a tool raises is its answer
        answer = {"error": said(error)}
    return too_long() if cpu_seconds() - begin >= LIMIT else answer


def ending(child: int) -> tuple[int, float] | None:
    """The status of a process that ended and the seconds of CPU that it used, or None if it did not end in time."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        ended, status, used = os.wait4(child, os.WNOHANG)
        if ended:
            return status, used.ru_utime + used.ru_stime
        time.sleep(0.02)
    return None


def without_answer(ended: tuple[int, float] | None) -> dict[str, Any]:
    """What is said of a process that gave no answer."""
    if ended is None:
        return {"error": f"no answer after {PATIENCE} s on the clock"}
    status, used = ended
    code = os.waitstatus_to_exitcode(status)
    if used >= LIMIT:
        return too_long()
    return {"error": f"the process died by {signal.Signals(-code).name}" if code < 0 else f"the process exited {code}"}


def alone(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `work` gives in a process of its own, or its error."""
    reading, writing = os.pipe()
    # else a collection in the new process, at any time, would search and copy all that was there before
    gc.collect()
    gc.freeze()
    child = os.fork()
    if child == 0:
        os.setsid()  # graphviz goes with it
        resource.setrlimit(resource.RLIMIT_CPU, (GRACE * LIMIT, GRACE * LIMIT))
        answer = answered(work)
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
    gc.unfreeze()
    os.close(writing)
    ended = ending(child)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if ended is None:
        os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    return pickle.loads(answer) if answer else without_answer(ended)
