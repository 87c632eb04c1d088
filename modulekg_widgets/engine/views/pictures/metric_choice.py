"""What the picture of a MetricPanel shows where nothing was chosen: the rules of the page, for series as read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from modulekg_widgets.engine.views.metric_update import HISTOGRAM, Catalog

Points = tuple[np.ndarray, np.ndarray]  # steps and values

PLACES = 64  # steps at which series are compared
DECADES = 2.0  # from here on values are compared, and drawn, by their logarithms
ZERO = 1e-6  # of the greatest magnitude: what a zero counts as


def layered_metric(catalog: Catalog, found: Mapping[int, Points], alerts: Sequence[str]) -> str:
    """The metric that a heat map opens on: of several layers; the first alert's, or that with layers furthest apart."""
    layers: dict[str, dict[str, list[int]]] = {}
    for number, series in enumerate(catalog.series):
        if series.form != HISTOGRAM and number in found:
            layers.setdefault(series.metric, {}).setdefault(series.module, []).append(number)
    several = [metric for metric, modules in layers.items() if len(modules.keys() - {""}) > 1]
    named = [metric for metric in alerts if metric in several]
    spreads = {m: _spread([found[n] for own in layers[m].values() for n in own]) for m in several}
    single = [metric for metric, modules in layers.items() if modules.keys() - {""}]
    return named[0] if named else max(several, key=lambda m: spreads[m], default=(single or [""])[0])


def _spread(series: Sequence[Points]) -> float:
    """Decades between the 10th and the 90th percentile of the series' median magnitudes."""
    finite = [np.abs(values[np.isfinite(values)]) for _, values in series]
    typical = [np.median(values) for values in finite if len(values)]
    low, high = np.quantile(typical, (0.1, 0.9)) if typical else (0.0, 0.0)
    return float(np.log10(high / max(low, high * ZERO))) if high > 0 else 0.0


def standing_out(modules: Sequence[tuple[str, Points]], most: int) -> list[str]:
    """At most so many modules: those whose series lie furthest from the median of all, and the nearest one."""
    names = list(dict.fromkeys(name for name, _ in modules))
    if len(names) <= most:
        return names
    places = np.linspace(min(p[0][0] for _, p in modules), max(p[0][-1] for _, p in modules), PLACES)
    table = np.array([_at(places, points) for _, points in modules])
    if spans_decades(table):
        table = np.log10(np.maximum(table, table[table > 0].min() / 10))
    away = np.abs(table - np.nanmedian(table, axis=0))
    breaks = [not np.isfinite(values).all() for _, (_, values) in modules]
    distance = np.where(breaks, np.inf, np.nan_to_num(away).mean(axis=1))
    furthest = {name: max(d for (n, _), d in zip(modules, distance, strict=True) if n == name) for name in names}
    ranked = sorted(names, key=lambda name: -furthest[name])
    return [name for name in names if name in {*ranked[: most - 1], ranked[-1]}]


def _at(places: np.ndarray, points: Points) -> np.ndarray:
    """The values that hold at some steps; those that are not finite count as not there."""
    steps, values = points
    finite = np.isfinite(values)
    return np.interp(places, steps[finite], values[finite]) if finite.any() else np.zeros(len(places))


def spans_decades(values: np.ndarray) -> bool:
    """Whether no value is negative, and the greatest is a hundred times the least positive one."""
    finite = values[np.isfinite(values)]
    positive = finite[finite > 0]
    return bool(len(positive)) and bool(finite.min() >= 0) and bool(positive.max() >= 10**DECADES * positive.min())
