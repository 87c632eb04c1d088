"""Models by functions that another process can import."""

import torch
from torch import nn


def make_small() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU())


def broken() -> nn.Module:
    raise RuntimeError("out of order")


def needs_numbers() -> nn.Module:
    """A model whose size depends on a number that it draws."""
    return nn.Linear(int(torch.ones(3).sum().item()), 1)
