"""Writer of metric values: numbers to slots, and reasons for missing ones."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch

from modulekg_widgets.engine.monitoring.history import History
from modulekg_widgets.engine.monitoring.hooks.observation import Observation
from modulekg_widgets.engine.monitoring.readings import SCALAR, Form, Slot, vector
from modulekg_widgets.engine.monitoring.transfer_ring import Packable

log = logging.getLogger("modulekg_widgets")
Put: TypeAlias = "Callable[[int, Packable, float], None]"  # slot, value, how much data it stands for


class ValueWriter:
    """Writes values to slots, and reasons and warnings for missing ones."""

    def __init__(
        self, put: Put, number: Callable[[Slot, int], int], holds: Callable[[int], bool] = lambda slot: False
    ) -> None:
        self.put = put
        self.number = number
        self.holds = holds  # whether the step that is being collected has a value for a slot
        self.reasons: dict[tuple[str, str], str] = {}
        self._warned: set[str] = set()

    def note(self, module: str, metric: str, reason: str) -> None:
        """Record the reason for a NaN of `metric` of `module`; the latest one counts."""
        self.reasons[module, metric] = reason

    def warn(self, about: str, text: str) -> None:
        """Warn once per metric, or per common reason."""
        if about not in self._warned:
            self._warned.add(about)
            try:
                warnings.warn(text, RuntimeWarning, stacklevel=2)
            except RuntimeWarning:  # the user makes errors of warnings: not of this one, in the middle of a training
                log.warning(text)


def numbering(history: History, ranks: dict[int, int]) -> Callable[[Slot, int], int]:
    """Returns a function that numbers slots by the history and notes their rank in the configuration."""

    def number(slot: Slot, rank: int) -> int:
        found = history.slot_number(slot)
        ranks[found] = rank
        return found

    return number


def packable(value: object, observation: Observation) -> tuple[Form, Packable]:
    """Returns the form of a metric value and its numbers, copied if the training could change them.

    Raises `TypeError` for what is no value, see `flat_tensor`.
    """
    if type(value) is torch.Tensor and value.dim() == 0 and value.is_cpu and value.is_floating_point():
        return SCALAR, value.item()
    form, numbers = flat_tensor(value)
    return form, _detached_value(numbers, observation) if isinstance(numbers, torch.Tensor) else numbers


def _detached_value(value: torch.Tensor, observation: Observation) -> np.ndarray | torch.Tensor:
    """A value as numbers on the host, or as a tensor on its device that shares no memory with the training."""
    if value.is_cpu:
        wide = value if value.dtype in (torch.float32, torch.float64) else value.double()
        return wide.detach().reshape(-1).numpy().astype(np.float64)
    storage = value.untyped_storage()
    is_part = storage.nbytes() != value.numel() * value.element_size()
    is_shared = is_part or any(
        isinstance(seen, torch.Tensor) and seen.untyped_storage().data_ptr() == storage.data_ptr()
        for seen in observation.by_need.values()
    )
    return value.clone() if is_shared else value


def flat_tensor(value: Any) -> tuple[Form, torch.Tensor | float]:
    """Returns the form of a metric value and its numbers: a float, or one 1-dim tensor.

    Raises `TypeError` for what is no number, no real tensor of at most one dimension and no dict of these.
    """
    if isinstance(value, dict):
        parts: list[tuple[str, int | None]] = []
        numbers: list[torch.Tensor | float] = []
        for key, part in value.items():
            if isinstance(part, dict):
                raise TypeError("it returned a dict in a dict: a value is a number, a vector, or a dict of these")
            form, own = flat_tensor(part)
            parts.append((str(key), form.parts[0][1]))
            numbers.append(own)
        return Form(tuple(parts)), _joined(numbers)
    if isinstance(value, torch.Tensor):
        return _flat(value.detach())
    if isinstance(value, list | tuple) or (hasattr(value, "__array__") and getattr(value, "ndim", 0)):
        return _flat(torch.as_tensor(value))
    if isinstance(value, str | bytes):
        raise TypeError("it returned text: a value is a number, a vector, or a dict of these")
    return SCALAR, float(value)


def _flat(tensor: torch.Tensor) -> tuple[Form, torch.Tensor]:
    if tensor.dim() > 1 or tensor.is_complex() or tensor.layout is not torch.strided or tensor.device.type == "meta":
        shape, kind = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        raise TypeError(f"it returned a {kind} tensor of shape {shape}: a value is real, with at most one dimension")
    return (SCALAR, tensor) if tensor.dim() == 0 else (vector(tensor.numel()), tensor)


def _joined(numbers: list[torch.Tensor | float]) -> torch.Tensor:
    """Concatenates numbers and tensors on the device of the tensors."""
    tensors = [number for number in numbers if isinstance(number, torch.Tensor)]
    device = tensors[0].device if tensors else torch.device("cpu")
    wide = torch.float32 if device.type == "mps" else torch.float64
    parts = [
        number.reshape(-1) if isinstance(number, torch.Tensor) else torch.full((1,), number, dtype=wide, device=device)
        for number in numbers
    ]
    return torch.cat([part if part.is_floating_point() else part.to(wide) for part in parts])
