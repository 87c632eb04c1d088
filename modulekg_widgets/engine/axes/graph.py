"""`mk.trace`, and the data-flow graph with axes that it returns.

`DataflowGraph` is the recorded forward pass (`tracing/dataflow.py`) with everything that axes add: `.axes`,
`.cut_analysis`, the dependency views, `.blocks()` and `.profile()`. Each method is a thin call into the module that
does the work, imported from below; axes are inferred on first use, in one pass over the operators.

>>> import torch, modulekg_widgets as mk
>>> graph = mk.trace(torch.nn.Linear(3, 4), torch.zeros(1, 3))
>>> graph.axes.expression("weight")
'out=4 in=3'
"""

# pandas has no types
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch import nn

from modulekg_widgets.engine.axes.cut_analysis import Cut, Indices, cut_analysis, operator_analysis
from modulekg_widgets.engine.axes.dependencies.channels import (
    channel_dependency,
    group_dependency,
    input_channel_dependency,
    reshape_dependency,
)
from modulekg_widgets.engine.axes.dependencies.views import (
    AttentionDependency,
    ChannelDependency,
    GroupDependency,
    InputChannelDependency,
    ReshapeDependency,
)
from modulekg_widgets.engine.axes.inference.attention import find_attention
from modulekg_widgets.engine.axes.inference.layers import Layers
from modulekg_widgets.engine.axes.proof.list_proof import infer_axes
from modulekg_widgets.engine.axes.proof.operator_proofs import ProvableAxes
from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.keywords import explain_keywords
from modulekg_widgets.engine.operators.recorded_call import CallRecord
from modulekg_widgets.engine.profiling.profile import profile
from modulekg_widgets.engine.residuals.removable_blocks import block_table
from modulekg_widgets.engine.torch_runtime.isolation.progress import long_work
from modulekg_widgets.engine.torch_runtime.parallel import unwrap_model
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, OperatorNode, parse_output_selection
from modulekg_widgets.engine.tracing.execution import fill_values
from modulekg_widgets.engine.tracing.trace import trace_dataflow

if TYPE_CHECKING:
    import pandas as pd


