"""FLOPs by torch's own counter: the common measure of both sides."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


@torch.no_grad()
def flops(model: nn.Module, args: tuple[Any, ...]) -> int:
    """Of one forward pass."""
    # oneDNN's fused recurrent layers are one operator that the counter does not know, and would count as nothing
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the flags name one that only some machines have
        # nor does every release count fused attention on a CPU
        with (
            torch.backends.mkldnn.flags(enabled=False),
            sdpa_kernel(SDPBackend.MATH),
            FlopCounterMode(display=False) as counter,
        ):
            model(*args)
    return counter.get_total_flops()
