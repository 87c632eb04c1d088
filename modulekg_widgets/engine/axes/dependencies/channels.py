"""Channel dependency: layers that share output or input channels and must be pruned alike."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import product as combinations

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.dependencies.views import ChannelDependency, InputChannelDependency, ReshapeDependency
from modulekg_widgets.engine.axes.inference.layers import Layer, Layers
from modulekg_widgets.engine.axes.terms.algebra import ATOM, SUM, Term, atoms, find, flattened_parts
from modulekg_widgets.engine.axes.terms.literal_sizes import literal_sizes
from modulekg_widgets.engine.errors import UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.operators.traits import CHANNELS, MATMUL, VIEW
from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode

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
    hint = closest_match_hint(kind, ["filter", "batchnorm"])
    raise UnknownNameError(f"there is no prune_type {printable(str(prune_type))!r}: {hint}")


def input_channel_dependency(axes: Axes) -> InputChannelDependency:
    """Groups the layers by their input channels; the input channels of an embedding are its rows."""
    return InputChannelDependency(_coupled((layer.name, layer.into) for layer in Layers(axes.inference)))


def _batch_norms(layers: Layers) -> Iterator[tuple[str, Term]]:
    seen: set[str | None] = set()
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
    for part in summand_axes(term):
        free = frozenset(atom for atom in part if atom.frozen is None)
        if part:
            yield free or part


def summand_axes(term: Term) -> list[Atoms]:
    """The axes of each summand, products multiplied out."""
    term = find(term)
    if term.kind == ATOM:
        return [frozenset([term] if term.size > 1 else [])]
    inside = [summand_axes(part) for part in flattened_parts(term)]
    if term.kind == SUM:
        return list(dict.fromkeys(axis for part in inside for axis in part))
    return list(dict.fromkeys(frozenset[Term]().union(*choice) for choice in combinations(*inside)))


# --------------------
# Reshape dependency: operators that merge, split or fix channels, and the layers whose channels they reshape.


def reshape_dependency(axes: Axes) -> ReshapeDependency:
    """The operators that make one dimension of several or several of one where a layer's channels are among them.

    And those of which the code has the number of channels as a number, as `x.view(2, 8, 4, 16)`.
    """
    layers = Layers(axes.inference)
    sources = layers.sources()
    channels = {atom for layer in layers for atom in atoms(layer.out) if atom.size > 1}
    found: list[tuple[str, tuple[str, ...]]] = []
    inside = set(_inside_products(layers))
    for operator in layers.inference.graph.operators:
        if not layers.traits(operator).reshapes or operator in inside:
            continue
        source: DataNode = layers.call(operator).inputs[0]
        if layers.is_activation(source):
            changed = _reshaped(layers, source, operator.outputs[0]) & channels
            above = sources[source.index] if changed else ()
            if above is None:  # the residual stream: what has its axes and ran before
                above = tuple(layer for layer in layers if layer.calls[0].index < operator.index)
            names = tuple(layer.name for layer in above if _has_axes(layer, changed))
            if names:
                found.append((operator.outputs[0].name, names))
    return ReshapeDependency(tuple(found))


def _inside_products(layers: Layers) -> Iterator[OperatorNode]:
    """The reshapes that torch itself makes of a `matmul`: what is expanded before the product, and what comes of it."""
    for operator in layers.inference.graph.operators:
        if operator.name == "aten::_unsafe_view" and _producer_among(operator, MATMUL):
            yield operator
        elif operator.name in MATMUL:
            for operand in operator.inputs:
                view = operand.producer
                if view is not None and view.name in VIEW:
                    whole = _producer_among(view, {"aten::clone"}) or view
                    if _producer_among(whole, {"aten::expand"}):
                        yield view


def _producer_among(operator: OperatorNode, names: Collection[str]) -> OperatorNode | None:
    """The operator that made what this one takes, if it is one of these."""
    maker = operator.inputs[0].producer if operator.inputs else None
    return maker if maker is not None and maker.name in names else None


def _reshaped(layers: Layers, source: DataNode, result: DataNode) -> set[Term]:
    """Returns the axes of dimensions that a reshape merges, splits or fixes by a literal size."""
    before, after = (layers.inference.dims(node) for node in (source, result))
    whole = {_structure_key(term) for term in after}
    changed = {atom for term in before if _structure_key(term) not in whole for atom in atoms(term)}
    literal = literal_sizes(result.producer, result.shape) if result.producer is not None else []
    return changed.union(*(atoms(after[at]) for at in literal))


def _structure_key(term: Term) -> object:
    term = find(term)
    return term if term.kind == ATOM else (term.kind, *map(_structure_key, flattened_parts(term)))


def _has_axes(layer: Layer, changed: set[Term]) -> bool:
    return any(part and (part <= changed or part >= changed) for part in summand_axes(layer.out))
