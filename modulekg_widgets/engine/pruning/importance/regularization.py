"""Sparse regularization: a group lasso over axes that drives whole indices to zero."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch

from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.errors import CutError, pluralize, printable
from modulekg_widgets.engine.pruning.importance.calibration import parameters_with_data
from modulekg_widgets.engine.pruning.importance.index_sums import IndexSums
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode

Tensor = torch.Tensor


class _PenalizedDimension(NamedTuple):
    """A dimension of a parameter that lies on a penalized axis."""

    node: DataNode
    at: int
    positions: Tensor | None  # the positions that count, None for all in order


class GroupLasso:
    """The group lasso over axes: `loss = loss + penalty()` in a training loop.

    Σ over axes and their indices of √p·‖w‖₂, times `weight`, where w are the p elements of an index in all members of
    the axis, producers and consumers; an element that lies on two axes counts for both. Source: Yuan and Lin 2006,
    "Model selection and estimation in regression with grouped variables".

    Parameters
    ----------
    graph : DataflowGraph or Axes
        A traced model, whose parameters are those that it has when the penalty is computed.
    axes : iterable of Axis or str, optional
        Free axes or their names, by default all free ones.
    weight : float, default 1e-4
        What the penalty is multiplied with.

    Raises
    ------
    CutError
        For a graph, an axis or a weight that cannot be meant.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> penalty = mk.pruning.GroupLasso(mk.trace(model, torch.randn(1, 4)))
    >>> penalty
    <GroupLasso: 1 axis, weight 0.0001>
    >>> (model(torch.randn(1, 4)).sum() + penalty()).backward()
    """

    def __init__(self, graph: Axes | Dataflow, axes: Iterable[Axis | str] | None = None, weight: float = 1e-4) -> None:
        every = graph if isinstance(graph, Axes) else getattr(graph, "axes", None)
        if not isinstance(every, Axes):
            raise CutError(f"a group lasso is over the axes of a traced graph, got {printable(type(graph).__name__)}")
        if not (isinstance(weight, int | float) and weight >= 0):
            raise CutError(f"weight={printable(repr(weight))}: give a number of at least 0")
        self.axes = every.free if axes is None else _selected_axes(every, axes)
        self.weight = float(weight)
        self.graph = every.graph
        index_sums = IndexSums(every, [axis.term for axis in self.axes])
        self._index_sums = index_sums
        self._dimensions: list[_PenalizedDimension] = []
        targets, sizes = [], np.zeros(len(index_sums.atoms))
        for node in dict.fromkeys(self.graph.state.values()):
            for at, layout in index_sums.layouts(node).items() if node.is_parameter else ():
                positions = None if layout.positions is None else torch.from_numpy(layout.positions)
                self._dimensions.append(_PenalizedDimension(node, at, positions))
                targets.append(layout.targets)
                sizes[layout.numbers] += layout.multiplicity * (node.numel() // node.shape[at])
        self._targets = torch.from_numpy(np.concatenate(targets) if targets else np.empty(0, dtype=np.int64))
        roots = np.sqrt(np.repeat(sizes, [atom.size for atom in index_sums.atoms]))
        self._roots = torch.from_numpy(roots)

    def __call__(self) -> Tensor:
        """The penalty as a scalar through which gradients flow to the parameters.

        Raises `CutError` when the model's parameters are not what they were at the trace.
        """
        norms = self._norms()
        return self.weight * (self._roots.to(norms) * norms).sum()

    def norms(self) -> dict[str, Tensor]:
        """The norm ‖w‖₂ of each index by axis: (size,), without gradients."""
        with torch.no_grad():
            norms = self._norms()
        starts = self._index_sums.starts
        return {axis.name: norms[starts[axis.term] : starts[axis.term] + axis.size] for axis in self.axes}

    def _norms(self) -> Tensor:
        live = parameters_with_data(self.graph, "a group lasso")
        squares = {entry.node: _squares(live[entry.node]) for entry in self._dimensions}
        if not squares:
            return torch.zeros(self._index_sums.size, device="cpu")
        device = next(iter(squares.values())).device
        sums = [self._sums(entry, squares[entry.node]).to(device) for entry in self._dimensions]
        self._move_to(device)
        joined = torch.cat(sums)
        total = joined.new_zeros(self._index_sums.size).index_add(0, self._targets, joined)
        # at zero the root has no slope: there the subgradient 0 serves
        positive = total > 0
        return torch.where(positive, total, 1.0).sqrt() * positive

    def _sums(self, entry: _PenalizedDimension, squares: Tensor) -> Tensor:
        others = tuple(at for at in range(squares.dim()) if at != entry.at)
        sums = squares.sum(others) if others else squares
        return sums if entry.positions is None else sums[entry.positions.to(sums.device)]

    def _move_to(self, device: torch.device) -> None:
        if self._targets.device != device:
            self._targets = self._targets.to(device)
            self._roots = self._roots.float().to(device) if device.type == "mps" else self._roots.to(device)

    def __repr__(self) -> str:
        return f"<GroupLasso: {pluralize(len(self.axes), 'axis', 'axes')}, weight {self.weight:g}>"


def group_lasso(graph: Axes | Dataflow, axes: Iterable[Axis | str] | None = None, weight: float = 1e-4) -> Tensor:
    """The penalty of `GroupLasso` once; in a loop keep the object, which is faster.

    Parameters
    ----------
    graph : DataflowGraph or Axes
        A traced model, whose parameters are those that it has when the penalty is computed.
    axes : iterable of Axis or str, optional
        Free axes or their names, by default all free ones.
    weight : float, default 1e-4
        What the penalty is multiplied with.

    Returns
    -------
    torch.Tensor
        A differentiable scalar.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> mk.pruning.group_lasso(mk.trace(model, torch.randn(1, 4))).shape
    torch.Size([])
    """
    return GroupLasso(graph, axes, weight)()


def _squares(weight: Tensor) -> Tensor:
    wide = weight if weight.dtype.itemsize >= 4 else weight.float()
    return wide.abs().square() if wide.is_complex() else wide.square()


def _selected_axes(every: Axes, wanted: Iterable[Axis | str]) -> list[Axis]:
    """The selected axes, each once; raises `CutError` for a frozen one."""
    selected: dict[Axis, None] = {}
    for entry in [wanted] if isinstance(wanted, str | Axis) else wanted:
        for axis in (every.of(entry.term) if isinstance(entry, Axis) else every[entry]).axes:
            if axis.frozen is not None:
                raise CutError(f"axis {printable(axis.name)!r} cannot be cut, so no penalty helps: {axis.frozen}")
            selected[axis] = None
    return list(selected)
