"""Another number of classes for a model whose builder has no word for it: its last layer is exchanged."""

from __future__ import annotations

from typing import Any

from torch import nn

from modulekg_widgets.engine.errors import ModuleKGError, PredictionError, shown
from modulekg_widgets.engine.knowledge.light_pass import Call
from modulekg_widgets.engine.operators.arguments import OperatorCall
from modulekg_widgets.engine.torch_runtime.private import modules_of
from modulekg_widgets.engine.tracing.dataflow import Dataflow
from modulekg_widgets.engine.tracing.trace import trace_dataflow

LAYERS = (nn.Linear, nn.Conv2d, nn.Conv1d)
RESHAPES = ("view", "_unsafe_view", "reshape", "flatten", "squeeze", "clone", "alias")


def with_classes(model: nn.Module, call: Call, classes: int) -> nn.Module:
    """The model with a last layer for so many classes, with weights as layers have them at first.

    Raises `PredictionError` where the output does not come of one layer of its own.
    """
    args, kwargs = call
    try:
        path = head_of(trace_dataflow(model, args, dict(kwargs), training=False))
    except ModuleKGError as error:
        raise PredictionError(f"its head cannot be found, for it does not run: {shown(str(error), 200)}") from error
    if path is None:
        raise PredictionError(
            f"the output of {shown(type(model).__name__)} comes of no layer of its own that could be exchanged: pass a "
            "builder that takes num_classes"
        )
    parent, _, name = path.rpartition(".")
    layer = model.get_submodule(path)
    if getattr(layer, "out_features", getattr(layer, "out_channels", None)) == classes:
        return model
    modules_of(model.get_submodule(parent))[name] = _for(layer, classes).train(layer.training)
    return model


def head_of(graph: Dataflow) -> str | None:
    """The path of the layer that makes the first output, which goes nowhere else and shares no weight."""
    outputs = graph.counted
    producer = outputs[0].producer if outputs else None
    while producer is not None and OperatorCall(producer).name in RESHAPES:  # of a layer on tokens, or around it
        producer = producer.inputs[0].producer
    node = graph.modules.get(producer.module) if producer is not None else None
    if node is None or not isinstance(node.module, LAYERS) or len(node.calls) != 1:
        return None
    own = [tensor for tensor in graph.state.values() if any(name.startswith(f"{node.path}.") for name in tensor.names)]
    return None if not node.path or any(len(tensor.names) > 1 for tensor in own) else node.path


def _for(layer: nn.Module, classes: int) -> nn.Module:
    has_bias, place = layer.bias is not None, {"device": layer.weight.device, "dtype": layer.weight.dtype}
    if isinstance(layer, nn.Linear):
        return nn.Linear(layer.in_features, classes, has_bias, **place)  # type: ignore[arg-type]
    assert isinstance(layer, nn.Conv1d | nn.Conv2d)
    settings: dict[str, Any] = {
        name: getattr(layer, name) for name in ("kernel_size", "stride", "padding", "dilation", "padding_mode")
    }
    return type(layer)(layer.in_channels, classes, bias=has_bias, **settings, **place)
