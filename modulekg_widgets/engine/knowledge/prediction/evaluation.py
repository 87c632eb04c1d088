"""Evaluation of predictors and baselines on left-out families of models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from modulekg_widgets.engine.errors import PredictionError, UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.knowledge.prediction.data.features import Array, Features, log_counts, log_sizes
from modulekg_widgets.engine.knowledge.prediction.predictor import Predictor
from modulekg_widgets.engine.knowledge.prediction.predictors.boosting import (
    BOOSTING_TITLE,
    BoostingRegressor,
    family_folds,
)
from modulekg_widgets.engine.knowledge.prediction.predictors.gaussian_process import (
    Families,
    GaussianProcess,
    family_blocks,
)
from modulekg_widgets.engine.knowledge.prediction.predictors.gnn import GraphNetworkEnsemble
from modulekg_widgets.engine.knowledge.prediction.predictors.mixture import PredictionIntervals
from modulekg_widgets.engine.knowledge.prediction.predictors.target_regressor import TargetRegressor

# -------------------- Kernel ridge regressions on the structure of models, with settings chosen by left-out families
# All are kernel ridge regressions, with the arithmetic of process.py. Labels of structure after Shervashidze and
# others, Weisfeiler-Lehman Graph Kernels, 2011.


MAX_NESTED_VALUES = 200  # values, up to which settings are chosen anew without each family
RBF_SCALES = (0.4, 0.6, 0.8, 1.0, 1.3, 2.0)  # decades of parameters and FLOPs
RBF_WEIGHTS = (1.0, 3.0, 10.0)


@dataclass(frozen=True, slots=True)
class KernelRidge:
    """A set of kernels and ridges, of which the best by left-out families is used."""

    title: str
    kernels: Callable[[Sequence[Features]], list[Array]]
    ridges: tuple[float, ...]


def _size_kernel(features: Sequence[Features]) -> list[Array]:
    columns = log_sizes(features, _costs_known(features))
    return [columns @ columns.T]


def _constant_kernel(features: Sequence[Features]) -> list[Array]:
    return [np.zeros((len(features), len(features)))]


def _parameter_kernel(features: Sequence[Features]) -> list[Array]:
    columns = log_sizes(features, with_flops=False)
    return [columns @ columns.T]


def _operation_kernel(features: Sequence[Features]) -> list[Array]:
    rows = log_counts([each.ops for each in features])
    return [rows @ rows.T]


def _operation_and_size_kernels(features: Sequence[Features]) -> list[Array]:
    (size,), (ops,) = _size_kernel(features), _operation_kernel(features)
    return [ops + weight * size for weight in (3.0, 10.0, 30.0, 100.0)]


def _wl_kernels(features: Sequence[Features]) -> list[Array]:
    return [_cosine(log_counts(counts)) for counts in zip(*(each.label_rounds for each in features), strict=True)]


def _wl_and_size_kernels(features: Sequence[Features]) -> list[Array]:
    columns = log_sizes(features, _costs_known(features))
    apart = ((columns[:, None] - columns[None]) ** 2).sum(-1)
    bumps = [weight * np.exp(-apart / (2 * scale**2)) for scale in RBF_SCALES for weight in RBF_WEIGHTS]
    return [structure + bump for structure in _wl_kernels(features) for bump in bumps]


def _cosine(rows: Array) -> Array:
    lengths = np.linalg.norm(rows, axis=1)
    rows = rows / np.where(lengths > 0, lengths, 1.0)[:, None]
    return rows @ rows.T


def _costs_known(features: Sequence[Features]) -> bool:
    return all(each.flops is not None for each in features)


def _powers(low: int, high: int) -> tuple[float, ...]:
    return tuple(10.0 ** (half / 2) for half in range(2 * low, 2 * high + 1))


KERNEL_REGRESSIONS: dict[str, KernelRidge] = {
    "mean": KernelRidge("mean", _constant_kernel, (1.0,)),
    "params": KernelRidge("ridge on log-params", _parameter_kernel, _powers(-2, 2)),
    "ridge-size": KernelRidge("ridge on log-params and log-FLOPs", _size_kernel, _powers(-2, 2)),
    "ridge-ops": KernelRidge("ridge on op histogram", _operation_kernel, _powers(0, 3)),
    "ridge-ops-size": KernelRidge(
        "ridge on op histogram, log-params, log-FLOPs", _operation_and_size_kernels, _powers(0, 3)
    ),
    "wl": KernelRidge("WL kernel ridge", _wl_kernels, _powers(-3, 0)),
    "wl-rbf": KernelRidge("WL kernel ridge + RBF of size", _wl_and_size_kernels, _powers(-3, 0)),
}


# -------------------------------------------------------------- without a family


def leave_family_out(predictor: KernelRidge, features: Sequence[Features], values: Array, families: Families) -> Array:
    """Predicts each family from the others, with the kernel and ridge that are best for these.

    Of more than 200 values the settings for a family are those that tell the other families best, each without itself
    alone: to leave out two at a time would take hours.
    """
    kernels = predictor.kernels(features)
    settings = [(kernel, ridge) for kernel in kernels for ridge in predictor.ridges]
    told = [GaussianProcess(kernel, values, ridge).leave_family_out(families)[0] for kernel, ridge in settings]
    found = np.zeros(len(values))
    for block in family_blocks(families):
        others = np.setdiff1d(np.arange(len(values)), block)
        if len(settings) == 1:
            losses = [0.0]
        elif len(values) <= MAX_NESTED_VALUES:
            losses = [_loss(kernel[np.ix_(others, others)], ridge, values[others], families[others])
                      for kernel, ridge in settings]  # fmt: skip
        else:
            losses = [float(((each - values)[others] ** 2).mean()) for each in told]
        found[block] = told[int(np.argmin(losses))][block]
    return found


def _loss(kernel: Array, ridge: float, values: Array, families: Families) -> float:
    """The mean square of the residuals of left-out families."""
    return float(((GaussianProcess(kernel, values, ridge).leave_family_out(families)[0] - values) ** 2).mean())


def nearest_neighbor_values(features: Sequence[Features], values: Array, families: Families) -> Array:
    """Returns for each model the value of the most similar model of another family."""
    (*_, likeness) = _wl_kernels(features)
    likeness = np.where(families[:, None] == families[None], -1.0, likeness)
    return values[likeness.argmax(1)]


# ----------------------------------------


OWN, SHARED, NEAREST, BOOSTING, GNN, RIDGE = "own", "shared", "nearest", "boosting", "gnn", "ridge"
PREDICTORS = (*KERNEL_REGRESSIONS, NEAREST, BOOSTING, GNN, OWN, SHARED)
SLOW_PREDICTORS = ("ridge-ops-size", "wl", "wl-rbf", GNN)  # minutes on thousands of values
MAX_QUICK_VALUES = 200  # values, up to which all are asked
COLUMNS = ["predictor", "rho", "mae", "families", "models", "rho_std", "mae_std", "coverage", "relative", "n"]
MIN_FAMILIES = 3  # families


def evaluate_prediction(
    predictor: Predictor,
    dataset: str | None = None,
    device: str | None = None,
    predictors: Iterable[str] | None = None,
    models: Iterable[str] | None = None,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
) -> pd.DataFrame:
    """One row for each of `predictors`, some of `PREDICTORS`, over the values of `models`, by default all.

    A network that was evaluated on all of them takes part from then on where the predictor chooses what tells a value.
    Raises `UnknownNameError`, and `PredictionError` for values of fewer than three families.
    """
    place = predictor.condition(dataset, device)
    if place not in predictor.observations.by_condition:
        raise PredictionError(f"no value of {printable(predictor.target)} is known on {place}")
    choice = predictor.selection(place, True)
    surface = choice.regressor
    if models is not None:
        surface = _subset_of_models(surface, models, predictor.observations.unit)
    count = len(np.unique(surface.families))
    if count < MIN_FAMILIES:
        raise PredictionError(f"{count} families are too few to leave one out: name models of at least {MIN_FAMILIES}")
    chosen = _checked(predictors, len(surface.values))
    if not surface.sources:
        chosen = [name for name in chosen if name != SHARED]
    network = _network(surface, list(seeds)) if GNN in chosen else None
    if network is not None and models is None:
        choice.add(network)
    return pd.DataFrame([_row(name, surface, network) for name in chosen], columns=COLUMNS)


def _checked(predictors: Iterable[str] | None, count: int) -> list[str]:
    """The names of predictors in the order of the table."""
    quick = {name for name in PREDICTORS if count <= MAX_QUICK_VALUES or name not in SLOW_PREDICTORS}
    asked = quick if predictors is None else {predictors} if isinstance(predictors, str) else set(predictors)
    for name in asked:
        if name not in PREDICTORS and name != RIDGE:
            raise UnknownNameError(
                f"there is no predictor {printable(str(name))!r}: {closest_match_hint(str(name), PREDICTORS)}"
            )
    return [name for name in PREDICTORS if name in asked or (RIDGE in asked and name.startswith(RIDGE))]


def _subset_of_models(surface: TargetRegressor, models: Iterable[str], unit: str | None) -> TargetRegressor:
    if isinstance(models, str) or not isinstance(models, Iterable):
        raise UnknownNameError(f"models are {printable(repr(models))}: give a list of their names")
    names = list(models)
    if not names:
        raise PredictionError(f"no models are named: give those of at least {MIN_FAMILIES} families")
    known = {sample.features.name for sample in surface.samples}
    for name in names:
        if name not in known:
            raise UnknownNameError(
                f"no value is known of {printable(str(name))!r}: {closest_match_hint(str(name), known)}"
            )
    chosen = [at for at, sample in enumerate(surface.samples) if sample.features.name in names]
    samples = [surface.samples[at] for at in chosen]
    return TargetRegressor(surface.name, samples, surface.values[chosen], unit, surface.costs, surface.sources)


def _network(surface: TargetRegressor, seeds: list[int]) -> GraphNetworkEnsemble:
    """Trains networks without each family, or without each fold of families for many values."""
    features = [sample.features if surface.costs else sample.features.without_cost() for sample in surface.samples]
    groups = surface.families if len(surface.values) <= MAX_QUICK_VALUES else family_folds(surface.families)
    return GraphNetworkEnsemble(features, surface.scales[0].transform(surface.values), groups, seeds)


def _row(name: str, surface: TargetRegressor, network: GraphNetworkEnsemble | None) -> dict[str, object]:
    scale = surface.scales[0]
    title, runs, told = _evaluate(name, surface, network)
    truth = surface.values
    values = [scale.inverse(run) for run in runs]
    rhos = [_rank_correlation(run, scale.transform(truth)) for run in runs]
    errors = [np.abs(each - truth).mean() for each in values]
    relative = [np.median(np.abs(each - truth) / np.maximum(np.abs(truth), 1e-12)) for each in values]
    spread = (float(np.std(rhos)), float(np.std(errors))) if name == GNN else (np.nan, np.nan)
    inside = np.nan if told is None else float(((told.low <= truth) & (truth <= told.high)).mean())
    counts = len(np.unique(surface.families)), len({sample.features.name for sample in surface.samples})
    found = (title, np.mean(rhos), np.mean(errors), *counts, *spread, inside, np.mean(relative), len(truth))
    return dict(zip(COLUMNS, found, strict=True))


def _evaluate(
    name: str, surface: TargetRegressor, network: GraphNetworkEnsemble | None
) -> tuple[str, Sequence[Array], PredictionIntervals | None]:
    """Returns title, predictions on the first scale and intervals of a predictor."""
    values, features = surface.scales[0].transform(surface.values), [sample.features for sample in surface.samples]
    if not surface.costs:
        features = [each.without_cost() for each in features]
    if name in (OWN, SHARED):
        judged = surface.without_sources if name == OWN else surface
        told = judged.leave_family_out()
        beside = ", with the values of these models elsewhere" if name == SHARED else ""
        return f"{judged.title}{beside}", [surface.scales[0].transform(told.values)], told
    if name == GNN and network is not None:
        return network.title, list(network.runs_by_seed), None
    if name == BOOSTING:
        every = np.arange(len(values))
        return (
            BOOSTING_TITLE,
            [BoostingRegressor(surface.design, every, values, family_folds(surface.families)).out_of_fold],
            None,
        )
    if name == NEAREST:
        return "nearest structure", [nearest_neighbor_values(features, values, surface.families)], None
    kernel = KERNEL_REGRESSIONS[name]
    return kernel.title, [leave_family_out(kernel, features, values, surface.families)], None


def _rank_correlation(left: Array, right: Array) -> float:
    """Spearman's; of values that are all the same 0."""
    from scipy.stats import spearmanr

    if np.ptp(left) == 0 or np.ptp(right) == 0:
        return 0.0
    return float(np.asarray(spearmanr(left, right))[0])
