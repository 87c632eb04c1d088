"""Group dependency: the divisors of channel counts that grouped convolutions, GroupNorm and fixed factors require."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import gcd, lcm, prod

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.dependencies.views import GroupDependency
from modulekg_widgets.engine.axes.inference.layers import CONVOLUTION, Layer, Layers
from modulekg_widgets.engine.axes.terms.algebra import ATOM, SUM, Term, atoms, find, flattened_parts
from modulekg_widgets.engine.operators.traits import GROUPS, size_argument


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
