"""A model that trains in a thread, and its twin that nobody looks at."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

BATCH, IMAGE = 4, 8


class Net(nn.Module):
    """Statistics that forward writes, dropout, a reshape by an attribute, attention, and a table that is kept."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.width = width
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        inner = 2 * width
        self.inner = nn.Sequential(nn.Conv2d(width, inner, 1), nn.ReLU(inplace=True), nn.Conv2d(inner, width, 1))
        self.drop = nn.Dropout(0.3)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.head = nn.Linear(width, 5)
        self.table: torch.Tensor | None = None  # of positions, made in the first call
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        y = self.norm(self.stem(x)).relu()
        y = y + self.drop(self.inner(y))
        y = y.view(-1, self.width, IMAGE * IMAGE).transpose(1, 2)
        if self.table is None or self.table.shape[1] != y.shape[1]:
            self.table = torch.linspace(0, 1, y.shape[1]).view(1, -1, 1)
        y = y + self.table.to(y.device)
        y, _ = self.attention(y, y, y, need_weights=False)
        return self.head(y.mean(1))


def net_and_input() -> tuple[Net, torch.Tensor]:
    """The same at each call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Net().train(), torch.randn(2, 3, IMAGE, IMAGE)


class Training:
    """Steps on data of the process's own generator, as a training loop draws them."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        self.losses: list[float] = []
        self.error: BaseException | None = None
        self.stopped = threading.Event()

    def step(self) -> None:
        x, y = torch.randn(BATCH, 3, IMAGE, IMAGE), torch.randint(5, (BATCH,))
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())

    def until_stopped(self) -> None:
        try:
            while not self.stopped.is_set():
                self.step()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self.error = error


@contextmanager
def training_beside(model: nn.Module, seed: int = 1) -> Iterator[Training]:
    """The model trains in a thread while the body runs; then a twin that nobody looked at must have the same losses."""
    twin = Training(net_and_input()[0])
    training = Training(model)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    thread = threading.Thread(target=training.until_stopped, name="training")
    thread.start()
    try:
        yield training
    finally:
        training.stopped.set()
        thread.join()
        torch.set_num_threads(threads)
    if training.error is not None:
        raise training.error
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    for _ in training.losses:
        twin.step()
    torch.set_num_threads(threads)
    assert training.losses == twin.losses, "the losses of the training differ from those of its twin"
    own, its = model.state_dict(), twin.model.state_dict()
    differ = [name for name in its if not torch.equal(own[name], its[name])]
    assert not differ, f"the training's {differ} differ from those of its twin"
