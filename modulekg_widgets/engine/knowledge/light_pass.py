"""What a model costs, by a forward pass on tensors without data without records, quick enough for thousands."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from modulekg_widgets.engine.knowledge.records import ModelRecord
from modulekg_widgets.engine.torch_runtime.structure import tensors

log = logging.getLogger("modulekg_widgets")
Call = tuple[tuple[Any, ...], Mapping[str, Any]]


def with_cost(record: ModelRecord, model: nn.Module, call: Call) -> ModelRecord:
    """The record with the FLOPs of products and convolutions, and the shapes of the inputs.

    The model is moved to the meta device, and into eval mode. One that does not run there has no cost.
    """
    args, kwargs = call
    counter = FlopCounterMode(display=False)
    try:
        with torch.no_grad(), counter:
            model.to("meta").eval()(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - code of libraries that may look at numbers
        log.debug("%s has no cost on the meta device: %s", record.model.name, error)
        return record
    inputs = tuple(tuple(tensor.shape) for _, tensor in tensors((args, kwargs)))
    return replace(record, model=replace(record.model, flops=int(counter.get_total_flops()), inputs=inputs))


def picture(channels: int, height: int, width: int) -> Call:
    """One picture."""
    return (torch.empty(1, channels, height, width, device="meta"),), {}
