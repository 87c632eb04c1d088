"""A module that halts where a gate says so, for tests of what other threads may do meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn


class Halted(nn.Module):
    """Stops inside forward until it may go on."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self.__dict__["gate"] = gate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.gate.wait_inside()
        return x


class Gate:
    """Holds one thread at a place until the body that wants it there is done."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
        self.inside, self.go_on = threading.Event(), threading.Event()

    def wait_inside(self) -> None:
        if threading.current_thread() is self.thread:
            self.inside.set()
            assert self.go_on.wait(60)

    @contextmanager
    def held(self, work: Callable[[], object]) -> Iterator[None]:
        """`work` runs in a thread that stands at the gate while the body runs."""
        self.inside.clear(), self.go_on.clear()
        self.thread = threading.Thread(target=work, name="worker")
        self.thread.start()
        try:
            assert self.inside.wait(60)
            yield
        finally:
            self.go_on.set()
            self.thread.join()
