"""Gradients of module calls: at the output, and at the input the part through this module alone.

Those of several backward passes of a step add up, as torch adds them up in `.grad`; what `torch.autograd.grad` is asked
for, as by a gradient penalty, is no gradient of the loss.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.graph import Node, get_gradient_edge
from torch.utils.hooks import RemovableHandle

from modulekg_widgets.engine.errors import a_type
from modulekg_widgets.engine.monitoring.hooks.observation import StepState, log_failure
from modulekg_widgets.engine.monitoring.metric import ConfigError
from modulekg_widgets.engine.monitoring.readings import TRAIN
from modulekg_widgets.engine.torch_runtime.private import (
    CAN_ENTER_HOOKS,
    LEAF_NODE,
    backward_node,
    backward_pass,
    hook_entry_of,
    keeps_graph,
    set_tensor_hooks,
    tensor_hooks_of,
    will_run_node,
)

MAX_NODES = 20_000  # of a module's own graph
HOOK_KEY = -1  # among the hooks of a tensor; those of handles count from 0


def hook_gradient(y: torch.Tensor, graph: Node, hook: Callable[[torch.Tensor | None], None]) -> None:
    """Register a gradient hook without a handle, whose creation is most of the cost of `register_hook`."""
    if tensor_hooks_of(y) is not None or not CAN_ENTER_HOOKS:
        y.register_hook(hook)
    else:
        hooks = OrderedDict({HOOK_KEY: hook})
        set_tensor_hooks(y, hooks)
        hook_entry_of(graph)(y)


# ---------------------------------------------- backward passes

# what a backward pass is to the loss: none of it, its last one through this graph, or one that further ones may follow
NOT_LOSS, LAST_PASS, EARLIER_PASS = range(3)
NOT_FROM_LOSS = "its gradient was computed by torch.autograd.grad, not by a loss: call loss.backward() before `track`"
GRAPH_NOT_RETAINED = (
    "its gradient came in several backward passes, of which the first did not say that more would follow: pass "
    "retain_graph=True to all but the last"
)


def backward_kind() -> int:
    """Returns the kind of the running backward: not of the loss, its last one, or one with more to follow.

    A pass that adds to the `.grad` of a leaf belongs to the loss. One of `torch.autograd.grad` does where parameters
    are asked for and the graph is freed, as by a training that takes its gradients so; a penalty needs the graph again.
    """
    try:
        counts = backward_pass() == -1 or _adds_to_leaves(backward_node())
        return (EARLIER_PASS if keeps_graph() else LAST_PASS) if counts else NOT_LOSS
    except Exception:  # noqa: BLE001 - of a pass that torch cannot tell about, such as a compiled one
        log_failure()
        return LAST_PASS


def _adds_to_leaves(start: Any) -> bool:
    has_leaf = asks_for_parameter = False
    seen = {start}
    waiting = [start]
    while waiting and len(seen) < MAX_NODES:
        node = waiting.pop()
        if type(node) is LEAF_NODE:
            has_leaf = True
            try:
                if will_run_node(node):
                    return True
            except RuntimeError:  # so torch says that autograd.grad was asked for this one
                asks_for_parameter = asks_for_parameter or isinstance(node.variable, nn.Parameter)
            continue
        following = {node for node, _ in node.next_functions if node is not None} - seen
        seen |= following
        waiting.extend(following)
    return not has_leaf or (asks_for_parameter and not keeps_graph())


CallKey = tuple[int, str]  # its number and phase
Deliver = Callable[[torch.Tensor], None]


class GradientCollector:
    """Collects the gradients of a module's calls; delivers the sum over the backwards of a step, once per call.

    Where the graph is freed behind the first one it is given on at once; else a copy waits for the others, until one of
    them frees the graph or the step ends.
    """

    __slots__ = ("_asked_alone", "_deliver", "_miss", "_now", "_sums", "delivered")

    def __init__(self, now: StepState, miss: Callable[[str, int, str], None]) -> None:
        self._now = now
        self._miss = miss  # notes why a call has no value
        self.delivered: set[CallKey] = set()
        self._sums: dict[CallKey, torch.Tensor] = {}
        self._asked_alone: set[CallKey] = set()
        self._deliver: dict[CallKey, Deliver] = {}

    def reset(self) -> None:
        self.delivered.clear()
        self._sums.clear()
        self._asked_alone.clear()
        self._deliver.clear()

    def take(self, call: CallKey, gradient: torch.Tensor, deliver: Deliver, awaits_more: bool = False) -> None:
        """Add a gradient; `awaits_more` if the surrounding backward retains its graph."""
        task = backward_pass()
        kind = self._now.passes.get(task)
        if kind is None:
            kind = self._now.passes[task] = backward_kind()
        if kind == LAST_PASS and awaits_more:
            kind = EARLIER_PASS
        if kind == LAST_PASS and call not in self.delivered and call not in self._sums:
            self.delivered.add(call)
            deliver(gradient)
        else:
            self._accumulate(call, gradient, deliver, kind)

    def _accumulate(self, call: CallKey, gradient: torch.Tensor, deliver: Deliver, kind: int) -> None:
        if not (self._sums or self._asked_alone):
            self._now.unfinished.append(self._finish)
        if kind == NOT_LOSS:
            self._asked_alone.add(call)
        elif call in self.delivered:
            self._miss(GRAPH_NOT_RETAINED, *call)
        elif call in self._sums:
            self._sums[call] = self._sums[call] + gradient.detach()
        else:
            self._sums[call] = gradient.detach().clone()
            self._deliver[call] = deliver
        if kind == LAST_PASS and call in self._sums:
            self._deliver_sum(call)

    def _deliver_sum(self, call: CallKey) -> None:
        self.delivered.add(call)
        self._deliver.pop(call)(self._sums.pop(call))

    def _finish(self) -> None:
        try:
            for call in list(self._sums):
                self._deliver_sum(call)
        except Exception:  # noqa: BLE001 - it would be the training's
            log_failure()
        for call in self._asked_alone - self.delivered:
            if call[1] == TRAIN:
                self._miss(NOT_FROM_LOSS, *call)


class GradientUnscaler:
    """Divides gradients by the scale of a `torch.amp.GradScaler`, without synchronising the device."""

    def __init__(self, scaler: torch.amp.GradScaler) -> None:
        if not hasattr(scaler, "get_scale"):
            raise ConfigError(f"scaler= takes a torch.amp.GradScaler: {a_type(scaler)} was passed")
        self._scaler = scaler

    def __call__(self, gradient: torch.Tensor) -> torch.Tensor:
        scale = getattr(self._scaler, "_scale", None)
        if not self._scaler.is_enabled() or scale is None:
            return gradient
        return gradient.float() / scale.to(gradient.device, non_blocking=True)


# ---------------------------------------------- at the input, without what other users of the input add


class InputEdge(NamedTuple):
    """Gradient edge of an input: node and output number, and the nodes where other inputs begin."""

    node: Node
    number: int
    others: frozenset[Node]


def input_edge(x: torch.Tensor, inputs: Iterable[object]) -> InputEdge | None:
    """Returns the gradient edge of `x`, one of the `inputs` of a call; None if it needs no gradient."""
    if not x.requires_grad:
        return None
    edge = get_gradient_edge(x)
    others = {
        get_gradient_edge(other).node for other in inputs if isinstance(other, torch.Tensor) and other.requires_grad
    }
    return InputEdge(edge.node, edge.output_nr, frozenset(others - {edge.node}))


def hook_input_gradient(
    y: torch.Tensor, edge: InputEdge, seen: Callable[[torch.Tensor], None]
) -> list[RemovableHandle]:
    """Call `seen` in each backward with the sum of the gradients from `y` into `edge`.

    Gives the handles of hooks that would stay, because they are on tensors that belong to no graph.
    """
    own = get_gradient_edge(y)
    if (own.node, own.output_nr) == (edge.node, edge.number):  # the module returned its input
        handle = y.register_hook(lambda gradient: seen(gradient))
        return [handle] if y.is_leaf else []
    ends = [] if y.is_leaf else _edge_nodes(y.grad_fn, edge)
    passing = _BackwardPass(len(ends), seen)
    for node, places in ends:
        node.register_hook(lambda gradients, _, places=places: passing.arrived(places, gradients))
    return []


class _BackwardPass:
    """Sums the gradients of one backward; a later backward starts anew."""

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


def _edge_nodes(start: Any, edge: InputEdge) -> list[tuple[Node, list[int]]]:
    """Returns the nodes between `start` and the edge whose gradients flow into it, with the positions of these."""
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
                if len(seen) > MAX_NODES:
                    return []
                seen.add(following)
                waiting.append(following)
        if places:
            found.append((node, places))
    return found
