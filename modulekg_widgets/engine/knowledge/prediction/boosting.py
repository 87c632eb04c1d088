"""Gradient-boosted trees on sizes, operations and training, for comparison with the kernels; needs scikit-learn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from modulekg_widgets.engine.errors import PredictionError
from modulekg_widgets.engine.knowledge.prediction.design import Design, Sample
from modulekg_widgets.engine.knowledge.prediction.features import Array, log_counts
from modulekg_widgets.engine.knowledge.prediction.process import Families

FOLDS = 10  # of families
COMMON = 0.02  # of the models have an operation that is looked at


def left_out_by_boosting(samples: Sequence[Sample], values: Array, families: Families, costs: bool) -> Array:
    """Each value as told by trees that have not seen its family; settings are those of scikit-learn, with 300 rounds.

    Raises `PredictionError` without scikit-learn.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
        from sklearn.model_selection import GroupKFold
    except ImportError:
        raise PredictionError("boosting needs scikit-learn: pip install 'modulekg-widgets[analysis]'") from None
    columns = _columns(samples, costs)
    found = np.zeros(len(values))
    folds = GroupKFold(min(FOLDS, len(np.unique(families))))
    for train, test in folds.split(columns, values, families):
        trees = HistGradientBoostingRegressor(max_iter=300, learning_rate=0.05, random_state=0)
        found[test] = trees.fit(columns[train], values[train]).predict(columns[test])
    return found


def _columns(samples: Sequence[Sample], costs: bool) -> Array:
    design = Design(samples, costs)
    uses = Counter(name for sample in samples for name in sample.features.ops)
    common = {name for name, count in uses.items() if count >= COMMON * len(samples)}
    ops = log_counts([Counter({name: count for name, count in sample.features.ops.items() if name in common})
                      for sample in samples])  # fmt: skip
    return np.concatenate([design.known.scaled, design.known.worded, ops], 1)
