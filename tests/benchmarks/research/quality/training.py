"""Seeded training, the same for nets that are made and for nets that are tuned after a cut."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import update_bn

from benchmarks.research.quality.task import Batch, Task

Tensor = torch.Tensor
WARM_UP = 0.1  # share of the steps


def call(model: nn.Module, inputs: Any) -> Any:
    """A forward pass on what a batch holds."""
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def drawn(inputs: Tensor, targets: Tensor, size: int, steps: int, seed: int) -> Iterator[Batch]:
    """`steps` batches: each pass over the data in another order."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        if len(order) < size:
            order = torch.randperm(len(inputs), generator=generator)
        chosen, order = order[:size], order[size:]
        yield Batch(inputs[chosen], targets[chosen])


def fit(
    model: nn.Module, batches: Iterable[Batch], loss: Callable[[Any, Any], Tensor], rate: float, steps: int
) -> None:
    """AdamW with a warm-up and a cosine; the model is in eval mode afterwards."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=steps, pct_start=WARM_UP)
    model.train()
    for inputs, target in batches:
        optimizer.zero_grad()
        loss(call(model, inputs), target).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    optimizer.zero_grad(set_to_none=True)
    model.eval()


@torch.no_grad()
def accuracy(model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    """The share of right answers, in percent."""
    right = [
        (model(part).argmax(-1) == target).flatten()
        for part, target in zip(inputs.split(500), targets.split(500), strict=True)
    ]
    return 100.0 * torch.cat(right).float().mean().item()


def recalibrate(model: nn.Module, batches: Sequence[Batch]) -> nn.Module:
    """A copy whose batch-norm statistics are the means over the batches, each weighing the same."""
    renewed = copy.deepcopy(model)
    update_bn([(batch.inputs,) for batch in batches], renewed)
    return renewed.eval()


def has_batch_norm(model: nn.Module) -> bool:
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())


def tuned(task: Task, model: nn.Module, seed: int, batches: Sequence[Batch]) -> nn.Module:
    """A copy that was trained on for the task's budget; its statistics are renewed at the end."""
    torch.manual_seed(seed)
    found = copy.deepcopy(model)
    fit(found, task.tuning(seed), task.loss, task.tune_rate, task.tune_steps)
    return recalibrate(found, batches) if has_batch_norm(found) else found
