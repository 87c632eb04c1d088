"""The traced call once more, on modules that stand for the model's and were changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.torch_runtime.look import Stage, look
from modulekg_widgets.engine.torch_runtime.shadow import LOOSE
from modulekg_widgets.engine.torch_runtime.state import set_mode
from modulekg_widgets.engine.torch_runtime.structure import with_tensors
from modulekg_widgets.engine.tracing.dataflow import Dataflow
from modulekg_widgets.engine.tracing.trace import call_model


def changed_call(graph: Dataflow, change: Callable[[Walk, Stage], None]) -> Any:
    """What the traced call gives once `change` was made; the model stays as it is, and raises what its code raises."""
    walked = walk(graph.model)
    args, kwargs = with_tensors(graph.call, lambda tensor: tensor.detach().clone())

    def forward(stage: Stage) -> Any:
        copied = walked.with_modules(stage.modules)
        set_mode(copied.states, graph.training)
        change(copied, stage)
        with torch.set_grad_enabled(graph.gradients):
            return call_model(stage.model, args, kwargs)

    return look(walked.modules, (), forward, LOOSE, 0 if graph.seed is None else graph.seed)
