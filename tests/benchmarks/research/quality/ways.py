"""Ways to spend the same steps of training: after one cut, some before it with a penalty, or between several cuts."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import modulekg_widgets as mk
from benchmarks.research.quality import ours
from benchmarks.research.quality.flops import flops
from benchmarks.research.quality.task import Batch, Task
from benchmarks.research.quality.training import WARM_UP, call, has_batch_norm, recalibrate
from modulekg_widgets.engine.pruning.plan.saved.pruning_plan import PruningPlan

WAYS = "ways"  # the side that cells of these have
NETS = ("digits-resnet", "mnist1d-vit")
LEFT = (0.5, 0.3)
SCOPE = "global"
SEEDS = 5
PASSES = 2  # times the steps that tuning has


@dataclass
class Run:
    """A net in training; what happens before a step is up to the way."""

    task: Task
    model: nn.Module
    optimizer: torch.optim.Optimizer
    left: float
    steps: int
    whole: int  # FLOPs of the uncut net

    def cut(self) -> None:
        """To the share of the uncut FLOPs that shall be left."""
        share = self.left * self.whole / flops(self.model, self.task.example)
        if share < 1 - ours.MEETS:
            self._planned(share).cut(self.model, self.optimizer)

    def own_share(self) -> float:
        """What our own count says of the net that has the share by torch's."""
        before, after = self._planned(self.left).flops
        return after / before

    def _planned(self, share: float) -> PruningPlan:
        return ours.planned(self.task, self.model, {"target": {"flops": share}, "scope": SCOPE})


Penalty = Callable[[int], Any]  # what is added to the loss at a step, None for nothing
Way = Callable[[Run], tuple[Callable[[int], Any], Penalty]]  # gives: what to do before a step, and the penalty


def one_shot(run: Run) -> tuple[Callable[[int], Any], Penalty]:
    return (lambda step: run.cut() if step == 0 else None), (lambda step: None)


def lasso(weight: float | None, part: float) -> Way:
    """A group lasso during the first part of the steps, then the cut."""

    def way(run: Run) -> tuple[Callable[[int], Any], Penalty]:
        given = {} if weight is None else {"weight": weight}
        penalty = mk.pruning.GroupLasso(mk.trace(run.model, run.task.example), **given)
        at = int(run.steps * part)
        return (lambda step: run.cut() if step == at else None), (lambda step: penalty() if step < at else None)

    return way


def schedule(cuts: int, shape: str) -> Way:
    """So many cuts over the first half."""

    def way(run: Run) -> tuple[Callable[[int], Any], Penalty]:
        every = max(1, run.steps // 2 // cuts)
        # in its first step nothing has gone
        plan = mk.PruningSchedule(cuts * every + 1, shape=shape, every=every, target={"flops": run.own_share()})
        last = cuts * every

        def before(step: int) -> None:
            if step == last:
                run.cut()  # as the other ways do, to what torch counts
            elif plan.due(step):
                plan.cut(run.model, run.task.example, step, optimizer=run.optimizer, scope=SCOPE)

        return before, lambda step: None

    return way


# chosen of weights 1e-5 … 1e-2, parts 0.1 … 0.5, 2, 4 and 8 cuts, "cubic" and "linear", on the seeds 0 and 1
EVERY: dict[str, Way] = {
    "one cut": one_shot,
    "GroupLasso": lasso(None, 0.1),
    "PruningSchedule, 8 cuts": schedule(8, "cubic"),
}


def measured(
    task: Task, model: nn.Module, seed: int, left: float, way: Way, batches: Sequence[Batch]
) -> dict[str, Any]:
    """What is left of the FLOPs, and the score at the end."""
    torch.manual_seed(seed)
    found = copy.deepcopy(model)
    steps = PASSES * task.tune_steps
    optimizer = torch.optim.AdamW(found.parameters(), lr=task.tune_rate, weight_decay=0.01)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=task.tune_rate, total_steps=steps, pct_start=WARM_UP)
    before, penalty = way(Run(task, found, optimizer, left, steps, flops(model, task.example)))
    data = itertools.chain.from_iterable(task.tuning(seed + 1000 * number) for number in range(PASSES))
    for step, (inputs, target) in enumerate(data):
        found.eval()
        before(step)
        found.train()
        optimizer.zero_grad()
        loss, extra = task.loss(call(found, inputs), target), penalty(step)
        (loss if extra is None else loss + extra).backward()
        nn.utils.clip_grad_norm_(found.parameters(), 1.0)
        optimizer.step()
        rates.step()
    optimizer.zero_grad(set_to_none=True)
    done = recalibrate(found.eval(), batches) if has_batch_norm(found) else found.eval()
    return {"left": flops(done, task.example) / flops(model, task.example), "tuned": task.score(done)}
