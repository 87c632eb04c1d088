"""Importance criteria on weights: L1, L2, FPGM, BatchNorm scales and random scores.

Each criterion maps the axes of a traced model to one score for each index; larger is more important.
`L1` and `L2` sum over all members of an axis, which `members.py` selects: weights that produce or read
the axis and gains, but no biases or position tables unless `members="all"`. They need no data. To add
a criterion, subclass `Criterion` and register it with `@importance("name")`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.inference.layers import Layers
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms, find
from modulekg_widgets.engine.errors import CutError, printable
from modulekg_widgets.engine.pruning.importance.calibration import weights_with_data
from modulekg_widgets.engine.pruning.importance.importance import Criterion, importance
from modulekg_widgets.engine.pruning.importance.index_sums import IndexSums, Vector, rows_of
from modulekg_widgets.engine.pruning.importance.members import (
    WEIGHTS_ONLY,
    WeightDim,
    check_members,
    gains,
    members_by_atoms,
    reading_dims,
    scoring_weights,
)
from modulekg_widgets.engine.tracing.dataflow import DataNode

Tensor = torch.Tensor
Scores = dict[Term, Vector]
MAX_PAIRS = 1 << 22  # distances that are held at once


# ---------------------------------------------------------------- magnitudes


@importance("l1")
class L1(Criterion):
    """The sum of |w| of an index relative to the axis's average, as a mean over the weights that make or read the axis.

    A weight with n elements per index counts 1 + ln n times: neither does a large one drown the small ones, nor a lone
    gain outvote a filter. An axis that no weight makes or reads is judged by all its members. Source: Li et al. 2017,
    "Pruning Filters for Efficient ConvNets", for a single weight.

    Parameters
    ----------
    members : {"weights", "all"}, default "weights"
        Which members of an axis count: weights of layers, tables that data look up and gains, or also what is only
        added or joined to it, as biases, tables of positions and class tokens.
    votes : str, optional
        The deprecated name of `members`.

    Raises
    ------
    UnknownNameError
        For another choice of members.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    >>> graph = mk.trace(model, torch.randn(3, 4))
    >>> mk.plan(graph, ratio=0.5, importance=mk.pruning.L1()).axes[0].left
    4
    """

    def __init__(self, members: str = WEIGHTS_ONLY, *, votes: str | None = None) -> None:
        self.members = check_members(members, votes)

    def scores(self, axes: Axes, terms: Sequence[Term]) -> Scores:
        scores: Scores = {}
        for some, weights in members_by_atoms(axes, terms, weights_of(axes, "l1"), self.members):
            index_sums = IndexSums(axes, some)
            index_sums.add_all(_magnitude, weights, index_sums.add_relative)
            scores.update(index_sums.means())
        return scores

    def __repr__(self) -> str:
        return _repr("L1", self.members)


@importance("l2")
class L2(Criterion):
    """The root of the mean w² over all elements of an index in the weights that make or read the axis.

    It is the length of the coupled group. An axis that no weight makes or reads is judged by all its members. Source:
    Fang et al. 2023, "DepGraph: Towards Any Structural Pruning".

    Parameters
    ----------
    members : {"weights", "all"}, default "weights"
        Which members of an axis count, as for `L1`.
    votes : str, optional
        The deprecated name of `members`.

    Raises
    ------
    UnknownNameError
        For another choice of members.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    >>> graph = mk.trace(model, torch.randn(3, 4))
    >>> mk.plan(graph, ratio=0.5, importance=mk.pruning.L2()).axes[0].left
    4
    """

    def __init__(self, members: str = WEIGHTS_ONLY, *, votes: str | None = None) -> None:
        self.members = check_members(members, votes)

    def scores(self, axes: Axes, terms: Sequence[Term]) -> Scores:
        scores: Scores = {}
        for some, weights in members_by_atoms(axes, terms, weights_of(axes, "l2"), self.members):
            index_sums = IndexSums(axes, some)
            index_sums.add_all(squared, weights, index_sums.add)
            scores.update((atom, np.sqrt(means)) for atom, means in index_sums.means().items())
        return scores

    def __repr__(self) -> str:
        return _repr("L2", self.members)


@importance("random")
class Random(Criterion):
    """Uniform random numbers that depend on the seed and the axis alone; needs no data.

    Parameters
    ----------
    seed : int, default 0
        A whole number of at least 0.

    Raises
    ------
    CutError
        For another seed.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    >>> graph = mk.trace(model, torch.randn(3, 4))
    >>> mk.plan(graph, ratio=0.5, importance=mk.pruning.Random(seed=1)).axes[0].left
    4
    """

    def __init__(self, seed: int = 0) -> None:
        if not isinstance(seed, int) or seed < 0:
            raise CutError(f"seed={printable(repr(seed))}: give a whole number of at least 0")
        self.seed = seed

    def scores(self, axes: Axes, terms: Sequence[Term]) -> Scores:
        return {term: np.random.default_rng([self.seed, axes.rank(find(term))]).random(term.size) for term in terms}

    def __repr__(self) -> str:
        return f"Random(seed={self.seed})"


@importance("bn_scale")
class BNScale(Criterion):
    """The |gain| of the normalisations and learnt multiplications along an axis, each relative to its own mean.

    An axis without any is scored as by `L1`, which has the same mean of 1. Source: Liu et al. 2017, "Learning
    Efficient Convolutional Networks through Network Slimming".

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    >>> graph = mk.trace(model, torch.randn(3, 4))
    >>> mk.plan(graph, ratio=0.5, importance=mk.pruning.BNScale()).axes[0].left
    4
    """

    def scores(self, axes: Axes, terms: Sequence[Term]) -> Scores:
        index_sums = IndexSums(axes, terms)
        weights = weights_of(axes, "bn_scale")
        index_sums.add_all(
            _magnitude, {node: weights[node] for node in gains(axes) if node in weights}, index_sums.add_relative
        )
        return means_or_magnitudes(index_sums)


def means_or_magnitudes(index_sums: IndexSums) -> Scores:
    """The means of the sums, and magnitudes of the weights for axes without any summand."""
    scores = index_sums.means()
    reached = set(index_sums.counted_atoms)
    silent = [atom for atom in index_sums.atoms if atom not in reached]
    return {**scores, **L1().scores(index_sums.axes, silent)} if silent else scores


def _repr(name: str, members: str) -> str:
    return f"{name}()" if members == WEIGHTS_ONLY else f"{name}(members={members!r})"


# ----------------------------------------------------------------- distances


@importance("fpgm")
class FPGM(Criterion):
    """The sum of the Euclidean distances from an index's weights, in all layers that make the axis, to all others'.

    An index near the geometric median can be spared, for others are like it. An axis that no layer makes is judged
    by all its members. Source: He et al. 2019, "Filter Pruning via Geometric Median".

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    >>> graph = mk.trace(model, torch.randn(3, 4))
    >>> mk.plan(graph, ratio=0.5, importance=mk.pruning.FPGM()).axes[0].left
    4
    """

    def scores(self, axes: Axes, terms: Sequence[Term]) -> Scores:
        weights = weights_of(axes, "fpgm")
        made = _output_dimensions(axes)
        scores = {}
        for term in map(find, terms):
            places = [(node, at) for node, at in axes.tensor_dims.get(term, ()) if node in weights]
            own = [place for place in places if place in made] or places
            rows = [rows_of(axes, term, node, at, weights[node][0]) for node, at in own]
            scores[term] = _distances([upcast(each) for each in rows]) if rows else np.zeros(term.size)
        return scores


def _output_dimensions(axes: Axes) -> set[WeightDim]:
    """The weight dimensions along which a layer produces an axis; for tables those that data look up."""
    dims = set()
    having = scoring_weights(axes)
    for layer in Layers(axes.inference, buffers=True):
        out = set(atoms(layer.out)) if layer.weight in having else set()
        for at, term in enumerate(axes.inference.dims(layer.weight)):
            if not out.isdisjoint(atoms(term)):
                dims.add((layer.weight, at))
    return dims - reading_dims(axes)


def _distances(members: Sequence[Tensor]) -> Vector:
    """For each row the sum of its distances to all others; a row joins the rows of all members."""
    size = len(members[0])
    out = np.empty(size)
    # the distances stay as they are, and rounding takes less from them
    centred = [rows - rows.mean(0) for rows in members]
    step = max(1, MAX_PAIRS // size)
    for start in range(0, size, step):
        block = slice(start, start + step)
        squares = sum(_squared_distances(rows[block], rows) for rows in centred)
        assert isinstance(squares, Tensor)
        out[block] = squares.sqrt().sum(1).cpu().double().numpy()
    return out


def _squared_distances(some: Tensor, every: Tensor) -> Tensor:
    # as a matrix product it is fast for many, and exact enough for those that differ
    mode = "use_mm_for_euclid_dist" if some.shape[0] * every.numel() > MAX_PAIRS else "donot_use_mm_for_euclid_dist"
    return torch.cdist(some, every, compute_mode=mode).square_()


# ------------------------------------------------------------------ elements


def weights_of(axes: Axes, name: str) -> dict[DataNode, tuple[Tensor]]:
    """The weights that the output depends on."""
    weights = weights_with_data(axes, f"importance {name!r}")
    return {node: (tensor,) for node, tensor in weights.items() if not axes.inference.is_idle(node)}


_ACCUMULATION_DTYPES = {torch.float32, torch.float64, torch.complex64, torch.complex128}


def upcast(tensor: Tensor) -> Tensor:
    """The tensor in a dtype for accurate sums."""
    tensor = tensor.detach()
    return tensor if tensor.dtype in _ACCUMULATION_DTYPES else tensor.float()


def _magnitude(weight: Tensor) -> Tensor:
    return upcast(weight).abs()


def squared(weight: Tensor) -> Tensor:
    weight = upcast(weight)
    return weight.abs().square_() if weight.is_complex() else weight.square()
