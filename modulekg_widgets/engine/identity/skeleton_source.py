"""Base class of objects that are shown in place of a model, such as model files, by modules without code or values."""

from __future__ import annotations

from torch import nn

# what a tensor of a skeleton takes where it lies, where that is not what torch would count; stands in its `__dict__`
STORED_BYTES = "modulekg_bytes"


class Untold(nn.Module):
    """A module of unknown class; siblings with equal tensors are told apart by name."""


class SkeletonSource:
    """An object that has a skeleton: the modules of a model by name, without values or code."""

    def skeleton(self) -> nn.Module:
        """Modules of the same paths and class names, whose tensors have shapes and no values."""
        raise NotImplementedError  # no abstract class: its checks would ask a model what it is


ModelLike = nn.Module | SkeletonSource


def as_module(model: ModelLike) -> nn.Module:
    """Returns the model, or the skeleton of a `SkeletonSource`."""
    return model.skeleton() if issubclass(type(model), SkeletonSource) else model  # type: ignore[return-value]
