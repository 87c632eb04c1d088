"""Gradient-boosted regression trees of depth three, several fits at once (Friedman 2001, Greedy function
approximation).

As small as they are, they are fitted without scikit-learn, whose import alone takes a second. The sums of all nodes
of all fits at all thresholds are one matrix product for each level.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.knowledge.prediction.data.design import Design, Sample, SampleRows
from modulekg_widgets.engine.knowledge.prediction.data.features import Array
from modulekg_widgets.engine.knowledge.prediction.predictors.gaussian_process import Families

TREE_DEPTH, MIN_LEAF_VALUES = 3, 20  # of a tree; values in a leaf
TREE_COUNT, LEARNING_RATE = 60, 0.15
MAX_THRESHOLDS = 64  # thresholds of a column


def thresholds(rows: Array) -> tuple[NDArray[np.int64], Array]:
    """Returns thresholds between neighbouring values of each column, at most 64, after the columns that they are of."""
    columns: list[int] = []
    at: list[float] = []
    for number, column in enumerate(rows.T):
        values = np.unique(column)
        between = (values[1:] + values[:-1]) / 2
        if len(between) > MAX_THRESHOLDS:
            between = np.unique(np.quantile(column, np.linspace(0, 1, MAX_THRESHOLDS + 2)[1:-1], method="midpoint"))
        columns += [number] * len(between)
        at += between.tolist()
    return np.array(columns, np.int64), np.array(at, float)


class BoostedTrees:
    """Fits of the same values on the subsets that `known` selects, shape (fits, values)."""

    def __init__(self, rows: Array, values: Array, known: np.ndarray) -> None:
        self._columns, self._thresholds = thresholds(rows)
        self._means = np.array([values[each].mean() for each in known])
        self._splits: list[list[NDArray[np.int64]]] = []  # of each tree those of each level, shape (fits, nodes)
        self._leaves: list[Array] = []  # of each tree, shape (fits, leaves)
        below = self._below(rows)
        told = np.repeat(self._means[:, None], len(values), 1)
        for _ in range(TREE_COUNT if below.shape[1] else 0):
            told += self._grow(below, np.where(known, values - told, 0.0), known)

    def predict(self, rows: Array) -> Array:
        """Predicts rows with each fit, shape (fits, rows)."""
        below = self._below(rows)
        found = np.repeat(self._means[:, None], len(rows), 1)
        for tree in range(len(self._leaves)):
            found += self._tree_values(below, tree)
        return found

    def _below(self, rows: Array) -> NDArray[np.float32]:
        """Returns 1 where a value is at most the threshold, else 0; shape (rows, thresholds)."""
        return (rows[:, self._columns] <= self._thresholds).astype(np.float32)

    def _grow(self, below: NDArray[np.float32], residuals: Array, known: np.ndarray) -> Array:
        """Grows a tree for each fit on the residuals, and returns its values."""
        nodes = np.zeros(residuals.shape, np.int64)
        splits: list[NDArray[np.int64]] = []
        for level in range(TREE_DEPTH):
            splits.append(_best_splits(below, *_values_by_node(nodes, 2**level, residuals, known)))
            nodes = _child_nodes(nodes, splits[-1], below)
        sums, counts = _values_by_node(nodes, 2**TREE_DEPTH, residuals, known)
        self._splits.append(splits)
        self._leaves.append(LEARNING_RATE * sums.sum(-1, dtype=float) / np.maximum(counts.sum(-1, dtype=float), 1))
        return np.take_along_axis(self._leaves[-1], nodes, 1)

    def _tree_values(self, below: NDArray[np.float32], tree: int) -> Array:
        nodes = np.zeros((len(self._means), len(below)), np.int64)
        for splits in self._splits[tree]:
            nodes = _child_nodes(nodes, splits, below)
        return np.take_along_axis(self._leaves[tree], nodes, 1)


def _values_by_node(
    nodes: NDArray[np.int64], count: int, wanted: Array, known: np.ndarray
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns residuals and counts of the values in each node, shape (fits, nodes, values)."""
    inside = (nodes[:, None] == np.arange(count)[:, None]) & known[:, None]
    counts = inside.astype(np.float32)
    return counts * wanted[:, None].astype(np.float32), counts


def _best_splits(
    below: NDArray[np.float32], sums: NDArray[np.float32], counts: NDArray[np.float32]
) -> NDArray[np.int64]:
    """Returns the best threshold of each node, -1 if none leaves enough values on both sides."""
    shape = sums.shape[:2]
    both = np.concatenate([sums, counts]).reshape(-1, len(below)) @ below
    left, left_count = both.reshape(2, *shape, -1)
    total, count = sums.sum(-1)[..., None], counts.sum(-1)[..., None]
    right, right_count = total - left, count - left_count
    gains = left**2 / np.maximum(left_count, 1) + right**2 / np.maximum(right_count, 1)
    gains[(left_count < MIN_LEAF_VALUES) | (right_count < MIN_LEAF_VALUES)] = -1.0
    best = gains.argmax(-1)
    return np.where(np.take_along_axis(gains, best[..., None], -1)[..., 0] > 0, best, -1)


def _child_nodes(nodes: NDArray[np.int64], splits: NDArray[np.int64], below: NDArray[np.float32]) -> NDArray[np.int64]:
    """Returns the nodes of the next level."""
    own = np.take_along_axis(splits, nodes, 1)
    right = below[np.arange(len(below)), own] == 0
    return 2 * nodes + (right & (own >= 0))


# -------------------- Gradient boosting on sizes, operations and training words of models


BOOSTING_TITLE = "gradient boosting on sizes, operations and training"
MAX_FOLDS = 10  # of families
MIN_OPERATION_SHARE = 0.02  # of the models have an operation that is looked at


class BoostingRegressor:
    """Boosted trees fitted to known samples on one scale, without each fold of families and on all of them."""

    def __init__(self, design: Design, some: np.ndarray, values: Array, folds: np.ndarray) -> None:
        self.title = BOOSTING_TITLE
        self._design = design
        rows = design.known.subset(some)
        uses = Counter(name for sample in rows.samples for name in sample.features.ops)
        self._ops = sorted(name for name, count in uses.items() if count >= MIN_OPERATION_SHARE * len(some))
        known = np.arange(folds.max() + 2)[:, None] != folds
        columns = self._columns(rows)
        self._trees = BoostedTrees(columns, values, known)
        self.out_of_fold: Array = self._trees.predict(columns)[
            folds, np.arange(len(values))
        ]  # as told without its fold

    def predict(self, samples: Sequence[Sample]) -> Array:
        return self._trees.predict(self._columns(self._design.rows(samples)))[-1]

    def _columns(self, rows: SampleRows) -> Array:
        ops = np.array([[sample.features.ops[name] for name in self._ops] for sample in rows.samples], float)
        return np.concatenate([rows.size_matrix, rows.word_matrix, ops.reshape(len(rows.samples), -1)], 1)


def family_folds(families: Families) -> np.ndarray:
    """Returns a fold number for each value, equal within a family; largest families first, to the smallest fold."""
    kinds, inverse, counts = np.unique(families, return_inverse=True, return_counts=True)
    room = np.zeros(min(MAX_FOLDS, len(kinds)))
    found = np.zeros(len(kinds), np.int64)
    for kind in np.argsort(-counts, kind="stable"):
        found[kind] = room.argmin()
        room[found[kind]] += counts[kind]
    return found[inverse]
