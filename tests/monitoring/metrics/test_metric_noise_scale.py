"""The gradient noise scale, against gradients that autograd takes of each half."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from modulekg_widgets.engine.monitoring.metric import NoValueError
from modulekg_widgets.engine.monitoring.metrics import METRICS

LAYERS: dict[str, Any] = {
    "linear": (lambda: nn.Linear(5, 7), (6, 5)),
    "linear of tokens": (lambda: nn.Linear(5, 7, bias=False), (4, 3, 2, 5)),
    "odd batch": (lambda: nn.Linear(5, 7), (7, 5)),
    "batch of two": (lambda: nn.Linear(5, 7), (2, 5)),
    "batch of three": (lambda: nn.Conv1d(4, 6, 3), (3, 4, 9)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=2), (6, 4, 11)),
    "conv2d": (lambda: nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(2, 1), dilation=(2, 1), groups=2), (6, 4, 9, 8)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2, padding=1), (4, 2, 4, 5, 3)),
    "depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4), (4, 4, 6, 6)),
    "same": (lambda: nn.Conv2d(2, 3, 4, padding="same"), (4, 2, 6, 7)),
    "valid": (lambda: nn.Conv2d(2, 3, 3, padding="valid"), (4, 2, 6, 7)),
    "reflect": (lambda: nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode="reflect"), (4, 2, 6, 7)),
    "circular": (lambda: nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular"), (4, 2, 7)),
    "replicate same": (lambda: nn.Conv2d(2, 3, 4, padding="same", padding_mode="replicate"), (4, 2, 7, 6)),
}


def taken(module: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradient at the output, and the noise scale from gradients of the losses of each half, by autograd."""
    target = torch.randn(module(x).shape, generator=torch.Generator().manual_seed(4), dtype=x.dtype)

    def gradient(rows: slice) -> torch.Tensor:
        loss = (module(x[rows]) - target[rows]).square().flatten(1).sum(1).mean()
        return torch.autograd.grad(loss, module.weight)[0]

    big, small = len(x), len(x) // 2
    whole = gradient(slice(0, big)).square().sum()
    part = (gradient(slice(0, small)).square().sum() + gradient(slice(small, 2 * small)).square().sum()) / 2
    signal = (big * whole - small * part) / (big - small)
    noise = (part - whole) / (1 / small - 1 / big)
    y = module(x)
    at_output = torch.autograd.grad((y - target).square().flatten(1).sum(1).mean(), y)[0]
    return at_output, noise / signal


def compute(module: nn.Module, x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return METRICS["GradientNoiseScale"]().instance().compute(x, g, module=module)


@pytest.mark.parametrize("layer", LAYERS)
def test_it_is_that_of_the_losses_of_both_halves(layer: str) -> None:
    make, shape = LAYERS[layer]
    torch.manual_seed(8)
    module, x = make().double(), torch.randn(shape, dtype=torch.float64)
    g, expected = taken(module, x)
    assert float(compute(module, x, g)) == pytest.approx(float(expected), rel=1e-9)
    module.float()
    assert float(compute(module, x.float(), g.float())) == pytest.approx(float(expected), rel=1e-3)


def test_equal_examples_have_no_noise() -> None:
    torch.manual_seed(1)
    module, x = nn.Linear(4, 3).double(), torch.randn(1, 4, dtype=torch.float64).expand(8, 4)
    g = torch.ones(8, 3, dtype=torch.float64)
    assert abs(float(compute(module, x, g))) < 1e-12


def test_it_estimates_the_spread_of_the_gradients_of_examples() -> None:
    """Mean gradient m, variance s² in each of n coordinates: S / |G|² is n s² / |m|²."""
    generator = torch.Generator().manual_seed(2)
    module = nn.Linear(1, 400, bias=False)
    x = torch.ones(512, 1, dtype=torch.float64)
    g = (0.5 + torch.randn(512, 400, generator=generator, dtype=torch.float64)) / 512
    assert float(compute(module, x, g)) == pytest.approx(400 / (400 * 0.25), rel=0.1)


@pytest.mark.parametrize(
    ("module", "shape", "reason"),
    [
        (nn.Linear(3, 2), (1, 3), "batch of two"),
        (nn.Linear(3, 2), (3,), "batch of two"),
        (nn.Conv2d(3, 2, 1), (1, 3, 4, 4), "batch of two"),
        (nn.Conv2d(3, 2, 1), (3, 4, 4), "batch of two"),
        (nn.Conv1d(3, 2, 1), (3, 4), "batch of two"),
        (nn.BatchNorm2d(3), (4, 3, 4, 4), "BatchNorm2d is neither a linear layer"),
        (nn.ConvTranspose2d(3, 2, 1), (4, 3, 4, 4), "ConvTranspose2d is neither a linear layer"),
        (nn.Sequential(), (4, 3), "Sequential is neither a linear layer"),
    ],
    ids=str,
)
def test_what_has_none_says_why(module: nn.Module, shape: tuple[int, ...], reason: str) -> None:
    x = torch.ones(shape)
    with pytest.raises(NoValueError, match=reason):
        compute(module, x, x)


def test_a_complex_input_says_why() -> None:
    x = torch.ones(4, 3, dtype=torch.complex64)
    with pytest.raises(NoValueError, match="complex"):
        compute(nn.Linear(3, 3), x, x)


@pytest.mark.parametrize("layer", ["linear", "conv2d"])
def test_autocast_does_not_round_it(layer: str) -> None:
    make, shape = LAYERS[layer]
    torch.manual_seed(8)
    module, x = make(), torch.randn(shape)
    g = torch.randn(module(x).shape)
    outside = compute(module, x, g)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(compute(module, x, g), outside)


@pytest.mark.parametrize("layer", ["linear", "conv2d"])
def test_a_device_is_not_waited_for(layer: str) -> None:
    make, shape = LAYERS[layer]
    module, x = make().to("meta"), torch.empty(shape, device="meta")
    assert compute(module, x, module(x)).shape == ()
