"""What is looked at in the place of a model, such as a model file: it gives modules without code or values."""

from __future__ import annotations

from torch import nn

# what a tensor of a skeleton takes where it lies, where that is not what torch would count; stands in its `__dict__`
STORED_BYTES = "modulekg_bytes"


class Untold(nn.Module):
    """A module of which no class is known: only by their names siblings are told apart that have the same tensors."""


class SkeletonSource:
    """Knows the modules of a model by name, without values or code: its skeleton is looked at wherever a model is."""

    def skeleton(self) -> nn.Module:
        """Modules of the same paths and class names, whose tensors have shapes and no values."""
        raise NotImplementedError  # no abstract class: its checks would ask a model what it is


ModelLike = nn.Module | SkeletonSource


def as_module(model: ModelLike) -> nn.Module:
    """The model itself, or the skeleton that is looked at in its place."""
    return model.skeleton() if issubclass(type(model), SkeletonSource) else model  # type: ignore[return-value]
