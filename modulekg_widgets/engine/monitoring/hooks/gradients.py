"""Gradients of a module's call: at its output, and at its input what comes through the module alone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import get_gradient_edge

from modulekg_widgets.engine.monitoring.metric import ConfigError
from modulekg_widgets.engine.torch_runtime.private import (
    CAN_ENTER_HOOKS,
    backward_pass,
    hook_entry_of,
    set_tensor_hooks,
    tensor_hooks_of,
)

MOST_NODES = 20_000  # of a module's own graph
OURS = -1  # among the hooks of a tensor; those of handles count from 0


def hook_gradient(y: torch.Tensor, graph: Any, hook: Callable[[torch.Tensor | None], None]) -> None:
    """What `y.register_hook(hook)` does, without the handle: that is most of its cost, and ours go with the graph."""
    if tensor_hooks_of(y) is not None or not CAN_ENTER_HOOKS:
        y.register_hook(hook)
    else:
        hooks: Any = OrderedDict({OURS: hook})
        set_tensor_hooks(y, hooks)
        hook_entry_of(graph)(y)


class Unscaled:
    """Takes the loss scale of a `torch.amp.GradScaler` out of a gradient, without waiting for the device."""

    def __init__(self, scaler: Any) -> None:
        if not hasattr(scaler, "get_scale"):
            raise ConfigError(f"scaler= takes a torch.amp.GradScaler: a {type(scaler).__name__} was passed")
        self._scaler = scaler

    def __call__(self, gradient: torch.Tensor) -> torch.Tensor:
        scale = getattr(self._scaler, "_scale", None)
        if not self._scaler.is_enabled() or scale is None:
            return gradient
        return gradient.float() / scale.to(gradient.device, non_blocking=True)


# ---------------------------------------------- at the input, without what other users of the input add


class InputEdge(NamedTuple):
    """Where the gradient of an input flows to: a node and the number of its output; and where other inputs begin."""

    node: Any
    number: int
    others: frozenset[Any]


def input_edge(x: torch.Tensor, inputs: Iterable[object]) -> InputEdge | None:
    """The edge of `x`, one of the `inputs` of a call; None when no gradient flows there."""
    if not x.requires_grad:
        return None
    edge = get_gradient_edge(x)
    others = {
        get_gradient_edge(other).node for other in inputs if isinstance(other, torch.Tensor) and other.requires_grad
    }
    return InputEdge(edge.node, edge.output_nr, frozenset(others - {edge.node}))


def watch_own_gradient(y: torch.Tensor, edge: InputEdge, seen: Callable[[torch.Tensor], None]) -> list[Any]:
    """Call `seen` in each backward pass with the sum of the gradients that flow from `y` into `edge`.

    Gives the handles of hooks that would stay, because they are on tensors that belong to no graph.
    """
    own = get_gradient_edge(y)
    if (own.node, own.output_nr) == (edge.node, edge.number):  # the module returned its input
        handle = y.register_hook(lambda gradient: seen(gradient))
        return [handle] if y.is_leaf else []
    ends = [] if y.is_leaf else _ends(y.grad_fn, edge)
    passing = _Pass(len(ends), seen)
    for node, places in ends:
        node.register_hook(lambda gradients, _, places=places: passing.arrived(places, gradients))
    return []


class _Pass:
    """Collects the parts of one backward pass; a later pass begins anew, also when this one reached some nodes only."""

    def __init__(self, count: int, seen: Callable[[torch.Tensor], None]) -> None:
        self.count = count
        self.seen = seen
        self.task = -1
        self.waiting = 0
        self.parts: list[torch.Tensor] = []

    def arrived(self, places: list[int], gradients: tuple[torch.Tensor | None, ...]) -> None:
        task = backward_pass()
        if task != self.task:
            self.task, self.waiting, self.parts = task, self.count, []
        self.waiting -= 1
        self.parts += [gradient for place in places if (gradient := gradients[place]) is not None]
        if self.waiting == 0 and self.parts:
            parts, self.parts = self.parts, []
            self.seen(parts[0] if len(parts) == 1 else torch.stack([part.detach() for part in parts]).sum(0))


def _ends(start: Any, edge: InputEdge) -> list[tuple[Any, list[int]]]:
    """The nodes on the way from `start` whose gradients flow into the edge, with the places of these gradients."""
    found = []
    seen = {start, *edge.others}
    waiting = [start]
    while waiting:
        node = waiting.pop()
        places = []
        for place, (following, output) in enumerate(node.next_functions):
            if following is edge.node:
                if output == edge.number:
                    places.append(place)
            elif following is not None and following not in seen:
                if len(seen) > MOST_NODES:
                    return []
                seen.add(following)
                waiting.append(following)
        if places:
            found.append((node, places))
    return found
