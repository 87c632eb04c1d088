"""Which layers have common output or input channels, and so must be pruned alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product as combinations

from modulekg_widgets.engine.axes.algebra import ATOM, SUM, Term, find, flat
from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.dependencies.views import (
    ChannelDependency,
    InputChannelDependency,
)
from modulekg_widgets.engine.axes.layers import Layers
from modulekg_widgets.engine.errors import UnknownNameError, nearest, shown
from modulekg_widgets.engine.operators.traits import CHANNELS

# ------------------------------------------------------------------- channels


def channel_dependency(axes: Axes, prune_type: str = "filter") -> ChannelDependency:
    """The layers, or with `"batchnorm"` the batch normalisations, by their output channels.

    Layers that have only groups or heads in common can be pruned apart, inside each group, and are in sets of their
    own: `group_dependency` and `attention_dependency` have those. Raises `UnknownNameError` for another type.
    """
    layers = Layers(axes.inference)
    kind = str(prune_type).lower()
    if kind == "filter":
        return ChannelDependency(_coupled((layer.name, layer.out) for layer in layers))
    if kind == "batchnorm":
        return ChannelDependency(_coupled(_batch_norms(layers)))
    hint = nearest(kind, ["filter", "batchnorm"])
    raise UnknownNameError(f"there is no prune_type {shown(str(prune_type))!r}: {hint}")


def input_channel_dependency(axes: Axes) -> InputChannelDependency:
    """The layers by their input channels; an embedding's are the rows that it looks up."""
    return InputChannelDependency(_coupled((layer.name, layer.into) for layer in Layers(axes.inference)))


def _batch_norms(layers: Layers) -> Iterator[tuple[str, Term]]:
    seen = set()
    for operator in layers.inference.graph.operators:
        if layers.traits(operator).normalizes == CHANNELS:
            name = layers.owner(operator)
            if name not in seen:
                seen.add(name)
                yield name, layers.inference.dims(layers.call(operator).inputs[0])[1]


Atoms = frozenset[Term]


def _coupled(entries: Iterable[tuple[str, Term]]) -> tuple[tuple[str, ...], ...]:
    """The names in sets: two belong together when the axes of a part of one are among those of a part of the other."""
    named = list(entries)
    leader = list(range(len(named)))

    def lead(at: int) -> int:
        while leader[at] != at:
            leader[at] = at = leader[leader[at]]
        return at

    def join(a: int, b: int) -> None:
        a, b = lead(a), lead(b)
        leader[max(a, b)] = min(a, b)

    first: dict[Atoms, int] = {}
    for at, (_, term) in enumerate(named):
        for axis in _prunable(term):
            join(at, first.setdefault(axis, at))
    among: dict[Term, list[Atoms]] = {}
    for axis in first:
        for atom in axis:
            among.setdefault(atom, []).append(axis)
    for axis, at in first.items():
        for larger in min((among[atom] for atom in axis), key=len):
            if axis < larger:
                join(at, first[larger])
    sets: dict[int, list[str]] = {}
    for at, (name, _) in enumerate(named):
        sets.setdefault(lead(at), []).append(name)
    return tuple(map(tuple, sets.values()))


def _prunable(term: Term) -> Iterator[Atoms]:
    """The axes of each part of a dimension: those that may go, or all where none may."""
    for part in branches(term):
        free = frozenset(atom for atom in part if atom.frozen is None)
        if part:
            yield free or part


def branches(term: Term) -> list[Atoms]:
    """The axes of each summand, products multiplied out."""
    term = find(term)
    if term.kind == ATOM:
        return [frozenset([term] if term.size > 1 else [])]
    inside = [branches(part) for part in flat(term)]
    if term.kind == SUM:
        return list(dict.fromkeys(axis for part in inside for axis in part))
    return list(dict.fromkeys(frozenset().union(*choice) for choice in combinations(*inside)))
