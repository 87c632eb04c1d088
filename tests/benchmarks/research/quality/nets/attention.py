"""The transformer block that the ViT and the decoder share."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import nn

Tensor = torch.Tensor


class Attention(nn.Module):
    """Self-attention as in timm; sizes are read from attributes, as Torch-Pruning's examples patch timm's to do."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.num_heads = heads
        self.head_dim = width // heads
        self.causal = causal
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        qkv = self.qkv(x).reshape(batch, length, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        x = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.proj(x.transpose(1, 2).reshape(batch, length, self.num_heads * self.head_dim))


class Block(nn.Module):
    """x + attention, then x + MLP, each behind its normalisation."""

    def __init__(self, width: int, heads: int, hidden: int, causal: bool = False) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, causal)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def heads_of(model: nn.Module) -> dict[nn.Module, int]:
    """What the peer's manual wants as `num_heads`."""
    return {module.qkv: module.num_heads for module in model.modules() if isinstance(module, Attention)}


def write_heads(model: nn.Module, heads: Mapping[nn.Module, int]) -> None:
    """The attributes that the peer's examples write after a cut."""
    for module in model.modules():
        if isinstance(module, Attention):
            module.num_heads = heads[module.qkv]
            module.head_dim = module.qkv.out_features // (3 * module.num_heads)
