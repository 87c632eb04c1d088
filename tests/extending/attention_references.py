"""The metrics of attention once more: numpy, float64, from the weights and logits of a whole layer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

Array = np.ndarray


def logits_of(layer: nn.MultiheadAttention, x: torch.Tensor) -> Array:
    """q·k/√d over (batch, heads, tokens, tokens), of a layer without biases that takes (batch, tokens, width)."""
    count, width = layer.num_heads, layer.head_dim
    weight = layer.in_proj_weight.detach().numpy().astype(np.float64)
    projected = x.numpy().astype(np.float64) @ weight.T  # (batch, tokens, 3·width)
    batch, tokens, _ = projected.shape
    parts = projected.reshape(batch, tokens, 3, count, width).transpose(2, 0, 3, 1, 4)
    return parts[0] @ parts[1].swapaxes(-1, -2) / np.sqrt(width)


def entropy(logits: Array) -> float:
    """The mean of -Σ p ln p over batch, heads and queries."""
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    p = shifted / shifted.sum(-1, keepdims=True)
    return float(-(p * np.log(p)).sum(-1).mean())


ATTENTION: dict[str, Callable[[Array], float]] = {
    "AttentionEntropy": entropy,
    "AttentionMaxLogit": lambda logits: float(logits.max()),
}
