"""Reshapes around products: those of the user's code are in `reshape_dependency`, those of torch itself are not."""

from __future__ import annotations

import torch
from torch import nn

import modulekg_widgets as mk


def test_what_torch_reshapes_inside_a_matmul_is_no_operator_that_somebody_wrote() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            b, t, _ = x.shape
            q, k, v = (layer(x).view(b, t, 4, 4).transpose(1, 2) for layer in (self.q, self.k, self.v))
            y = torch.matmul((q @ k.transpose(-1, -2)).softmax(-1), v)
            return self.o(y.transpose(1, 2).reshape(b, t, 16))

    found = mk.trace(Attention(), torch.zeros(2, 5, 16)).reshape_dependency()
    assert [layers for _, layers in found.operators] == [("q",), ("k",), ("v",), ("v",)]


def test_a_reshape_that_somebody_wrote_around_a_product_is_listed() -> None:
    class Written(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 12), nn.Linear(4, 12)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            left, right = self.a(x).reshape(2, 4, 3), self.b(x).reshape(2, 3, 4)
            return torch.bmm(left, right).reshape(2, 16)

    found = mk.trace(Written(), torch.zeros(2, 4)).reshape_dependency()
    assert [layers for _, layers in found.operators] == [("a",), ("b",)]
