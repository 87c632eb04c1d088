"""An operator, a module and a model, as a package has them that knows of no pruning."""

from __future__ import annotations

import torch
from torch import nn


@torch.library.custom_op("mkg_sample::gate", mutates_args=())
def gate(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """x·sigmoid(scale), over (batch, channels)."""
    return x * scale.sigmoid()


@gate.register_fake
def _(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _keep(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x, scale = ctx.saved_tensors
    opened = scale.sigmoid()
    return grad * opened, (grad * x * opened * (1 - opened)).sum(0)


gate.register_autograd(_backward, setup_context=_keep)


class Gate(nn.Module):
    """Scales each channel; `channels` and `label` follow the size, and forward reads neither."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.scale = nn.Parameter(torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return gate(x, self.scale)


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 8), Gate(8), nn.Linear(8, 2))
