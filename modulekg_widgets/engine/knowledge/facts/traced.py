"""Facts of a model from one traced forward: costs, data flow between modules, and operators of each module."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace

import torch
from torch import nn
from torch.utils.flop_counter import flop_registry

from modulekg_widgets.engine.errors import TraceError, printable
from modulekg_widgets.engine.identity.hierarchy import hierarchy
from modulekg_widgets.engine.identity.skeleton_source import ModelLike
from modulekg_widgets.engine.knowledge.facts.records import (
    ModelRecord,
    hexdigests,
    model_record,
    record_from_hierarchy,
    with_traffic,
)
from modulekg_widgets.engine.operators.cost import memory_traffic
from modulekg_widgets.engine.torch_runtime.private import Overload, TorchDispatchMode, modules_of, packet_of
from modulekg_widgets.engine.torch_runtime.pytree import tensors
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, OperatorNode
from modulekg_widgets.engine.tracing.trace import trace_dataflow

MAX_SOURCES = 64  # of one value; a model that adds up all that it ever computed has as many as modules


def describe_model(
    model: ModelLike,
    name: str | None,
    scheme: str,
    args: object = None,
    kwargs: Mapping[str, object] | None = None,
    eval_mode: bool = False,
    levels: str = "repetition",
) -> ModelRecord:
    """Returns the record of `model`; with `args` or `kwargs` also the facts of a forward that is traced, not computed.

    With `eval_mode` that pass is one of a copy in eval mode.
    """
    if args is None and kwargs is None:
        return model_record(model, name, scheme, levels)
    given = () if args is None else args
    return traced_record(model, given, kwargs, name, scheme, eval_mode, levels)  # type: ignore[arg-type] - it checks


def traced_record(
    model: nn.Module,
    args: object,
    kwargs: Mapping[str, object] | None,
    name: str | None,
    scheme: str,
    eval_mode: bool = False,
    levels: str = "repetition",
) -> ModelRecord:
    """Returns the record of `model` with the facts of one forward on `args`; raises `TraceError`.

    `eval_mode`: in eval mode, whatever the mode of the model is, which is left alone.
    """
    modules = hierarchy(model)
    record = record_from_hierarchy(modules, name, scheme, levels)  # refuses what has no identity before anything runs
    graph = trace_dataflow(_in_eval_mode(model) if eval_mode else model, args, kwargs)
    digests = hexdigests(modules, scheme)
    fingerprints = {path: digests[modules[path].index] for path in graph.modules}
    flops = graph.flops()
    costs: Counter[str] = Counter()
    for path in {id(node): node.path for node in graph.modules.values()}.values():
        costs[fingerprints[path]] += flops.by_module.get(path, 0)
    calls = Counter((fingerprints[operator.module], operator.name) for operator in graph.operators)
    feeds = Counter((fingerprints[a], fingerprints[b]) for a, b in feeding_pairs(graph))
    inputs = tuple(node.shape for node in graph.inputs)
    known = replace(record.model, flops=int(flops), inputs=inputs, module_flops=dict(costs), feeds=feeds, calls=calls)
    return replace(record, model=with_traffic(known, map(traffic_of, graph.operators)))


def _in_eval_mode(model: nn.Module) -> nn.Module:
    """Returns a copy in eval mode that shares the tensors; the model itself if it is in eval mode."""
    if not any(module.training for module in model.modules()):
        return model
    tensors = (*model.parameters(), *model.buffers())
    try:
        copied = deepcopy(model, {id(tensor): tensor for tensor in tensors})
    except Exception as error:  # a module of the user's may raise anything
        kind = type(error).__name__
        raise TraceError(
            f"{printable(type(model).__name__)} cannot be copied to be traced in eval mode ({kind}: "
            f"{printable(str(error))}): "
            "call model.eval() first, or leave args out"
        ) from error
    return copied.eval()


def traffic_of(operator: OperatorNode) -> int:
    return memory_traffic(operator.overload, operator.inputs, operator.outputs)


def feeding_pairs(graph: Dataflow) -> dict[tuple[str, str], None]:
    """Returns pairs of paths of leaf modules, of which the first computes an input of the second.

    What the code of their containers makes of values on the way (a sum, a reshape) is passed through.
    """
    inner = {node.path for node in graph.modules.values() if not modules_of(node.module)}
    sources: dict[DataNode, tuple[str, ...]] = {}
    pairs: dict[tuple[str, str], None] = {}
    for operator in graph.operators:
        given = _merge_sources([sources.get(value, ()) for value in operator.inputs])
        if operator.module in inner:
            pairs.update({(source, operator.module): None for source in given if source != operator.module})
            given = (operator.module,)
        sources.update(dict.fromkeys(operator.outputs, given))
    return pairs


def _merge_sources(several: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Returns all sources once each; the latest if there are very many."""
    if len(several) == 1:
        return several[0]
    return tuple(dict.fromkeys(source for sources in several for source in sources))[-MAX_SOURCES:]


# --------------------
# Cost of a model from one forward on meta tensors without a trace, fast enough for thousands of models.


log = logging.getLogger("modulekg_widgets")
CallArguments = tuple[tuple[object, ...], Mapping[str, object]]


def add_cost(record: ModelRecord, model: nn.Module, call: CallArguments) -> ModelRecord:
    """Returns the record with FLOPs of products and convolutions, memory traffic, and input shapes.

    The model is moved to the meta device, and into eval mode. One that does not run there has no cost.
    """
    args, kwargs = call
    operators = _CostCounter()
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


class _CostCounter(TorchDispatchMode):
    """Counts FLOPs of products and convolutions, and elements that each operator reads and writes.

    Torch's FlopCounterMode watches modules besides, and stops at those that take or give what it does not expect.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0
        self.traffic: list[int] = []

    def __torch_dispatch__(
        self,
        func: Overload,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        found, formula = func(*args, **(kwargs or {})), flop_registry.get(packet_of(func))
        if formula is not None:
            self.flops += int(formula(*args, **(kwargs or {}), out_val=found))
        taken, given = ([tensor for _, tensor in tensors(values)] for values in ((args, kwargs), found))
        self.traffic.append(memory_traffic(func, taken, given))
        return found


def image_call(channels: int, height: int, width: int) -> CallArguments:
    """Returns a call with one image on the meta device."""
    return (torch.empty(1, channels, height, width, device="meta"),), {}
