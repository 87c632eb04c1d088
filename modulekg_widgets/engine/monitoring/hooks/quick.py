"""The short way for metrics of one tensor: between two convolutions a hook finds nothing of ours in the cache.

So what counts is how much code and how many objects a hook touches, not what they do.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.monitoring.hooks.entry import Entry, Read, observed
from modulekg_widgets.engine.monitoring.hooks.gather import (
    SOURCES,
    Observation,
    channel_dim_of,
    is_measurable,
    is_rehearsal,
)
from modulekg_widgets.engine.monitoring.hooks.gather import first_tensor as find_tensor
from modulekg_widgets.engine.monitoring.measures.moments import Moments
from modulekg_widgets.engine.monitoring.metric import ConfigError
from modulekg_widgets.engine.monitoring.readings import EVAL, TRAIN
from modulekg_widgets.engine.torch_runtime.private import (
    CAN_ENTER_HOOKS,
    MODULES,
    backward_pass,
    hook_entry_of,
    is_any_autocast_enabled,
    set_grad_enabled,
    set_tensor_hooks,
    tensor_hooks_of,
    tracing_state,
    transforms,
)
from modulekg_widgets.engine.torch_runtime.state import module_state

log = logging.getLogger("modulekg_widgets")
Tensor = torch.Tensor
SEEN = ("ForwardInput", "ForwardOutput", "BackwardOutput")
OURS = -1  # among the hooks of a tensor; those of handles count from 0
is_compiling = torch.compiler.is_compiling


class Now:
    """The step that is being measured, as the hooks of its calls see it."""

    __slots__ = ("epoch", "is_paused", "step", "unscaled")

    def __init__(self, unscaled: Callable[[Tensor], Tensor] | None) -> None:
        self.epoch = 0  # counts the steps that were armed
        self.step = 0
        self.is_paused = False  # backward passes are not those of the training
        self.unscaled = unscaled  # takes a loss scale out of a gradient


class Quick:
    """One module whose metrics each look at its input, at its output or at the gradient there, as soon as it is seen.

    `before` and `after` are closures: what they touch lies in their cells, not in objects that have to be found first.
    `before(args)` counts a call; `after(args, kwargs, output)` gives the call and phase of one whose graph is not there
    yet, as under checkpointing, and None for any other; `reset()` counts anew. Where the module leaves its input alone
    there is no `before`: all is read in one go.
    """

    __slots__ = ("after", "before", "reset")

    def __init__(
        self, entries: Sequence[Entry], now: Now, root_state: dict[str, Any], most: int, overwrites: bool
    ) -> None:
        read_input, read_output, read_gradient = (
            reader(source, [entry for entry in entries if SOURCES[entry.needs[0]] == source], now) for source in SEEN
        )
        calls = {TRAIN: 0, EVAL: 0}
        # the calls that have not returned, by thread
        opened: defaultdict[int, list[tuple[int, str, bool]]] = defaultdict(list)

        def reset() -> None:
            calls[TRAIN] = calls[EVAL] = 0
            opened.clear()

        def counted() -> tuple[int, str]:
            phase = TRAIN if root_state.get("training", True) else EVAL
            call = calls[phase]
            calls[phase] = call + 1
            return call, phase

        def before(args: tuple[Any, ...]) -> None:
            if backward_pass() != -1 or is_trial(args):
                return
            x = first_tensor(args)
            call, phase = counted()
            is_seen = x is not None and read_input is not None
            opened[get_ident()].append((call, phase, is_seen))
            if is_seen and call < most:
                read_input(x.detach(), call, phase)  # type: ignore[union-attr, misc]

        def after(args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> tuple[int, str] | None:
            own = opened[get_ident()]
            if not own:
                return None
            call, phase, is_seen = own.pop()
            if call >= most or output is None:
                return None
            if kwargs and not is_seen and read_input is not None and not overwrites:
                x = input_of(args, kwargs)
                if x is not None:
                    read_input(x.detach(), call, phase)
            return follow(first_tensor(output), call, phase)

        def at_once(args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> tuple[int, str] | None:
            if is_trial(args or (output,)):
                return None
            call, phase = counted()
            if call >= most or output is None:
                return None
            if read_input is not None:
                x = input_of(args, kwargs)
                if x is not None:
                    read_input(x.detach(), call, phase)
            return follow(first_tensor(output), call, phase)

        def follow(y: Tensor | None, call: int, phase: str) -> tuple[int, str] | None:
            if y is None:
                return None
            if read_output is not None:
                read_output(y.detach(), call, phase)
            if read_gradient is None:
                return None
            graph = y.grad_fn
            if graph is None:
                return call, phase
            hook_gradient(y, graph, seen(read_gradient, now, call, phase))
            return None

        self.reset = reset
        self.before, self.after = (None, at_once) if leaves_input(entries[0].module) else (before, after)


def leaves_input(module: nn.Module) -> bool:
    """Whether the input is after the call what it was before it: torch's own layers see to that."""
    own = module_state(module)
    is_leaf = type(module).__module__.startswith("torch.nn.modules.") and not own.get(MODULES)
    return is_leaf and not own.get("inplace")


