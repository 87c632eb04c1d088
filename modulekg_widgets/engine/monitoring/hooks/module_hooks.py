"""Hooks that are there on scheduled steps only, and leave nothing in the model.

They are torch's hooks for all modules, filtered by identity: nothing is written into a module, so a copy or a pickle of
the model taken meanwhile has no trace of them.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from modulekg_widgets.engine.monitoring.hooks import uncompiled
from modulekg_widgets.engine.monitoring.hooks.active_metrics import Rota
from modulekg_widgets.engine.monitoring.hooks.attention import AttentionWatch, forget_interrupted
from modulekg_widgets.engine.monitoring.hooks.entry import STEP_NEEDS, Entry
from modulekg_widgets.engine.monitoring.hooks.gather import (
    AFTER,
    BACKWARD,
    BEFORE,
    GRADIENTS,
    TRACK,
    Observation,
    first_tensor,
    gradients_of,
    is_measurable,
    is_rehearsal,
)
from modulekg_widgets.engine.monitoring.hooks.own_gradient import input_edge, watch_own_gradient
from modulekg_widgets.engine.monitoring.hooks.quick import Now, Quick, log_failure, measure, quick_for
from modulekg_widgets.engine.monitoring.readings import EVAL, TRAIN
from modulekg_widgets.engine.torch_runtime.hooks import remove_hook_of_all_modules
from modulekg_widgets.engine.torch_runtime.private import (
    backward_pass,
    is_compiler_loaded,
    next_node_number,
)
from modulekg_widgets.engine.torch_runtime.state import module_state

MOST_CALLS = 64  # of one module within a step; further ones are not measured


class Tap:
    """What is measured of one module at the present step, by the moment at which it is measured."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.watching: list[Entry] = []
        self.quick: Quick | None = None
        self.calls = {TRAIN: 0, EVAL: 0}
        # calls that have not returned, by thread; more than one where a module calls itself
        self.open: defaultdict[int, list[Observation]] = defaultdict(list)
        self.kept: list[Observation] = []  # calls that a metric asks for again at `track`
        self.without_graph: list[tuple[int, Observation]] = []  # calls that checkpointing may run again with a graph

    def repeated(self) -> Observation:
        """The call that checkpointing runs again now: its segments come back last first, each from its beginning."""
        last = self.without_graph[-1][0]
        at = next(at for at, (segment, _) in enumerate(self.without_graph) if segment == last)
        return self.without_graph.pop(at)[1]

    def arm(self, entries: Sequence[Entry], now: Now, root_state: dict[str, Any]) -> None:
        """Prepare for a step at which these entries watch; the same as before need no preparing."""
        if entries == self.watching:
            return
        self.watching = list(entries)
        self.by_stage = [[entry for entry in entries if entry.stage == stage] for stage in range(4)]
        needs = {need for entry in entries for need in entry.needs}
        self.wants_output = any(need.startswith("ForwardOutput") for need in needs)
        self.wants_attention = "Attention" in needs
        self.wants_gradient = any(need.startswith("BackwardOutput") for need in needs)
        self.wants_own_gradient = "BackwardInput" in needs
        self.later = {need for stage in (BACKWARD, TRACK) for entry in self.by_stage[stage] for need in entry.needs}
        inputs_later = {need for stage in (AFTER, BACKWARD, TRACK) for e in self.by_stage[stage] for need in e.needs}
        self.overwrites = bool(module_state(self.module).get("inplace"))
        self.copies_input = self.overwrites and any(need.startswith("ForwardInput") for need in inputs_later)
        backward = self.by_stage[BACKWARD]
        self.by_gradient = {
            one: [entry for entry in backward if gradients_of(entry.needs) == {one}] for one in GRADIENTS
        }
        self.by_both = [entry for entry in backward if len(gradients_of(entry.needs)) == 2]
        self.keeps_calls = any(not STEP_NEEDS.issuperset(entry.needs) for entry in self.by_stage[TRACK])
        forward = [entry for entry in entries if not STEP_NEEDS.issuperset(entry.needs)]
        self.is_forward = bool(forward)
        self.quick = quick_for(forward, now, root_state, MOST_CALLS, self.overwrites)

    def reset(self) -> None:
        if self.quick is not None:
            self.quick.reset()
        self.calls[TRAIN] = self.calls[EVAL] = 0
        if self.open:
            if any(observation.watch is not None for calls in self.open.values() for observation in calls):
                forget_interrupted()
            self.open.clear()
        self.kept.clear()
        self.without_graph.clear()


