"""One model through the whole of pruning: plan, cut, forward, undo; what came out in one row."""

from __future__ import annotations

import copy
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.torch_runtime.pytree import tensors

RNG = 7


@dataclass(frozen=True)
class Row:
    """What became of one model."""

    name: str
    left: float = 1.0  # share of the parameters
    flops: float = 1.0
    corrections: int = 0
    scales: int = 0
    refusal: str = ""
    wrong: str = ""
    seconds: float = 0.0  # of plan and cut

    @property
    def ok(self) -> bool:
        return not (self.refusal or self.wrong)

    def __str__(self) -> str:
        state = "ok" if self.ok else "REFUSED" if self.refusal else "WRONG"
        figures = f"{self.left:7.1%} {self.flops:7.1%} {self.corrections:3d} {self.scales:3d} {self.seconds:7.2f}"
        return f"{self.name:38} {state:8} {figures}  {self.refusal or self.wrong}"


HEAD = f"{'model':38} {'':8} {'params':>7} {'FLOPs':>7} {'fix':>3} {'num':>3} {'s':>7}"


def state_of(model: nn.Module) -> dict[str, Any]:
    """All that undo has to bring back: bytes, shapes, strides, flags, and the attributes of all modules."""
    found: dict[str, Any] = {}
    for name, tensor in (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)):
        memory = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        found[name] = (id(tensor), tensor.shape, tensor.stride(), tensor.dtype, tensor.requires_grad, memory.clone())
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, int | float | str | tuple):
                found[f"{path}:{name}"] = value
        found[f"{path}:hooks"] = (len(module._forward_hooks), len(module._forward_pre_hooks))
    return found


def differs(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The first name at which two states differ, else nothing."""
    if before.keys() != after.keys():
        return str(sorted(before.keys() ^ after.keys())[:3])
    for name, value in before.items():
        other = after[name]
        same = (
            value[:-1] == other[:-1] and torch.equal(value[-1], other[-1])
            if isinstance(value, tuple) and value and isinstance(value[-1], torch.Tensor)
            else value == other
        )  # fmt: skip
        if not same:
            return name
    return ""


def shapes(value: Any, following: Collection[str] = ()) -> dict[str, tuple[int, ...]]:
    """The shapes of what a model returns, but those of outputs that follow a cut."""
    named = ((name.removeprefix("."), tensor) for name, tensor in tensors(value))
    return {name: tuple(tensor.shape) for name, tensor in named if name not in following}


def forward(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    torch.manual_seed(RNG)
    with torch.no_grad():
        return model(*args, **kwargs)


def pruned(
    name: str, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, **how: Any
) -> Row:
    """Plan, cut, forward and undo, each looked at."""
    kwargs = kwargs or {}
    how = how or {"ratio": 0.5}
    torch.manual_seed(RNG)
    before = state_of(model)
    by_data = False
    begin = time.process_time()
    try:
        graph = mk.trace(model, args, kwargs)
        by_data = graph.traced_on == "real"
        plan = mk.plan(graph, **how)
    except mk.ModuleKGError as error:
        return Row(name, refusal=f"{type(error).__name__}: {error}"[:200])
    seconds = time.process_time() - begin
    if wrong := differs(before, state_of(model)):
        return Row(name, wrong=f"planning changed {wrong}")
    expected = shapes(forward(model, args, kwargs), graph.cuttable_outputs) if not by_data else None
    before = state_of(model)  # a forward pass in train mode counts batches
    twin = copy.deepcopy(model) if sum(p.numel() for p in model.parameters()) < 2e8 else None
    begin = time.process_time()
    receipt = plan.cut(model)
    seconds += time.process_time() - begin
    figures = {
        "left": plan.params[1] / plan.params[0],
        "flops": plan.flops[1] / max(plan.flops[0], 1),
        "corrections": sum(change.kind != "scale" for change in plan.changes),
        "scales": sum(change.kind == "scale" for change in plan.changes),
        "seconds": seconds,
    }
    counted = sum(parameter.numel() for parameter in model.parameters())
    if counted != plan.params[1]:
        return Row(name, wrong=f"{counted} parameters, planned {plan.params[1]}", **figures)
    try:
        output = forward(model, args, kwargs)
    except Exception as error:  # noqa: BLE001 - this is what the row is for
        return Row(name, wrong=f"forward: {type(error).__name__}: {error}"[:160], **figures)
    if expected is not None and shapes(output, graph.cuttable_outputs) != expected:
        return Row(name, wrong="the output has another shape", **figures)
    receipt.undo()
    if wrong := differs(before, state_of(model)):
        return Row(name, wrong=f"undo left {wrong} different", **figures)
    if twin is not None:
        plan.cut(twin.train())
        if sum(parameter.numel() for parameter in twin.parameters()) != counted:
            return Row(name, wrong="a copy in train mode was cut otherwise", **figures)
    return Row(name, **figures)
