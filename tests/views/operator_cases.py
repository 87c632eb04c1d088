"""Operators that torch users know by one name, and others that only look like them, each as the forward of a module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from widgets.golden_models import traced

FILE = Path(__file__).parent / "golden_operators.json"
PARTS = ("on", "calls", "values", "tensors", "names", "shapes", "dtypes", "inputs", "outputs")
SIZE = 8
Forward = Callable[..., object]


class Case(nn.Module):
    """Runs one of the functions below, with a few parameters at hand."""

    def __init__(self, run: Forward) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(SIZE))
        self.table = nn.Parameter(torch.ones(SIZE, SIZE))
        self.shift = nn.Parameter(torch.zeros(SIZE))
        self.register_buffer("cos", torch.ones(5, SIZE))
        self.register_buffer("sin", torch.ones(5, SIZE))
        self.run = run

    def forward(self, x: Tensor, y: Tensor) -> object:
        return self.run(self, x, y)


def rotated(x: Tensor) -> Tensor:
    return torch.cat([-x[..., SIZE // 2 :], x[..., : SIZE // 2]], -1)


def by_mean(x: Tensor, dims: int | tuple[int, ...], eps: float = 1e-5) -> Tensor:
    centred = x - x.mean(dims, keepdim=True)
    return centred / (centred.pow(2).mean(dims, keepdim=True) + eps).sqrt()


def by_variance(x: Tensor, dims: int | tuple[int, ...]) -> Tensor:
    return (x - x.mean(dims, keepdim=True)) * torch.rsqrt(x.var(dims, unbiased=False, keepdim=True) + 1e-5)


def grouped(x: Tensor) -> Tensor:
    return by_variance(x.reshape(x.shape[0], 2, -1), -1).reshape(x.shape)


def rms(x: Tensor, dim: int = -1) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(dim, keepdim=True) + 1e-6)


def annotated(m: Case, x: Tensor) -> Tensor:
    return m.weight * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + m.shift


def random_mask(x: Tensor, sizes: tuple[int, ...]) -> Tensor:
    return torch.empty(sizes, device=x.device).bernoulli_(0.9).div_(0.9) * x


def turned(x: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    angles = torch.polar(torch.ones(5, SIZE // 2, device=x.device), torch.ones(5, SIZE // 2, device=x.device))
    return torch.view_as_real(pairs * angles).flatten(-2)


def mixed(experts: list[Tensor], weights: Tensor) -> Tensor:
    total = torch.zeros_like(experts[0])
    for number, expert in enumerate(experts):
        total = total + expert * weights[..., number : number + 1]
    return total


# x and y: 3 × 5 × 8
NAMED: dict[str, dict[str, Forward]] = {
    "cross_entropy": {"of torch": lambda m, x, y: functional.cross_entropy(x[0], y[0].argmax(-1))},
    "rotary embedding": {
        "by halves": lambda m, x, y: x * m.cos + rotated(x) * m.sin,
        "by complex numbers": lambda m, x, y: turned(x),
    },
    "attention": {
        "of torch": lambda m, x, y: functional.scaled_dot_product_attention(x, y, y),
        "by hand": lambda m, x, y: ((x @ y.transpose(1, 2)) / SIZE**0.5).softmax(-1) @ y,
        "with a mask": lambda m, x, y: (
            (x @ y.mT).masked_fill(torch.ones(5, 5, device=x.device).triu(1).bool(), -1e9).softmax(-1) @ y
        ),
    },
    "layer norm": {
        "by squares": lambda m, x, y: by_mean(x, -1),
        "by the variance": lambda m, x, y: by_variance(x, -1) * m.weight + m.shift,
        "by the deviation": lambda m, x, y: annotated(m, x),
    },
    "RMS norm": {
        "with a weight": lambda m, x, y: m.weight * rms(x),
        "by x · x": lambda m, x, y: x / (x * x).mean(-1, keepdim=True).add(1e-6).sqrt(),
        "in single precision": lambda m, x, y: m.weight * rms(x.half().float()).half(),
    },
    "mse_loss": {
        "by pow": lambda m, x, y: (x - y).pow(2).mean(),
        "by d · d": lambda m, x, y: ((d := x - y) * d).sum(),
        "by square": lambda m, x, y: (x - y).square().mean(),
    },
    "l1_loss": {"by hand": lambda m, x, y: (x - y).abs().mean()},
    "weighted sum": {
        "of two": lambda m, x, y: x * (w := y[..., :1].sigmoid()) + y * (1 - w),
        "of experts": lambda m, x, y: mixed([x, y, x - y], y.softmax(-1)),
        "over a dimension": lambda m, x, y: (torch.stack([x, y], -1) * y[..., :2].softmax(-1)[:, :, None]).sum(-1),
        "of tokens": lambda m, x, y: (x * y.mean(-1, keepdim=True).softmax(1)).sum(1),
    },
    "softmax": {"by hand": lambda m, x, y: (e := x.exp()) / e.sum(-1, keepdim=True)},
    "normalize": {"of torch": lambda m, x, y: functional.normalize(x, dim=-1)},
    "gelu": {
        "by tanh": lambda m, x, y: 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.044715 * x.pow(3)))),
        "by erf": lambda m, x, y: 0.5 * x * (1 + torch.erf(x / 2**0.5)),
    },
    "silu": {"by hand": lambda m, x, y: x * x.sigmoid()},
    "dropout": {"by hand": lambda m, x, y: random_mask(x, (3, 5, SIZE))},
    "mask": {
        "of what comes later": lambda m, x, y: torch.where(torch.ones(5, SIZE, device=x.device).tril() > 0, x, y),
        "of numbers": lambda m, x, y: x.masked_fill(y > 0, 0.0),
    },
}
# names that they must not have
MISNAMED: dict[str, dict[str, Forward]] = {
    "cross_entropy": {
        "a focal loss": lambda m, x, y: functional.nll_loss(
            (1 - (p := x[0].log_softmax(-1)).exp()) ** 2 * p, y[0].argmax(-1)
        ),
    },
    "rotary embedding": {
        "both signs of all": lambda m, x, y: torch.cat([-x, x], -1) * 2 + torch.cat([y, y], -1),
        "halves of two values": lambda m, x, y: x * m.cos + torch.cat([-y[..., 4:], x[..., :4]], -1) * m.sin,
        "a product of complex values": lambda m, x, y: torch.view_as_real(
            torch.view_as_complex(x.reshape(3, 5, 4, 2)) * torch.view_as_complex(y.reshape(3, 5, 4, 2))
        ),
    },
    "attention": {
        "a router": lambda m, x, y: torch.mm(x[0], m.table).softmax(-1) @ y[0].mT.mean(1, keepdim=True),
        "experts that a table mixes": lambda m, x, y: torch.bmm((x @ m.table).softmax(-1), y.mT.contiguous()),
        "a table of values": lambda m, x, y: torch.mm((x[0] @ y[0].mT).softmax(-1), m.table[:5]),
        "a scaled table": lambda m, x, y: torch.mm(x[0], m.table * 2).softmax(-1) @ y[0].mT,
        "classes along the edges of a graph": lambda m, x, y: (e := y[0] @ y[0].mT) @ (e @ x[0]).softmax(-1),
        "what a softmax passes back": lambda m, x, y: ((x @ y.mT).softmax(-1) - 1).mT @ y,
        "nodes joined to clusters": lambda m, x, y: (x @ y[:, :3].mT).softmax(-1).mT @ y,
        "how often weights agree": lambda m, x, y: (p := (x @ y.mT).softmax(-1)) @ p.mT,
    },
    "layer norm": {
        "batch norm": lambda m, x, y: by_mean(x, (0, 1)),
        "instance norm": lambda m, x, y: by_variance(x, 1),
        "group norm": lambda m, x, y: grouped(x),
        "a Euclidean distance": lambda m, x, y: x / (x - y).pow(2).sum(-1, keepdim=True).sqrt(),
        "the deviation of another": lambda m, x, y: (
            (x - x.mean(-1, keepdim=True)) * torch.rsqrt(y.var(-1, keepdim=True) + 1e-5)
        ),
        "a standardized weight": lambda m, x, y: x @ by_variance(m.table, -1),
        "cubes": lambda m, x, y: (d := x - x.mean(-1, keepdim=True)) / d.pow(3).mean(-1, keepdim=True).sqrt(),
        "times the deviation": lambda m, x, y: (
            (x - x.mean(-1, keepdim=True)) * x.var(-1, unbiased=False, keepdim=True).sqrt()
        ),
        "no mean": lambda m, x, y: (x - y) * torch.rsqrt(x.var(-1, keepdim=True) + 1e-5),
    },
    "RMS norm": {
        "times the size": lambda m, x, y: x * x.pow(2).mean(-1, keepdim=True).sqrt(),
        "a weight alone": lambda m, x, y: m.weight * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
        "a product with another": lambda m, x, y: x * torch.rsqrt((x * y).mean(-1, keepdim=True) + 1e-6),
        "twice its mean": lambda m, x, y: x * torch.rsqrt((x * 2).mean(-1, keepdim=True) + 1e-6),
        "of other dimensions": lambda m, x, y: rms(x, 1),
        "of another": lambda m, x, y: y * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    },
    "weighted sum": {
        "a scale and a shift": lambda m, x, y: x * (1 + y.mean(1, keepdim=True)) + y.amax(1, keepdim=True),
        "a residual with a gate": lambda m, x, y: x + y * x[..., :1].sigmoid(),
        "a gate for each channel": lambda m, x, y: x * (w := y.mean(1, keepdim=True)) + y * (1 - w),
        "products of two values": lambda m, x, y: x * y + y * (1 - x),
        "a dot product": lambda m, x, y: (x * y).sum(-1),
        "a table of weights": lambda m, x, y: (x * m.weight).sum(-1),
        "a dot product with one vector": lambda m, x, y: (x * y[:, :1]).sum(-1),
        "a polynomial": lambda m, x, y: x * y[..., :1] + y * x[..., :1],
        "a sum of what was weighed alike": lambda m, x, y: (x * y[..., :1]).sum(-1),
    },
    "mse_loss": {
        "a scaled difference": lambda m, x, y: ((x - y) * 0.5).sum(),
        "a product with another": lambda m, x, y: ((x - y) * x).mean(),
        "a variance": lambda m, x, y: (x - x.mean()).pow(2).mean(),
        "a variance at full size": lambda m, x, y: (x - x.mean().expand_as(x)).pow(2).mean(),
        "steps around a ring": lambda m, x, y: (x - x.roll(1, 1)).pow(2).mean(),
        "steps between neighbours": lambda m, x, y: (x[:, 1:] - x[:, :-1]).pow(2).mean(),
        "distance to a weight": lambda m, x, y: (x - m.weight).pow(2).sum(),
        "cubes": lambda m, x, y: (x - y).pow(3).mean(),
        "many numbers": lambda m, x, y: (x - y).pow(2).mean(-1),
        "weighted": lambda m, x, y: ((x - y).pow(2) * x).mean(),
    },
    "l1_loss": {
        "total variation": lambda m, x, y: (x[:, 1:] - x[:, :-1]).abs().mean(),
        "a mean deviation": lambda m, x, y: (x - x.mean().expand_as(x)).abs().mean(),
    },
    "softmax": {"a share of another": lambda m, x, y: y / x.exp().sum(-1, keepdim=True)},
    "normalize": {
        "by the length of another": lambda m, x, y: x / y.norm(dim=-1, keepdim=True),
        "by one length": lambda m, x, y: x / x.norm(),
    },
    "gelu": {
        "of another": lambda m, x, y: y * (1 + torch.erf(x / 2**0.5)),
        "no cubes": lambda m, x, y: 0.5 * x * (1 + torch.tanh(x + x.pow(2))),
    },
    "silu": {
        "a gate": lambda m, x, y: y * x.sigmoid(),
        "one more": lambda m, x, y: x * (x.sigmoid() + 1),
    },
    "dropout": {
        "drop path": lambda m, x, y: random_mask(x, (3, 1, 1)),
        "a random choice": lambda m, x, y: torch.bernoulli(x).div(0.5) * y,
    },
    "mask": {"a leaky rectifier": lambda m, x, y: torch.where(x > 0, x, 0.1 * x)},
}


def flow(run: Forward) -> dict[str, Any]:
    """The data flow of a forward, without lines of code."""
    torch.manual_seed(0)
    payload = traced(Case(run).eval(), torch.rand(3, 5, SIZE), {"y": torch.rand(3, 5, SIZE)})
    assert payload["error"] is None, payload["error"]
    steps = payload["flow"]["steps"]
    without = {**steps, "source": [-1 for _ in steps["source"]]}
    return {"steps": without, "sources": [], **{part: payload["flow"][part] for part in PARTS}}


def flows() -> dict[str, dict[str, dict[str, Any]]]:
    """The flows by "named" or "misnamed", then by the name and what is special."""
    return {
        kind: {f"{name}: {how}": flow(run) for name, cases in table.items() for how, run in cases.items()}
        for kind, table in (("named", NAMED), ("misnamed", MISNAMED))
    }
