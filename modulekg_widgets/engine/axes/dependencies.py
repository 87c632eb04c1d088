"""The five classic dependency views over the axes: which layers hang together, and how."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import product as combinations
from typing import TYPE_CHECKING

from modulekg_widgets.engine.axes.algebra import ATOM, SUM, Term, atoms, find, flat
from modulekg_widgets.engine.axes.attention import find_attention
from modulekg_widgets.engine.axes.call import rules
from modulekg_widgets.engine.axes.dependency_views import (
    AttentionDependency,
    ChannelDependency,
    InputChannelDependency,
    ReshapeDependency,
)
from modulekg_widgets.engine.axes.layers import Layer, Layers
from modulekg_widgets.engine.errors import UnknownNameError, nearest, shown
from modulekg_widgets.engine.tracing.dataflow import OperatorNode

if TYPE_CHECKING:
    from modulekg_widgets.engine.axes.axis import Axes


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
    rule, seen = rules["aten::native_batch_norm"], set()
    for operator in layers.inference.graph.operators:
        if layers.rule(operator) is rule:
            name = layers.owner(operator)
            if name not in seen:
                seen.add(name)
                yield name, layers.inference.dims(operator.inputs[0])[1]


Axis = frozenset[Term]


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

    first: dict[Axis, int] = {}
    for at, (_, term) in enumerate(named):
        for axis in _prunable(term):
            join(at, first.setdefault(axis, at))
    among: dict[Term, list[Axis]] = {}
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


def _prunable(term: Term) -> Iterator[Axis]:
    """The axes of each part of a dimension: those that may go, or all where none may."""
    for part in _branches(term):
        free = frozenset(atom for atom in part if atom.frozen is None)
        if part:
            yield free or part


def _branches(term: Term) -> list[Axis]:
    """The axes of each summand, products multiplied out."""
    term = find(term)
    if term.kind == ATOM:
        return [frozenset([term] if term.size > 1 else [])]
    inside = [_branches(part) for part in flat(term)]
    if term.kind == SUM:
        return list(dict.fromkeys(axis for part in inside for axis in part))
    return list(dict.fromkeys(frozenset().union(*choice) for choice in combinations(*inside)))


# ----------------------------------------------------------- reshape, attention

_RESHAPES = frozenset(rules[f"aten::{name}"] for name in (
    "view", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "im2col", "col2im",
))  # fmt: skip


_PRODUCTS = {"aten::bmm", "aten::mm"}


def reshape_dependency(axes: Axes) -> ReshapeDependency:
    """The operators that make one dimension of several or several of one where a layer's channels are among them."""
    layers = Layers(axes.inference)
    sources = layers.sources()
    channels = {atom for layer in layers for atom in atoms(layer.out) if atom.size > 1}
    found: list[tuple[str, tuple[str, ...]]] = []
    inside = set(_inside_products(layers))
    for operator in layers.inference.graph.operators:
        if layers.rule(operator) not in _RESHAPES or operator in inside:
            continue
        if layers.is_activation(operator.inputs[0]):
            changed = _reshaped(layers, operator) & channels
            above = sources[operator.inputs[0].index] if changed else ()
            if above is None:  # the residual stream: what has its axes and ran before
                above = tuple(layer for layer in layers if layer.calls[0].index < operator.index)
            names = tuple(layer.name for layer in above if _runs_along(layer, changed))
            if names:
                found.append((operator.outputs[0].name, names))
    return ReshapeDependency(tuple(found))


def _inside_products(layers: Layers) -> Iterator[OperatorNode]:
    """The reshapes that torch itself makes of a `matmul`: what is expanded before the product, and what comes of it."""
    for operator in layers.inference.graph.operators:
        if operator.name == "aten::_unsafe_view" and _maker(operator, _PRODUCTS):
            yield operator
        elif operator.name in _PRODUCTS:
            for operand in operator.inputs:
                view = operand.producer
                if view is not None and layers.rule(view) is rules["aten::view"]:
                    whole = _maker(view, {"aten::clone"}) or view
                    if _maker(whole, {"aten::expand"}):
                        yield view


def _maker(operator: OperatorNode, names: Collection[str]) -> OperatorNode | None:
    """The operator that made what this one takes, if it is one of these."""
    maker = operator.inputs[0].producer if operator.inputs else None
    return maker if maker is not None and maker.name in names else None


def _reshaped(layers: Layers, operator: OperatorNode) -> set[Term]:
    """The axes of the dimensions that do not come out as they went in."""
    before, after = (layers.inference.dims(node) for node in (operator.inputs[0], operator.outputs[0]))
    whole = {_written(term) for term in after}
    return {atom for term in before if _written(term) not in whole for atom in atoms(term)}


def _written(term: Term) -> object:
    term = find(term)
    return term if term.kind == ATOM else (term.kind, *map(_written, flat(term)))


def _runs_along(layer: Layer, changed: set[Term]) -> bool:
    return any(part and (part <= changed or part >= changed) for part in _branches(layer.out))


def attention_dependency(axes: Axes) -> AttentionDependency:
    """The projections of every attention, in whatever way it is written."""
    return AttentionDependency(tuple(find_attention(Layers(axes.inference))))
