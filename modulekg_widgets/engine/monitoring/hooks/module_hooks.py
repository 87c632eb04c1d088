"""Global module hooks of torch, filtered by module identity, attached on scheduled steps alone.

They are torch's hooks for all modules, filtered by identity: nothing is written into a module, so a copy or a pickle of
the model taken meanwhile has no trace of them.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.monitoring.hooks.module_calls import ModuleCalls
from modulekg_widgets.engine.monitoring.hooks.module_metric import ActiveMetrics, ModuleMetric
from modulekg_widgets.engine.monitoring.hooks.observation import Observation, StepState, log_failure
from modulekg_widgets.engine.torch_runtime.hooks import global_call_hooks
from modulekg_widgets.engine.torch_runtime.modules import module_state, registry, unwrapped
from modulekg_widgets.engine.torch_runtime.private import MODULES, backward_pass, is_compiler_loaded
from modulekg_widgets.engine.torch_runtime.pytree import Args

# --------------------
# Tracking of module paths: a module that is replaced during training is measured under the same path.


REPLACED = "its module was replaced: the new one is measured from the next step on"
REMOVED = "its module was removed"


class PathTracker:
    """Measured paths and their ancestors, with the modules at them."""

    def __init__(self, root: nn.Module, metrics: Sequence[ModuleMetric]) -> None:
        modules = walk(root)
        by_path = {modules.path(index): index for index in range(len(modules))}
        by_index: dict[int, list[ModuleMetric]] = {}
        for metric in metrics:
            by_index.setdefault(by_path[metric.path], []).append(metric)
        wanted = {0}
        for index in by_index:
            while index not in wanted:
                wanted.add(index)
                index = modules.parents[index]
        order = sorted(wanted)  # what is above comes first
        places = {index: place for place, index in enumerate(order)}
        self._held: list[nn.Module | None] = [modules.modules[index] for index in order]
        self._rest = [
            (place, places[modules.parents[index]], modules.names[index], by_index.get(index, []))
            for place, index in enumerate(order)
            if place
        ]

    def follow(self) -> list[ModuleMetric]:
        """Returns the metrics whose module was replaced or removed, switched to the present one."""
        found: list[ModuleMetric] = []
        held = self._held
        for place, above, name, metrics in self._rest:
            container = held[above]
            now = None if container is None else registry(module_state(container), MODULES).get(name)
            if now is held[place]:
                continue
            now = unwrapped(now) if isinstance(now, nn.Module) else None
            if now is held[place]:
                continue
            held[place] = now
            for metric in metrics:
                metric.follow(now)
            found += metrics
        return found


# -------------------- Eager mode for measured steps, as compiled code skips hooks


# torch warns whoever calls a compiled module while there are hooks for all modules; ours take no notice of wrappers
COMPILE_WARNING = r"Using `torch\.compile\(module\)` when there are global hooks"


class _EagerMode:
    """Reference count of monitors that need eager mode, as the compiler's stance is global to the process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._count = 0
        self._stance: Any = None
        self._filter: object = None

    def begin(self) -> None:
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._stance = torch.compiler.set_stance("force_eager")
                warnings.filterwarnings("ignore", COMPILE_WARNING)
                self._filter = warnings.filters[0]

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0 and not sys.is_finalizing():
                self._stance.__exit__(None, None, None)
                with contextlib.suppress(ValueError):  # the user has reset all filters
                    warnings.filters.remove(self._filter)  # type: ignore[attr-defined]


_shared = _EagerMode()
begin, end = _shared.begin, _shared.end


# ----------------------------------------


