"""Gradients of weights that were cleared before `track`: their metrics get NaN and a reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from modulekg_widgets.engine.identity.tensors import direct_tensors
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.monitoring.hooks.module_metric import ActiveMetrics, ModuleMetric
from modulekg_widgets.engine.monitoring.hooks.observation import weight_of
from modulekg_widgets.engine.monitoring.metric import NoDataError
from modulekg_widgets.engine.torch_runtime.modules import module_state

GRADIENT_CLEARED = "the gradient of the weight was cleared: zero_grad() ran before `track`; call track() first"
NO_GRADIENTS = (
    "no measured weight has a gradient at `track`: call track() after backward(), and before zero_grad() clears them"
)


class WeightGradients:
    """Notes which weights have a gradient when an optimizer steps."""

    def __init__(self, metrics: Sequence[ModuleMetric]) -> None:
        self._active = ActiveMetrics([metric for metric in metrics if "WeightGrad" in metric.needs])
        self._had: set[int] = set()  # parameters, by identity
        self._handle: RemovableHandle | None = None

    def prepare(self, step: int) -> None:
        """Hook optimizer steps if gradients of weights are read at `step`."""
        self._had.clear()
        if not self._active.at(step):
            self.release()
        elif self._handle is None:
            self._handle = register_optimizer_step_pre_hook(self._note)

    def release(self) -> None:
        """Remove the optimizer hook."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.remove()

    def _note(self, *_: object) -> None:
        for metric in self._active.metrics:
            weight = weight_of(metric.module)
            if weight is not None and weight.grad is not None:
                self._had.add(id(weight))

    def note_cleared(self, step: int) -> None:
        """Record NaN for metrics that are due at `step` and whose gradient was cleared."""
        reading = [metric for metric in self._active.at(step) if metric.schedule.due(step) and not metric.is_absent]
        due = [(metric, weight_of(metric.module)) for metric in reading]
        trained = [(metric, weight) for metric, weight in due if weight is not None and weight.requires_grad]
        missing = [(metric, weight) for metric, weight in trained if weight.grad is None and weight.numel()]
        if not missing:
            return
        is_none_at_all = len(missing) == len(trained)
        for metric, weight in missing:
            if (is_none_at_all or id(weight) in self._had) and not metric.has_value() and not metric.is_stopped:
                metric.miss(GRADIENT_CLEARED if id(weight) in self._had else NO_GRADIENTS)


# -------------------- Modules on the meta device: their calls have no values, so their metrics get NaN and a reason


class MetaModules:
    """Metrics of modules with meta tensors, or of a model that has only those."""

    def __init__(self, root: nn.Module, metrics: Sequence[ModuleMetric]) -> None:
        own = {id(module): [t.is_meta for t in _tensors(module)] for module in walk(root).modules}
        is_all = any(map(any, own.values())) and all(map(all, own.values()))
        self._root = root
        self._active = ActiveMetrics(
            [m for m in metrics if m.sees_calls and (is_all or any(own.get(id(m.module), ())))]
        )

    def note(self, step: int) -> None:
        """Record NaN for metrics that are due at `step` and whose tensors are still on the meta device."""
        for metric in self._active.at(step):
            held = list(_tensors(metric.module)) or _all_tensors(self._root)
            if any(tensor.is_meta for tensor in held):
                metric.miss(str(NoDataError()), about="meta")


def _tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    return (own.tensor for own in direct_tensors(module_state(module)) if own.tensor is not None)


def _all_tensors(root: nn.Module) -> Iterable[torch.Tensor]:
    return [tensor for module in walk(root).modules for tensor in _tensors(module)]
