"""Calls of one module: the place that decides which tensors of a call are read, and when.

For each module with active metrics, `ModuleCalls` builds the two functions that the global module hooks call: `before`
in the pre-hook and `after` in the post-hook, and `again` for calls that activation checkpointing repeats. Metrics of a
single tensor read it at once; metrics of several are collected by `JointMetrics`; gradients arrive later through
tensor hooks. All exceptions are caught and logged, as a monitor must never stop a training.

The functions are closures, not methods: between two layers the CPU cache holds nothing of ours, so that the cost of a
hook is the amount of code and the number of objects that it touches. At most 64 calls of a module per step are
measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from threading import get_ident

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from modulekg_widgets.engine.monitoring.hooks.attention_recorder import AttentionRecorder, remove_interrupted
from modulekg_widgets.engine.monitoring.hooks.gradients import (
    GradientCollector,
    hook_gradient,
    hook_input_gradient,
    input_edge,
)
from modulekg_widgets.engine.monitoring.hooks.module_metric import ModuleMetric, TensorReader, measure, miss
from modulekg_widgets.engine.monitoring.hooks.observation import (
    AFTER,
    BACKWARD,
    BEFORE,
    GRADIENTS,
    IMMEDIATE_SOURCES,
    SOURCES,
    STEP_NEEDS,
    TRACK,
    Observation,
    StepState,
    first_tensor,
    gradients_of,
    is_measurable,
    is_symbolic_call,
    log_failure,
)
from modulekg_widgets.engine.monitoring.readings import EVAL, TRAIN
from modulekg_widgets.engine.torch_runtime.modules import Attributes, module_state
from modulekg_widgets.engine.torch_runtime.private import MODULES, keeps_graph, next_node_number
from modulekg_widgets.engine.torch_runtime.pytree import Args, Kwargs

# -------------------- Metrics that need several tensors of a call, its attention, or the gradient at its input


class JointMetrics:
    """Collects the needs of several metrics per call, and measures each metric once all of its needs are there."""

    def __init__(self, metrics: Sequence[ModuleMetric], now: StepState, overwrites: bool) -> None:
        self._now = now
        self._by_stage = [[metric for metric in metrics if metric.stage == stage] for stage in range(4)]
        needs = {need for metric in metrics for need in metric.needs}
        self._wants_output = any(need.startswith("ForwardOutput") for need in needs)
        self._wants_attention = "Attention" in needs
        self._wants_own_gradient = "BackwardInput" in needs
        self.wants_gradient = any(need.startswith("BackwardOutput") for need in needs)
        self._later = self._needed_at(BACKWARD, TRACK)
        inputs_later = any(need.startswith("ForwardInput") for need in self._needed_at(AFTER, BACKWARD, TRACK))
        self._copies_input = overwrites and inputs_later
        backward = self._by_stage[BACKWARD]
        self._by_gradient = {
            one: [metric for metric in backward if gradients_of(metric.needs) == {one}] for one in GRADIENTS
        }
        self._by_both = [metric for metric in backward if len(gradients_of(metric.needs)) == 2]
        self._keeps_calls = any(not STEP_NEEDS.issuperset(metric.needs) for metric in self._by_stage[TRACK])
        self._kept: list[Observation] = []
        at_input = [metric for metric in metrics if "BackwardInput" in gradients_of(metric.needs)]
        self._at_input = GradientCollector(now, lambda reason, call, phase: miss(at_input, reason, call, phase))

    def _needed_at(self, *stages: int) -> set[str]:
        return {need for stage in stages for metric in self._by_stage[stage] for need in metric.needs}

    @property
    def retained(self) -> list[Observation]:
        """The calls of this step that metrics read again at `track`."""
        return [observation for observation in self._kept if observation.epoch == self._now.epoch]

    def reset(self, has_open_calls: bool) -> None:
        self._kept.clear()
        self._at_input.reset()
        if has_open_calls and self._wants_attention:
            remove_interrupted()

    def enter(self, observation: Observation, args: Args) -> None:
        """Begin a call, in the pre-hook."""
        if self._wants_attention:
            observation.watch = AttentionRecorder(observation.module)
            observation.watch.enter(observation.module, args)

    def record_input(self, observation: Observation, x: torch.Tensor, inputs: Args) -> None:
        if self._wants_own_gradient:
            observation.edge = input_edge(x, inputs)
        observation.record("ForwardInput", x.detach().clone() if self._copies_input else x)
        self._measure(BEFORE, observation)

    def leave(self, observation: Observation, args: Args, kwargs: Kwargs, output: object) -> None:
        """End a call; `output` is None if it raised."""
        if observation.watch is not None:
            observation.by_need["Attention"] = observation.watch.leave(observation.module, args, kwargs, output)

    def record_output(self, observation: Observation, y: torch.Tensor | None) -> Observation | None:
        """Measure metrics of the forward; returns the observation that waits for gradients or `track`."""
        if self._wants_output and y is not None:
            observation.record("ForwardOutput", y)
        self._measure(AFTER, observation)
        if not self._later:
            return None
        waiting = observation.subset(self._later)
        if self._keeps_calls:
            self._kept.append(waiting)
        waiting.edge = observation.edge
        return waiting

    def follow(self, waiting: Observation, y: torch.Tensor) -> list[RemovableHandle]:
        """Hook the gradient at the input; returns the hook handles that must be removed by hand."""
        edge, waiting.edge = waiting.edge, None
        if not self._wants_own_gradient or edge is None:
            return []
        return hook_input_gradient(y, edge, lambda gradient: self._own_gradient(waiting, gradient))

    def record_gradient(self, waiting: Observation, need: str, gradient: torch.Tensor) -> None:
        if not is_measurable(gradient):
            return
        waiting.record(need, gradient)
        measure(self._by_gradient[need], waiting, self._now.step)
        is_complete = not self._by_both or all(one in waiting.by_need for one in GRADIENTS)
        if self._by_both and is_complete:
            measure(self._by_both, waiting, self._now.step)
        if is_complete and not self._keeps_calls:
            waiting.drop()

    def _own_gradient(self, waiting: Observation, gradient: torch.Tensor) -> None:
        try:
            if self._now.accepts(waiting.epoch):
                self._at_input.take(
                    (waiting.call, waiting.phase),
                    self._now.without_scale(gradient),
                    lambda total: self.record_gradient(waiting, "BackwardInput", total),
                )
        except Exception:  # noqa: BLE001 - it would be the training's
            log_failure()

    def _measure(self, stage: int, observation: Observation) -> None:
        if self._by_stage[stage]:
            measure(self._by_stage[stage], observation, self._now.step)


# -------------------- Calls


Tensor = torch.Tensor
MAX_CALLS = 64  # of one module within a step; further ones are not measured


class ModuleCalls:
    """Hook functions of one module for a step at which `metrics` are active.

    `before(args)` and `after(args, kwargs, output)` belong to a call, `output` being None where it raised;
    `again(output)` to one that checkpointing repeats in the backward pass; `reset()` counts anew. Where the module
    leaves its input alone and no metric asks for more than one tensor, there is no `before`: all is read in one go.
    """

    __slots__ = ("_module", "after", "again", "before", "joint", "metrics", "reset")

    def __init__(self, metrics: Sequence[ModuleMetric], now: StepState, root_state: Attributes) -> None:
        module = metrics[0].module
        overwrites = bool(module_state(module).get("inplace"))
        several = [metric for metric in metrics if not metric.sees_one]
        joint = JointMetrics(several, now, overwrites) if several else None
        read_input, read_output, read_gradient = (
            _reader(source, [one for one in metrics if one.sees_one and SOURCES[one.needs[0]] == source], now)
            for source in IMMEDIATE_SOURCES
        )
        at_output = [one for one in metrics if "BackwardOutput" in gradients_of(one.needs)]
        arrivals = GradientCollector(now, lambda reason, call, phase: miss(at_output, reason, call, phase))
        hooks_output = read_gradient is not None or (joint is not None and joint.wants_gradient)
        calls = {TRAIN: 0, EVAL: 0}
        # the calls that have not returned, by thread; more than one where a module calls itself
        opened: defaultdict[int, list[tuple[Observation | None, int, str, bool]]] = defaultdict(list)
        # calls that checkpointing may run again with a graph, by the segment in which they ran
        without_graph: list[tuple[int, int, str, Observation | None]] = []
        ran_again: list[tuple[int, int, str, Observation | None]] = []

        def reset() -> None:
            calls[TRAIN] = calls[EVAL] = 0
            arrivals.reset()
            ran_again.clear()
            if joint is not None:
                joint.reset(has_open_calls=bool(opened))
            opened.clear()
            without_graph.clear()

        def counted() -> tuple[int, str]:
            phase = TRAIN if root_state.get("training", True) else EVAL
            call = calls[phase]
            calls[phase] = call + 1
            return call, phase

        def before(args: Args) -> None:
            if is_symbolic_call(args):
                return
            x = first_tensor(args)
            call, phase = counted()
            observation = None if joint is None else Observation(module, call, phase, now.epoch)
            opened[get_ident()].append((observation, call, phase, x is not None))
            if call >= MAX_CALLS:
                return
            if joint is not None and observation is not None:
                joint.enter(observation, args)
            if x is not None:
                see_input(x, args, call, phase, observation)

        def after(args: Args, kwargs: Kwargs, output: object) -> None:
            own = opened[get_ident()]
            if not own:
                return  # attached in the middle of the call
            observation, call, phase, is_seen = own.pop()
            if joint is not None and observation is not None:
                joint.leave(observation, args, kwargs, output)
            if call >= MAX_CALLS or output is None:
                return
            if kwargs and not is_seen and not overwrites:
                inputs = tuple(kwargs.values())
                x = first_tensor(inputs)
                if x is not None:
                    see_input(x, inputs, call, phase, observation)
            see_output(output, call, phase, observation)

        def at_once(args: Args, kwargs: Kwargs, output: object) -> None:
            if is_symbolic_call(args or (output,)):
                return
            call, phase = counted()
            if call >= MAX_CALLS or output is None:
                return
            if read_input is not None:
                x = first_tensor(args)
                if x is None and kwargs:
                    x = first_tensor(tuple(kwargs.values()))
                if x is not None:
                    read_input(x.detach(), call, phase)
            see_output(output, call, phase, None)

        def see_input(x: Tensor, inputs: Args, call: int, phase: str, observation: Observation | None) -> None:
            if read_input is not None:
                read_input(x.detach(), call, phase)
            if joint is not None and observation is not None:
                joint.record_input(observation, x, inputs)

        def see_output(output: object, call: int, phase: str, observation: Observation | None) -> None:
            y = first_tensor(output)
            if read_output is not None and y is not None:
                read_output(y.detach(), call, phase)
            waiting = None
            if joint is not None and observation is not None:
                waiting = joint.record_output(observation, y)
            if y is not None and (hooks_output or waiting is not None):
                follow(y, call, phase, waiting)

        def follow(y: Tensor, call: int, phase: str, waiting: Observation | None, awaits_more: bool = False) -> None:
            """Wait for the gradients of a call."""
            graph = y.grad_fn
            if graph is None and not y.requires_grad:
                if phase == TRAIN and not torch.is_grad_enabled():
                    # nothing is added to the graph within a segment, so its calls see one and the same number
                    without_graph.append((next_node_number(), call, phase, waiting))
                return
            if joint is not None and waiting is not None:
                now.handles += joint.follow(waiting, y)
            if not hooks_output:
                return
            hook = gradient_hook(call, phase, waiting, awaits_more)
            if graph is None:
                now.handles.append(y.register_hook(hook))
            else:
                hook_gradient(y, graph, hook)

        def gradient_hook(
            call: int, phase: str, waiting: Observation | None, awaits_more: bool
        ) -> Callable[[Tensor | None], None]:
            """Reads a gradient, if it arrives in the present step; an exception in it would be the training's."""
            epoch, key = now.epoch, (call, phase)

            def hook(gradient: Tensor | None) -> None:
                try:
                    if gradient is None or epoch != now.epoch or now.is_paused:
                        return
                    if now.unscaled is not None:
                        gradient = now.unscaled(gradient)
                    arrivals.take(key, gradient, deliver, awaits_more)
                except Exception:  # noqa: BLE001
                    log_failure()

            def deliver(gradient: Tensor) -> None:
                if read_gradient is not None:
                    read_gradient(gradient.detach(), call, phase)
                if joint is not None and waiting is not None:
                    joint.record_gradient(waiting, "BackwardOutput", gradient)

            return hook

        def again(output: object) -> None:
            y = first_tensor(output)
            if y is None or not y.requires_grad:
                return
            if not without_graph:  # a further backward pass through the same segments
                without_graph[:] = reversed(ran_again)
                ran_again.clear()
            if not without_graph:
                return
            # segments come back last first, each from its beginning
            last = without_graph[-1][0]
            at = next(at for at, (segment, *_) in enumerate(without_graph) if segment == last)
            entry = without_graph.pop(at)
            ran_again.append(entry)
            _, call, phase, waiting = entry
            if waiting is not None:
                waiting.edge = None  # of the graph that is not there
            follow(y, call, phase, waiting, awaits_more=keeps_graph())

        self._module = module
        self.metrics = metrics
        self.joint = joint
        self.reset, self.again = reset, again
        reads_at_once = joint is None and _preserves_input(module)
        self.before, self.after = (None, at_once) if reads_at_once else (before, after)

    def is_current(self) -> bool:
        """True if all metrics still belong to this module."""
        return all(metric.module is self._module for metric in self.metrics)


def _preserves_input(module: nn.Module) -> bool:
    """True if the module does not change its input in place, as is known of leaf layers of torch."""
    own = module_state(module)
    is_leaf = type(module).__module__.startswith("torch.nn.modules.") and not own.get(MODULES)
    return is_leaf and not own.get("inplace")


def _reader(source: str, metrics: Sequence[ModuleMetric], now: StepState) -> TensorReader | None:
    """Returns a function that measures `metrics` on one tensor, sharing intermediate results; None without metrics."""
    if not metrics:
        return None
    if len(metrics) == 1 and metrics[0].is_quick:
        return metrics[0].reader()
    module = metrics[0].module

    def read(tensor: Tensor, call: int, phase: str) -> None:
        if is_measurable(tensor):
            measure(metrics, Observation.of(source, tensor, module, call, phase), now.step)

    return read
