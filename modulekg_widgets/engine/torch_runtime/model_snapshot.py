"""Change detection for a model: whether it was cut, masked, trained or changed since a moment.

Of a module that stands in the place of another one all plain attributes are compared; of one that is still there only
those that its class declares as constants, since others may count calls. Floats are left out: training schedules them,
and no size depends on one.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.torch_runtime.private import BUFFERS, MODULES, PARAMETERS, version_of

SIZES, WEIGHTS = "sizes", "weights"
_PLAIN = (bool, int, str, type(None))
_FORWARD = "forward"  # a function that was set on the module itself


class ModelSnapshot:
    """A record of a model's modules, sizes and version counters, to detect changes; holds the model weakly."""

    def __init__(self, model: nn.Module) -> None:
        self._model = weakref.ref(model)
        self._sizes, self._weights = _size_and_weight_keys(model)
        self._settings = [(weakref.ref(module), _settings(module)) for _, module in _slots(model)]

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
        if sizes != self._sizes or self._has_other_settings(model):
            return SIZES
        return "" if weights == self._weights else WEIGHTS

    def _has_other_settings(self, model: nn.Module) -> bool:
        for (known, before), (_, module) in zip(self._settings, _slots(model), strict=True):
            names = getattr(type(module), "__constants__", ()) if known() is module else None
            after = _settings(module, names)
            if after != (before if names is None else {name: before[name] for name in names if name in before}):
                return True
        return False


def _size_and_weight_keys(model: nn.Module) -> tuple[list[Any], list[Any]]:
    """Returns the keys that change with modules, sizes and ties, and those that change with weights."""
    sizes: list[Any] = []
    weights: list[Any] = []
    ties: dict[int, int] = {}  # tensors by identity: which of them stand in several places
    for name, module in _slots(model):
        sizes.append((name, type(module), id(vars(module).get(_FORWARD))))
        for tensors in (vars(module).get(PARAMETERS), vars(module).get(BUFFERS)):
            for key, tensor in (tensors or {}).items():
                if isinstance(tensor, torch.Tensor):
                    same = ties.setdefault(id(tensor), len(ties))
                    sizes.append((key, same, _or_none(lambda t=tensor: (tuple(t.shape), t.dtype))))
                    weights.append((_or_none(lambda t=tensor: version_of(t)), _or_none(lambda t=tensor: t.data_ptr())))
    return sizes, weights


def _settings(module: nn.Module, names: Iterable[str] | None = None) -> dict[str, Any]:
    """The public attributes, or those of these names, that are whole numbers, texts or tuples of them."""
    state = vars(module)
    items = list(state.items()) if names is None else [(name, state[name]) for name in names if name in state]
    return {
        name: value
        for name, value in items
        if isinstance(name, str) and name != "training" and not name.startswith("_") and _is_plain(value)
    }


def _is_plain(value: object) -> bool:
    return type(value) in _PLAIN or (type(value) is tuple and all(type(item) in _PLAIN for item in value))


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
