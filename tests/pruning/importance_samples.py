"""A model with every kind of axis, all criteria, and a picture of what a pass could change."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modulekg_widgets as mk
from models import seeded
from modulekg_widgets.engine.pruning.importance.activations import Activation
from modulekg_widgets.engine.pruning.importance.loss_criteria import Hessian, Taylor

Tensor = torch.Tensor


class ConvAttention(nn.Module):
    """A residual network in small, with a dropout, a concatenation and two heads of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.inner = nn.Conv2d(8, 6, 1)
        self.back = nn.Conv2d(6, 8, 1, groups=2)
        self.dropout = nn.Dropout(0.5)
        self.project = nn.Linear(14, 12)
        self.attention = nn.MultiheadAttention(12, 2, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(x)))
        y = F.relu(self.inner(x))
        x = torch.cat([x + self.back(y), y], 1).flatten(2).transpose(1, 2)
        x = self.project(self.dropout(x))
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(x.mean(1))


def image(batch: int = 2) -> Tensor:
    return torch.randn(batch, 3, 4, 4, generator=torch.Generator().manual_seed(1))


def labels(batch: int = 2) -> Tensor:
    return torch.arange(batch) % 3


def traced(mode: bool = False) -> tuple[ConvAttention, mk.DataflowGraph]:
    model = seeded(ConvAttention).train(mode)
    for name, tensor in model.named_parameters():
        if tensor.dim() == 1:  # no two entries alike
            values = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(len(name)))
            tensor.data = values.abs() + 0.5 if "norm" in name else values
    return model, mk.trace(model, (image(),))


def terms(graph: mk.DataflowGraph) -> list[Any]:
    return [axis.term for axis in graph.axes.free]


def pairs() -> list[Any]:
    return [(image(), labels()), (2 * image(5), labels(5))]


CRITERIA: dict[str, Callable[[], Any]] = {
    "l1": lambda: "l1",
    "l2": lambda: "l2",
    "bn_scale": lambda: "bn_scale",
    "fpgm": lambda: "fpgm",
    "random": lambda: "random",
    "activation": lambda: "activation",
    "activation over batches": lambda: Activation(pairs(), "std"),
    "expert_usage": lambda: "expert_usage",
    "taylor": lambda: Taylor(pairs(), F.cross_entropy),
    "hessian": lambda: Hessian(pairs(), nn.CrossEntropyLoss()),
    "a function": lambda: lambda group: sum(member.tensor.abs().mean(1) for member in group.members),
}
each_criterion = pytest.mark.parametrize("make", CRITERIA.values(), ids=CRITERIA.keys())


def snapshot(model: nn.Module) -> list[Any]:
    """All that a pass could change: bytes, identities, versions, gradients, flags, hooks, modes and random states."""
    tensors = [*model.parameters(), *model.buffers()]
    grads = [tensor.grad for tensor in model.parameters()]
    return [
        [tensor.detach().clone().numpy().tobytes() for tensor in tensors],
        [(id(tensor), tensor._version, tensor.requires_grad, tensor.data_ptr()) for tensor in tensors],
        [None if grad is None else (id(grad), grad._version, grad.numpy().tobytes()) for grad in grads],
        [
            (module.training, sorted(vars(module)), *(len(vars(module)[name]) for name in HOOKS))
            for module in model.modules()
        ],
        torch.get_rng_state().numpy().tobytes(),
        random.getstate(),
        np.random.get_state()[1].tobytes(),  # type: ignore[index]
        (torch.is_grad_enabled(), torch.backends.mha.get_fastpath_enabled()),
    ]


HOOKS = [name for name in vars(nn.Module()) if name.endswith("_hooks")]
