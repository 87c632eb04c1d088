"""What the tests of the transaction share: edits without a planner, small models in training, all of a state."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

import modulekg_widgets as mk
from models import seeded
from modulekg_widgets.engine.pruning.cut.edits import Edits, TensorEdit


def edits_of(*cuts: Any) -> Edits:
    """What stays where the cuts say what goes; a weight makes its first dimension, and reads the second."""
    axes = cuts[0].axes
    gone: dict[str, dict[int, set[int]]] = {}
    attributes: dict[str, Any] = {}
    for cut in cuts:
        for name, dims in cut.parameters.items():
            for at, positions in dims.items():
                gone.setdefault(name, {}).setdefault(at, set()).update(positions)
        attributes.update(cut.attributes)
    tensors = []
    for node in dict.fromkeys(axes.graph.state[name] for name in gone):
        dims = gone[node.names[0]]
        kept = {at: np.setdiff1d(np.arange(node.shape[at]), sorted(positions)) for at, positions in dims.items()}
        tensors.append(TensorEdit(node.names, node.shape, kept, frozenset({0} & set(kept))))
    return Edits(tuple(tensors), attributes)


class Small(nn.Module):
    """A convolution, a norm and a linear layer: parameters, buffers and attributes change, and some do not."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.conv(x)).relu().mean((2, 3)))


def small_edits(model: nn.Module, gone: Iterable[int] = (0, 3)) -> Edits:
    """The edits that take channels from the convolution."""
    return edits_of(mk.trace(model, torch.ones(2, 2, 4, 4)).cut_analysis("conv.weight", index=list(gone)))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int = 0) -> float:
    """One step of training on data made from a seed, with the gradients left in place."""
    x = torch.randn(8, 2, 4, 4, generator=torch.Generator().manual_seed(seed))

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = model(x).square().mean()
        value.backward()
        return value

    return optimizer.step(loss).item()  # type: ignore[union-attr, arg-type]


def trained(optimizer: Any = torch.optim.Adam, **options: Any) -> tuple[Small, torch.optim.Optimizer]:
    """A small model after two steps, in training mode."""
    model = seeded(Small)
    made = optimizer(model.parameters(), **{"lr": 0.01, **options})
    for seed in range(2):
        step(model, made, seed)
    return model, made


# --------------------------------------------------------------- comparing


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> dict[str, Any]:
    """All that a cut may touch, by value and by identity; equal where two states are the same in every byte."""
    out: dict[str, Any] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        for name, value in vars(module).items():
            if name not in ("_parameters", "_buffers", "_modules", "training"):
                out[f"{path}:{name}"] = _seen(value)
    for name, tensor in _tensors(model):
        out[name] = _seen(tensor)
        out[f"{name}.grad"] = _seen(tensor.grad) if tensor.is_leaf else None
    if optimizer is not None:
        out["groups"] = [_seen({k: v for k, v in group.items() if k != "params"}) for group in optimizer.param_groups]
        out["members"] = [[id(parameter) for parameter in group["params"]] for group in optimizer.param_groups]
        out["optimizer"] = [(id(parameter), _seen(entries)) for parameter, entries in optimizer.state.items()]
    return out


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _seen(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        memory = b"" if value.is_meta else bytes_of(value)
        return id(value), value.data_ptr(), value.shape, value.stride(), value.dtype, value.requires_grad, memory
    if isinstance(value, dict):
        return [(key, _seen(part)) for key, part in value.items()]
    if isinstance(value, list | tuple):
        return [_seen(part) for part in value]
    return id(value()) if isinstance(value, weakref.ref) else value


def bytes_of(tensor: torch.Tensor) -> bytes:
    """The elements of a tensor in the order of its dimensions."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def values_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """A copy of every parameter and buffer."""
    return {name: tensor.detach().clone() for name, tensor in _tensors(model)}


def edits_by_hand(model: nn.Module, kept: dict[str, dict[int, list[int]]], attributes: Any = None) -> Edits:
    """Edits that say what stays of each tensor by one of its names."""
    every = dict(_tensors(model))
    tensors = []
    for name, dims in kept.items():
        names = tuple(other for other, tensor in every.items() if tensor is every[name])
        positions = {at: np.asarray(indices) for at, indices in dims.items()}
        tensors.append(TensorEdit(names, tuple(every[name].shape), positions, frozenset({0} & set(dims))))
    return Edits(tuple(tensors), attributes or {})
