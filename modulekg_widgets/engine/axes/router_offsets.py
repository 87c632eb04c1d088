"""Numbers added to what routers give for each index while a model runs, so that some are chosen, or never."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from modulekg_widgets.engine.axes.axis import Axis
from modulekg_widgets.engine.operators.traits import CONVOLUTION, MATRIX_PRODUCT, traits_of
from modulekg_widgets.engine.torch_runtime.higher_order import OperatorMode
from modulekg_widgets.engine.torch_runtime.structure import tensors
from modulekg_widgets.engine.tracing.dataflow import DataNode

Tensor = torch.Tensor


def router_weights(axis: Axis) -> list[tuple[DataNode, int]]:
    """The weights that make an axis, each with the dimension; none of what lies in elements of its lists."""
    inside = (node for node, _ in axis.places if any(each.split(node.label) for each in axis.term.lists))
    return [(node, at) for node, at in axis.places if node.dim() > 1 and node not in set(inside)]


class RouterOffsets(OperatorMode):
    """Adds to what products with these weights give, along the dimension of their indices; no gradients run."""

    def __init__(self, offsets: Iterable[tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self._offsets = {_memory(weight): offset for weight, offset in offsets}
        self._copies: list[Tensor] = []  # of weights, kept: another tensor may come to lie where one has gone

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = [tensor for _, tensor in tensors((args, kwargs or {}))]
        known = [self._offsets.get(_memory(tensor)) for tensor in given]
        offset = next((each for each in known if each is not None), None)
        if offset is None or not isinstance(out, Tensor) or not out.is_floating_point():
            return out
        if all(each is not None for each in known):
            self._offsets.setdefault(_memory(out), offset)
            self._copies.append(out)
            return out
        layer = traits_of(func).layer
        dim = 1 if layer == CONVOLUTION else -1
        if layer in (CONVOLUTION, MATRIX_PRODUCT) and out.dim() > 1 and out.shape[dim] == len(offset):
            shape = [-1 if at == dim % out.dim() else 1 for at in range(out.dim())]
            out.add_(offset.to(out).view(shape))
        return out


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0
