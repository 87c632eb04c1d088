"""What stands for a model without being one, such as a model file: it gives a skeleton, and people see that instead."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import nn

# what a tensor of a skeleton takes where it lies, where that is not what torch would count; stands in its `__dict__`
BYTES_WHERE_IT_LIES = "modulekg_bytes"


class StandIn(ABC):
    """Has modules by name, without values or code: its `skeleton` is looked at wherever a model is."""

    @abstractmethod
    def skeleton(self) -> nn.Module:
        """Modules of the same paths and class names, whose tensors have shapes and no values."""
