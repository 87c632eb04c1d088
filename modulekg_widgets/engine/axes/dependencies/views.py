"""The results of the dependency views: sets of layers that can be printed, plotted and saved as CSV."""

# matplotlib has no types for what it draws
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import csv
import html
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from matplotlib import colormaps
from matplotlib.figure import Figure

from modulekg_widgets.engine.axes.inference.attention import Attention
from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.notebook_figure import NotebookFigure
from modulekg_widgets.engine.safe_files import write_atomic

# -------------------- The bipartite plot of dependency sets and their layers


MAX_LAYERS = 80  # drawn at most
MAX_NAME_LENGTH = 48  # characters of a name
LAYER_HEIGHT = 0.24  # inches per layer

Sets = Sequence[tuple[str, tuple[str, ...]]]


def plot_sets(subject: str, sets: Sets) -> Figure:
    """Plots sets of layers as a bipartite graph; a footnote has the numbers of single and of omitted layers."""
    several = [(name, layers) for name, layers in sets if len(layers) > 1] or list(sets)
    shown, left_out = _fitting(several)
    order = list(dict.fromkeys(layer for _, layers in shown for layer in layers))
    figure = NotebookFigure(figsize=(9, 1.2 + LAYER_HEIGHT * max(len(order), len(shown), 4)), layout="constrained")
    figure.crops = True
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
        axes.text(0.32, y, _shorten(name), ha="right", va="center", fontsize=8)
    for layer, y in height.items():
        axes.plot([0.62], [y], "s", color="0.25", markersize=4)
        axes.text(0.64, y, _shorten(layer), ha="left", va="center", fontsize=8)
    if notes := _notes(len(sets) - len(several), left_out) if sets else "none":
        axes.text(0, max(len(order), len(shown)) - 0.4, notes, ha="left", va="top", fontsize=8, color="0.35")
    return figure


def _fitting(sets: Sets) -> tuple[Sets, int]:
    """Returns as many sets as fit into the plot, and the number of omitted ones."""
    count = 0
    for at, (_, layers) in enumerate(sets):
        count += len(layers)
        if count > MAX_LAYERS and at > 0:
            return sets[:at], len(sets) - at
    return sets, 0


def _spread(wanted: list[float]) -> list[float]:
    """The heights wanted, moved down where two would lie on each other."""
    placed = [0.0] * len(wanted)
    lowest = -1.0
    for at in sorted(range(len(wanted)), key=wanted.__getitem__):
        placed[at] = lowest = max(wanted[at], lowest + 0.9)
    return placed


def _shorten(name: str) -> str:
    # a dollar sign would start a formula
    return (name if len(name) <= MAX_NAME_LENGTH else "…" + name[-MAX_NAME_LENGTH + 1 :]).replace("$", r"\$")


def _notes(alone: int, left_out: int) -> str:
    texts: list[str] = []
    if alone:
        texts.append(f"{alone} more of one layer each" if alone > 1 else "one more of one layer")
    if left_out:
        texts.append(f"{left_out} more not shown")
    return "; ".join(texts)


# ----------------------------------------


ROWS = 200  # of a table in a notebook


