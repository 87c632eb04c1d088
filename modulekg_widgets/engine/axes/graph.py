"""`mk.trace`: a data-flow graph that knows its axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from torch import nn

from modulekg_widgets.engine.axes.attention import find_attention
from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.axes.cut_analysis import Cut, Indices, cut_analysis, operator_analysis
from modulekg_widgets.engine.axes.dependencies.channels import channel_dependency, input_channel_dependency
from modulekg_widgets.engine.axes.dependencies.groups import group_dependency
from modulekg_widgets.engine.axes.dependencies.reshapes import reshape_dependency
from modulekg_widgets.engine.axes.dependencies.views import (
    AttentionDependency,
    ChannelDependency,
    GroupDependency,
    InputChannelDependency,
    ReshapeDependency,
)
from modulekg_widgets.engine.axes.layers import Layers
from modulekg_widgets.engine.axes.verify import TOLERANCE, Verification, verify
from modulekg_widgets.engine.errors import shown
from modulekg_widgets.engine.keywords import called_as
from modulekg_widgets.engine.operators.recorded import Unknown
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, OperatorNode
from modulekg_widgets.engine.tracing.execution import fill_values
from modulekg_widgets.engine.tracing.outputs import wanted_outputs
from modulekg_widgets.engine.tracing.trace import trace_dataflow


class ProvableAxes(Axes):
    """The axes of a traced model, which a permutation of their indices proves."""

    def verify(
        self,
        args: Any = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        seed: int = 0,
        tolerance: float = TOLERANCE,
        bipartitions: int = 8,
        only: Sequence[Axis] | None = None,
    ) -> Verification:
        """Prove the free axes by permutation; see `modulekg_widgets.engine.axes.verify.verify`."""
        return verify(self, args, kwargs, seed=seed, tolerance=tolerance, bipartitions=bipartitions, only=only)


class DataflowGraph(Dataflow):
    """The data flow of one forward pass and the axes that run through it."""

    @cached_property
    def axes(self) -> ProvableAxes:
        """The axes, with the model's inputs and outputs kept as they are."""
        return ProvableAxes(self)

    def free_axes(self, inputs: bool = False, outputs: bool = False) -> ProvableAxes:
        """The axes where the dimensions of the model's inputs or outputs may change too."""
        return ProvableAxes(self, free_inputs=inputs, free_outputs=outputs)

    @property
    def unknown(self) -> list[Unknown]:
        """The operators that no rule knows, with module and source line; all that they touch is frozen."""
        return self.axes.unknown

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the recorded operators on real inputs and fill `value` of every node; gives the outputs' values."""
        return fill_values(self, args, kwargs)

    def cut_analysis(self, what: str | DataNode, index: Iterable[int], dim: int = 0) -> Cut:
        """What must change when the positions `index` of a dimension go: see `Cut`; nothing is changed.

        `what` is a parameter or buffer by its dotted name, or a value. Raises `CutError` and `UnknownPathError`.
        """
        return cut_analysis(self.axes, what, index, dim)

    def operator_analysis(self, operator: OperatorNode, value: DataNode, mask: Any) -> dict[DataNode, Indices]:
        """What one operator alone makes of a mask on one of its tensors."""
        return operator_analysis(operator, value, mask)

    # --------------------------------------------------------- dependency views

    def channel_dependency(self, prune_type: str = "filter") -> ChannelDependency:
        """Layers, or with `"batchnorm"` the batch normalisations, whose output channels must be pruned alike."""
        return channel_dependency(self.axes, prune_type)

    def input_channel_dependency(self) -> InputChannelDependency:
        """Layers whose input channels must be pruned alike."""
        return input_channel_dependency(self.axes)

    def group_dependency(self) -> GroupDependency:
        """The least number that the channels of each layer must be divisible by."""
        return group_dependency(self.axes)

    def reshape_dependency(self) -> ReshapeDependency:
        """The operators that merge or split channels, and the layers whose channels run through them."""
        return reshape_dependency(self.axes)

    def attention_dependency(self) -> AttentionDependency:
        """The projections of q, k, v and out of every attention."""
        return AttentionDependency(tuple(find_attention(Layers(self.axes.inference))))


@called_as("mk.trace")
def trace(
    model: nn.Module,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    outputs: Any = None,
    *,
    training: bool | None = None,
) -> DataflowGraph:
    """Follow `model(*args, **kwargs)` once, on tensors without data where that goes; the model stays as it is.

    `outputs` names the outputs that count, or gives their indices: these keep their shape when axes are cut. By default
    all count but what serves the next call, as `past_key_values`, and, beside `logits`, what is of the model's inside,
    as encoder and hidden states; `graph.notes` says which do not. `training` sets the mode for the trace alone. Raises
    `TraceError`, whose `graph` ends where forward stopped, and `UnknownNameError` for an output that there is not.
    """
    wanted = wanted_outputs(outputs)
    graph = trace_dataflow(model, args, kwargs, training=training, make=DataflowGraph)
    graph.wanted = wanted
    if graph.following:
        names = ", ".join(shown(name) for name in list(graph.following)[:8])
        graph.notes.append(f"These outputs follow a cut, and do not keep their shape: {names}. Name those that shall "
                           "keep it with outputs=[…].")  # fmt: skip
    return graph
