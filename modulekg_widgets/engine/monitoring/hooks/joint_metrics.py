"""Metrics that need several tensors of a call, its attention, or the gradient at its input."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.utils.hooks import RemovableHandle

from modulekg_widgets.engine.monitoring.hooks.attention_recorder import AttentionRecorder, remove_interrupted
from modulekg_widgets.engine.monitoring.hooks.gradients import GradientCollector, hook_input_gradient, input_edge
from modulekg_widgets.engine.monitoring.hooks.module_metric import ModuleMetric, measure, miss
from modulekg_widgets.engine.monitoring.hooks.observation import (
    AFTER,
    BACKWARD,
    BEFORE,
    GRADIENTS,
    STEP_NEEDS,
    TRACK,
    Observation,
    StepState,
    gradients_of,
    is_measurable,
    log_failure,
)
from modulekg_widgets.engine.torch_runtime.pytree import Args, Kwargs


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
