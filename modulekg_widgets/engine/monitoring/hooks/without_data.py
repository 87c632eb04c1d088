"""Modules on the meta device: their calls are no training that hooks could see, but that they have no value is said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import nn

from modulekg_widgets.engine.identity.tensors import own_tensors
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.monitoring.hooks.active_metrics import ActiveMetrics
from modulekg_widgets.engine.monitoring.hooks.module_metric import ModuleMetric
from modulekg_widgets.engine.monitoring.metric import NoDataError
from modulekg_widgets.engine.torch_runtime.state import module_state


class WithoutData:
    """The metrics of calls whose modules hold tensors without data, or belong to a model that has no others."""

    def __init__(self, root: nn.Module, metrics: Sequence[ModuleMetric]) -> None:
        own = {id(module): [t.is_meta for t in _tensors(module)] for module in walk(root).modules}
        is_all = any(map(any, own.values())) and all(map(all, own.values()))
        self._root = root
        self._active = ActiveMetrics(
            [m for m in metrics if m.sees_calls and (is_all or any(own.get(id(m.module), ())))]
        )

    def note(self, step: int) -> None:
        """Give NaN for those that are due at `step` and still have no data."""
        for metric in self._active.at(step):
            held = list(_tensors(metric.module)) or _all_tensors(self._root)
            if any(tensor.is_meta for tensor in held):
                metric.miss(str(NoDataError()), about="meta")


def _tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    return (own.tensor for own in own_tensors(module_state(module)) if own.tensor is not None)


def _all_tensors(root: nn.Module) -> Iterable[torch.Tensor]:
    return [tensor for module in walk(root).modules for tensor in _tensors(module)]
