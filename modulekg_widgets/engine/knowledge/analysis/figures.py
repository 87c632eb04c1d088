"""What every plot of the knowledge graph is drawn with; imports matplotlib, so import it inside functions."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from modulekg_widgets.engine.errors import shown
from modulekg_widgets.engine.palette import PALETTE

LONGEST = 40  # characters of a label
# names are any text: never a formula or a TeX source
PLAIN: dict[str, Any] = {"parse_math": False, "usetex": False}
INK = PALETTE.plots.first


class NotebookFigure(Figure):
    """A figure that a notebook shows by itself, with or without pyplot."""

    def _repr_png_(self) -> bytes:
        file = BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()


def figure_of(width: float, height: float) -> NotebookFigure:
    """An empty figure of a size in inches."""
    return NotebookFigure(figsize=(width, height), layout="constrained")


def label(text: Any) -> str:
    """A name as one short line of printable characters."""
    line = shown(str(text), LONGEST)
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def titled(axes: Axes, title: str, xlabel: str = "", ylabel: str = "") -> None:
    axes.set_title(title, **PLAIN)
    axes.set_xlabel(xlabel, **PLAIN)
    axes.set_ylabel(ylabel, **PLAIN)


def bars(axes: Axes, names: Sequence[Any], values: Sequence[float], notes: Sequence[str], colors: Any = INK) -> None:
    """One horizontal bar for each name, the first on top, with a note at its end."""
    places = range(len(names))
    axes.barh(places, values, color=colors)
    axes.set_yticks(places, labels=[label(name) for name in names], **PLAIN)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    for place, value, note in zip(places, values, notes, strict=True):
        axes.annotate(note, (value, place), xytext=(3, 0), textcoords="offset points", va="center", size=8, **PLAIN)
    axes.margins(x=0.15)
    if not names:
        axes.text(0.5, 0.5, "nothing to show", ha="center", transform=axes.transAxes)
