"""What watching costs a step of training, and whether it changes the training: ours and others', in turn.

A small convolutional net on random pictures, whose parameters are four weights: so histograms of all parameters and
their gradients, which others take, are the eight that ours take of layers. Each step that is watched is paired with a
bare one right before it, and the median of the ratios of CPU time counts. Losses and the state of the net are compared
bit by bit with those of a run that nobody watches.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import modulekg_widgets as mk

ROUNDS = 12
STEPS = 3
LAYERS = (nn.Conv2d, nn.Linear)
NORMS = ["InputSndNorm", "OutputSndNorm", "OutputGradSndNorm"]
WEIGHT_HISTOGRAMS = ["WeightHistogram", "WeightGradHistogram"]
OUTPUT_HISTOGRAMS = ["OutputHistogram", "OutputGradHistogram"]


class Training:
    """A net, its optimizer and its pictures, always the same."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        widths = (3, 32, 64, 64)
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            norm = nn.BatchNorm2d(after, affine=False)
            layers += [nn.Conv2d(before, after, 3, 2, 1, bias=False), norm, nn.ReLU()]
        self.model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10, bias=False))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.images, self.labels = torch.randn(32, 3, 64, 64), torch.randint(0, 10, (32,))

    def step(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(self.images), self.labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


Track = Callable[[], object]
Watch = Callable[[Training, Path], AbstractContextManager[Track]]


@dataclass(frozen=True)
class Way:
    """A way to watch a training."""

    watch: Watch
    histograms: int = 0  # that a step gives
    written: bool = False  # to a disk, while it trains


def monitor(metrics: list[str], written: bool = False) -> Watch:
    @contextmanager
    def watch(training: Training, folder: Path) -> Iterator[Track]:
        from torch.utils.tensorboard import SummaryWriter

        with contextlib.ExitStack() as stack:
            sinks = [stack.enter_context(SummaryWriter(str(folder / "ours")))] if written else []
            one = stack.enter_context(mk.Monitor(training.model, dict.fromkeys(LAYERS, metrics), sinks=sinks))
            yield lambda: one.track(one.step)

    return watch


@contextmanager
def wandb_watch(training: Training, folder: Path) -> Iterator[Track]:
    import wandb

    os.environ["WANDB_SILENT"] = "true"
    run = wandb.init(mode="offline", dir=folder, settings=wandb.Settings(silent=True))
    run.watch(training.model, log="all", log_freq=1)
    yield lambda: run.log({"step": 1})
    run.unwatch(training.model)
    run.finish()


@contextmanager
def tensorboard(training: Training, folder: Path) -> Iterator[Track]:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder / "tensorboard")) as writer:

        def track() -> None:
            for name, parameter in training.model.named_parameters():
                writer.add_histogram(name, parameter, 0)
                writer.add_histogram(f"{name}.grad", parameter.grad, 0)

        yield track


@contextmanager
def torchlens(training: Training, folder: Path) -> Iterator[Track]:
    """A trace after each step, of a pass of its own: values of the forward pass, none of the gradients."""
    import torchlens as lens

    yield lambda: lens.trace(training.model, training.images)


WAYS: dict[str, Way] = {
    "nothing": Way(lambda training, folder: contextlib.nullcontext(lambda: None)),
    "mk.Monitor, three norms of four layers": Way(monitor(NORMS)),
    "mk.Monitor, weights and gradients": Way(monitor(WEIGHT_HISTOGRAMS), 8),
    "mk.Monitor, the same to TensorBoard": Way(monitor(WEIGHT_HISTOGRAMS, written=True), 8, written=True),
    "TensorBoard, add_histogram of the same": Way(tensorboard, 8, written=True),
    "wandb.watch(log='all', log_freq=1), the same": Way(wandb_watch, 8, written=True),
    "mk.Monitor, outputs and their gradients": Way(monitor(OUTPUT_HISTOGRAMS), 8),
    "torchlens.trace after each step": Way(torchlens),
}


def timed(action: Callable[[], object]) -> float:
    begin = time.process_time()
    for _ in range(STEPS):
        action()
    return time.process_time() - begin


def ratios(folder: Path) -> dict[str, list[float]]:
    """For each way, CPU time of steps with it over that of bare steps, one for each round."""
    training = Training()
    for _ in range(5):
        training.step()
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(ROUNDS):
        for name, way in WAYS.items():
            bare = timed(training.step)
            with way.watch(training, folder) as track:
                training.step(), track()  # what is loaded or opened once
                found[name].append(timed(lambda track=track: (training.step(), track())) / bare)
    return found


def trained(way: Way, folder: Path) -> tuple[list[float], list[torch.Tensor]]:
    """The losses of eight steps, and all tensors of the net after them."""
    training = Training()
    losses = []
    with way.watch(training, folder) as track:
        for _ in range(8):
            losses.append(training.step().item())
            track()
    return losses, list(training.model.state_dict().values())


def watched(folder: Path) -> dict[str, dict[str, Any]]:
    """The figures of each way."""
    torch.set_num_threads(1)
    losses, state = trained(WAYS["nothing"], folder)
    found: dict[str, dict[str, Any]] = {}
    for name, values in ratios(folder).items():
        own_losses, own_state = trained(WAYS[name], folder)
        found[name] = {
            "ratio": statistics.median(values),
            "range": [min(values), max(values)],
            "histograms": WAYS[name].histograms,
            "written": WAYS[name].written,
            "same losses": own_losses == losses,
            "same state": all(map(torch.equal, own_state, state)),
        }
    return found