class DataflowGraph(Dataflow):
    """The data flow of one forward pass, as returned by `mk.trace`, with its axes.

    Attributes
    ----------
    operators : list[OperatorNode]
        The calls of ATen operators in order, each with `.name`, `.arguments`, `.inputs`, `.outputs`, `.module`.
    values : Values
        The tensors in the order of their birth, by index or by name, each with `.shape`, `.producer`, `.consumers`.
    modules : Modules
        By dotted path, each with `.inputs`, `.outputs`, `.operators` and `.flops()`.
    traced_on : str
        The tensors that it was traced on: "meta", "fake" or "real".
    notes : list[str]
        What was done otherwise than usual, in sentences.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> graph = mk.trace(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()), torch.zeros(1, 3))
    >>> [operator.name for operator in graph.operators]
    ['aten::t', 'aten::addmm', 'aten::relu']
    >>> graph.modules["0"].flops().total
    24
    """

    @cached_property
    def axes(self) -> ProvableAxes:
        """The axes; the dimensions of the model's inputs and outputs are frozen."""
        return infer_axes(self)

    def free_axes(self, inputs: bool = False, outputs: bool = False) -> ProvableAxes:
        """The axes where the dimensions of the model's inputs or outputs may change too.

        Parameters
        ----------
        inputs, outputs
            Whether those of the inputs, and those of the outputs, may.

        Returns
        -------
        Axes
            Found anew: they have nothing in common with `graph.axes`.

        Examples
        --------
        >>> import torch, modulekg_widgets as mk
        >>> graph = mk.trace(torch.nn.Linear(3, 4), torch.zeros(1, 3))
        >>> len(graph.axes.free), len(graph.free_axes(inputs=True, outputs=True).free)
        (0, 2)
        """
        return infer_axes(self, free_inputs=inputs, free_outputs=outputs)

    def blocks(self) -> pd.DataFrame:
        """Returns a table of the residual blocks x + f(x) that can be removed.

        A block is a module of the kind as a whole, such as a layer of a transformer or a block of a ResNet, or a module
        that is the branch f of a sum, such as an attention or an MLP; layers and their branches are both listed.
        Of blocks that are alike, one is tried on tensors without data. Raises `TraceError` where modules of the model
        are not those that were traced.

        Returns
        -------
        DataFrame
            A row for each, in the order of the pass, with its `path`, its parameters as `params` and its `flops`, both
            with those of a normalisation that serves it alone.

        Examples
        --------
        >>> import torch, torchvision, modulekg_widgets as mk
        >>> graph = mk.trace(torchvision.models.resnet18(), torch.zeros(1, 3, 64, 64))
        >>> list(graph.blocks()["path"])
        ['layer1.0', 'layer1.1', 'layer2.1', 'layer3.1', 'layer4.1']
        """
        return block_table(self)

    def profile(self, args: Any = None, kwargs: Mapping[str, Any] | None = None, plan: Any = None) -> pd.DataFrame:
        """Measure how long each module takes on the model's device; with a plan before and after, side by side.

        A copy in eval mode runs, a few seconds long. Times are medians of passes in turn, with all that a module calls
        inside, and without what it costs to measure it; the first row is the whole model.

        Parameters
        ----------
        args, kwargs
            What forward is called with, in place of what the trace was given.
        plan : PruningPlan, optional
            What a copy is cut by for the columns `…_after`; its passes take turns with those of the uncut one.

        Returns
        -------
        DataFrame
            A row for each `module`: its `time_ms`, missing where it is not called; `writable_alias`, bytes of the
            tensors that its operators make, without views; its `flops`; and `flops_per_s`.

        Raises
        ------
        TraceError
            For a model or inputs on the meta device, or where forward does not take the inputs.
        CutError
            For a plan that is none, or of another model.

        Examples
        --------
        >>> import torch, modulekg_widgets as mk
        >>> graph = mk.trace(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()), torch.zeros(1, 3))
        >>> table = graph.profile()
        >>> list(table["module"]), list(table["flops"]), list(table["memory"])
        (['', '0', '1'], [28, 24, 4], [32, 16, 16])
        """
        return profile(self, args, kwargs, plan)

    @property
    def unknown(self) -> list[CallRecord]:
        """The operators that no rule knows, with module and source line; all that they touch is frozen."""
        return self.axes.unknown

    def forward(self, *args: object, **kwargs: object) -> Any:
        """Run the recorded operators on real inputs and fill `value` of every node.

        Parameters
        ----------
        *args, **kwargs
            What the model takes, in the shapes of the trace.

        Returns
        -------
        Any
            What the model would return.

        Raises
        ------
        TraceError
            When inputs or model have other shapes, the data lead another way, or the model has no weights.

        Examples
        --------
        >>> import torch, modulekg_widgets as mk
        >>> graph = mk.trace(torch.nn.ReLU(), torch.zeros(2))
        >>> graph.forward(torch.tensor([-1.0, 3.0]))
        tensor([0., 3.])
        """
        return fill_values(self, args, kwargs)

    def cut_analysis(self, what: str | DataNode, index: Iterable[int], dim: int = 0) -> Cut:
        """Computes all changes that removing some positions of a dimension requires; changes nothing.

        Parameters
        ----------
        what
            A parameter or buffer by its dotted name, or a value.
        index
            The positions that go.
        dim
            The dimension.

        Returns
        -------
        Cut
            With `.parameters`, `.values`, `.attributes` and `.modules`.

        Raises
        ------
        CutError
            When the dimension is frozen, or nothing would be left of it.
        UnknownPathError
            For an unknown name.

        Examples
        --------
        >>> import torch, modulekg_widgets as mk
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
        >>> mk.trace(model, torch.zeros(1, 3)).cut_analysis("0.weight", [1]).parameters
        {'0.weight': {0: [1]}, '0.bias': {0: [1]}, '1.weight': {1: [1]}}
        """
        return cut_analysis(self.axes, what, index, dim)

    def operator_analysis(self, operator: OperatorNode, value: DataNode, mask: object) -> dict[DataNode, Indices]:
        """Computes the positions that a mask on one tensor removes from the other tensors of one operator.

        Parameters
        ----------
        operator
            One of `graph.operators`.
        value
            One of its inputs or outputs.
        mask
            `{dimension: positions that go}`, or an array in the value's shape: where a whole slice is zero, it goes.

        Returns
        -------
        dict
            `{value: {dimension: positions that go}}`, of the tensors of the operator that lose some.

        Raises
        ------
        CutError
            When the operator cannot follow, no rule knows it, or the value or the mask is not one of it.

        Examples
        --------
        >>> import torch, modulekg_widgets as mk
        >>> graph = mk.trace(torch.nn.Linear(3, 4), torch.zeros(1, 3))
        >>> product = graph.operators[-1]
        >>> graph.operator_analysis(product, product.outputs[0], {1: [0]})[graph.values["bias"]]
        {0: [0]}
        """
        return operator_analysis(operator, value, mask)

    # --------------------------------------------------------- dependency views

    def channel_dependency(self, prune_type: str = "filter") -> ChannelDependency:
        """The layers whose output channels must be pruned alike.

        Parameters
        ----------
        prune_type
            `"filter"` for layers, `"batchnorm"` for batch normalisations.

        Returns
        -------
        ChannelDependency
            With `.dependency_sets` and `.to_csv(path)`.

        Raises
        ------
        UnknownNameError
            For another type.

        Examples
        --------
        >>> import torch, modulekg_widgets as mk
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
        >>> mk.trace(model, torch.zeros(1, 3)).channel_dependency().dependency_sets
        [{'0'}, {'1'}]
        """
        return channel_dependency(self.axes, prune_type)

    def input_channel_dependency(self) -> InputChannelDependency:
        """The layers whose input channels must be pruned alike, as those that read one feature map."""
        return input_channel_dependency(self.axes)

    def group_dependency(self) -> GroupDependency:
        """The least number that the channels of each layer must be divisible by."""
        return group_dependency(self.axes)

    def reshape_dependency(self) -> ReshapeDependency:
        """The operators that merge or split channels, and the layers whose channels run through them.

        With them those views whose code has the number of channels as a number, as `x.view(2, 8, 4, 16)`: such axes are
        frozen.
        """
        return reshape_dependency(self.axes)

    def attention_dependency(self) -> AttentionDependency:
        """Returns the projections of q, k, v and out of every attention, fused or written out."""
        return AttentionDependency(tuple(find_attention(Layers(self.axes.inference))))


