"""Tensors as they come from real modules in training: what a metric is given, captured with plain hooks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from modulekg_widgets.engine.adapters import channel_dim
from modulekg_widgets.engine.monitoring.measures.moments import Moments
from modulekg_widgets.engine.monitoring.metric import MetricKind

STEPS = 9
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass
class Sample:
    """One call of one module in one step; `axis` is where a person sees the channels."""

    module: nn.Module
    axis: int
    x: torch.Tensor
    y: torch.Tensor
    g: torch.Tensor  # at the output
    gx: torch.Tensor  # at the input, through this module
    w: torch.Tensor | None
    wg: torch.Tensor | None
    loss: float


def array(tensor: torch.Tensor) -> np.ndarray:
    """The same values in float64."""
    return tensor.detach().double().numpy().copy()


def rows(tensor: torch.Tensor, axis: int) -> np.ndarray:
    """The values as rows of channels, in float64."""
    values = array(tensor)
    return np.moveaxis(values, axis, -1).reshape(-1, values.shape[axis])


def weight(module: nn.Module) -> nn.Parameter | None:
    return module.in_proj_weight if isinstance(module, nn.MultiheadAttention) else getattr(module, "weight", None)


class Reused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.watched = nn.Linear(10, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.watched(torch.relu(self.watched(x)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(12, 12)
        self.watched = nn.MultiheadAttention(12, 3, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        return self.watched(x, x, x, need_weights=False)[0]


def convolution(grouped: bool = False) -> tuple[nn.Module, nn.Module]:
    watched = nn.Conv2d(8, 12, 3, stride=1 + grouped, padding=1, groups=1 + grouped)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), watched, nn.ReLU()), watched


def batch_norm() -> tuple[nn.Module, nn.Module]:
    watched = nn.BatchNorm2d(8)
    return nn.Sequential(nn.Conv2d(3, 8, 3), watched, nn.ReLU()), watched


def relu() -> tuple[nn.Module, nn.Module]:
    watched = nn.ReLU()
    model = nn.Sequential(nn.Conv2d(3, 8, 3), watched, nn.Conv2d(8, 2, 1))
    with torch.no_grad():
        model[0].bias[2:4] = -9.0  # two channels are dead
    return model, watched


def linear() -> tuple[nn.Module, nn.Module]:
    watched = nn.Linear(10, 14)
    return nn.Sequential(nn.Linear(12, 10), nn.Tanh(), watched), watched


def frozen() -> tuple[nn.Module, nn.Module]:
    model, watched = linear()
    watched.requires_grad_(False)
    return model, watched


def wide_linear() -> tuple[nn.Module, nn.Module]:
    """More channels than rows."""
    watched = nn.Linear(40, 50)
    return nn.Sequential(nn.Linear(12, 40), nn.Tanh(), watched), watched


def with_watched(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    return model, model.watched


IMAGES, TOKENS, FEW = (6, 3, 7, 7), (7, 5, 12), (9, 12)  # an odd batch too
SOURCES: dict[str, tuple[Callable[[], tuple[nn.Module, nn.Module]], tuple[int, ...], int]] = {
    "convolution": (convolution, IMAGES, 1),
    "grouped": (lambda: convolution(grouped=True), IMAGES, 1),
    "batch_norm": (batch_norm, IMAGES, 1),
    "relu": (relu, IMAGES, 1),
    "linear": (linear, TOKENS, 2),
    "few_rows": (wide_linear, FEW, 1),
    "reused": (lambda: with_watched(Reused()), (7, 5, 10), 2),
    "frozen": (frozen, TOKENS, 2),
    "attention": (lambda: with_watched(Attention()), TOKENS, 2),
}


def samples(source: str, dtype: torch.dtype) -> list[list[Sample]]:
    """The samples of `STEPS` steps of training, for each call of the watched module."""
    make, shape, axis = SOURCES[source]
    torch.manual_seed(len(source))
    model, watched = make()
    model.to(dtype)
    steps = [_step(model, watched, (torch.randn(shape) + 0.3).to(dtype), axis) for _ in range(STEPS)]
    return [list(call) for call in zip(*steps, strict=True)]


def _step(model: nn.Module, watched: nn.Module, data: torch.Tensor, axis: int) -> list[Sample]:
    calls: list[tuple[torch.Tensor, torch.Tensor]] = []

    def hook(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        calls.append((args[0], output[0] if isinstance(output, tuple) else output))

    handle = watched.register_forward_hook(hook)
    y = model(data.requires_grad_())
    handle.remove()
    model.zero_grad()
    loss = (y.float() - 0.5).square().mean() * 4
    held = [tensor for call in calls for tensor in call]
    at_outputs = torch.autograd.grad(loss, [y for _, y in calls], retain_graph=True)
    at_inputs = [
        torch.autograd.grad(y, x, g, retain_graph=True)[0] for (x, y), g in zip(calls, at_outputs, strict=True)
    ]
    loss.backward()
    assert all(tensor.dtype is data.dtype for tensor in held)
    found = [
        _sample(watched, axis, x, y, g, gx, loss.item())
        for (x, y), g, gx in zip(calls, at_outputs, at_inputs, strict=True)
    ]
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= 0.1 * parameter.grad
    return found


def _sample(
    watched: nn.Module, axis: int, x: torch.Tensor, y: torch.Tensor, g: torch.Tensor, gx: torch.Tensor, loss: float
) -> Sample:
    own = weight(watched)
    w = None if own is None else own.detach().clone()
    wg = None if own is None or own.grad is None else own.grad.clone()
    return Sample(copy.deepcopy(watched), axis, x.detach().clone(), y.detach().clone(), g, gx, w, wg, loss)


def needed(kind: MetricKind, sample: Sample) -> list[Any]:
    """What a metric is given of a sample."""
    made = {
        "ForwardInput": lambda: sample.x,
        "ForwardOutput": lambda: sample.y,
        "BackwardOutput": lambda: sample.g,
        "BackwardInput": lambda: sample.gx,
        "ForwardInputMoments": lambda: moments(sample, sample.x),
        "ForwardOutputMoments": lambda: moments(sample, sample.y),
        "BackwardOutputMoments": lambda: moments(sample, sample.g),
        "ForwardInputEigOfCov": lambda: moments(sample, sample.x).eigenvalues,
        "Weight": lambda: sample.w,
        "WeightGrad": lambda: sample.wg,
        "Loss": lambda: sample.loss,
    }
    return [made[need]() for need in kind.needs]


def moments(sample: Sample, tensor: torch.Tensor) -> Moments:
    return Moments(tensor, channel_dim(sample.module, tensor.dim()))


def value(kind: MetricKind, steps: list[Sample], **settings: Any) -> Any:
    """The metric's value at the last of `steps`, each of which it has seen."""
    instance = kind(**settings).instance()
    found = None
    for number, sample in enumerate(steps):
        given = {"module": sample.module} if kind.wants_module else {}
        inputs = needed(kind, sample)
        if kind.multi_step:
            instance.update(*inputs, **given)
        elif kind.before and number == len(steps) - 2:
            instance.observe(*inputs)
        elif kind.keeps or number == len(steps) - 1:
            found = instance.compute(*inputs, **given)
    return instance.compute() if kind.multi_step else found


def as_array(found: Any) -> Any:
    """A value as numpy knows it."""
    if isinstance(found, dict):
        return {key: as_array(part) for key, part in found.items()}
    return array(found) if isinstance(found, torch.Tensor) else np.asarray(found, np.float64)


def has_weight(source: str) -> bool:
    return source != "relu"


def is_trained(source: str) -> bool:
    return source not in ("relu", "frozen")


def every() -> Iterator[tuple[str, torch.dtype]]:
    for source in SOURCES:
        for dtype in DTYPES:
            yield source, dtype
