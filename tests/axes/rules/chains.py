"""Random functions, made of operators that take dimensions apart, put them together and tie them to new tensors."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from axes.rules.harness import Example, function

Shape = tuple[int, ...]
Drawn = tuple[Callable[..., Any], list[Shape]]  # a function, and the shapes of what it takes beside the tensor
Step = tuple[bool, Callable[..., Any], list[Shape]]  # the same, and whether the tensor fits
MOST_ELEMENTS = 4000


def _factors(rng: random.Random, size: int) -> list[int]:
    """The size as a product, in some way."""
    out = []
    while size > 1:
        out.append(rng.choice([d for d in range(2, size + 1) if size % d == 0]))
        size //= out[-1]
    return out or [1]


def _written(inside: Tensor, values: Tensor, dim: int) -> Tensor:
    """A copy with values added to its first indices in place."""
    out = inside.clone()
    out.narrow(dim, 0, values.shape[dim]).add_(values)
    return out


def _selected(inside: Tensor, values: Tensor, dim: int, index: int) -> Tensor:
    """A copy with one index written over in place."""
    out = inside.clone()
    out.select(dim, index).copy_(values)
    return out


def _rotated(inside: Tensor) -> Tensor:
    first, second = inside.chunk(2, -1)
    return torch.cat([-second, first], -1) + inside


def one_step(rng: random.Random, shape: Shape) -> Drawn | None:
    """One of the operators that a tensor goes through; None where the one that was drawn does not fit its shape."""
    if not shape:
        return None
    dim = rng.randrange(len(shape))
    fits, step, beside = rng.choice([*_alone(rng, shape, dim), *_with_others(rng, shape, dim)])
    return (step, beside) if fits else None


def _alone(rng: random.Random, shape: Shape, dim: int) -> list[Step]:
    """Operators on one tensor."""
    n, size, even = len(shape), shape[dim], shape[-1] % 2 == 0
    start = rng.randrange(size)
    piece = (slice(None),) * dim + (slice(start, rng.randrange(start + 1, size + 1), rng.choice([1, 1, 2])),)
    order = rng.sample(range(n), n)
    parts, whole = _factors(rng, size), _factors(rng, math.prod(shape))
    times = [rng.choice([1, 2]) for _ in shape]
    count = rng.choice([2, 3])
    places = torch.tensor(rng.choices(range(size), k=3))
    steps: list[tuple[bool, Callable[[Tensor], Any]]] = [
        (True, lambda a: a.permute(order)),
        (dim < n - 1, lambda a: a.flatten(dim, dim + 1)),
        (n < 5, lambda a: a.unflatten(dim, parts)),
        (True, lambda a: a.reshape(whole)),
        (True, lambda a: torch.cat([a, a], dim)),
        (True, lambda a: a[piece]),
        (True, lambda a: a.select(dim, start)),
        (n < 5, lambda a: a.unsqueeze(0).expand(count, *shape)),
        (n < 5, lambda a: a.unsqueeze(-1).expand(*shape, 2) * 1),
        (True, lambda a: a.repeat(times)),
        (True, lambda a: a.repeat_interleave(2, dim)),
        (True, lambda a: a.sum(dim)),
        (True, lambda a: a.max(dim).values),
        (True, lambda a: a.chunk(2, dim)),
        (True, lambda a: torch.stack([a, 2 * a])),
        (True, lambda a: F.pad(a, (1, 2))),
        (True, lambda a: a.softmax(dim)),
        (True, lambda a: a.flip(dim)),
        (True, lambda a: a.cumsum(dim)),
        (True, lambda a: a.index_select(dim, places)),
        (True, lambda a: a.squeeze()),
        (even, lambda a: F.glu(a, -1)),
        (even, _rotated),
        (n > 1 and shape[-1] == shape[-2:][0], lambda a: a.diagonal(0, -1, -2)),
        (n == 1, lambda a: a[:, None] * a[None]),
        (n == 3, lambda a: F.scaled_dot_product_attention(a, 2 * a, a + 1)),
        (n == 4 and shape[1] % 4 == 0, lambda a: F.pixel_shuffle(a, 2)),
    ]
    return [(fits, step, []) for fits, step in steps]


def _with_others(rng: random.Random, shape: Shape, dim: int) -> list[Step]:
    """Operators on a tensor and new ones."""
    n, size = len(shape), shape[dim]
    index = rng.randrange(size)
    some = (*shape[:dim], rng.randrange(1, size + 1), *shape[dim + 1 :])
    broadcast = tuple(rng.choice([1, size]) for size in shape)[rng.randrange(n) :]
    channels = shape[1] if n == 3 else 0
    halves = channels > 0 and channels % 2 == 0
    return [
        (True, lambda a, b: torch.cat([a, b], dim), [some]),
        (True, lambda a, b: torch.cat([a, b], -1) + torch.cat([b, a], -1), [shape]),
        (True, lambda a, b: a * b, [shape]),
        (True, lambda a, b: a + b, [broadcast]),
        (True, F.linear, [(rng.choice([2, 3, 4]), shape[-1])]),
        (True, lambda a, b: torch.where(b > 0, a, 0.0), [shape]),
        (True, lambda a, b: _written(a, b, dim), [some]),
        (True, lambda a, b: _selected(a, b, dim, index), [(*shape[:dim], *shape[dim + 1 :])]),
        (True, lambda a, b: a.masked_scatter((a[..., :1] > 0).expand(shape), b), [shape]),
        (True, lambda a, b: a.index_add(dim, torch.arange(some[dim]), b), [some]),
        (n == 2, lambda a, b: torch.einsum("ij,ik->ijk", a, b), [shape]),
        (n == 3, torch.bmm, [(shape[0], shape[-1], 3)]),
        (halves, lambda a, b: F.conv1d(a, b, groups=2), [(4, channels // 2, 1)]),
        (halves, lambda a, b: F.conv_transpose1d(a, b, groups=2), [(channels, 2, 1)]),
        (halves, lambda a, b: F.group_norm(a, 2, b), [(channels,)]),
    ]


@dataclass(frozen=True, slots=True)
class _Link:
    step: Callable[..., Any]
    source: int
    beside: tuple[int, ...]


def chain(seed: int) -> Example:
    """A function of a tensor and those that its steps take beside; it gives its last one or two values."""
    rng = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    inputs = [_new(tuple(rng.choice([2, 3, 4, 6]) for _ in range(rng.choice([2, 3]))), generator)]
    values, links = [inputs[0]], []
    for _ in range(rng.randrange(2, 8)):
        source = rng.randrange(max(0, len(values) - 3), len(values))
        drawn = one_step(rng, tuple(values[source].shape))
        if drawn is None or values[source].numel() > MOST_ELEMENTS:
            continue
        step, shapes = drawn
        beside = [_new(shape, generator) for shape in shapes]
        links.append(_Link(step, source, tuple(range(len(inputs), len(inputs) + len(beside)))))
        inputs += beside
        values += _several(step(values[source], *beside))
    count = rng.choice([1, 2])

    def run(*given: Tensor) -> list[Tensor]:
        values = [given[0]]
        for link in links:
            values += _several(link.step(values[link.source], *(given[at] for at in link.beside)))
        return values[-count:]

    return function(f"chain {seed}", "", run, *inputs)


def _new(shape: Shape, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _several(value: Any) -> list[Tensor]:
    return list(value) if isinstance(value, tuple | list) else [value]
