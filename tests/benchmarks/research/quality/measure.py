"""One cell of the table: one net of one seed, cut by one side in one way, measured three times."""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.research.quality import ways
from benchmarks.research.quality.flops import flops
from benchmarks.research.quality.nets import TASKS
from benchmarks.research.quality.ours import Ours
from benchmarks.research.quality.peer import Peer, PeerError
from benchmarks.research.quality.task import Task
from benchmarks.research.quality.trained import trained
from benchmarks.research.quality.training import has_batch_norm, tuned
from modulekg_widgets.engine.errors import ModuleKGError

OURS, PEER = "ours", "peer"
SIDES = (OURS, PEER)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cell:
    net: str
    seed: int
    side: str
    importance: str
    scope: str
    left: float
    options: str = "{}"  # of mk.plan, as JSON

    @property
    def key(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)


@dataclass(frozen=True)
class Result:
    cell: Cell
    uncut: float
    left: float = 1.0  # share of the FLOPs
    one_shot: float | None = None
    recalibrated: float | None = None  # None where the net has no batch norm
    compensated: float | None = None  # recalibrated, with outputs fitted: the peer has nothing of the kind
    tuned: float | None = None
    refusal: str = ""
    seconds: float = 0.0  # of one core

    @classmethod
    def read(cls, line: str) -> Result:
        values = json.loads(line)
        return cls(**{**values, "cell": Cell(**values["cell"])})

    def written(self) -> str:
        return json.dumps(dataclasses.asdict(self))


@contextmanager
def reproducible() -> Iterator[None]:
    """One thread, and no operator whose sums depend on it."""
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(strict)


@dataclass
class Bench:
    """Measures cells; nets and what was found about them are held in between."""

    cache: Path
    tune: bool = True
    ours: Ours = field(default_factory=Ours)
    peer: Peer = field(default_factory=Peer)
    nets: dict[tuple[str, int], tuple[Task, nn.Module, float]] = field(default_factory=dict)

    def net(self, name: str, seed: int) -> tuple[Task, nn.Module, float]:
        """The task, the trained net and its score."""
        if (name, seed) not in self.nets:
            task = TASKS[name](seed)
            model = trained(task, seed, self.cache)
            self.nets[name, seed] = task, model, task.score(model)
        return self.nets[name, seed]

    def measured(self, cell: Cell) -> Result:
        """The scores after the cut, after new statistics, after tuning; or why there are none."""
        with reproducible():
            task, model, uncut = self.net(cell.net, cell.seed)
            start = time.process_time()
            try:
                scores = self._scores(cell, task, model)
            except (ModuleKGError, PeerError) as error:
                return Result(cell, uncut, refusal=str(error)[:200], seconds=time.process_time() - start)
            return Result(cell, uncut, seconds=time.process_time() - start, **scores)

    def _scores(self, cell: Cell, task: Task, model: nn.Module) -> dict[str, Any]:
        batches = task.calibration(cell.seed)
        torch.manual_seed(cell.seed)
        if cell.side == ways.WAYS:
            return ways.measured(task, model, cell.seed, cell.left, ways.EVERY[cell.importance], batches)
        if cell.side == OURS:
            options = {"target": {"flops": cell.left}, "scope": cell.scope, **json.loads(cell.options)}
            cut, renewed, fitted = self.ours.cut(task, model, batches, cell.importance, options)
        else:
            cut, renewed = self.peer.cut(task, model, batches, cell.importance, cell.scope, cell.left)
            fitted = None
        return {
            "left": flops(cut, task.example) / flops(model, task.example),
            "one_shot": task.score(cut),
            "recalibrated": task.score(renewed) if has_batch_norm(model) else None,
            "compensated": None if fitted is None else task.score(fitted),
            "tuned": task.score(tuned(task, renewed, cell.seed, batches)) if self.tune else None,
        }
