"""How well a target is told of families that have not been seen, by each predictor and by simple baselines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from modulekg_widgets.engine.errors import PredictionError, UnknownNameError, nearest, shown
from modulekg_widgets.engine.knowledge.prediction.data.features import Array, Features, log_counts, sizes
from modulekg_widgets.engine.knowledge.prediction.predictor import Predictor
from modulekg_widgets.engine.knowledge.prediction.predictors.boosting import BOOSTING_TITLE, Boosting, folds_of
from modulekg_widgets.engine.knowledge.prediction.predictors.gnn import GraphNetworks
from modulekg_widgets.engine.knowledge.prediction.predictors.mixture import Told
from modulekg_widgets.engine.knowledge.prediction.predictors.process import Families, Process, blocks_of
from modulekg_widgets.engine.knowledge.prediction.predictors.target_regressor import Surface

# --------------------
# Ridge regression and kernels on the structure of models, with the choice of their settings by left-out families.
# All are kernel ridge regressions, with the arithmetic of process.py. Labels of structure after Shervashidze and
# others, Weisfeiler-Lehman Graph Kernels, 2011.


NESTED = 200  # values, up to which settings are chosen anew without each family
RBF_SCALES = (0.4, 0.6, 0.8, 1.0, 1.3, 2.0)  # decades of parameters and FLOPs
RBF_WEIGHTS = (1.0, 3.0, 10.0)


@dataclass(frozen=True, slots=True)
class Regression:
    """Kernels of which the one that predicts best is chosen, together with a ridge."""

    title: str
    kernels: Callable[[Sequence[Features]], list[Array]]
    ridges: tuple[float, ...]


def _size(features: Sequence[Features]) -> list[Array]:
    columns = sizes(features, _costs_known(features))
    return [columns @ columns.T]


def _none(features: Sequence[Features]) -> list[Array]:
    return [np.zeros((len(features), len(features)))]


def _parameters(features: Sequence[Features]) -> list[Array]:
    columns = sizes(features, with_flops=False)
    return [columns @ columns.T]


def _ops(features: Sequence[Features]) -> list[Array]:
    rows = log_counts([each.ops for each in features])
    return [rows @ rows.T]


def _ops_and_size(features: Sequence[Features]) -> list[Array]:
    (size,), (ops,) = _size(features), _ops(features)
    return [ops + weight * size for weight in (3.0, 10.0, 30.0, 100.0)]


def _wl(features: Sequence[Features]) -> list[Array]:
    return [_cosine(log_counts(counts)) for counts in zip(*(each.rounds for each in features), strict=True)]


def _wl_and_size(features: Sequence[Features]) -> list[Array]:
    columns = sizes(features, _costs_known(features))
    apart = ((columns[:, None] - columns[None]) ** 2).sum(-1)
    bumps = [weight * np.exp(-apart / (2 * scale**2)) for scale in RBF_SCALES for weight in RBF_WEIGHTS]
    return [structure + bump for structure in _wl(features) for bump in bumps]


def _cosine(rows: Array) -> Array:
    lengths = np.linalg.norm(rows, axis=1)
    rows = rows / np.where(lengths > 0, lengths, 1.0)[:, None]
    return rows @ rows.T


def _costs_known(features: Sequence[Features]) -> bool:
    return all(each.flops is not None for each in features)


def _powers(low: int, high: int) -> tuple[float, ...]:
    return tuple(10.0 ** (half / 2) for half in range(2 * low, 2 * high + 1))


KERNELS: dict[str, Regression] = {
    "mean": Regression("mean", _none, (1.0,)),
    "params": Regression("ridge on log-params", _parameters, _powers(-2, 2)),
    "ridge-size": Regression("ridge on log-params and log-FLOPs", _size, _powers(-2, 2)),
    "ridge-ops": Regression("ridge on op histogram", _ops, _powers(0, 3)),
    "ridge-ops-size": Regression("ridge on op histogram, log-params, log-FLOPs", _ops_and_size, _powers(0, 3)),
    "wl": Regression("WL kernel ridge", _wl, _powers(-3, 0)),
    "wl-rbf": Regression("WL kernel ridge + RBF of size", _wl_and_size, _powers(-3, 0)),
}


# -------------------------------------------------------------- without a family


def left_out(predictor: Regression, features: Sequence[Features], values: Array, families: Families) -> Array:
    """Each family predicted from the others, with the kernel and the ridge that tell these best.

    Of more than 200 values the settings for a family are those that tell the other families best, each without itself
    alone: to leave out two at a time would take hours.
    """
    kernels = predictor.kernels(features)
    settings = [(kernel, ridge) for kernel in kernels for ridge in predictor.ridges]
    told = [Process(kernel, values, ridge).left_out(families)[0] for kernel, ridge in settings]
    found = np.zeros(len(values))
    for block in blocks_of(families):
        others = np.setdiff1d(np.arange(len(values)), block)
        if len(settings) == 1:
            losses = [0.0]
        elif len(values) <= NESTED:
            losses = [_loss(kernel[np.ix_(others, others)], ridge, values[others], families[others])
                      for kernel, ridge in settings]  # fmt: skip
        else:
            losses = [float(((each - values)[others] ** 2).mean()) for each in told]
        found[block] = told[int(np.argmin(losses))][block]
    return found


def _loss(kernel: Array, ridge: float, values: Array, families: Families) -> float:
    """The mean square of the residuals of left-out families."""
    return float(((Process(kernel, values, ridge).left_out(families)[0] - values) ** 2).mean())


def nearest_structure(features: Sequence[Features], values: Array, families: Families) -> Array:
    """Of each model the value of the one that is most alike by its labels, among other families."""
    (*_, likeness) = _wl(features)
    likeness = np.where(families[:, None] == families[None], -1.0, likeness)
    return values[likeness.argmax(1)]


# ----------------------------------------


OWN, SHARED, NEAREST, BOOSTING, GNN, RIDGE = "own", "shared", "nearest", "boosting", "gnn", "ridge"
PREDICTORS = (*KERNELS, NEAREST, BOOSTING, GNN, OWN, SHARED)
SLOW = ("ridge-ops-size", "wl", "wl-rbf", GNN)  # minutes on thousands of values
QUICK = 200  # values, up to which all are asked
COLUMNS = ["predictor", "rho", "mae", "families", "models", "rho_std", "mae_std", "coverage", "relative", "n"]
FEWEST = 3  # families


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
    place = predictor.place(dataset, device)
    if place not in predictor.observed.places:
        raise PredictionError(f"no value of {shown(predictor.target)} is known on {place}")
    choice = predictor.choice(place, True)
    surface = choice.surface
    if models is not None:
        surface = _of_models(surface, models, predictor.observed.unit)
    count = len(np.unique(surface.families))
    if count < FEWEST:
        raise PredictionError(f"{count} families are too few to leave one out: name models of at least {FEWEST}")
    chosen = _checked(predictors, len(surface.values))
    if not surface.sources:
        chosen = [name for name in chosen if name != SHARED]
    network = _network(surface, list(seeds)) if GNN in chosen else None
    if network is not None and models is None:
        choice.add(network)
    return pd.DataFrame([_row(name, surface, network) for name in chosen], columns=COLUMNS)


def _checked(predictors: Iterable[str] | None, count: int) -> list[str]:
    """The names of predictors in the order of the table."""
    quick = {name for name in PREDICTORS if count <= QUICK or name not in SLOW}
    asked = quick if predictors is None else {predictors} if isinstance(predictors, str) else set(predictors)
    for name in asked:
        if name not in PREDICTORS and name != RIDGE:
            raise UnknownNameError(f"there is no predictor {shown(str(name))!r}: {nearest(str(name), PREDICTORS)}")
    return [name for name in PREDICTORS if name in asked or (RIDGE in asked and name.startswith(RIDGE))]


def _of_models(surface: Surface, models: Iterable[str], unit: str | None) -> Surface:
    if isinstance(models, str) or not isinstance(models, Iterable):
        raise UnknownNameError(f"models are {shown(repr(models))}: give a list of their names")
    names = list(models)
    if not names:
        raise PredictionError(f"no models are named: give those of at least {FEWEST} families")
    known = {sample.features.name for sample in surface.samples}
    for name in names:
        if name not in known:
            raise UnknownNameError(f"no value is known of {shown(str(name))!r}: {nearest(str(name), known)}")
    chosen = [at for at, sample in enumerate(surface.samples) if sample.features.name in names]
    samples = [surface.samples[at] for at in chosen]
    return Surface(surface.name, samples, surface.values[chosen], unit, surface.costs, surface.sources)


def _network(surface: Surface, seeds: list[int]) -> GraphNetworks:
    """Without each family, or of many values without each fold of families: training takes minutes then."""
    features = [sample.features if surface.costs else sample.features.without_cost() for sample in surface.samples]
    groups = surface.families if len(surface.values) <= QUICK else folds_of(surface.families)
    return GraphNetworks(features, surface.scales[0].of(surface.values), groups, seeds)


def _row(name: str, surface: Surface, network: GraphNetworks | None) -> dict[str, object]:
    scale = surface.scales[0]
    title, runs, told = _told(name, surface, network)
    truth = surface.values
    values = [scale.back(run) for run in runs]
    rhos = [_rank_correlation(run, scale.of(truth)) for run in runs]
    errors = [np.abs(each - truth).mean() for each in values]
    relative = [np.median(np.abs(each - truth) / np.maximum(np.abs(truth), 1e-12)) for each in values]
    spread = (float(np.std(rhos)), float(np.std(errors))) if name == GNN else (np.nan, np.nan)
    inside = np.nan if told is None else float(((told.low <= truth) & (truth <= told.high)).mean())
    counts = len(np.unique(surface.families)), len({sample.features.name for sample in surface.samples})
    found = (title, np.mean(rhos), np.mean(errors), *counts, *spread, inside, np.mean(relative), len(truth))
    return dict(zip(COLUMNS, found, strict=True))


def _told(name: str, surface: Surface, network: GraphNetworks | None) -> tuple[str, Sequence[Array], Told | None]:
    """The title of a predictor, what it tells on the first scale of the values, and its intervals."""
    values, features = surface.scales[0].of(surface.values), [sample.features for sample in surface.samples]
    if not surface.costs:
        features = [each.without_cost() for each in features]
    if name in (OWN, SHARED):
        judged = surface.alone if name == OWN else surface
        told = judged.left_out()
        beside = ", with the values of these models elsewhere" if name == SHARED else ""
        return f"{judged.title}{beside}", [surface.scales[0].of(told.values)], told
    if name == GNN and network is not None:
        return network.title, list(network.runs), None
    if name == BOOSTING:
        every = np.arange(len(values))
        return BOOSTING_TITLE, [Boosting(surface.design, every, values, folds_of(surface.families)).left_out], None
    if name == NEAREST:
        return "nearest structure", [nearest_structure(features, values, surface.families)], None
    kernel = KERNELS[name]
    return kernel.title, [left_out(kernel, features, values, surface.families)], None


def _rank_correlation(left: Array, right: Array) -> float:
    """Spearman's; of values that are all the same 0."""
    from scipy.stats import spearmanr

    if np.ptp(left) == 0 or np.ptp(right) == 0:
        return 0.0
    return float(np.asarray(spearmanr(left, right))[0])
