"""The built-in criteria on a loss: how much it would change without an index, to first and to second order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from modulekg_widgets.engine.axes.algebra import Term
from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.errors import CutError
from modulekg_widgets.engine.pruning.importance.calibration import (
    ONE_BATCH,
    Calibration,
    Loss,
    Weighted,
    check_batches,
    is_one_pair,
)
from modulekg_widgets.engine.pruning.importance.criteria import Scores, squared, weights_of, wide
from modulekg_widgets.engine.pruning.importance.importance import Criterion, importance
from modulekg_widgets.engine.pruning.importance.index_sums import IndexSums
from modulekg_widgets.engine.tracing.dataflow import DataNode

Tensor = torch.Tensor


@importance("taylor")
class Taylor(Criterion):
    """The sum of |w·∂L/∂w| over all elements of an index: how much the loss may change, to first order, without it.

    With `batches`, gradients are taken batch by batch and the results averaged. Source: Molchanov et al. 2019,
    "Importance Estimation for Neural Network Pruning".

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
        self, batches: Iterable[Any] | None = None, loss: Loss | None = None, *, training: bool | None = None
    ) -> None:
        check_batches(batches)
        if (batches is None) != (loss is None):
            pair = f"; {ONE_BATCH}" if is_one_pair(batches) else ""
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

        def take(found: Weighted) -> None:
            index_sums.add_all(_first_order, found, index_sums.add)

        count = Calibration(axes.graph, self.batches, self.training).gradients(self.loss, take)
        return {atom: sums / count for atom, sums in index_sums.sums().items()}


def _with_gradients(weights: Mapping[DataNode, tuple[Tensor]]) -> dict[DataNode, tuple[Tensor, Tensor]]:
    found = {}
    for node, (weight,) in weights.items():
        gradient = weight.grad
        if gradient is not None:
            found[node] = (weight, gradient.to_dense() if gradient.is_sparse else gradient)
    if not found:
        raise CutError(
            "importance 'taylor' reads the parameters' .grad, and none has any: call loss.backward() first, or pass "
            "importance=Taylor(batches, loss), which runs its own passes"
        )
    return found


@importance("hessian")
class Hessian(Criterion):
    """|Σ ½·h·w²| over all elements of an index: how much the loss changes, to second order, without it.

    h is the diagonal of the Hessian of the loss, estimated by random probes. Sources: LeCun, Denker and Solla 1990,
    "Optimal Brain Damage"; Hutchinson 1990 and Bekas, Kokiopoulou and Saad 2007 for the diagonal.

    Parameters
    ----------
    batches : iterable, optional
        Each is what the model takes, or a pair of that and a target; scoring needs them.
    loss : function
        `loss(output, target)` or `loss(output)`.
    samples : int, default 1
        Random probes a batch.
    seed : int, default 0
        Of the probes.
    training : bool, optional
        The mode of the passes, by default that of the trace.

    Raises
    ------
    CutError
        For less than one probe.

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
        batches: Iterable[Any] | None = None,
        loss: Loss | None = None,
        *,
        samples: int = 1,
        seed: int = 0,
        training: bool | None = None,
    ) -> None:
        check_batches(batches)
        if samples < 1:
            raise CutError(f"samples={samples}: the Hessian is estimated from one probe a batch at least")
        self.batches = batches
        self.loss = loss
        self.samples = samples
        self.seed = seed
        self.training = training

    def scores(self, axes: Axes, terms: Sequence[Term]) -> Scores:
        if self.batches is None or self.loss is None:
            raise CutError(
                "importance 'hessian' needs data and a loss, for gradients do not tell curvature: pass "
                "importance=Hessian(batches, loss)"
            )
        weights_of(axes, "hessian")
        index_sums = IndexSums(axes, terms)

        def take(found: Weighted) -> None:
            index_sums.add_all(_second_order, found, index_sums.add)

        calibration = Calibration(axes.graph, self.batches, self.training, self.seed)
        count = calibration.curvatures(self.loss, self.samples, take)
        return {atom: np.abs(sums) / count for atom, sums in index_sums.sums().items()}


def _first_order(weight: Tensor, gradient: Tensor) -> Tensor:
    return (wide(weight) * wide(gradient)).abs_()


def _second_order(weight: Tensor, curvature: Tensor) -> Tensor:
    return squared(weight).mul_(0.5) * wide(curvature)
