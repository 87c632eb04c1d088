"""Whatever happens while a store is written: what was acknowledged is there, and the rest is there whole or not."""

import os
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from torch import nn

import modulekg_widgets as mk
from sampling import sampled

STORE = "engine/knowledge/store/"


class InjectedError(Exception):
    pass


def network(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU())


def write_until_killed(location: str, acknowledge: int) -> None:
    """Adds, replaces and removes for ever; tells of each job once it was added."""
    graph = mk.KnowledgeGraph(location)
    at = 0
    while True:
        name = f"{os.getpid()}.{at}"
        graph.add_model(network(1 + at % 7), name="model")
        graph.add_job(model="model", name=name, accuracy=0.5)
        os.write(acknowledge, f"{name}\n".encode())
        at += 1


def killed_writer(location: str, seconds: float) -> list[str]:
    """The jobs that a process had acknowledged when it was killed after `seconds` of writing."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            write_until_killed(location, writer)
        finally:
            os._exit(1)
    os.close(writer)
    output = os.read(reader, 100)  # it is writing
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as rest:
        output += rest.read()
    return output.decode().split("\n")[:-1]


def check_kills(location: str, times: int) -> None:
    rng = random.Random(0)
    acknowledged: list[str] = []
    for _ in range(times):
        acknowledged += killed_writer(location, rng.uniform(0, 0.03))
        graph = mk.KnowledgeGraph(location)  # checks the file's pages
        contents = graph.contents()  # and that all rows fit together
        assert acknowledged, "nothing was written"
        assert set(acknowledged) <= set(contents.jobs)
        assert len(contents.jobs) <= len(acknowledged) + times
        assert graph.models == ["model"]
        assert len(contents.modules) == 3
        graph.close()


@pytest.mark.slow
def test_kills_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    check_kills(str(tmp_path / "graph.db"), 20)


@pytest.mark.nightly
def test_two_hundred_kills(lasting: str) -> None:
    check_kills(lasting, 200)


def in_child(work: Callable[[], None]) -> int:
    """The exit code of a process that does `work`."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except mk.ModuleKGError:
            os._exit(7)
        except BaseException:  # noqa: BLE001 - the code tells the parent
            os._exit(8)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def fill_disk(location: str, limit: int) -> int:
    """Write with files of at most `limit` bytes, as on a disk that is full; 7 where our own error says so."""

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        graph = mk.KnowledgeGraph(location)
        for at in range(60):
            graph.add_model(network(10 + at), name=f"model{at}")
            Path(f"{location}.count").write_text(str(at))

    return in_child(work)


@pytest.mark.nightly
def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    codes = {limit: check_full_disk(tmp_path / str(limit), limit) for limit in range(0, 6_000_001, 600_000)}
    assert codes[0] == 7, "no room at all"
    assert codes[6_000_000] == 0, "room enough"
    assert sum(code == 7 for code in codes.values()) >= 3


def check_full_disk(folder: Path, limit: int) -> int:
    folder.mkdir()
    location, counter = str(folder / "graph.db"), folder / "graph.db.count"
    mk.KnowledgeGraph(location).close()
    code = fill_disk(location, limit)
    assert code in (0, 7)
    acknowledged = int(counter.read_text() or -1) + 1 if counter.exists() else 0
    graph = mk.KnowledgeGraph(location)
    assert graph.models[:acknowledged] == [f"model{at}" for at in range(acknowledged)]
    assert len(graph.models) <= acknowledged + 1
    assert len(graph.contents().models) == len(graph.models)
    graph.add_model(network(5), name="later")  # once there is room again
    assert graph.models[-1] == "later"
    return code


def _run_until(action: Callable[[], Any], stop: int) -> int:
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if STORE not in frame.f_code.co_filename:
            return None
        if event == "line":
            count += 1
            if count == stop:
                raise InjectedError
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


ACTIONS: dict[str, Callable[[mk.KnowledgeGraph], Any]] = {
    "add": lambda graph: graph.add_model(network(9), name="new"),
    "replace": lambda graph: graph.add_model(network(9), name="old"),
    "remove": lambda graph: graph.remove_model("old"),
    "job": lambda graph: graph.add_job(model="old", dataset="data", history=[0.5, 0.9], name="job"),
}


@pytest.mark.parametrize("action", sampled(ACTIONS, set(ACTIONS) - {"add"}))
@pytest.mark.slow
def test_a_fault_at_any_line_leaves_the_state_before_or_after(action: str, tmp_path: Path) -> None:
    start = tmp_path / "start.db"
    graph = mk.KnowledgeGraph(start)
    graph.add_model(network(3), name="old")
    graph.add_model(network(4), name="other")
    graph.add_dataset("data")
    before = state_of(graph.contents())
    graph.close()
    line, states = 0, []
    while True:
        line += 1
        copy = mk.KnowledgeGraph(shutil.copy(start, tmp_path / "copy.db"))
        failed = fails_at(partial(ACTIONS[action], copy), line)
        states.append(state_of(copy.contents()))
        copy.close()
        if not failed:
            break
    after = states[-1]
    assert line > 60, "the store's code was not followed"
    assert after != before
    assert all(state in (before, after) for state in states)


def fails_at(action: Callable[[], Any], line: int) -> bool:
    """Run `action` and raise at its `line`-th line in the store; False once it has no more lines."""
    try:
        return _run_until(action, line) >= line
    except (InjectedError, mk.ModuleKGError):
        return True


def state_of(contents: Any) -> Any:
    """The contents without the times of jobs."""
    jobs = {name: (job.model, job.dataset, job.history) for name, job in contents.jobs.items()}
    return contents.modules, contents.models, list(contents.models), contents.datasets, jobs