def is_trial(args: tuple[Any, ...]) -> bool:
    """`is_rehearsal`, in fewer looks where the first argument is what it mostly is."""
    x = args[0] if args else None
    if type(x) is Tensor and x.dtype is torch.float32 and x.is_cpu:
        return transforms() is not None or tracing_state() is not None or is_compiling()
    return is_rehearsal(args)


def first_tensor(values: Any) -> Tensor | None:
    """`gather.first_tensor`, in fewer looks for what it mostly is."""
    x = values[0] if type(values) is tuple and values else values
    return x if type(x) is Tensor and x.dtype is torch.float32 and x.is_cpu else find_tensor(values)


def input_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """The first tensor that a module was called with, by position if there is one."""
    x = first_tensor(args)
    return first_tensor(tuple(kwargs.values())) if x is None and kwargs else x


def hook_gradient(y: Tensor, graph: Any, hook: Callable[[Tensor | None], None]) -> None:
    """What `y.register_hook(hook)` does, without the handle: that is most of its cost, and ours go with the graph."""
    if tensor_hooks_of(y) is not None or not CAN_ENTER_HOOKS:
        y.register_hook(hook)
    else:
        hooks: Any = OrderedDict({OURS: hook})
        set_tensor_hooks(y, hooks)
        hook_entry_of(graph)(y)


def seen(read: Read, now: Now, call: int, phase: str) -> Callable[[Tensor | None], None]:
    """A hook that reads a gradient, if it arrives in the present step; an exception in it would be the training's."""
    epoch = now.epoch

    def hook(gradient: Tensor | None) -> None:
        try:
            if epoch == now.epoch and not now.is_paused and gradient is not None:
                read(gradient.detach() if now.unscaled is None else now.unscaled(gradient).detach(), call, phase)
        except Exception:  # noqa: BLE001
            log_failure()

    return hook


def reader(source: str, entries: Sequence[Entry], now: Now) -> Read | None:
    """Measures what `entries` ask of a tensor; each thing that they share is made once."""
    if not entries:
        return None
    if len(entries) == 1 and entries[0].is_quick:
        return entries[0].reader()
    module = entries[0].module
    takes = [entry.taker() for entry in entries if entry.is_plain]
    others = [entry for entry in entries if not entry.is_plain]

    def read_all(seen: Moments, call: int, phase: str) -> None:
        for take in takes:
            take(seen, call, phase)
        if others:
            observation = observed(module, source, seen, call, phase)
            for entry in others:
                entry.measure(observation, now.step)

    def read(tensor: Tensor, call: int, phase: str) -> None:
        if not is_measurable(tensor):
            return
        seen = Moments(tensor, channel_dim_of(type(module), tensor.dim()))
        apart(tensor.device.type, read_all, seen, call, phase)

    return read


def apart(device: str, work: Callable[..., None], *args: Any) -> None:
    """Do `work` so that what it builds is no part of the training's graph, nor of its autocast."""
    grad_mode = torch.is_grad_enabled()
    set_grad_enabled(False)
    try:
        if is_any_autocast_enabled():
            with torch.autocast(device, enabled=False):
                work(*args)
        else:
            work(*args)
    finally:
        set_grad_enabled(grad_mode)


def measure(entries: Sequence[Entry], observation: Observation, step: int) -> None:
    """Measure a call for several entries, apart from the training."""
    apart(observation.device_type, _measure, entries, observation, step)


def _measure(entries: Sequence[Entry], observation: Observation, step: int) -> None:
    for entry in entries:
        entry.measure(observation, step)


def quick_for(
    entries: Sequence[Entry], now: Now, root_state: dict[str, Any], most: int, overwrites: bool
) -> Quick | None:
    """The short way, where all that is asked of a module can go it."""
    if entries and all(entry.sees_one for entry in entries):
        return Quick(entries, now, root_state, most, overwrites)
    return None


class Unscaled:
    """Takes the loss scale of a `torch.amp.GradScaler` out of a gradient, without waiting for the device."""

    def __init__(self, scaler: Any) -> None:
        if not hasattr(scaler, "get_scale"):
            raise ConfigError(f"scaler= takes a torch.amp.GradScaler: a {type(scaler).__name__} was passed")
        self._scaler = scaler

    def __call__(self, gradient: Tensor) -> Tensor:
        scale = getattr(self._scaler, "_scale", None)
        if not self._scaler.is_enabled() or scale is None:
            return gradient
        return gradient.float() / scale.to(gradient.device, non_blocking=True)


def log_failure() -> None:
    """Say in the log which exception was kept from the training."""
    log.warning("a call of a module could not be watched", exc_info=True)
