"""Gradient-boosted trees on sizes, operations and training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from modulekg_widgets.engine.knowledge.prediction.design import Design, Rows, Sample
from modulekg_widgets.engine.knowledge.prediction.features import Array
from modulekg_widgets.engine.knowledge.prediction.process import Families
from modulekg_widgets.engine.knowledge.prediction.trees import BoostedTrees

BOOSTING_TITLE = "gradient boosting on sizes, operations and training"
FOLDS = 10  # of families
COMMON = 0.02  # of the models have an operation that is looked at


class Boosting:
    """Some of the known samples with their values, on one scale; a fit without each fold of families and one of all."""

    def __init__(self, design: Design, some: np.ndarray, values: Array, folds: np.ndarray) -> None:
        self.title = BOOSTING_TITLE
        self._design = design
        rows = design.known.among(some)
        uses = Counter(name for sample in rows.samples for name in sample.features.ops)
        self._ops = sorted(name for name, count in uses.items() if count >= COMMON * len(some))
        known = np.arange(folds.max() + 2)[:, None] != folds
        columns = self._columns(rows)
        self._trees = BoostedTrees(columns, values, known)
        self.left_out: Array = self._trees.told(columns)[folds, np.arange(len(values))]  # as told without its fold

    def told(self, samples: Sequence[Sample]) -> Array:
        return self._trees.told(self._columns(self._design.rows(samples)))[-1]

    def _columns(self, rows: Rows) -> Array:
        ops = np.array([[sample.features.ops[name] for name in self._ops] for sample in rows.samples], float)
        return np.concatenate([rows.scaled, rows.worded, ops.reshape(len(rows.samples), -1)], 1)


def folds_of(families: Families) -> np.ndarray:
    """A number from 0 for each value, the same for a family: the largest first where there is most room."""
    kinds, inverse, counts = np.unique(families, return_inverse=True, return_counts=True)
    room = np.zeros(min(FOLDS, len(kinds)))
    found = np.zeros(len(kinds), np.int64)
    for kind in np.argsort(-counts, kind="stable"):
        found[kind] = room.argmin()
        room[found[kind]] += counts[kind]
    return found[inverse]
