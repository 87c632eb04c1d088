"""What a model costs, by a forward pass on tensors without data without records, quick enough for thousands."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import flop_registry

from modulekg_widgets.engine.knowledge.records import ModelRecord, with_traffic
from modulekg_widgets.engine.operators.cost import traffic
from modulekg_widgets.engine.torch_runtime.private import TorchDispatchMode, packet_of
from modulekg_widgets.engine.torch_runtime.structure import tensors

log = logging.getLogger("modulekg_widgets")
Call = tuple[tuple[Any, ...], Mapping[str, Any]]


def with_cost(record: ModelRecord, model: nn.Module, call: Call) -> ModelRecord:
    """The record with the FLOPs of products and convolutions, the traffic of operators, and the shapes of the inputs.

    The model is moved to the meta device, and into eval mode. One that does not run there has no cost.
    """
    args, kwargs = call
    operators = _PassCounter()
    try:
        model.to("meta").eval()
        with torch.no_grad(), operators:
            model(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - code of libraries that may look at numbers
        log.debug("%s has no cost on the meta device: %s", record.model.name, error)
        return record
    inputs = tuple(tuple(tensor.shape) for _, tensor in tensors((args, kwargs)))
    counted = replace(record.model, flops=operators.flops, inputs=inputs)
    return replace(record, model=with_traffic(counted, operators.traffic))


class _PassCounter(TorchDispatchMode):
    """The FLOPs of products and convolutions, and the elements that each operator reads and writes.

    Torch's FlopCounterMode watches modules besides, and stops at those that take or give what it does not expect.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0
        self.traffic: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found, formula = func(*args, **(kwargs or {})), flop_registry.get(packet_of(func))
        if formula is not None:
            self.flops += int(formula(*args, **(kwargs or {}), out_val=found))
        taken, given = ([tensor for _, tensor in tensors(values)] for values in ((args, kwargs), found))
        self.traffic.append(traffic(func, taken, given))
        return found


def picture(channels: int, height: int, width: int) -> Call:
    """One picture."""
    return (torch.empty(1, channels, height, width, device="meta"),), {}
