"""How well a target is told of families that have not been seen, by each predictor and by simple baselines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from modulekg_widgets.engine.errors import PredictionError, UnknownNameError, nearest, shown
from modulekg_widgets.engine.knowledge.prediction.boosting import BOOSTING_TITLE, Boosting, folds_of
from modulekg_widgets.engine.knowledge.prediction.features import Array
from modulekg_widgets.engine.knowledge.prediction.gnn import GraphNetworks
from modulekg_widgets.engine.knowledge.prediction.mixture import Told
from modulekg_widgets.engine.knowledge.prediction.predictor import Predictor
from modulekg_widgets.engine.knowledge.prediction.regressions import KERNELS, left_out, nearest_structure
from modulekg_widgets.engine.knowledge.prediction.surface import Surface

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
