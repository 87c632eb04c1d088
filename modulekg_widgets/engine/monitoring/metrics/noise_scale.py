"""Gradient noise scale, an estimate of the largest efficient batch size (arXiv 1812.06162)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.monitoring.measures import moments
from modulekg_widgets.engine.monitoring.measures.spectra import without_autocast
from modulekg_widgets.engine.monitoring.metric import NoValueError, metric
from modulekg_widgets.engine.torch_runtime.private import padding_twice_of

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


@metric("GradientNoiseScale", needs=("ForwardInput", "BackwardOutput"))
def gradient_noise_scale(x: torch.Tensor, g: torch.Tensor, module: nn.Module) -> torch.Tensor:
    """S / |G|² in examples, from the weight's gradient of the batch and those of its two halves.

    With B examples in the batch and b in a half: |G|² = (B |G_B|² - b |G_b|²) / (B - b) and S = (|G_b|² - |G_B|²) /
    (1/b - 1/B), |G_b|² the mean of both halves. The loss is taken for a mean over dimension 0 of the input. One step
    is a noisy estimate, and may be negative: look at the mean over many. Source: arXiv 1812.06162, appendix A.1.
    Raises `NoValueError` for modules other than linear layers and convolutions, and for fewer than two examples.
    """
    batch = _batch(x, module)
    half = batch // 2
    with without_autocast(x.device):
        parts = [_weight_gradient(module, x[at : at + half], g[at : at + half]) for at in range(0, 2 * half, half)]
        rest = [_weight_gradient(module, x[2 * half :], g[2 * half :])] if batch % 2 else []
    whole = _square(torch.stack(parts + rest).sum(0))
    halves = torch.stack([_square(part * (batch / half)) for part in parts]).mean()
    signal = (batch * whole - half * halves) / (batch - half)
    noise = (halves - whole) / (1 / half - 1 / batch)
    return noise / signal


def _batch(x: torch.Tensor, module: nn.Module) -> int:
    """Returns the count of examples."""
    if isinstance(module, nn.Linear):
        fewest = 2
    elif isinstance(module, Convolution):
        fewest = len(module.kernel_size) + 2
    else:
        raise NoValueError(
            f"{type(module).__name__} is neither a linear layer nor a convolution: its gradient is not taken"
        )
    if not x.is_floating_point():
        raise NoValueError(f"the input holds {printable(str(x.dtype))}, not real floating numbers")
    if x.dim() < fewest or len(x) < 2 or x.numel() == 0:
        raise NoValueError(f"a noise scale needs a batch of two: the input's shape is {tuple(x.shape)}")
    return len(x)


def _weight_gradient(module: nn.Module, x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """Returns the gradient of the weight from a part of the batch, in float32 or better."""
    wide = torch.float64 if x.dtype is g.dtype is torch.float64 else torch.float32
    x, g = x.to(wide), g.to(wide)
    if isinstance(module, Convolution):
        return _kernel_gradient(module, x, g)
    return g.reshape(-1, g.shape[-1]).t() @ x.reshape(-1, x.shape[-1])


def _kernel_gradient(module: Convolution, x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    padding = module.padding
    dims = len(module.kernel_size)
    if isinstance(padding, str) or module.padding_mode != "zeros":
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        x = F.pad(x, padding_twice_of(module), mode=mode)
        padding = (0,) * dims
    kernel = module.weight.detach().to(x.dtype)
    _, gradient, _ = torch.ops.aten.convolution_backward(
        g,
        x,
        kernel,
        None,
        list(module.stride),
        list(padding),
        list(module.dilation),
        False,
        [0] * dims,
        module.groups,
        [False, True, False],
    )
    return gradient


def _square(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the sum of squares."""
    own = moments.Moments(tensor, -1)
    return own.norm.to(own.best_dtype).square()
