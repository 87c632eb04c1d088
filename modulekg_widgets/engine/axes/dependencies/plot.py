"""A picture of sets of layers: sets on the left, layers on the right, a line for every membership."""

from __future__ import annotations

import io
from collections.abc import Sequence

from matplotlib import colormaps
from matplotlib.figure import Figure

LAYERS = 80  # drawn at most
NAME = 48  # characters of a name
HEIGHT = 0.24  # inches per layer

Sets = Sequence[tuple[str, tuple[str, ...]]]


class Picture(Figure):
    """A figure that a notebook shows without pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=100, bbox_inches="tight")
        return buffer.getvalue()


def plot_sets(subject: str, sets: Sets) -> Figure:
    """Sets of several layers as a bipartite graph; how many stand alone, and how many are left out, is said below."""
    several = [(name, layers) for name, layers in sets if len(layers) > 1] or list(sets)
    shown, left_out = _fitting(several)
    order = list(dict.fromkeys(layer for _, layers in shown for layer in layers))
    figure = Picture(figsize=(9, 1.2 + HEIGHT * max(len(order), len(shown), 4)), layout="constrained")
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_title(subject[:1].upper() + subject[1:], loc="left")
    axes.set_xlim(-0.05, 1.05)
    axes.set_ylim(max(len(order), len(shown), 1) - 0.5, -1)
    height = {layer: at for at, layer in enumerate(order)}
    spread = _spread([sum(height[layer] for layer in layers) / max(len(layers), 1) for _, layers in shown])
    colors = colormaps["tab10"].colors  # type: ignore[attr-defined]
    for at, ((name, layers), y) in enumerate(zip(shown, spread, strict=True)):
        color = colors[at % len(colors)]
        for layer in layers:
            axes.plot([0.34, 0.62], [y, height[layer]], color=color, linewidth=1.2, zorder=1)
        axes.plot([0.34], [y], "o", color=color, markersize=7)
        axes.text(0.32, y, _cut(name), ha="right", va="center", fontsize=8)
    for layer, y in height.items():
        axes.plot([0.62], [y], "s", color="0.25", markersize=4)
        axes.text(0.64, y, _cut(layer), ha="left", va="center", fontsize=8)
    if notes := _notes(len(sets) - len(several), left_out) if sets else "none":
        axes.text(0, max(len(order), len(shown)) - 0.4, notes, ha="left", va="top", fontsize=8, color="0.35")
    return figure


def _fitting(sets: Sets) -> tuple[Sets, int]:
    """As many sets as there is room for, and the number of those left out."""
    count = 0
    for at, (_, layers) in enumerate(sets):
        count += len(layers)
        if count > LAYERS and at > 0:
            return sets[:at], len(sets) - at
    return sets, 0


def _spread(wanted: list[float]) -> list[float]:
    """The heights wanted, moved down where two would lie on each other."""
    placed = [0.0] * len(wanted)
    lowest = -1.0
    for at in sorted(range(len(wanted)), key=wanted.__getitem__):
        placed[at] = lowest = max(wanted[at], lowest + 0.9)
    return placed


def _cut(name: str) -> str:
    # a dollar sign would start a formula
    return (name if len(name) <= NAME else "…" + name[-NAME + 1 :]).replace("$", r"\$")


def _notes(alone: int, left_out: int) -> str:
    texts = []
    if alone:
        texts.append(f"{alone} more of one layer each" if alone > 1 else "one more of one layer")
    if left_out:
        texts.append(f"{left_out} more that there is no room for")
    return "; ".join(texts)
