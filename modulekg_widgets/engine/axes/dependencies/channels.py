"""Channel and group dependency: layers that must be pruned alike, and the divisors that channel counts must keep."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import product as combinations
from math import gcd, lcm, prod

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.dependencies.views import (
    ChannelDependency,
    GroupDependency,
    InputChannelDependency,
    ReshapeDependency,
)
from modulekg_widgets.engine.axes.inference.layers import CONVOLUTION, Layer, Layers
from modulekg_widgets.engine.axes.terms.algebra import ATOM, SUM, Term, atoms, find, flattened_parts
from modulekg_widgets.engine.axes.terms.literal_sizes import literal_sizes
from modulekg_widgets.engine.errors import UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.operators.traits import CHANNELS, GROUPS, MATMUL, VIEW, size_argument
from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode


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


# -------------------- Group dependency: divisors that grouped convolutions, GroupNorm and fixed factors require


@dataclass(frozen=True, slots=True)
class _Groups:
    """The divisibility that an operator requires of a channel dimension, and the axes that must keep their sizes."""

    number: int
    channels: Term
    fixed_axes: frozenset[Term]


def group_dependency(axes: Axes) -> GroupDependency:
    """Computes the divisors that grouped convolutions, GroupNorm and fixed factors require of channel counts.

    The groups are taken to stay as many as they are, but for depthwise convolutions, whose groups go with the channels.
    All convolutions and GroupNorms are listed, and of the other layers those that something is asked of.
    """
    layers = Layers(axes.inference)
    norms = list(_group_norms(layers))
    every = [groups for layer in layers for groups in _of_convolution(layer)] + [groups for *_, groups in norms]
    asked = [groups for groups in every if groups.number > 1]
    entries = [(layer.calls[0].index, layer.name, layer.out, _conv_groups(layer)) for layer in layers]
    entries += [(at, name, groups.channels, [groups.number]) for at, name, groups in norms]
    normed = {name for _, name, _ in norms}
    divisors: dict[str, int] = {}
    least: dict[str, int] = {}
    for _, name, term, own in sorted(entries, key=lambda entry: entry[0]):
        divisor, numbers = _divisor_of(term, asked, own)
        if numbers:
            divisors[name] = divisor
            fits = all(number % min(numbers) == 0 for number in numbers)
            # a convolution in front of a norm asks nothing of it
            least[name] = min(own if name in normed else numbers) if fits else 1
    return GroupDependency(divisors, least)


def _conv_groups(layer: Layer) -> list[int]:
    return [] if layer.kind != CONVOLUTION else [1 if layer.depthwise else layer.groups]


def _of_convolution(layer: Layer) -> list[_Groups]:
    if layer.kind != CONVOLUTION or layer.groups == 1:
        return []
    if layer.depthwise:
        inner = frozenset(atoms(layer.out)) - frozenset(atoms(layer.into))
        return [_Groups(layer.out.size // layer.into.size, layer.out, inner)]
    return [_Groups(layer.groups, term, _outer(term, layer.groups)) for term in (layer.into, layer.out)]


def _group_norms(layers: Layers) -> Iterator[tuple[int, str, _Groups]]:
    seen: set[str] = set()
    for operator in layers.inference.graph.operators:
        name = layers.owner(operator) if layers.traits(operator).normalizes == GROUPS else None
        if name is not None and name not in seen:
            seen.add(name)
            call = layers.call(operator)
            groups = call[size_argument(call, GROUPS)]
            channels = layers.inference.dims(call.inputs[0])[1]
            # with a group for every channel the groups go with the channels
            number = 1 if groups == channels.size else groups
            yield operator.index, name, _Groups(number, channels, _outer(channels, number))


def _outer(term: Term, groups: int) -> frozenset[Term]:
    """The axes of the outermost factor of the size `groups`; none where the groups cut through an axis."""
    term = find(term)
    if groups == 1 or term.kind == ATOM:
        return frozenset([term] if term.size == groups > 1 else [])
    if term.kind == SUM:
        shares = [divmod(groups * part.size, term.size) for part in flattened_parts(term)]
        inside = [
            _outer(part, share) for part, (share, rest) in zip(flattened_parts(term), shares, strict=True) if not rest
        ]
        return frozenset[Term]().union(*inside) if len(inside) == len(shares) else frozenset()
    found: list[Term] = []
    for part in flattened_parts(term):
        if prod(atom.size for atom in found) == groups:
            break
        found.append(part)
    complete = prod(part.size for part in found) == groups
    return frozenset(atom for part in found for atom in atoms(part)) if complete else frozenset()


def _divisor_of(term: Term, asked: list[_Groups], own: list[int]) -> tuple[int, list[int]]:
    """The number that divides a dimension whatever is pruned, and the numbers that it comes from."""
    inside = set(atoms(term))
    own_kept = _outer(term, max(own, default=1))
    numbers, kept = list(own), set[Term]()
    for groups in asked:
        same = find(term) is find(groups.channels)
        if not same and groups.fixed_axes & inside < own_kept:
            continue  # the groups of another one that are a part of its own
        number = groups.number if same else _divisor(term, groups.fixed_axes)
        if number > 1:
            numbers.append(number)
            kept |= groups.fixed_axes & inside
    fixed = {atom for atom in inside if atom.frozen is not None}
    number = _divisor(term, fixed)
    if inside - fixed - kept and number > 1:
        numbers.append(number)
        kept |= fixed
    return lcm(_divisor(term, kept), *numbers), numbers


def _divisor(term: Term, kept: Iterable[Term]) -> int:
    """Returns a divisor of the size of `term` that holds as long as the axes `kept` keep their sizes."""
    term, kept = find(term), set(kept)
    if all(atom in kept for atom in atoms(term)):
        return term.size
    if term.kind == ATOM:
        return 1
    inside = [_divisor(part, kept) for part in flattened_parts(term)]
    return gcd(*inside) if term.kind == SUM else prod(inside)
