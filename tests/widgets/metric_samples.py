"""Runs to look at, and a page's side of the protocol: what a reader makes of the messages."""

from __future__ import annotations

import json
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

import comm
import numpy as np
import pytest
from ipywidgets.widgets.widget import _instances

from modulekg_widgets.engine.monitoring.readings import Slot, flat
from modulekg_widgets.engine.monitoring.run import Run
from modulekg_widgets.engine.views.metric_payload import UpdateReader
from modulekg_widgets.widgets.metric_panel.metric_panel import MetricPanel
from modulekg_widgets.widgets.metric_panel.stream import MetricStream

Name = tuple[str, str]  # module, metric
TICK = 0.001  # seconds of a simulated clock; a look takes as long


def live_run(name: str = "net") -> Run:
    """A run that goes on, as that of a running monitor."""
    run = Run(name)
    run.is_running = True  # type: ignore[attr-defined]
    return run


def put(run: Run, step: int, values: Mapping[Name, Any], call: int = 0, phase: str = "train") -> None:
    """Append one row."""
    slots, numbers = [], []
    for (module, metric), value in values.items():
        form, own = flat(value)
        slots.append(run.history.slot_number(Slot(module, metric, call, phase, form)))
        numbers += own
    run.history.append(step, slots, np.array(numbers))


def histogram(counts: Iterable[float], low: float = 0.0, high: float = 1.0) -> dict[str, Any]:
    counts = np.array(list(counts), float)
    return {"low": low, "high": high, "total": float(counts.sum()), "sampled": float(counts.sum()), "counts": counts}


class Page:
    """Reads messages with `struct`, as the protocol has them, and keeps everything."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.forget()

    def forget(self) -> None:
        self.entries: list[list[Any]] = []
        self.points: dict[int, list[tuple[float, float]]] = {}
        self.histograms: list[tuple[int, int, list[float]]] = []
        self.alerts: list[list[Any]] = []
        self.ended: set[int] = set()

    def receive(self, content: Mapping[str, Any], buffers: Iterable[bytes]) -> None:
        self.messages.append(dict(content))
        if content.get("reset"):
            self.forget()
        for name, kept in (("catalog", self.entries), ("alerts", self.alerts)):
            if name in content:
                assert content[name]["from"] == len(kept)
                kept += content[name]["entries"]
        left = [memoryview(buffer).tobytes() for buffer in buffers]
        if "points" in content:
            self._take_points(content["points"], left.pop(0))
        if "histograms" in content:
            self._take_histograms(content["histograms"], left.pop(0))
        assert left == []
        self.ended.update(content.get("ended", ()))

    def _take_points(self, section: Mapping[str, list[int]], buffer: bytes) -> None:
        numbers = struct.unpack(f"<{len(buffer) // 8}d", buffer)
        assert len(numbers) == 2 * sum(section["counts"])
        for series, count in zip(section["series"], section["counts"], strict=True):
            steps, values, numbers = numbers[:count], numbers[count : 2 * count], numbers[2 * count :]
            self.points.setdefault(series, []).extend(zip(steps, values, strict=True))

    def _take_histograms(self, section: Mapping[str, list[int]], buffer: bytes) -> None:
        numbers = list(struct.unpack(f"<{len(buffer) // 8}d", buffer))
        for series, step, bins in zip(section["series"], section["steps"], section["bins"], strict=True):
            self.histograms.append((series, step, numbers[: bins + 4]))
            del numbers[: bins + 4]
        assert numbers == []

    def number(self, module: str, metric: str, run: int = 0, phase: str = "train", call: int = 0) -> int:
        (found,) = [n for n, e in enumerate(self.entries) if e[:5] == [run, module, metric, call, phase]]
        return found

    def line(self, module: str, metric: str, **which: Any) -> list[tuple[float, float]]:
        """The points (step, value) of a series."""
        return self.points[self.number(module, metric, **which)]


class FakeComm:
    """What ipykernel gives a widget; the page at its other end reads the protocol."""

    opened: ClassVar[list[FakeComm]] = []

    def __init__(self, comm_id: str | None = None, **given: Any) -> None:
        self.comm_id = comm_id or f"comm{len(self.opened)}"
        self.kernel = SimpleNamespace()
        self.is_open = True
        self.page = Page()
        self.states: list[dict[str, Any]] = []
        self.opened.append(self)

    def on_msg(self, callback: Callable[[Any], None]) -> None:
        self.callback = callback

    def send(self, data: dict[str, Any], buffers: Any = None, **given: Any) -> None:
        json.dumps(data, allow_nan=False).encode("utf-8")
        if data["method"] == "custom":
            self.page.receive(data["content"], buffers or [])
        else:
            self.states.append(data["state"])

    def close(self) -> None:
        self.is_open = False
        del self.callback

    def receive(self, data: dict[str, Any]) -> None:
        self.callback({"content": {"data": data}, "buffers": []})


def fake_kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeComm]]:
    """Widgets have comms of a kernel: the list of these; what is open at the end is closed."""
    monkeypatch.setattr(FakeComm, "opened", [])
    monkeypatch.setattr(comm, "create_comm", FakeComm)
    yield FakeComm.opened
    for widget in list(_instances.values()):
        if widget.comm in FakeComm.opened:
            widget.close()


def measured_run() -> Run:
    """A live run with a loss and two metrics of two modules, all at step 0."""
    run = live_run("ResNet")
    put(run, 0, {("", "loss"): 2.0})
    put(run, 0, {("layer1.0", "OutputSndNorm"): 1.0, ("layer2", "OutputSndNorm"): 2.0, ("layer2", "WeightNorm"): 3.0})
    return run


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "modulekg-metrics"]


def wait_until(condition: Callable[[], Any], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not within the time"
        time.sleep(0.005)


def wait_for_values(panel: MetricPanel) -> Page:
    page = panel.comm.page
    wait_until(lambda: page.messages)
    return page


class Owner:
    """Has a stream, and what the stream has sent: (time, message)."""

    def __init__(self, *runs: Run) -> None:
        self.sent: list[tuple[float, dict[str, Any]]] = []
        self.page = Page()
        self.looks = 0
        self.now: float | None = None
        self.next_look = 0.0
        self.stream = MetricStream(runs, self.send, self.looked)

    def send(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        self.sent.append((time.monotonic() if self.now is None else self.now, content))
        self.page.receive(content, buffers)

    def looked(self, updates: UpdateReader) -> None:
        self.looks += 1

    def live(self, seconds: float, each_tick: Callable[[float], None]) -> None:
        """Let a simulated clock run: something happens in the run, then the stream looks."""
        start = self.now or 1000.0
        for tick in range(round(seconds / TICK)):
            self.now = start + tick * TICK
            each_tick(self.now)
            if self.now >= self.next_look:
                self.next_look = self.now + self.stream.poll(self.now) + TICK
        self.now = start + seconds

    def most_in_a_second(self) -> int:
        times = [when for when, _ in self.sent]
        return max(sum(begin <= when < begin + 0.999 for when in times) for begin in times)
