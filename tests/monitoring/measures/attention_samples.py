"""Modules whose attention is watched, and what numpy says of queries and keys."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from modulekg_widgets.engine.monitoring.hooks.attention_recorder import AttentionRecorder
from modulekg_widgets.engine.monitoring.measures.attention_logits import AttentionLogits
from modulekg_widgets.engine.monitoring.metrics.activations import attention_entropy, attention_max_logit

B, H, L, S, E = 2, 4, 5, 7, 8
N, W = 3, 12  # batch and width of nn.MultiheadAttention
Seen = list["AttentionLogits | None"]


def watched(module: nn.Module) -> Seen:
    """The attentions of each call of `module`, by hooks as the monitor's."""
    watch, seen = AttentionRecorder(module), []

    def leave(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        seen.append(watch.leave(module, args, kwargs, output))

    module.register_forward_pre_hook(lambda module, args: watch.enter(module, args))
    module.register_forward_hook(leave, with_kwargs=True, always_call=True)
    module.watch = watch  # type: ignore[assignment]
    return seen


def reference(
    query: Any, key: Any, mask: Any = None, hidden: Any = None, scale: float | None = None
) -> tuple[float, float]:
    """Entropy and largest logit in float64; `mask` is added, `hidden` is true where a query may not look."""
    query, key = (np.asarray(x.detach().double().numpy()) for x in (query, key))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    logits = query @ np.swapaxes(key, -1, -2) * scale
    logits = logits if mask is None else logits + mask.double().numpy()
    hidden = np.zeros(logits.shape, bool) if hidden is None else np.broadcast_to(np.asarray(hidden), logits.shape)
    entropies = []
    for row, gone in zip(logits.reshape(-1, logits.shape[-1]), hidden.reshape(-1, logits.shape[-1]), strict=True):
        left = row[~gone & (row > -np.inf)]
        if len(left):
            odds = np.exp(left - left.max())
            p = odds / odds.sum()
            entropies.append(-(p[p > 0] * np.log(p[p > 0])).sum())
    return float(np.mean(entropies)), float(logits[~hidden].max())


def check(attention: AttentionLogits | None, expected: tuple[float, float], tolerance: float = 2e-6) -> None:
    assert attention is not None
    found = float(attention_entropy(attention)), float(attention_max_logit(attention))
    assert found == pytest.approx(expected, rel=tolerance, abs=tolerance)


class Fused(nn.Module):
    """SDPA with any arguments, called as a submodule would call it."""

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return F.scaled_dot_product_attention(*args, **kwargs)


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def projected(module: nn.MultiheadAttention, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys (N, H, L, E) of `x` (N, L, W) by the module's weights."""
    weights, biases = module.in_proj_weight.detach().chunk(3), module.in_proj_bias.detach().chunk(3)
    both = (torch.einsum("nlw,vw->nlv", x, weight) + bias for weight, bias in zip(weights[:2], biases[:2], strict=True))
    query, key = (y.unflatten(-1, (H, -1)).transpose(1, 2) for y in both)
    return query, key
