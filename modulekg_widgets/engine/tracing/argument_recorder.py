"""The recording of an operator's arguments, and the cache key of their layouts."""

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
    """A recorder of one call's arguments: their nodes, and the cache key of their layouts."""

    __slots__ = ("key", "known", "node", "nodes", "recorded")

    def __init__(self, known: dict[int, DataNode], node: Callable[[Tensor], DataNode]) -> None:
        self.known = known  # by the addresses of tensors
        self.node = node  # for those that are new or were written
        self.nodes: list[DataNode] = []
        self.recorded: list[Any] = []
        self.key: list[Any] = []

    def enter(self, argument: object) -> None:
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


def flat_tensors(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for part in value for tensor in flat_tensors(part)] if isinstance(value, tuple | list) else []


def map_flat_tensors(value: object, change: Callable[[Tensor], Any]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple | list):
        return type(value)(map_flat_tensors(part, change) for part in value)
    return value


def unwrap_tensor(tensor: Tensor) -> Tensor:
    """Returns the tensor that operators see: without functorch wrappers, and the values of a jagged tensor."""
    if is_functorch_wrapped_tensor(tensor):
        return unwrap_tensor(unwrapped_once(tensor))
    return values_of_nested(tensor) if isinstance(tensor, NestedTensor) else tensor


# -------------------- A cache of result layouts by input layouts: on meta tensors these determine each other


MAX_ENTRIES = 20_000  # entries; then it starts anew
_known: dict[Any, Any] = {}  # the call's layouts → the results' layouts, for all traces of this process
_UNCACHEABLE = object()  # results that are not tensors alone


def cached_layouts(key: tuple[Any, ...], execute: Callable[[], Any]) -> Any:
    """New meta tensors as `execute()` would give, which runs only for layouts that were not seen before.

    `key` holds the operator, the layouts of its tensors and all other arguments.
    """
    # a factory without a dtype takes the default one
    key = (*key, torch.get_default_dtype())
    try:
        layout = _known.get(key)
    except TypeError:  # an argument that cannot be hashed
        return execute()
    if layout is None:
        results = execute()
        if len(_known) >= MAX_ENTRIES:
            _known.clear()
        _known[key] = _layout(results)
        return results
    return execute() if layout is _UNCACHEABLE else _empty_tensors(layout)


def _layout(results: Any) -> Any:
    """Returns a recipe for empty tensors like the results: a layout, or a sequence of layouts."""
    if isinstance(results, torch.Tensor):
        lazy = results.is_conj() or results.is_neg()
        if results.layout is not torch.strided or type(results) is not torch.Tensor or lazy:
            return _UNCACHEABLE
        return results.shape, results.stride(), results.dtype
    if isinstance(results, tuple | list):
        parts = [_layout(part) for part in results]
        return _UNCACHEABLE if _UNCACHEABLE in parts else (type(results), parts)
    return (None, None) if results is None else _UNCACHEABLE


def _empty_tensors(layout: Any) -> Any:
    if len(layout) == 3:
        return torch.empty_strided(layout[0], layout[1], dtype=layout[2], device="meta")
    kind, parts = layout
    return None if kind is None else kind(_empty_tensors(part) for part in parts)
