"""Plots of the answers of a knowledge graph, one function for each question.

Every function takes the result and, if you like, matplotlib axes. It returns these axes, or else a new figure that a
notebook shows; pyplot and its current figure are left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Protocol, TypedDict

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from modulekg_widgets.engine.errors import MissingPackageError, printable
from modulekg_widgets.engine.notebook_figure import NotebookFigure
from modulekg_widgets.engine.palette import PALETTE
from modulekg_widgets.engine.registry import Registry

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from modulekg_widgets.engine.knowledge.analysis.power_law import PowerLaw


# -------------------- Drawing helpers of the plots; imports matplotlib, so import it inside functions


MAX_LABEL_LENGTH = 40  # characters of a label


class TextOptions(TypedDict):
    """Options of matplotlib for a text."""

    parse_math: bool
    usetex: bool


# names are any text: never a formula or a TeX source
TEXT_OPTIONS: TextOptions = {"parse_math": False, "usetex": False}
BAR_COLOR = PALETTE.plots.first
BarColors = str | Sequence[tuple[float, float, float, float]]  # one, or one for each bar


def new_figure(width: float, height: float) -> NotebookFigure:
    """An empty figure of a size in inches."""
    return NotebookFigure(figsize=(width, height), layout="constrained")


def short_label(text: object) -> str:
    """A name as one short line of printable characters."""
    line = printable(str(text), MAX_LABEL_LENGTH)
    return line if len(line) <= MAX_LABEL_LENGTH else line[: MAX_LABEL_LENGTH - 1] + "…"


def set_titles(axes: Axes, title: str, xlabel: str = "", ylabel: str = "") -> None:
    axes.set_title(title, **TEXT_OPTIONS)
    axes.set_xlabel(xlabel, **TEXT_OPTIONS)
    axes.set_ylabel(ylabel, **TEXT_OPTIONS)


def draw_bars(
    axes: Axes, names: Sequence[object], values: Sequence[float], notes: Sequence[str], colors: BarColors = BAR_COLOR
) -> None:
    """One horizontal bar for each name, the first on top, with a note at its end."""
    places = range(len(names))
    axes.barh(places, values, color=colors)
    axes.set_yticks(places, labels=[short_label(name) for name in names], **TEXT_OPTIONS)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    for place, value, note in zip(places, values, notes, strict=True):
        axes.annotate(
            note, (value, place), xytext=(3, 0), textcoords="offset points", va="center", size=8, **TEXT_OPTIONS
        )
    axes.margins(x=0.15)
    if not names:
        axes.text(0.5, 0.5, "nothing to show", ha="center", transform=axes.transAxes)


# ----------------------------------------


DrawFunction = Callable[[Axes], None]


class RankFrequencyLike(Protocol):
    """Protocol of the `RankFrequency` that is plotted."""

    @property
    def table(self) -> pd.DataFrame: ...
    @property
    def fit(self) -> PowerLaw: ...
    @property
    def verdict(self) -> str: ...


PLOTS: Registry[Callable[..., Figure | Axes]] = Registry("plot")  # by the name of the question
MAX_BARS = 20  # bars
MAX_TICKS = 60
# what the table of `difference` calls them, in words and colors
SIDE_STYLES = {
    "first": ("only in the first", PALETTE.plots.first),
    "both": ("in both", PALETTE.plots.both),
    "second": ("only in the second", PALETTE.plots.second),
}
MAX_ANNOTATED = 12  # models whose overlap is also written in numbers


@PLOTS.register("most_used")
def plot_most_used(result: pd.DataFrame, ax: Axes | None = None) -> Figure | Axes:
    """Bars of occurrences, given the table of `most_used`."""
    return _bars(result["name"], result["count"], ax, "Most used structures", "occurrences")


@PLOTS.register("importance")
def plot_importance(result: pd.DataFrame, ax: Axes | None = None) -> Figure | Axes:
    """Bars of the most important structures, given the table of `importance`."""
    measure = result.columns[1]
    return _bars(result["name"], result[measure], ax, "Most important structures", measure.replace("_", "-"))


@PLOTS.register("is_a")
def plot_is_a(result: pd.DataFrame, ax: Axes | None = None) -> Figure | Axes:
    """Bars of the largest types, given the table of `is_a`."""
    sizes = dict(Counter(result["type"]).most_common())
    return _bars(sizes, sizes.values(), ax, f"Largest of {len(sizes):,} types", "structures")


@PLOTS.register("families")
def plot_families(result: pd.DataFrame, ax: Axes | None = None) -> Figure | Axes:
    """Bars of the largest families with some of their models, given the table of `families`."""

    notes = [
        f"{short_label(models[0])} … {short_label(models[-1])}" if models[1:] else short_label(models[0])
        for models in result["models"]
    ]
    return _bars(result["family"], result["count"], ax, f"Largest of {len(result):,} families", "models", notes)


@PLOTS.register("communities")
def plot_communities(result: pd.DataFrame, ax: Axes | None = None) -> Figure | Axes:
    """Bars of the largest communities with their most frequent classes, given the table of `communities`."""
    from matplotlib import colormaps

    groups = [group for _, group in result.groupby("community")]
    classes = [", ".join(name for name, _ in Counter(group["class"]).most_common(3)) for group in groups[:MAX_BARS]]
    title = f"{len(groups):,} communities, modularity {result.attrs.get('modularity', float('nan')):.3f}"
    names = result.attrs.get("names") or [f"community {number}" for number in range(len(groups))]
    colors = [colormaps["tab20"](number % 20) for number in range(min(len(groups), MAX_BARS))]
    return _bars(names, [len(group) for group in groups], ax, title, "structures", classes, colors)


@PLOTS.register("difference")
def plot_difference(result: pd.DataFrame, ax: Axes | None = None) -> Figure | Axes:
    """Bars of the classes in which two models differ most, given the table of `difference`."""

    counts = {side: Counter(result.loc[result["where"] == side, "class"]) for side in SIDE_STYLES}
    classes = sorted(set(result["class"]), key=lambda name: (counts["both"][name] - _total(counts, name), name))[
        :MAX_BARS
    ]

    def draw(axes: Axes) -> None:
        left = [0] * len(classes)
        for side, (text, color) in SIDE_STYLES.items():
            widths = [counts[side][name] for name in classes]
            axes.barh(range(len(classes)), widths, left=left, label=text, color=color)
            left = [start + width for start, width in zip(left, widths, strict=True)]
        axes.set_yticks(range(len(classes)), labels=[short_label(name) for name in classes], **TEXT_OPTIONS)
        axes.invert_yaxis()
        axes.legend(fontsize=8)
        totals = ", ".join(f"{counts[side].total():,} {text}" for side, (text, _) in SIDE_STYLES.items())
        set_titles(axes, totals, "structures")

    return _draw_figure(draw, ax, 8, 1.5 + 0.27 * max(len(classes), 3))


def _total(counts: dict[str, Counter[str]], name: str) -> int:
    return sum(of[name] for of in counts.values())


@PLOTS.register("overlap")
def plot_overlap(result: pd.DataFrame, ax: Axes | None = None) -> Figure | Axes:
    """The matrix as colors, given the table of `overlap`."""

    names = [short_label(name) for name in result.index]
    shown = range(0, len(names), -(-len(names) // MAX_TICKS) or 1)
    is_share = all(kind.kind == "f" for kind in result.dtypes)

    def draw(axes: Axes) -> None:
        values = result.to_numpy()
        if values.size:
            image = axes.imshow(values, cmap="cividis", vmin=0, vmax=1 if is_share else None)
            axes.figure.colorbar(image, ax=axes, label="Jaccard index" if is_share else "shared structures")
        size = 7 if len(shown) > MAX_TICKS // 3 else 9
        axes.set_xticks(shown, labels=[names[at] for at in shown], rotation=90, size=size, **TEXT_OPTIONS)
        axes.set_yticks(shown, labels=[names[at] for at in shown], size=size, **TEXT_OPTIONS)
        set_titles(axes, "Structures that models share")
        if len(names) <= MAX_ANNOTATED:
            _write_cells(axes, values, "{:.2f}" if is_share else "{:d}")

    side = 3.5 + 0.13 * len(shown)
    return _draw_figure(draw, ax, side + 1, side)


@PLOTS.register("rank_frequency")
def plot_rank_frequency(result: RankFrequencyLike, ax: Axes | None = None) -> Figure | Axes:
    """Linear and log–log axes with the fit, its alternatives and what can be told of them; on `ax` the log–log ones."""

    try:
        fit, verdict = result.fit, result.verdict
    except MissingPackageError as error:
        fit, verdict = None, f"No fit: {error}"
    if ax is not None:
        _draw_rank_axes(ax, result, fit, "log")
        ax.set_title(fill(verdict, 70), size=8)
        return ax
    figure = new_figure(10, 5)
    linear, logarithmic = figure.subplots(1, 2)
    _draw_rank_axes(linear, result, fit, "linear")
    _draw_rank_axes(logarithmic, result, fit, "log")
    figure.suptitle(fill(verdict, 120), size=9)
    return figure


def _draw_rank_axes(axes: Axes, result: RankFrequencyLike, fit: PowerLaw | None, scale: str) -> None:
    axes.plot(result.table["rank"], result.table["count"], ".", color="0.4", label="structures")
    styles = ["-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1))]
    for (law, ranks), style in zip(fit.expected.items() if fit else (), styles, strict=False):
        axes.plot(ranks, fit.counts if fit else [], linestyle=style, linewidth=1.5, label=law)
    most = max(result.table["count"], default=1)
    if scale == "log":
        axes.set(xscale="log", yscale="log", xlim=(0.8, max(len(result.table), 2) * 1.3), ylim=(0.8, most * 2))
    else:
        # the tail of the smallest counts is long and flat: the linear picture is of what the laws are fitted to
        axes.set(xlim=(0, max(fit.tail if fit else 0, 10)), ylim=(0, most * 1.05))
    axes.set_xlabel("rank")
    axes.set_ylabel("occurrences")
    axes.legend(fontsize=8)


def _write_cells(axes: Axes, values: np.ndarray, form: str) -> None:
    middle = values.max(initial=0) / 2
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            ink = "black" if value > middle else "white"
            axes.text(column, row, form.format(value), ha="center", va="center", size=7, color=ink)


def _bars(
    names: Iterable[object],
    values: Iterable[float],
    ax: Axes | None,
    title: str,
    unit: str,
    notes: list[str] | None = None,
    colors: BarColors = BAR_COLOR,
) -> Figure | Axes:
    """Plots bars of the first names; the answers are sorted already."""

    shown, lengths = list(names)[:MAX_BARS], list(values)[:MAX_BARS]
    texts = [f"{value:,}" if isinstance(value, int) else f"{value:.3g}" for value in lengths]
    if notes:
        texts = [f"{text} · {short_label(note)}" for text, note in zip(texts, notes, strict=False)]

    def draw(axes: Axes) -> None:
        draw_bars(axes, shown, lengths, texts, colors)
        set_titles(axes, title, unit)

    return _draw_figure(draw, ax, 8, 1.5 + 0.27 * max(len(shown), 3))


def _draw_figure(draw: DrawFunction, ax: Axes | None, width: float, height: float) -> Figure | Axes:

    if ax is not None:
        draw(ax)
        return ax
    figure = new_figure(width, height)
    draw(figure.subplots())
    return figure
