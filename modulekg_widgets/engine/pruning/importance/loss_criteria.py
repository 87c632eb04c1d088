"""Importance criteria on a loss: first-order Taylor and second-order Hessian estimates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.errors import CutError
from modulekg_widgets.engine.pruning.importance.calibration import (
    ONE_BATCH_HINT,
    Calibration,
    Loss,
    ParameterPairs,
    check_batches,
    is_one_pair,
)
from modulekg_widgets.engine.pruning.importance.criteria import Scores, upcast, weights_of
from modulekg_widgets.engine.pruning.importance.gates import Gates
from modulekg_widgets.engine.pruning.importance.importance import Criterion, importance
from modulekg_widgets.engine.pruning.importance.index_sums import IndexSums
from modulekg_widgets.engine.tracing.dataflow import DataNode

Tensor = torch.Tensor


@importance("taylor")
class Taylor(Criterion):
    """The sum of |w·∂L/∂w| over all elements of an index: how much the loss may change, to first order, without it.

    With `batches`, gradients are taken batch by batch and the results averaged: a trained model has none over all data
    at once, so that batches of some dozens tell more than large ones. Source: Molchanov et al. 2019, "Importance
    Estimation for Neural Network Pruning".

    Parameters
    ----------
    batches : iterable, optional
        Each is what the model takes, or a pair of that and a target; without them the parameters' present `.grad`
        serve.
    loss : function, optional
        `loss(output, target)` or `loss(output)`.
    training : bool, optional
        The mode of the passes, by default that of the trace.

    Raises
    ------
    CutError
        For batches without a loss, or a loss without batches.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    >>> graph = mk.trace(model, torch.randn(3, 4))
    >>> batches = [(torch.randn(3, 4), torch.tensor([0, 1, 1]))]
    >>> mk.plan(graph, ratio=0.5, importance=mk.pruning.Taylor(batches, nn.functional.cross_entropy)).axes[0].left
    4
    """

    def __init__(
        self, batches: Iterable[object] | None = None, loss: Loss | None = None, *, training: bool | None = None
    ) -> None:
        check_batches(batches)
        if (batches is None) != (loss is None):
            pair = f"; {ONE_BATCH_HINT}" if is_one_pair(batches) else ""
            raise CutError(
                f"Taylor takes both batches and a loss, or neither: then it reads the parameters' .grad{pair}"
            )
        self.batches = batches
        self.loss = loss
        self.training = training

    def scores(self, axes: Axes, terms: Sequence[Term]) -> Scores:
        index_sums = IndexSums(axes, terms)
        weights = weights_of(axes, "taylor")
        if self.batches is None or self.loss is None:
            index_sums.add_all(_first_order, _with_gradients(weights), index_sums.add)
            return index_sums.sums()

        def take(pairs: ParameterPairs) -> None:
            index_sums.add_all(_first_order, pairs, index_sums.add)

        count = Calibration(axes.graph, self.batches, self.training, more=axes.weight_buffers).gradients(
            self.loss, take
        )
        return {atom: sums / count for atom, sums in index_sums.sums().items()}


def _with_gradients(weights: Mapping[DataNode, tuple[Tensor]]) -> dict[DataNode, tuple[Tensor, Tensor]]:
    pairs = {}
    for node, (weight,) in weights.items():
        gradient = weight.grad
        if gradient is not None:
            pairs[node] = (weight, gradient.to_dense() if gradient.is_sparse else gradient)
    if not pairs:
        raise CutError(
            "importance 'taylor' reads the parameters' .grad, and none has any: call loss.backward() first, or pass "
            "importance=Taylor(batches, loss), which runs its own passes"
        )
    return pairs


@importance("hessian")
class Hessian(Criterion):
    """|½·∂²L/∂z² - ∂L/∂z|, z a factor on what layers read of an index: how much the loss changes without it.

    z is 1, and at 0 the index is gone; where no layer reads an axis, all its members are multiplied. It is of second
    order, and the second derivatives are estimated with `samples` products a batch, which share out the indices; what
    is left in them of other indices has the mean 0, so that several small batches tell more than a large one. It is for
    axes of some dozens of indices: where they have hundreds, `Taylor` tells more for the same time. Sources: LeCun,
    Denker and Solla 1990, "Optimal Brain Damage", here with all weights of an index together; Hutchinson 1990 for the
    estimate.

    Parameters
    ----------
    batches : iterable, optional
        Each is what the model takes, or a pair of that and a target; scoring needs them.
    loss : function
        `loss(output, target)` or `loss(output)`.
    samples : int, default 16
        Products with the Hessian a batch; as many as the widest axis has indices are all that it takes.
    seed : int, default 0
        Of the random signs.
    training : bool, optional
        The mode of the passes, by default that of the trace.

    Raises
    ------
    CutError
        For less than one product.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    >>> graph = mk.trace(model, torch.randn(3, 4))
    >>> batches = [(torch.randn(3, 4), torch.tensor([0, 1, 1]))]
    >>> mk.plan(graph, ratio=0.5, importance=mk.pruning.Hessian(batches, nn.functional.cross_entropy)).axes[0].left
    4
    """

    def __init__(
        self,
        batches: Iterable[object] | None = None,
        loss: Loss | None = None,
        *,
        samples: int = 16,
        seed: int = 0,
        training: bool | None = None,
    ) -> None:
        check_batches(batches)
        if samples < 1:
            raise CutError(f"samples={samples}: the Hessian is estimated from one product a batch at least")
        self.batches = batches
        self.loss = loss
        self.samples = samples
        self.seed = seed
        self.training = training

    def scores(self, axes: Axes, terms: Sequence[Term]) -> Scores:
        if self.batches is None or self.loss is None:
            raise CutError("importance 'hessian' needs data and a loss: pass importance=Hessian(batches, loss)")
        weights_of(axes, "hessian")
        gates = Gates(axes, terms)
        sums = np.zeros(gates.size)

        def take(first: Tensor, second: Tensor) -> None:
            sums[:] += (0.5 * second - first).cpu().double().numpy()

        count = Calibration(axes.graph, self.batches, self.training, self.seed, axes.weight_buffers).gate_derivatives(
            gates, self.loss, self.samples, take
        )
        return gates.by_atom(np.abs(sums) / count)


def _first_order(weight: Tensor, gradient: Tensor) -> Tensor:
    return (upcast(weight) * upcast(gradient)).abs_()