class ModuleHooks:
    """Attaches the hooks of a step, and detaches them."""

    def __init__(
        self,
        root: nn.Module,
        metrics: Sequence[ModuleMetric],
        unscaled: Callable[[torch.Tensor], torch.Tensor] | None = None,  # takes a loss scale out of a gradient
    ) -> None:
        self._root = root
        self._root_state = module_state(root)
        self._places = PathTracker(root, metrics)
        self._moved: list[ModuleMetric] = []  # of modules that came or went in this step
        self._absent: list[ModuleMetric] = []  # of those that are gone
        self._schedule = ActiveMetrics([metric for metric in metrics if metric.sees_calls])
        self._active: list[ModuleMetric] = []
        self._made: dict[int, ModuleCalls] = {}  # by module, also of those that are not hooked at this step
        self._hooked: dict[int, ModuleCalls] = {}  # by module; one dict for all steps
        self._attached = ExitStack()
        self._runs_uncompiled = False
        self._now = StepState(unscaled)
        self.is_attached = False
        self.has_begun = False  # a forward pass of the training in this step, as far as hooks see it

    @property
    def epoch(self) -> int:
        """The count of prepared steps, which calls and gradients carry."""
        return self._now.epoch

    @property
    def step(self) -> int:
        """The step that was prepared last."""
        return self._now.step

    def prepare(self, step: int) -> None:
        """Attach the hooks that `step` needs and detach others; calls are counted from 0."""
        self._now.step = step
        self.has_begun = False
        self._moved.clear()
        self._forget_calls()
        active = self._schedule.at(step)
        if active is not self._active:
            self._active = active
            self._regroup()
        if self._active:  # also for modules that are gone: they may come back
            self._attach()
        else:
            self._detach()

    def finish(self) -> None:
        """End the step: deliver gradients that waited for a further backward."""
        unfinished, self._now.unfinished = self._now.unfinished, []
        for finish in unfinished:
            finish()

    def observations(self, metric: ModuleMetric) -> list[Observation]:
        """Returns the calls of this step that `metric` reads at `track`; none for a metric of weights."""
        calls = self._made.get(id(metric.module)) if metric.sees_calls else None
        return [] if calls is None or calls.joint is None else calls.joint.retained

    def follow(self) -> None:
        """Update the metrics of modules that were replaced, added or removed."""
        moved = self._places.follow()
        if not moved:
            return
        self._moved += moved
        self._absent = [metric for metric in dict.fromkeys(self._absent + moved) if metric.is_absent]
        held = {id(metric.module) for metric in self._schedule.metrics}
        self._made = {key: calls for key, calls in self._made.items() if key in held and calls.is_current()}
        self._regroup()

    def note_replaced(self, step: int) -> None:
        """Record a reason for metrics of modules that were replaced or removed in this step."""
        for metric in dict.fromkeys(self._moved + self._absent):
            due = metric.schedule.due(step) and not metric.is_stopped
            if due and metric.needs != ("Loss",) and not metric.has_value():
                metric.miss(REMOVED if metric.is_absent else REPLACED)

    def release(self) -> None:
        """Detach all hooks; later gradients are ignored."""
        self._hooked.clear()
        self._active = []
        self._forget_calls()
        self._detach()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Context manager: backwards within are not the training's."""
        self._now.is_paused = True
        try:
            yield
        finally:
            self._now.is_paused = False

    def __del__(self) -> None:
        self._now.drop_handles()
        self._detach()

    def _forget_calls(self) -> None:
        self._now.begin()
        for calls in self._made.values():
            calls.reset()

    def _regroup(self) -> None:
        """Rebuild the calls per module, as the active metrics have changed."""
        self._hooked.clear()
        grouped: dict[int, list[ModuleMetric]] = {}
        for metric in self._active:
            if metric.is_absent:
                continue
            grouped.setdefault(id(metric.module), []).append(metric)
        for key, metrics in grouped.items():
            calls = self._made.get(key)
            if calls is None or calls.metrics != metrics or not calls.is_current():
                calls = self._made[key] = ModuleCalls(metrics, self._now, self._root_state)
            self._hooked[key] = calls

    def _attach(self) -> None:
        if not self.is_attached:
            self.is_attached = True
            self._attached.enter_context(global_call_hooks(*_hooks(self._hooked, self._root, weakref.ref(self))))
        if not self._runs_uncompiled and is_compiler_loaded():
            self._runs_uncompiled = True
            begin()
            self._attached.callback(end)

    def _detach(self) -> None:
        self.is_attached = self._runs_uncompiled = False
        self._attached.close()


def _hooks(
    hooked: dict[int, ModuleCalls], root: nn.Module, owner: weakref.ref[ModuleHooks]
) -> tuple[Callable[..., None], Callable[..., None]]:
    """Returns the two global hooks; they return None, as another value would replace input or output."""

    def follow() -> None:
        hooks = owner()
        if hooks is not None and backward_pass() == -1:
            hooks.has_begun |= root.training and torch.is_grad_enabled()  # not in a validation between two steps
            try:
                hooks.follow()
            except Exception:  # noqa: BLE001
                log_failure()

    def before(module: nn.Module, args: Args) -> None:
        if module is root:
            follow()
        calls = hooked.get(id(module))
        if calls is None or calls.before is None:
            return
        try:
            if backward_pass() == -1:
                calls.before(args)
        except Exception:  # noqa: BLE001
            log_failure()

    def after(module: nn.Module, args: Args, *rest: Any) -> None:
        calls = hooked.get(id(module))
        if calls is None:
            return
        kwargs, output = rest if len(rest) == 2 else ({}, None)  # a forward that raised has no output
        try:
            if backward_pass() == -1:
                calls.after(args, kwargs, output)
            else:
                calls.again(output)
        except Exception:  # noqa: BLE001
            log_failure()

    return before, after
