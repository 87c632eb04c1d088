"""Picture of a MetricPanel: a line chart."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from modulekg_widgets.engine.monitoring.readings import PHASES
from modulekg_widgets.engine.monitoring.run import Run
from modulekg_widgets.engine.palette import PAGE, PALETTE
from modulekg_widgets.engine.views.metric_payload import (
    HISTOGRAM,
    MIN_POINTS,
    Series,
    SeriesCatalog,
    UpdateReader,
    min_max_positions,
    phase_with_values,
)
from modulekg_widgets.engine.views.pictures.shapes import Path, PathCommand, Picture, Rect, Shape, Text, one_line

# -------------------- Defaults of a metric chart without a selection: metric and modules, by the rules of the page


Points = tuple[np.ndarray, np.ndarray]  # steps and values

SAMPLE_STEPS = 64  # steps at which series are compared
LOG_SCALE_DECADES = 2.0  # from here on values are compared, and drawn, by their logarithms
ZERO_SHARE = 1e-6  # of the greatest magnitude: what a zero counts as


def heatmap_metric(catalog: SeriesCatalog, found: Mapping[int, Points], alerts: Sequence[str]) -> str:
    """Returns the default metric of a heat map: the first with an alert, or the one with the largest spread."""
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
    """Decades between the 10th and 90th percentile of the median magnitudes."""
    finite = [np.abs(values[np.isfinite(values)]) for _, values in series]
    typical = [np.median(values) for values in finite if len(values)]
    low, high = np.quantile(typical, (0.1, 0.9)) if typical else (0.0, 0.0)
    return float(np.log10(high / max(low, high * ZERO_SHARE))) if high > 0 else 0.0


def outlying_modules(modules: Sequence[tuple[str, Points]], most: int) -> list[str]:
    """Returns at most `most` modules: the farthest from the median series, and the nearest one."""
    names = list(dict.fromkeys(name for name, _ in modules))
    if len(names) <= most:
        return names
    places = np.linspace(min(p[0][0] for _, p in modules), max(p[0][-1] for _, p in modules), SAMPLE_STEPS)
    table = np.array([_interpolated(places, points) for _, points in modules])
    if spans_decades(table):
        table = np.log10(np.maximum(table, table[table > 0].min() / 10))
    away = np.abs(table - np.nanmedian(table, axis=0))
    breaks = [not np.isfinite(values).all() for _, (_, values) in modules]
    distance = np.where(breaks, np.inf, np.nan_to_num(away).mean(axis=1))
    furthest = {name: max(d for (n, _), d in zip(modules, distance, strict=True) if n == name) for name in names}
    ranked = sorted(names, key=lambda name: -furthest[name])
    return [name for name in names if name in {*ranked[: most - 1], ranked[-1]}]


def _interpolated(places: np.ndarray, points: Points) -> np.ndarray:
    """Values interpolated at some steps, without non-finite ones."""
    steps, values = points
    finite = np.isfinite(values)
    return np.interp(places, steps[finite], values[finite]) if finite.any() else np.zeros(len(places))


def spans_decades(values: np.ndarray) -> bool:
    """True if no value is negative and the greatest is 100 times the least positive one."""
    finite = values[np.isfinite(values)]
    positive = finite[finite > 0]
    return (
        bool(len(positive))
        and bool(finite.min() >= 0)
        and bool(positive.max() >= 10**LOG_SCALE_DECADES * positive.min())
    )


# ----------------------------------------


HISTOGRAM_HINT = "histograms: run the cell for the interactive view"
NO_VALUES_HINT = "to keep the curves, show the panel again after the training"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, ROW_HEIGHT = 560, 220, 64, 14, 34, 17
MAX_MODULES, MAX_LINES, MAX_POINTS = 8, 12, 300
READ_SECONDS = 1.0  # of reading; a picture must not keep a cell waiting
SLICE_SECONDS = 0.02

COLORS = PALETTE.lines.light


@dataclass(frozen=True)
class ChartOptions:
    """Settings of a chart, as the traits of a panel have them."""

    metric: str
    modules: Sequence[str]
    selected: str | None
    phase: str
    window: int | None
    log_scale: bool | None
    view: str = "lines"


@dataclass(frozen=True)
class ChartLine:
    """One line of the chart; values are as drawn, possibly logarithms."""

    name: str
    steps: np.ndarray
    values: np.ndarray


def draw_metrics(runs: Sequence[Run], shown: ChartOptions) -> Picture:
    """Returns the picture of a line chart."""
    metric, lines, note, is_log = chart(runs, shown)
    height = (HEIGHT if lines else 2 * ROW_HEIGHT) + ROW_HEIGHT * len(lines) + ROW_HEIGHT
    names = ", ".join(run.name for run in runs[:4])
    shapes: list[Shape] = [
        Text(LEFT, 20, one_line(metric or "no values yet"), PAGE.text),
        Text(WIDTH - RIGHT, 20, one_line(names), PAGE.muted, "end"),
    ]
    if lines:
        shapes.extend(_plot(lines, is_log))
    else:
        shapes.append(Text(LEFT, 20 + ROW_HEIGHT, HISTOGRAM_HINT if metric else NO_VALUES_HINT, PAGE.muted))
    for at, line in enumerate(lines):
        y = HEIGHT + ROW_HEIGHT * at + 10
        shapes.append(Rect(LEFT, y - 9, 10, 10, COLORS[at % len(COLORS)]))
        shapes.append(Text(LEFT + 16, y, one_line(line.name), PAGE.text))
    if note:
        shapes.append(Text(LEFT, height - 6, note, PAGE.muted))
    return Picture(f"{metric or 'metrics'} of {names}", WIDTH, height, shapes)


def chart(runs: Sequence[Run], shown: ChartOptions) -> tuple[str, list[ChartLine], str, bool]:
    """Returns metric, lines and note of the chart, and True if values are logarithms."""
    catalog, found, complete = _read(runs)
    metric = shown.metric or first_metric(catalog.series)
    if shown.view == "heatmap" and not shown.metric:
        metric = heatmap_metric(catalog, found, [alert.metric for run in runs for alert in run.alerts]) or metric
    if shown.view == "histogram" and not shown.metric:
        metric = next((s.metric for s in catalog.series if s.form == HISTOGRAM), "")
        return metric, [], "", False
    of_layers = {series.metric for series in catalog.series if series.module}
    logged = dict.fromkeys(s.metric for s in catalog.series if s.form != HISTOGRAM and s.metric not in of_layers)
    drawn = losses_with(logged, metric) if metric in logged else [metric]
    chosen = [number for name in drawn for number in chosen_series(catalog, found, name, shown)][:MAX_LINES]
    is_log = bool(shown.log_scale)
    is_of_losses = metric in logged and is_loss(metric)
    if shown.log_scale is None and (is_of_losses or len({catalog.series[number].module for number in chosen}) > 1):
        values = np.concatenate([found[number][1] for number in chosen] or [np.empty(0)])
        is_log = spans_decades(values) and not (is_of_losses and bool((values == 0).any()))
    lines = [
        _line(_name(catalog.series[number], runs, chosen), *found[number], shown.window, is_log) for number in chosen
    ]
    notes = [] if complete else ["the beginning of a long training"]
    if is_of_losses:
        notes += [text for n in chosen if (text := _broken_text(catalog.series[n].metric, *found[n]))]
    return metric, lines, "; ".join([*notes, *(["log scale"] if is_log else [])]), is_log


def _broken_text(name: str, steps: np.ndarray, values: np.ndarray) -> str:
    """Returns since when a loss is not finite; "" if its last value is."""
    finite = np.flatnonzero(np.isfinite(values))
    first = int(finite[-1]) + 1 if len(finite) else 0
    if first >= len(values):
        return ""
    what = "NaN" if np.isnan(values[first:]).all() else "NaN or infinite"
    return f"{one_line(name)} is {what} since step {steps[first]:.0f}"


# the rules of js/src/core/metrics/data/logged_losses.ts; tests/views/loss_names.json holds both to them
VALIDATION = {"val", "valid", "validation", "dev", "eval", "evaluation", "test", "testing", "heldout"}
TRAINING = {"train", "training"}
AVERAGES = {"step", "epoch", "batch", "avg", "average", "mean", "smoothed", "running", "total"}
LOSS = re.compile(r"nlls?|ce|bce|xent|crossentropy|.*loss(?:es)?")
JOINED = re.compile(r"^(train|val|valid|eval|test|dev)(?=loss)")  # "valloss" is two words
OF_LOSSES = re.compile(
    "scales?|scaler|scaling|weights?|weighting|spikes?|ratio|coef|coeff|coefficient|factor|counts?|threshold"
)


def _words_of(name: str) -> list[str]:
    """Words of a name in lower case: "trainLoss", "Loss/train" and "train_loss" have the same two."""
    parts = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1 \2", re.sub(r"([a-z\d])([A-Z])", r"\1 \2", name)).lower()
    parts = re.sub("held[^a-z]*out", "heldout", re.sub("cross[^a-z]*entropy", "crossentropy", parts))
    return [part for word in re.split(r"[^a-z\d]+", parts) for part in JOINED.sub(r"\1 ", word).split()]


def is_loss(name: str) -> bool:
    """True if a logged number of this name is a loss: "train_loss" or "NLL", not "LossSpike" or "loss_scale"."""
    words = _words_of(name)
    at = next((at for at, word in enumerate(words) if LOSS.fullmatch(word)), None)
    return at is not None and not any(OF_LOSSES.fullmatch(word) for word in words[at + 1 :])


def loss_order(name: str) -> tuple[bool, int]:
    """Key that sorts losses: of training before those of validation, short names first."""
    return not VALIDATION.isdisjoint(_words_of(name)), len(name)


def losses_with(logged: Iterable[str], metric: str) -> list[str]:
    """Returns the losses that one chart shows with `metric`: of the same subject; `metric` alone for no loss."""

    def subject(name: str) -> list[str]:
        return sorted(word for word in _words_of(name) if word not in VALIDATION | TRAINING | AVERAGES)

    same = [name for name in logged if is_loss(name) and subject(name) == subject(metric)]
    return sorted(same, key=loss_order) if metric in same else [metric]


def first_metric(series: Iterable[Series]) -> str:
    """Returns the metric that a chart opens on: a logged loss, else a number of the whole run, else the first one."""
    numbers = [one for one in series if one.form != HISTOGRAM]
    names = dict.fromkeys(one.metric for one in numbers)
    of_layers = {one.metric for one in numbers if one.module}
    logged = [name for name in names if name not in of_layers]
    losses = sorted(filter(is_loss, logged), key=loss_order)
    return next(iter([*losses, *logged, *names]), "")


def chosen_series(catalog: SeriesCatalog, found: Mapping[int, Points], metric: str, shown: ChartOptions) -> list[int]:
    """Returns the numbers of the series to draw: of the chosen, the selected, or the eight most different modules."""
    phases = PHASES if shown.phase == "both" else (phase_with_values(shown.phase, catalog.series, metric),)
    fitting = [
        (number, series.module)
        for number, series in enumerate(catalog.series)
        if series.metric == metric and series.form != HISTOGRAM and series.phase in phases and number in found
    ]
    modules = list(shown.modules)[:MAX_MODULES]
    if not modules and shown.selected in {module for _, module in fitting}:
        modules = [shown.selected]
    if not modules:
        modules = outlying_modules([(module, found[number]) for number, module in fitting], MAX_MODULES)
    return [number for number, module in fitting if module in modules]


def _read(runs: Sequence[Run]) -> tuple[SeriesCatalog, dict[int, tuple[np.ndarray, np.ndarray]], bool]:
    """All series of the runs, downsampled; False if reading took too long."""
    updates, end = UpdateReader(runs), time.perf_counter() + READ_SECONDS
    pieces: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    while updates.unread > 0 and time.perf_counter() < end:
        batch, share = updates.read(SLICE_SECONDS)
        points = batch.points().downsampled(max(MIN_POINTS, math.ceil(MAX_POINTS * share)))
        ends = points.counts.cumsum()
        for series, start, stop in zip(points.series.tolist(), ends - points.counts, ends, strict=True):
            pieces.setdefault(series, []).append((points.steps[start:stop], points.values[start:stop]))
    found = {s: (np.concatenate([p[0] for p in own]), np.concatenate([p[1] for p in own])) for s, own in pieces.items()}
    return updates.catalog, found, updates.unread == 0


def _name(series: Series, runs: Sequence[Run], chosen: Sequence[int]) -> str:
    call = f" call {series.call}" if series.call else ""
    run = f"  ({runs[series.run].name})" if len(runs) > 1 else ""
    return f"{series.module or series.metric}{call}{run}"


def _line(name: str, steps: np.ndarray, values: np.ndarray, window: int | None, is_log: bool) -> ChartLine:
    if window is not None:
        recent = steps > steps.max() - window
        steps, values = steps[recent], values[recent]
    with np.errstate(all="ignore"):
        drawn = np.log10(np.where(values > 0, values, math.nan)) if is_log else values
    kept = min_max_positions(drawn, MAX_POINTS)
    return ChartLine(name, steps[kept], drawn[kept])


def _plot(lines: Sequence[ChartLine], is_log: bool) -> Iterator[Shape]:
    """Frame, corner labels and lines."""
    steps = np.concatenate([line.steps for line in lines])
    values = np.concatenate([line.values for line in lines])
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    first, last = float(steps.min()), float(steps.max())
    bottom, end = HEIGHT - 24, WIDTH - RIGHT
    yield Path([("M", (LEFT, TOP)), ("V", (bottom,)), ("H", (end,))], stroke=PAGE.line)
    for y, value in ((TOP + 10, high), (bottom, low)):
        yield Text(LEFT - 6, y, _figure(value, is_log), PAGE.muted, "end")
    yield Text(LEFT, bottom + 15, f"step {first:.0f}", PAGE.muted)
    yield Text(end, bottom + 15, f"{last:.0f}", PAGE.muted, "end")
    for at, line in enumerate(lines):
        x = LEFT + (line.steps - first) / max(last - first, 1.0) * (end - LEFT)
        with np.errstate(all="ignore"):
            y = bottom - (line.values - low) / (high - low or 1.0) * (bottom - TOP)
        commands = list(_path_commands(x, y))
        if commands:
            yield Path(commands, stroke=COLORS[at % len(COLORS)], width=1.5, has_round_ends=True)


def _figure(value: float, is_log: bool) -> str:
    with np.errstate(all="ignore"):
        return f"{np.power(10.0, value) if is_log else value:.3g}"


def _path_commands(x: np.ndarray, y: np.ndarray) -> Iterator[PathCommand]:
    """The path through finite points; an isolated point becomes a dot."""
    is_drawn = False
    for across, down in zip(x.round(1).tolist(), y.round(1).tolist(), strict=True):
        if not math.isfinite(down):
            is_drawn = False
        elif is_drawn:
            yield "L", (across, down)
        else:
            yield "M", (across, down)
            yield "h", (0,)
            is_drawn = True
