"""What a model gives, as a list of numbers, and when two such lists are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from pruning.named_models import Call


def floats(value: Any) -> Iterator[torch.Tensor]:
    """The numbers in what a model gives, in order."""
    if isinstance(value, torch.Tensor):
        yield from [value] if value.is_floating_point() else []
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from floats(part)


def outputs(model: Callable[..., Any], call: Call) -> list[torch.Tensor]:
    args, kwargs = call
    with torch.no_grad():
        found = list(floats(model(*args, **kwargs)))
    assert found
    assert all(bool(each.isfinite().all()) for each in found)
    return found


def assert_same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def assert_close(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """Equal up to the rounding of float32, against the largest number."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert float((one - other).abs().max()) <= 1e-4 * max(float(other.abs().max()), 1e-6)