class Watcher:
    """Attaches the hooks for a step, measures, and detaches them."""

    def __init__(
        self,
        root: nn.Module,
        entries: Sequence[Entry],
        unscaled: Callable[[torch.Tensor], torch.Tensor] | None = None,  # takes a loss scale out of a gradient
    ) -> None:
        self._root_state = module_state(root)
        self._rota = Rota(entries)
        self._watching: list[Entry] = []
        self._taps = {id(entry.module): Tap(entry.module) for entry in entries}
        self._armed: dict[int, Tap] = {}
        self._handles: list[Any] = []
        self._leaves: list[Any] = []  # handles of hooks on tensors that no graph takes with it when it goes
        self._runs_uncompiled = False
        self._now = Now(unscaled)

    @property
    def epoch(self) -> int:
        """The step, as calls and gradients know it: it counts what was armed."""
        return self._now.epoch

    @property
    def step(self) -> int:
        """The step that was armed last."""
        return self._now.step

    @property
    def is_attached(self) -> bool:
        return bool(self._handles)

    def arm(self, step: int) -> None:
        """Attach what `step` needs, and nothing else; calls are counted anew."""
        self._now.epoch += 1
        self._now.step = step
        self._drop_leaves()
        for tap in self._taps.values():
            tap.reset()
        watching = self._rota.watching(step)
        if watching is not self._watching:
            self._watching = watching
            self._regroup()
        if self._armed:
            self._attach()
        else:
            self._detach()

    def _regroup(self) -> None:
        """Other entries watch than at the step before: they may need other hooks."""
        self._detach()
        self._armed.clear()
        grouped: dict[int, list[Entry]] = {}
        for entry in self._watching:
            grouped.setdefault(id(entry.module), []).append(entry)
        for key, entries in grouped.items():
            tap = self._taps[key]
            tap.arm(entries, self._now, self._root_state)
            if tap.is_forward:
                self._armed[key] = tap

    def kept(self, entry: Entry) -> list[Observation]:
        """The calls of this step that `entry` asks for at `track`; none for one that looks at weights alone."""
        if STEP_NEEDS.issuperset(entry.needs):
            return []
        tap = self._taps[id(entry.module)]
        return [observation for observation in tap.kept if observation.epoch == self.epoch]

    def release(self) -> None:
        """Detach everything; gradients that arrive later are ignored."""
        self._now.epoch += 1
        self._armed.clear()
        self._watching = []
        for tap in self._taps.values():
            tap.reset()
        self._drop_leaves()
        self._detach()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Backward passes in here are not those of the training."""
        self._now.is_paused = True
        try:
            yield
        finally:
            self._now.is_paused = False

    def __del__(self) -> None:
        self._drop_leaves()
        self._detach()

    # -------------------------------------------------------------- attaching

    def _attach(self) -> None:
        if not self._handles:
            before, after = _hooks(self)
            self._handles = [register_module_forward_hook(after, with_kwargs=True, always_call=True)]
            if any(tap.quick is None or tap.quick.before is not None for tap in self._armed.values()):
                self._handles.append(register_module_forward_pre_hook(before))
        if not self._runs_uncompiled and is_compiler_loaded():
            self._runs_uncompiled = True
            uncompiled.begin()

    def _detach(self) -> None:
        handles, self._handles = self._handles, []
        for handle in handles:
            remove_hook_of_all_modules(handle)
        if self._runs_uncompiled:
            self._runs_uncompiled = False
            uncompiled.end()

    def _drop_leaves(self) -> None:
        leaves, self._leaves = self._leaves, []
        for handle in leaves:
            handle.remove()

    # -------------------------------------------------------------- measuring

    def before(self, tap: Tap, args: tuple[Any, ...]) -> None:
        phase = TRAIN if self._root_state.get("training", True) else EVAL
        call = tap.calls[phase]
        tap.calls[phase] = call + 1
        observation = Observation(tap.module, call, phase, self.epoch)
        tap.open[get_ident()].append(observation)
        if call >= MOST_CALLS:
            return
        if tap.wants_attention:
            observation.watch = AttentionWatch(tap.module)
            observation.watch.enter(tap.module, args)
        self._see_input(tap, observation, args)

    def after(self, tap: Tap, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        calls = tap.open[get_ident()]
        if not calls:
            return  # attached in the middle of the call
        observation = calls.pop()
        if observation.watch is not None:
            attention = observation.watch.leave(tap.module, args, kwargs, output)
            observation.found["Attention"] = attention
        if observation.epoch != self.epoch or observation.call >= MOST_CALLS or output is None:
            return
        if kwargs and "ForwardInput" not in observation.found and not tap.overwrites and first_tensor(args) is None:
            self._see_input(tap, observation, tuple(kwargs.values()))
        y = first_tensor(output)
        if tap.wants_output and y is not None:
            observation.see("ForwardOutput", y)
        self._measure(tap, AFTER, observation)
        if tap.later:
            self._follow(tap, observation, y)

    def follow(self, tap: Tap, call: int, phase: str, output: Any) -> None:
        """Wait the long way for the gradient of a call that was measured the short way."""
        self._follow(tap, Observation(tap.module, call, phase, self.epoch), first_tensor(output))

    def again(self, tap: Tap, output: Any) -> None:
        """A call that checkpointing repeats in the backward pass: counted before, but the graph is made only now."""
        y = first_tensor(output)
        if tap.without_graph and y is not None and y.requires_grad:
            self._follow(tap, tap.repeated(), y)

    def _see_input(self, tap: Tap, observation: Observation, inputs: tuple[Any, ...]) -> None:
        x = first_tensor(inputs)
        if x is None:
            return
        if tap.wants_own_gradient:
            observation.edge = input_edge(x, inputs)
        observation.see("ForwardInput", x.detach().clone() if tap.copies_input else x)
        self._measure(tap, BEFORE, observation)

    def _follow(self, tap: Tap, observation: Observation, y: torch.Tensor | None) -> None:
        """Wait for what comes after the forward pass."""
        later = observation.later(tap.later)
        if tap.keeps_calls:
            tap.kept.append(later)
        if y is None or not (tap.wants_gradient or tap.wants_own_gradient):
            return
        if not y.requires_grad:
            if observation.phase == TRAIN and not torch.is_grad_enabled():
                later.edge = None
                # nothing is added to the graph within a segment, so its calls see one and the same number
                tap.without_graph.append((next_node_number(), later))
            return
        if tap.wants_own_gradient and observation.edge is not None:
            own = watch_own_gradient(y, observation.edge, lambda g: self._gradient(tap, later, "BackwardInput", g))
            self._leaves += own
        if tap.wants_gradient:
            handle = y.register_hook(lambda g: self._gradient(tap, later, "BackwardOutput", g))
            if y.is_leaf:
                self._leaves.append(handle)

    def _gradient(self, tap: Tap, observation: Observation, need: str, gradient: torch.Tensor | None) -> None:
        """Called in the backward pass, where an exception would be the training's."""
        try:
            is_of_now = observation.epoch == self._now.epoch and not self._now.is_paused
            if gradient is not None and is_of_now and is_measurable(gradient):
                observation.see(need, gradient if self._now.unscaled is None else self._now.unscaled(gradient))
                measure(tap.by_gradient[need], observation, self.step)
                is_complete = not tap.by_both or (
                    GRADIENTS[0] in observation.found and GRADIENTS[1] in observation.found
                )
                if tap.by_both and is_complete:
                    measure(tap.by_both, observation, self.step)
                if is_complete and not tap.keeps_calls:
                    observation.drop()
        except Exception:  # noqa: BLE001
            log_failure()

    def _measure(self, tap: Tap, stage: int, observation: Observation) -> None:
        if tap.by_stage[stage]:
            measure(tap.by_stage[stage], observation, self.step)


