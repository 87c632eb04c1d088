"""Axes in the same role of repeated layers: modules of one class with tensors of equal shapes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

from torch import nn

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.terms.algebra import ATOM, PRODUCT, Term, atoms, find, flattened_parts
from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.pruning.cut.edits import is_plain_object
from modulekg_widgets.engine.pruning.plan.selection.axis_choice import OUTER_ROLES
from modulekg_widgets.engine.pruning.plan.selection.selection import NO_PROPORTIONS, Proportion, Proportions
from modulekg_widgets.engine.pruning.plan.selection.size_attributes import attributes_of
from modulekg_widgets.engine.torch_runtime.modules import module_state

# -------------------- Axes that are tied by a model's configuration, as one number is the size of several axes


MAX_DEPTH = 3  # of configurations in configurations


def config_tied_axes(axes: Axes, outer: Sequence[str]) -> Iterator[tuple[Term, Term]]:
    """Pairs of axes with one number in the model's configuration; none without a configuration.

    Two axes of a weight that are as long as one number says, and no other: it can say no other size of the one than of
    the other. And an axis whose role is one of `outer`, as heads, with the one that its weight reads, where both sides
    are as long as a number says and the size of a head is none that modules know by its name: then it is computed.
    """
    numbers = _config_integers(axes)
    parts = _known_part_sizes(axes)
    for node in dict.fromkeys(axes.graph.state.values() if numbers else ()):
        dims = [find(term) for term in axes.inference.dims(node)]
        for one, two in permutations(dims, 2):
            if two.kind == ATOM and two.size in numbers:
                yield from ((head, two) for head in _tied_heads(axes, one, two.size, parts, outer))
                if one.kind == ATOM and one is not two and one.size == two.size and numbers[one.size] == 1:
                    yield one, two


def _tied_heads(axes: Axes, term: Term, size: int, parts: Container[int], outer: Sequence[str]) -> Iterator[Term]:
    """The head axes in a dimension of `size`, if the head size is none of `parts`."""
    for product in _products(term):
        if product.size != size:
            continue
        every = [(atom, axes.of(atom).role) for atom in atoms(product) if atom.size > 1]
        heads = [atom for atom, role in every if role in outer]
        part = size // math.prod(atom.size for atom, role in every if role in OUTER_ROLES)
        if heads and part > 1 and part not in parts:
            yield heads[0]


def _products(term: Term) -> Iterator[Term]:
    term = find(term)
    if term.kind == PRODUCT:
        yield term
    elif term.kind != ATOM:
        for part in flattened_parts(term):
            yield from _products(part)


def _config_integers(axes: Axes) -> Counter[int]:
    """The integers in plain objects of the model, with their counts."""
    return Counter(each.size for each in attributes_of("", axes.graph.model) if "." in each.name) + Counter(
        each for _, each in _nested_integers(axes.graph.model)
    )


def _known_part_sizes(axes: Axes) -> set[int]:
    """The integers with the same name in a configuration and in a module, as `head_dim`."""
    model = axes.graph.model
    said = {(each.name.rpartition(".")[2], each.size) for each in attributes_of("", model) if "." in each.name}
    said.update(_nested_integers(model))
    held = {
        (name, value)
        for node in axes.graph.modules.values()
        for name, value in module_state(node.module).items()
        if type(value) is int
    }
    return {size for _, size in said & held}


def _nested_integers(model: nn.Module) -> Iterator[tuple[str, int]]:
    """The integers in nested plain objects of a model, by name."""
    waiting = [
        (part, 1) for value in module_state(model).values() if is_plain_object(value) for part in _nested_objects(value)
    ]
    while waiting:
        value, depth = waiting.pop()
        yield from ((name, part) for name, part in vars(value).items() if type(part) is int and part > 1)
        waiting += [(part, depth + 1) for part in _nested_objects(value) if depth < MAX_DEPTH]


def _nested_objects(value: object) -> list[object]:
    return [part for part in vars(value).values() if is_plain_object(part)]


# ----------------------------------------


Shapes = dict[str, tuple[int, ...]]  # of the tensors below a module, by their names there
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def repeated_axes(axes: Axes) -> list[tuple[Term, ...]]:
    """Groups of axes at the same place of repeated modules.

    Layers repeat one another where they have one class and, as far as both have a tensor, one shape of it: a first
    layer may hold a table more. Of modules without any below them, as linear ones, only neighbours in a list count.
    """
    found = _UnionFind()
    order = {axis.term: axis.number for axis in axes}  # terms of unread buffers alone are no axes
    for paths, is_leaf in _repeated_modules(axes):
        for other in paths[1:]:
            for one, two in _pairs(axes, paths[0], other):
                known = one in order and two in order
                if known and (not is_leaf or (one.frozen is None and two.frozen is None)):
                    found.union(one, two)
    return [tuple(sorted(group, key=order.__getitem__)) for group in found.groups() if len(group) > 1]


@dataclass(frozen=True)
class UniformLayers:
    """The tied axes of uniform layers, and the axes that stay whole, with reasons."""

    proportions: Proportions = NO_PROPORTIONS
    pinned: Mapping[Term, str] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """The reasons, each once."""
        return list(dict.fromkeys(self.pinned.values()))


@dataclass(frozen=True)
class ConfigConstraints:
    """The constraints of a model's configuration: axes that stay whole, that are tied, and multiples of counts."""

    pinned: Mapping[Term, str] = field(default_factory=dict)
    ties: tuple[tuple[Term, ...], ...] = ()
    multiples: Mapping[Term, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def uniform_layers(
    axes: Axes,
    prunable: set[Term],
    outer_roles: Sequence[str] = (),
    config_constraints: ConfigConstraints | None = None,
) -> UniformLayers:
    """The tied axes of repeated layers; an axis that may not change keeps its group whole.

    With them go those that a configuration counts together. Where that is not known, axes are tied that are as long as
    one number, of products those whose role is one of `outer_roles`.
    """
    found: list[Proportion] = []
    whole: dict[Term, str] = {}
    if config_constraints is None:
        pairs = [pair for pair in config_tied_axes(axes, outer_roles) if not prunable.isdisjoint(pair)]
    else:
        pairs = [(group[0], other) for group in config_constraints.ties for other in group[1:]]
    for terms in _joined_groups(repeated_axes(axes), pairs):
        stay = [term for term in terms if term not in prunable]
        if not stay:
            found.append(Proportion(terms))
        elif len(stay) < len(terms):
            whole.update(
                dict.fromkeys(terms, _pinned_reason(axes, next(term for term in terms if term in prunable), stay[0]))
            )
    return UniformLayers(Proportions(tuple(found)), whole)


def _joined_groups(groups: Sequence[tuple[Term, ...]], pairs: Sequence[tuple[Term, Term]]) -> list[tuple[Term, ...]]:
    """The groups joined by further pairs, if their sizes are multiples of one another."""
    joined = _UnionFind()
    for one, *others in (*groups, *pairs):
        for other in others:
            joined.union(one, other)
    found: list[tuple[Term, ...]] = []
    for group in joined.groups():
        least = min(term.size for term in group)
        fits = all(term.size % least == 0 for term in group)
        found += [tuple(group)] if fits else [own for own in groups if own[0] in group]
    return found


def _pinned_reason(axes: Axes, one: Term, fixed: Term) -> str:
    why = axes.of(fixed).frozen or "only=… and keep=… protect it"
    return (
        f"layers='uniform': {printable(axes.of(one).name)} and its like are not cut, as "
        f"{printable(axes.of(fixed).name)} is not: "
        f"{printable(why, 300)}"
    )


def _repeated_modules(axes: Axes) -> Iterator[tuple[list[str], bool]]:
    """The paths of repeated modules, and True if they are single layers."""
    kinds: dict[tuple[object, ...], list[tuple[Shapes, list[str]]]] = {}
    shapes = _shapes_below(axes)
    for path, node in axes.graph.modules.items():
        own = shapes.get(path)
        if not path or not own:
            continue
        is_leaf = all("." not in name for name in own)
        parent, _, name = path.rpartition(".")
        if (is_leaf or isinstance(node.module, CONTAINERS)) and not name.isdecimal():
            continue
        place = (parent,) if is_leaf or isinstance(node.module, CONTAINERS) else ()
        groups = kinds.setdefault((type(node.module), is_leaf, *place), [])
        group = next((group for group in groups if _shapes_agree(group[0], own)), None)
        if group is None:
            groups.append((own, [path]))
        else:
            group[1].append(path)
    for (_, is_leaf, *_), groups in kinds.items():
        for _, paths in groups:
            if len(paths) > 1:
                yield paths, bool(is_leaf)


def _shapes_below(axes: Axes) -> dict[str, Shapes]:
    """The shapes of all tensors in and below each module."""
    found: dict[str, Shapes] = {}
    for name, node in axes.graph.state.items():
        parts = name.split(".")
        for depth in range(len(parts)):
            found.setdefault(".".join(parts[:depth]), {})[".".join(parts[depth:])] = tuple(node.shape)
    return found


def _shapes_agree(one: Shapes, two: Shapes) -> bool:
    """True if two modules have equal shapes where both have a tensor."""
    fewer, more = sorted((one, two), key=len)
    return all(more.get(name) == shape for name, shape in fewer.items())


def _pairs(axes: Axes, one: str, two: str) -> Iterator[tuple[Term, Term]]:
    """The axes at the same places of two modules."""
    state = axes.graph.state
    for name, node in state.items():
        if not name.startswith(f"{one}."):
            continue
        other = state.get(two + name[len(one) :])
        if other is None or other is node:
            continue
        for left, right in zip(axes.inference.dims(node), axes.inference.dims(other), strict=True):
            yield from _matched_axes(_varying_atoms(left), _varying_atoms(right))


def _varying_atoms(term: Term) -> list[Term]:
    return [atom for atom in atoms(term) if atom.size > 1]


def _matched_axes(one: Sequence[Term], two: Sequence[Term]) -> Iterator[tuple[Term, Term]]:
    """Pairs of axes of two dimensions, if they consist of equal sizes."""
    if [atom.size for atom in one] == [atom.size for atom in two]:
        yield from ((left, right) for left, right in zip(one, two, strict=True) if left is not right)


class _UnionFind:
    """A union-find over axes."""

    def __init__(self) -> None:
        self._group: dict[Term, list[Term]] = {}

    def union(self, one: Term, two: Term) -> None:
        left, right = (self._group.setdefault(each, [each]) for each in (one, two))
        if left is not right:
            left += right
            self._group.update(dict.fromkeys(right, left))

    def groups(self) -> list[list[Term]]:
        return list({id(group): group for group in self._group.values()}.values())
