"""How well structure predicts accuracy: leave-family-out on torchvision's published models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from modulekg_widgets.engine.errors import PredictionError, UnknownNameError, nearest, shown
from modulekg_widgets.engine.knowledge.prediction.features import Array, Features, features_of
from modulekg_widgets.engine.knowledge.prediction.gnn import left_out_by_gnn
from modulekg_widgets.engine.knowledge.prediction.published import checked_target, published, published_records
from modulekg_widgets.engine.knowledge.prediction.regressions import KERNELS, left_out
from modulekg_widgets.engine.knowledge.records import ModelRecord

GNN, RIDGE = "gnn", "ridge"
PREDICTORS = (*KERNELS, GNN)
COLUMNS = ["predictor", "rho", "mae", "families", "models", "rho_std", "mae_std", "coverage"]
FEWEST = 3  # families


def evaluate_prediction(
    records: dict[str, ModelRecord] | None = None,
    target: str = "acc@1",
    predictors: Iterable[str] | None = None,
    models: Iterable[str] | None = None,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
) -> pd.DataFrame:
    """How well each predictor tells `target`, in percent, of torchvision families that it has not seen.

    Columns: `predictor`; `rho`, Spearman's rank correlation over all models, and `mae`, in points, each over
    predictions made without the model's family; `families`; `models`; `rho_std` and `mae_std`, over the seeds of the
    GNN; `coverage`, the part of the models inside the 90 % intervals of the predictor that gives them. The settings of
    ridges and kernels are chosen among the training families alone, those of the GNN are fixed.
    `records` saves building the models in it, `predictors` are some of `PREDICTORS` ("ridge" for all three), `models`
    some of the published ones. Raises `UnknownNameError`, and `PredictionError` for fewer than three families.
    """
    chosen = checked_predictors(predictors)
    features, values, families = published_samples(target, records, models)
    rows: list[dict[str, object]] = []
    for name in chosen:
        coverage = np.nan
        if name == GNN:
            title, runs = "GNN", left_out_by_gnn(features, values, families, list(seeds))
        else:
            kernel = KERNELS[name]
            found = left_out(kernel, features, values, families)
            title, runs = kernel.title, found.values[None]
            coverage = found.coverage(values, families) if kernel.interval else np.nan
        rhos, errors = [_rank_correlation(run, values) for run in runs], np.abs(runs - values).mean(1)
        spread = (float(np.std(rhos)), float(np.std(errors))) if name == GNN else (np.nan, np.nan)
        counts = len(np.unique(families)), len(values)
        rows.append(dict(zip(COLUMNS, (title, np.mean(rhos), errors.mean(), *counts, *spread, coverage), strict=True)))
    return pd.DataFrame(rows, columns=COLUMNS)


def checked_predictors(predictors: Iterable[str] | None) -> list[str]:
    """The names of predictors in the order of the table; raises `UnknownNameError`."""
    asked = set(PREDICTORS) if predictors is None else {predictors} if isinstance(predictors, str) else set(predictors)
    for name in asked:
        if name not in PREDICTORS and name != RIDGE:
            raise UnknownNameError(f"there is no predictor {shown(str(name))!r}: {nearest(str(name), PREDICTORS)}")
    return [name for name in PREDICTORS if name in asked or (RIDGE in asked and name.startswith(RIDGE))]


def published_samples(
    target: str, records: dict[str, ModelRecord] | None = None, models: Iterable[str] | None = None
) -> tuple[list[Features], Array, np.ndarray]:
    """Features, values and families of the published models."""
    every = published()
    names = [name for name in every if target in every[name].values] if models is None else list(dict.fromkeys(models))
    checked_target(target)
    found = published_records(names, records)
    families = np.array([every[name].family for name in names])
    if len(np.unique(families)) < FEWEST:
        raise PredictionError(
            f"{len(np.unique(families))} families are too few to leave one out: name models of at least {FEWEST}"
        )
    features = [features_of(found[name], every[name].flops, every[name].family) for name in names]
    return features, np.array([every[name].values[target] for name in names]), families


def _rank_correlation(left: Array, right: Array) -> float:
    from scipy.stats import spearmanr

    return float(np.asarray(spearmanr(left, right))[0])