@explain_keywords("mk.trace")
def trace(
    model: nn.Module,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    outputs: Any = None,
    *,
    training: bool | None = None,
) -> DataflowGraph:
    """Records one call `model(*args, **kwargs)`, on meta tensors where possible; the model is not changed.

    Parameters
    ----------
    model
        A module with initialised parameters; they may be on the meta device.
    args, kwargs
        What forward is called with: a tensor, or a tuple of several.
    outputs
        Names or indices of the outputs that count: these keep their shape when axes are cut. With [] none does, so that
        classes, or channels of the last layer, can go. By default all count but what serves the next call, as
        `past_key_values`, and, beside `logits`, what is of the model's inside, as encoder and hidden states;
        `graph.notes` says which do not.
    training
        The mode for the trace alone, None for the model's own.

    Returns
    -------
    DataflowGraph
        Operators, values and modules of the pass, with `.axes` and `.flops()`.

    Raises
    ------
    TraceError
        When the inputs do not fit or forward raises; its `graph` ends where forward stopped.
    UnknownNameError
        For an output that there is not.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> mk.trace(torch.nn.Linear(3, 4), torch.zeros(1, 3))
    <DataflowGraph of Linear: 2 operators, 5 values, 1 modules, on meta>
    """
    return trace_with_wrappers(unwrap_model(model), args, kwargs, outputs, training)


def trace_with_wrappers(
    model: nn.Module, args: Any, kwargs: Any, outputs: Any = None, training: bool | None = None
) -> DataflowGraph:
    """The trace of a model, what wraps it for several devices included: that is not run, and is part of every name."""
    wanted = parse_output_selection(outputs)
    with long_work("Trace", model):
        graph = trace_dataflow(model, args, kwargs, training=training, graph_type=DataflowGraph)
    graph.wanted = wanted
    if graph.cuttable_outputs:
        graph.notes.append(_cuttable_outputs_note(graph))
    return graph


def _cuttable_outputs_note(graph: DataflowGraph) -> str:
    """Returns the note that lists the outputs whose shape a cut may change."""
    names = ", ".join(printable(name) for name in list(graph.cuttable_outputs)[:8] if name)
    if graph.wanted is not None and not graph.wanted:
        return f"With outputs=[], a cut may change the shape of {names or 'the output'}."
    return f"A cut changes the shape of these outputs: {names}. To keep a shape, name the output in outputs=[…]."
