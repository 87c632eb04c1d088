"""Work in a forked process of its own: what was done before makes it no faster, and it has an end."""

from __future__ import annotations

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
COLORS = re.compile(r"\x1b\[\d*m")
FOLDERS = re.compile(r"/\S*/")
PATIENCE = 400  # seconds that these may take on a busy machine


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


def alone(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `work` gives, or its error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()  # graphviz goes with it
        used = int(cpu_seconds()) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (used + LIMIT, used + LIMIT))
        try:
            answer = work()
        except BaseException as error:  # noqa: BLE001 - whatever a tool raises is its answer
            answer = {"error": said(error)}
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(writing)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    return pickle.loads(answer) if answer else {"error": f"over {LIMIT} s"}
