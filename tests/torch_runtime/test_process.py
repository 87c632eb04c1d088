"""Settings of the process that a forward pass changes are what they were after a look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import modulekg_widgets as mk
from tracing.samples import Calls

SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], object], Any]] = {
    "gradients": (torch.is_grad_enabled, torch.set_grad_enabled, False),
    "matmul": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "high"),
    "deterministic": (
        torch.are_deterministic_algorithms_enabled,
        lambda on: torch.use_deterministic_algorithms(on, warn_only=True),
        True,
    ),
    "flash attention": (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp, False),
    "cudnn": (
        lambda: torch.backends.cudnn.benchmark,
        lambda on: setattr(torch.backends.cudnn, "benchmark", on),
        True,
    ),
    "autocast": (
        lambda: torch.is_autocast_enabled("cpu"),
        lambda on: torch.set_autocast_enabled("cpu", on),
        True,
    ),
    "printing": (lambda: torch._tensor_str.PRINT_OPTS.precision, lambda n: torch.set_printoptions(precision=n), 2),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_stay(name: str) -> None:
    read, write, other = SETTINGS[name]
    before = read()

    def forward(module: Any, x: torch.Tensor) -> torch.Tensor:
        write(other)
        return module.linear(x)

    try:
        mk.trace(Calls(forward, linear=nn.Linear(2, 2)), torch.randn(1, 2))
        assert read() == before != other
    finally:
        write(before)


def test_a_look_where_tensors_have_no_data() -> None:
    model, x = nn.Linear(4, 2), torch.randn(3, 4)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert mk.trace(model, x).operators
