"""The trained nets, kept in a folder outside of the repository."""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import time
from pathlib import Path

import torch
from torch import nn

from benchmarks.research.quality import training
from benchmarks.research.quality.nets import attention
from benchmarks.research.quality.task import Task

CACHE = Path.home() / ".cache" / "modulekg-quality"
log = logging.getLogger(__name__)


def trained(task: Task, seed: int, folder: Path = CACHE) -> nn.Module:
    """The net of this seed in eval mode: from the folder, or trained and put there."""
    torch.manual_seed(seed)
    model = task.untrained()
    if task.trained_here:
        file = folder / f"{task.name}-{seed}-{_digest(task)}.pt"
        if not file.exists():
            _train(task, model, seed, file)
        model.load_state_dict(torch.load(file, weights_only=True))
    return model.eval()


def _digest(task: Task) -> str:
    """Of the code that makes the net: another script gives another file."""
    makers = (inspect.getmodule(type(task)), attention, training.drawn, training.fit)
    sources = [inspect.getsource(maker) for maker in makers if maker]
    return hashlib.sha256("".join(sources).encode()).hexdigest()[:12]


def _train(task: Task, model: nn.Module, seed: int, file: Path) -> None:
    start = time.process_time()
    task.train(model, seed)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}")  # another process may train the same net
    torch.save(model.state_dict(), partial)
    partial.replace(file)
    log.info("%s, seed %s: trained in %.0f s of one core", task.name, seed, time.process_time() - start)
