"""A small net with data of a user for a mask editor, and a kernel's loop of which a test takes the turns."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

X = torch.zeros(2, 4)
HIDDEN, WIDE = "0.out", "3.out"
HOSTILE = "<img src=x onerror=alert(1)>\u202e"


def net() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 3)
    )
    return model.eval()


def batches_of(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    draws = torch.Generator().manual_seed(1)
    return [(torch.randn(16, 4, generator=draws), torch.randint(3, (16,), generator=draws)) for _ in range(count)]


BATCHES = batches_of(3)


def loss_of(model: nn.Sequential) -> float:
    return float(torch.stack([F.cross_entropy(model(x), y) for x, y in BATCHES]).mean().detach())


def bytes_of(model: nn.Sequential) -> dict[str, tuple[tuple[int, ...], bytes]]:
    return {name: (tuple(t.shape), t.detach().numpy().tobytes()) for name, t in model.state_dict().items()}


class Loop:
    """The kernel's loop: what waits until no cell runs, one turn at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting: list[Callable[[], None]] = []
        for module in (
            "shared.sliced_work",
            "mask_editor.mask_editor",
            "mask_editor.messages",
            "mask_editor.measured_loss",
        ):
            monkeypatch.setattr(f"modulekg_widgets.widgets.{module}.when_idle", self.waiting.append)
        monkeypatch.setattr("modulekg_widgets.widgets.shared.sliced_work.main_loop", lambda: self)
        monkeypatch.setattr("modulekg_widgets.widgets.shared.sliced_work.SLICE_SECONDS", 0.0)

    def turn(self) -> None:
        due, self.waiting[:] = self.waiting[:], []
        for act in due:
            act()

    def run(self) -> None:
        for _ in range(1000):
            if not self.waiting:
                return
            self.turn()
        raise AssertionError("it does not come to an end")