def _hooks(watcher: Watcher) -> tuple[Callable[..., None], Callable[..., None]]:
    """The two hooks; they return None always, for any other value would replace the module's."""
    seen = weakref.ref(watcher)  # a monitor that is deleted takes its hooks away

    armed = watcher._armed  # one dict for all steps

    def before(module: nn.Module, args: tuple[Any, ...]) -> None:
        tap = armed.get(id(module))
        if tap is None:
            return
        try:
            if tap.quick is not None:
                if tap.quick.before is not None:
                    tap.quick.before(args)
            elif backward_pass() == -1 and not is_rehearsal(args) and (own := seen()) is not None:
                own.before(tap, args)
        except Exception:  # noqa: BLE001
            log_failure()

    def after(module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        tap = armed.get(id(module))
        if tap is None:
            return
        kwargs, output = rest if len(rest) == 2 else ({}, None)  # a forward that raised has no output
        try:
            if backward_pass() != -1:
                if (own := seen()) is not None:
                    own.again(tap, output)
            elif tap.quick is None:
                if (own := seen()) is not None:
                    own.after(tap, args, kwargs, output)
            elif (left := tap.quick.after(args, kwargs, output)) is not None and (own := seen()) is not None:
                own.follow(tap, *left, output)
        except Exception:  # noqa: BLE001
            log_failure()

    return before, after
