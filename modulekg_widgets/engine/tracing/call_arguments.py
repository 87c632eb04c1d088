"""The arguments of a call of an operator: what is recorded of them, and the key of their layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from modulekg_widgets.engine.torch_runtime.private import (
    NestedTensor,
    is_functorch_wrapped_tensor,
    unwrapped_once,
    values_of_nested,
)
from modulekg_widgets.engine.tracing.dataflow import DataNode

Tensor = torch.Tensor


class ArgumentRecorder:
    """One pass over the arguments of a call: what is recorded, and the key of the layouts."""

    __slots__ = ("key", "known", "node", "nodes", "recorded")

    def __init__(self, known: dict[int, DataNode], node: Callable[[Tensor], DataNode]) -> None:
        self.known = known  # by the addresses of tensors
        self.node = node  # for those that are new or were written
        self.nodes: list[DataNode] = []
        self.recorded: list[Any] = []
        self.key: list[Any] = []

    def enter(self, argument: Any) -> None:
        if isinstance(argument, Tensor):
            node = self.known.get(id(argument))
            if node is None or node.storage.written > node.stamp:
                node = self.node(argument)
            self.nodes.append(node)
            self.recorded.append(node)
            self.key.append((node.shape, node.stride, node.dtype))
        elif isinstance(argument, list | tuple):
            outer, self.recorded = self.recorded, []
            self.key.append(len(argument))
            for part in argument:
                self.enter(part)
            outer.append(self.recorded)
            self.recorded = outer
        else:
            self.recorded.append(argument)
            self.key.append(argument)
            self.key.append(type(argument))


def flat_tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for part in value for tensor in flat_tensors(part)] if isinstance(value, tuple | list) else []


def replaced(value: Any, change: Callable[[Tensor], Any]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple | list):
        return type(value)(replaced(part, change) for part in value)
    return value


def plain_inside(tensor: Tensor) -> Tensor:
    """What a tensor is to operators: within `vmap` that of all samples, of a jagged one that of all rows."""
    if is_functorch_wrapped_tensor(tensor):
        return plain_inside(unwrapped_once(tensor))
    return values_of_nested(tensor) if isinstance(tensor, NestedTensor) else tensor