class Dependency:
    """The base of the dependency views: rows for CSV, named sets of layers for tables and plots."""

    __slots__ = ()
    subject: ClassVar[str]
    header: ClassVar[tuple[str, ...]]

    def named_sets(self) -> list[tuple[str, tuple[str, ...]]]:
        """Every set with its name, in the order of the model."""
        raise NotImplementedError

    def rows(self) -> list[list[str]]:
        """The lines of the file below its header."""
        return [[name, *layers] for name, layers in self.named_sets()]

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the sets to a file, one per line, in the layout that NNI's view of the same name has.

        Parameters
        ----------
        path
            The file, which is written whole or not at all.

        Raises
        ------
        UnknownPathError
            Where there is no folder.
        UnwritableFileError
            For what cannot be written.
        """
        lines = io.StringIO(newline="")
        csv.writer(lines, lineterminator="\n").writerows([self.header, *self.rows()])
        write_atomic(path, lines.getvalue().encode("utf-8", "backslashreplace"))

    def plot(self) -> Figure:
        """Plots the sets as a bipartite graph: sets on the left, their layers on the right.

        Returns
        -------
        matplotlib.figure.Figure
        """

        return plot_sets(self.subject, self.named_sets())

    def __len__(self) -> int:
        return len(self.named_sets())

    def __repr__(self) -> str:
        sets = self.named_sets()
        text = f"{len(sets)} {self.subject}"
        if sets:
            _, largest = max(sets, key=lambda entry: len(entry[1]))
            more = f" and {len(largest) - 3} more" if len(largest) > 3 else ""
            text += f", the largest: {', '.join(map(printable, largest[:3]))}{more}"
        return f"<{type(self).__name__}: {text}>"

    def _repr_html_(self) -> str:
        """The sets as a table, escaped."""
        lines = [self.header, *self.rows()[:ROWS]]
        cells = "".join(
            f"<tr><{tag}>{html.escape(line[0])}</{tag}><{tag}>{html.escape(', '.join(line[1:]))}</{tag}></tr>"
            for tag, line in zip(["th"] + ["td"] * ROWS, lines, strict=False)
        )
        return f"<p>{html.escape(repr(self))}</p><table>{cells}</table>"


@dataclass(frozen=True, slots=True, repr=False)
class ChannelDependency(Dependency):
    """Layers whose output channels are the same axes: they must be pruned alike. Every layer is in exactly one set."""

    sets: tuple[tuple[str, ...], ...]
    subject = "sets of layers with common output channels"
    header = ("Dependency Set", "Layers")

    @property
    def dependency_sets(self) -> list[set[str]]:
        """The sets, those of one layer included, in the order in which the layers ran."""
        return [set(layers) for layers in self.sets]

    def named_sets(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(f"Set {number}", layers) for number, layers in enumerate(self.sets, 1)]


@dataclass(frozen=True, slots=True, repr=False)
class InputChannelDependency(ChannelDependency):
    """Layers whose input channels are the same axes, as those that read one feature map."""

    subject = "sets of layers with common input channels"


@dataclass(frozen=True, slots=True, repr=False)
class GroupDependency(Dependency):
    """The least number that the output channels of each layer must be divisible by."""

    dependency_sets: dict[str, int]
    # the smallest number of groups that concerns the layer, for a norm its own; 1 where they do not divide each other
    min_groups: dict[str, int]
    subject = "layers with the number that their channels are divisible by"
    header = ("Conv Layer Name", "Group")

    @property
    def dependency(self) -> dict[str, int]:
        """The number of each layer, by the name that NNI has for it."""
        return dict(self.dependency_sets)

    def named_sets(self) -> list[tuple[str, tuple[str, ...]]]:
        numbers: dict[int, list[str]] = {}
        for name, number in self.dependency_sets.items():
            if number > 1:
                numbers.setdefault(number, []).append(name)
        return [(f"divisible by {number}", tuple(names)) for number, names in sorted(numbers.items())]

    def rows(self) -> list[list[str]]:
        return [[name, str(number)] for name, number in self.dependency_sets.items()]

    def __len__(self) -> int:
        return len(self.dependency_sets)

    def __repr__(self) -> str:
        bound = {name: number for name, number in self.dependency_sets.items() if number > 1}
        first = ", ".join(f"{printable(name)} by {number}" for name, number in list(bound.items())[:3])
        return f"<GroupDependency: {len(bound)} of {len(self)} layers have groups{f': {first}' if first else ''}>"


@dataclass(frozen=True, slots=True, repr=False)
class ReshapeDependency(Dependency):
    """The operators that merge or split a channel axis, or have its size as a number in the code, and their layers."""

    operators: tuple[tuple[str, tuple[str, ...]], ...]
    subject = "operators that reshape channels"
    header = ("Reshape OP", "Dependent Layers")

    @property
    def dependency(self) -> dict[str, list[str]]:
        """The layers by the name of the operator."""
        return {name: list(layers) for name, layers in self.operators}

    @property
    def dependency_sets(self) -> list[set[str]]:
        """The layers of every operator."""
        return [set(layers) for _, layers in self.operators]

    def named_sets(self) -> list[tuple[str, tuple[str, ...]]]:
        return list(self.operators)


@dataclass(frozen=True, slots=True, repr=False)
class AttentionDependency(Dependency):
    """The projections of q, k, v and out of every attention; `attentions` has them apart, with heads and head_dim."""

    attentions: tuple[Attention, ...]
    subject = "attentions with their projections"
    header = ("Attention layer matmul op", "Group")

    @property
    def dependency(self) -> dict[str, list[str]]:
        """The projections by the name of the product with the values."""
        return {attention.name: [layer.name for layer in attention.layers] for attention in self.attentions}

    @property
    def dependency_sets(self) -> list[list[str]]:
        """The projections of every attention: q, k, v, out, each layer once."""
        return list(self.dependency.values())

    def named_sets(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(name, tuple(layers)) for name, layers in self.dependency.items()]

    def rows(self) -> list[list[str]]:
        return [[name, str(layers)] for name, layers in self.dependency.items()]
