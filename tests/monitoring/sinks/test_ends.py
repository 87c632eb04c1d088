"""How processes end: without closing anything, with a sink that hangs, and in a fork."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from modulekg_widgets.engine.monitoring.sinks.recording import load_recording

BEGIN = """
import atexit, os, sys, time, warnings
import numpy as np
from modulekg_widgets.engine.monitoring.history import History
from modulekg_widgets.engine.monitoring.readings import Slot
from modulekg_widgets.engine.monitoring.sinks.sink_targets import open_sink
from modulekg_widgets.engine.monitoring.sinks import sink_thread as delivery
from modulekg_widgets.engine.monitoring.sinks.sink_thread import SinkThreads

history = History()
slot = history.slot_number(Slot("layer", "M", 0, "train"))
sinks = SinkThreads(history)

def train(start, stop):
    for step in range(start, stop):
        history.append(step, [slot], np.array([step / 8]))
        sinks.notify()
"""


def run(script: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "default", "-c", BEGIN + script, *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def values(path: Path) -> list[float]:
    found = list(load_recording(path).readings())
    assert [reading.step for reading in found] == list(range(len(found)))
    return [reading.value for reading in found]  # type: ignore[misc]


ADD = "sinks.add(open_sink(sys.argv[1]))"
ENDS = {
    "simply": f"{ADD}; train(0, 2000)",
    "by an exception": f"{ADD}; train(0, 2000); raise ValueError('broke')",
    "by exit": f"{ADD}; train(0, 2000); sys.exit(3)",
    "late": f"atexit.register(lambda: ({ADD}, sinks.close())); train(0, 2000)",  # when no thread can start any more
}


@pytest.mark.parametrize(("end", "code"), [("simply", 0), ("by an exception", 1), ("by exit", 3), ("late", 0)])
def test_an_interpreter_that_ends_delivers_what_is_left(
    end: str, code: int, tmp_path: Path, require: Callable[..., None]
) -> None:
    require("pyarrow")
    path = tmp_path / ("run.parquet" if end == "simply" else "run.jsonl")
    done = run(ENDS[end], path)
    assert done.returncode == code
    assert "Warning" not in done.stderr
    assert "Exception" not in done.stderr
    assert values(path) == [step / 8 for step in range(2000)]


def test_a_sink_that_hangs_does_not_keep_the_process(tmp_path: Path) -> None:
    script = """
class Hanging:
    name = "hanging"
    def write(self, readings): time.sleep(1000)
    def close(self): ...

delivery.STALL_SECONDS = 0.3
sinks.add(Hanging())
sinks.add(open_sink(sys.argv[1]))
train(0, 100)
"""
    begin = time.monotonic()
    done = run(script, tmp_path / "run.jsonl")
    assert time.monotonic() - begin < 15
    assert done.returncode == 0
    assert "the sink hanging does not finish: 100 rows are not delivered to it" in done.stderr
    assert values(tmp_path / "run.jsonl") == [step / 8 for step in range(100)]


def test_what_a_sink_writes_to_is_still_there_at_the_end() -> None:
    script = """
class Library:  # as wandb, which ends with the interpreter
    is_over = False
    def log(self, values, step):
        assert not self.is_over
        self.last = step
    def end(self):
        self.is_over = True
        print("last", self.last)

library = Library()
atexit.register(library.end)
sinks.add(open_sink(library))
train(0, 500)
"""
    done = run(script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "last 499\n", "")


@pytest.mark.parametrize("leaves", ["sys.exit(0)", "os._exit(0)"])
def test_a_fork_delivers_nothing(leaves: str, tmp_path: Path, require: Callable[..., None]) -> None:
    require("pyarrow")
    script = f"""
import gc
warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
for path in sys.argv[1:]:
    sinks.add(open_sink(path))
train(0, 300)
pid = os.fork()
if pid == 0:
    for thread in sinks._threads:
        thread._sink.write(list(history.readings()))
    sinks.notify()
    assert sinks.flush(5)
    sinks.close()
    other = SinkThreads(history)
    other.add(open_sink(sys.argv[1] + ".own.jsonl"))  # its own sinks are its own
    other.close()
    del sinks, thread
    delivery._ACTIVE.clear()
    gc.collect()
    {leaves}
train(300, 600)
assert os.waitpid(pid, 0)[1] == 0
sinks.close()
"""
    kinds = (".jsonl", ".csv", ".parquet") if leaves == "sys.exit(0)" else (".jsonl", ".csv")
    paths = [tmp_path / f"run{kind}" for kind in kinds]
    done = run(script, *paths)
    assert (done.returncode, done.stderr) == (0, "")
    for path in paths:
        assert values(path) == [step / 8 for step in range(600)]
    assert len(values(tmp_path / "run.jsonl.own.jsonl")) == 300
