"""Change detection for a model: whether it was cut, masked, trained or changed since a moment."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.torch_runtime.private import BUFFERS, MODULES, PARAMETERS, version_of

SIZES, WEIGHTS = "sizes", "weights"


class ModelSnapshot:
    """A record of a model's modules, sizes and version counters, to detect changes; holds the model weakly."""

    def __init__(self, model: nn.Module) -> None:
        self._model = weakref.ref(model)
        self._sizes, self._weights = _size_and_weight_keys(model)

    @property
    def model(self) -> nn.Module | None:
        """The model, or None if it was deleted."""
        return self._model()

    def change(self) -> str:
        """SIZES or WEIGHTS, which differ from what they were; "" where none do, or the model is there no longer."""
        model = self.model
        if model is None:
            return ""
        sizes, weights = _size_and_weight_keys(model)
        if sizes != self._sizes:
            return SIZES
        return "" if weights == self._weights else WEIGHTS


def _size_and_weight_keys(model: nn.Module) -> tuple[list[Any], list[Any]]:
    """Returns the keys that change with modules and sizes, and those that change with weights."""
    sizes: list[Any] = []
    weights: list[Any] = []
    for name, module in _slots(model):
        sizes.append((name, type(module)))
        for tensors in (vars(module).get(PARAMETERS), vars(module).get(BUFFERS)):
            for key, tensor in (tensors or {}).items():
                if isinstance(tensor, torch.Tensor):
                    sizes.append((key, _or_none(lambda t=tensor: (tuple(t.shape), t.dtype))))
                    weights.append((_or_none(lambda t=tensor: version_of(t)), _or_none(lambda t=tensor: t.data_ptr())))
    return sizes, weights


def _slots(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every module once, by the name of its first slot."""
    seen: set[int] = set()
    waiting: list[tuple[str, nn.Module]] = [("", model)]
    while waiting:
        name, module = waiting.pop()
        if id(module) not in seen:
            seen.add(id(module))
            yield name, module
            inside: Mapping[str, Any] = vars(module).get(MODULES) or {}
            waiting.extend((slot, inner) for slot, inner in inside.items() if isinstance(inner, nn.Module))


def _or_none(ask: Any) -> Any:
    """The answer; None of tensors that have none, as an inference tensor counts no writing."""
    try:
        return ask()
    except Exception:  # noqa: BLE001 - tensors of any class are asked
        return None


def snapshot_of(model: Any) -> ModelSnapshot | None:
    """The state of a module; None of anything else."""
    return ModelSnapshot(model) if isinstance(model, nn.Module) else None
