"""Expert usage: how often a router selects each expert, times the norm of its output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from modulekg_widgets.engine.axes.axis import Axes, ListElements
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms, find
from modulekg_widgets.engine.axes.terms.term_positions import positions
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.pruning.importance.calibration import Calibration, check_batches
from modulekg_widgets.engine.pruning.importance.criteria import L2, Scores
from modulekg_widgets.engine.pruning.importance.importance import Criterion, importance
from modulekg_widgets.engine.pruning.importance.index_sums import Vector
from modulekg_widgets.engine.torch_runtime.hooks import module_call_hooks
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Sandbox
from modulekg_widgets.engine.torch_runtime.pytree import Args, Kwargs, tensors, with_tensors
from modulekg_widgets.engine.tracing.dataflow import ModuleNode


@importance("expert_usage")
class ExpertUsage(Criterion):
    """The usage of experts times the norm of their output: the sum of ‖g·f(x)‖₂ over tokens.

    g is the router's weight, f(x) the expert's output; experts in a list of modules are given tokens without their
    weights, and there it is the sum of ‖f(x)‖₂. An expert that no token of the batches reaches scores 0. Of experts in
    groups an index has the sum over the groups. Axes that are not experts, experts that all get every token, and those
    that no module is called with the choice of, are scored as by `L2`. Source: Lasby et al. 2025, "REAP the Experts",
    which takes the mean over an expert's tokens; the sum, which it bounds the error by, counts the frequency as well.

    Parameters
    ----------
    batches : iterable, optional
        What runs through the model, by default what the trace was called with; a target in a batch is left aside.
    training : bool, optional
        The mode of the passes, by default that of the trace.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> graph = mk.trace(model, torch.randn(3, 4))
    >>> mk.plan(graph, ratio=0.5, importance=mk.pruning.ExpertUsage([torch.randn(3, 4)])).axes[0].left
    4
    """

    def __init__(self, batches: Iterable[object] | None = None, *, training: bool | None = None) -> None:
        check_batches(batches)
        self.batches = batches
        self.training = training

    def scores(self, axes: Axes, terms: Sequence[Term]) -> Scores:
        callees, elements = _expert_calls(axes, terms), list(_listed_experts(axes, terms))
        usage = {find(axis): np.zeros(axis.size) for axis in (*(c[2] for c in callees), *(e[2] for e in elements))}
        if usage:
            calibration = Calibration(axes.graph, self.batches, self.training)
            calibration.run(lambda sandbox: _recording_usage(axes, callees, elements, usage, sandbox))
        scores: Scores = {}
        for axis, sums in usage.items():
            for atom in set(terms).intersection(atoms(axis)):
                scores[atom] = sums[positions(axis, atom, axes.rank)].sum(axis=1)
        rest = [term for term in terms if term not in scores]
        return {**scores, **(L2().scores(axes, rest) if rest else {})}


ExpertCall = tuple[
    ModuleNode, int, Term
]  # a module, the place of the choice among its tensors, and what is chosen from


def _expert_calls(axes: Axes, terms: Sequence[Term]) -> list[ExpertCall]:
    """The innermost modules that are called with a choice from the requested axes."""
    chosen, asked = axes.inference.chosen, set(terms)
    calls: dict[Term, ExpertCall] = {}
    for node in axes.graph.modules.values():  # those inside come after those around them
        for call in node.calls[:1]:
            for at, value in enumerate(call.inputs):
                axis = chosen.axis_of(value)
                if axis is not None and value.dim() == 2 and not asked.isdisjoint(atoms(axis)):
                    calls[axis] = (node, at, axis)
    return list(calls.values())


ListedExpert = tuple[ModuleNode, int, Term]  # a module, its place in its list, and the axis that this goes with


def _listed_experts(axes: Axes, terms: Sequence[Term]) -> Iterator[ListedExpert]:
    """The modules of lists that are each reached by some tokens only."""
    elements, asked = ListElements(axes), set(terms)
    for each, axis in elements.lists.items():
        if axis.term in asked and axis not in elements.axes_of_cost(each.path_of(0)):
            yield from ((axes.graph.modules[each.path_of(at)], at, axis.term) for at in range(axis.size))


@contextmanager
def _recording_usage(
    axes: Axes,
    callees: Sequence[ExpertCall],
    elements: Sequence[ListedExpert],
    usage: dict[Term, Vector],
    sandbox: Sandbox,
) -> Iterator[None]:
    """Add the module calls of a forward pass to the usage."""
    own = dict(zip(map(id, walk(axes.graph.model).modules), sandbox.modules, strict=True))
    watched = {id(own[id(node.module)]): (at, usage[find(axis)]) for node, at, axis in callees}
    listed = {id(own[id(node.module)]): (at, usage[find(axis)]) for node, at, axis in elements}
    inside = False  # of a call that is made to see what each expert adds

    def left(module: nn.Module, args: Args, kwargs: Kwargs, output: object = None) -> None:
        nonlocal inside
        if id(module) in listed and output is not None:
            at, sums = listed[id(module)]
            added = next(tensor for _, tensor in tensors(output))
            sums[at] += added.detach().double().norm(dim=-1).sum().item()
        if id(module) in watched and not inside and output is not None:
            inside = True
            try:
                _add_output_norms(module, args, kwargs, *watched[id(module)])
            finally:
                inside = False

    with module_call_hooks(sandbox.copies, lambda module, args: None, left):
        yield


def _add_output_norms(module: nn.Module, args: Args, kwargs: Kwargs, at: int, sums: Vector) -> None:
    """Call the experts with one choice in each row, and add the norm of each output row to its expert."""
    inputs = [tensor for _, tensor in tensors((args, kwargs or {}))]
    choice = inputs[at]
    rows, count = choice.shape

    def alone(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.shape == choice.shape:
            return tensor.reshape(-1, 1)
        return tensor.repeat_interleave(count, 0) if tensor.shape[:1] == (rows,) else tensor

    one_args, one_kwargs = with_tensors((args, kwargs or {}), alone)
    added = next(tensor for _, tensor in tensors(module(*one_args, **one_kwargs)))
    lengths = added.detach().double().reshape(rows * count, -1).norm(dim=1)
    sums += np.bincount(choice.reshape(-1).cpu().numpy(), weights=lengths.cpu().numpy(), minlength=len(sums))
