"""Sizes that a configuration counts together: as it has one number for several axes, or none for the size of a head."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from itertools import permutations

from torch import nn

from modulekg_widgets.engine.axes.algebra import ATOM, PRODUCT, Term, atoms, find, flat
from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.pruning.cut.edits import is_plain_object
from modulekg_widgets.engine.pruning.plan.attribute_sizes import attributes_of
from modulekg_widgets.engine.pruning.plan.choice import OUTER
from modulekg_widgets.engine.torch_runtime.state import module_state

MOST_DEPTH = 3  # of configurations in configurations


def counted_together(axes: Axes, outer: Sequence[str], with_width: bool = False) -> Iterator[tuple[Term, Term]]:
    """Pairs of axes of which the configuration of a model has one number for both; none without a configuration.

    Two axes of a weight that are as long as one number says, and no other: it can say no other size of the one than of
    the other. And an axis whose role is one of `outer`, as heads, with the one that its weight reads, where both sides
    are as long as a number says and the size of a head is none that modules know by its name: then it is computed.
    `with_width`: where it is known as well, as the number of heads may have to divide the width.
    """
    numbers = _numbers(axes)
    parts = set[int]() if with_width else _sizes_of_parts(axes)
    for node in dict.fromkeys(axes.graph.state.values() if numbers else ()):
        dims = [find(term) for term in axes.inference.dims(node)]
        for one, two in permutations(dims, 2):
            if two.kind == ATOM and two.size in numbers:
                yield from ((head, two) for head in _heads(axes, one, two.size, parts, outer))
                if one.kind == ATOM and one is not two and one.size == two.size and numbers[one.size] == 1:
                    yield one, two


def _heads(axes: Axes, term: Term, size: int, parts: Container[int], outer: Sequence[str]) -> Iterator[Term]:
    """The heads in a dimension of which heads and what lies in one make up `size`, and none of `parts` is of that."""
    for product in _products(term):
        if product.size != size:
            continue
        every = [(atom, axes.of(atom).role) for atom in atoms(product) if atom.size > 1]
        heads = [atom for atom, role in every if role in outer]
        part = size // math.prod(atom.size for atom, role in every if role in OUTER)
        if heads and part > 1 and part not in parts:
            yield heads[0]


def _products(term: Term) -> Iterator[Term]:
    term = find(term)
    if term.kind == PRODUCT:
        yield term
    elif term.kind != ATOM:
        for part in flat(term):
            yield from _products(part)


def _numbers(axes: Axes) -> Counter[int]:
    """The integers in the plain objects that the model itself holds, each as often as it stands there."""
    return Counter(each.size for each in attributes_of("", axes.graph.model) if "." in each.name) + Counter(
        each for _, each in _deeper(axes.graph.model)
    )


def _sizes_of_parts(axes: Axes) -> set[int]:
    """The integers that a configuration and a module of the model hold under one name, as `head_dim`."""
    model = axes.graph.model
    said = {(each.name.rpartition(".")[2], each.size) for each in attributes_of("", model) if "." in each.name}
    said.update(_deeper(model))
    held = {
        (name, value)
        for node in axes.graph.modules.values()
        for name, value in module_state(node.module).items()
        if type(value) is int
    }
    return {size for _, size in said & held}


def _deeper(model: nn.Module) -> Iterator[tuple[str, int]]:
    """The integers in the plain objects that those of a model hold, by name."""
    waiting = [(part, 1) for value in module_state(model).values() if is_plain_object(value) for part in _inside(value)]
    while waiting:
        value, depth = waiting.pop()
        yield from ((name, part) for name, part in vars(value).items() if type(part) is int and part > 1)
        waiting += [(part, depth + 1) for part in _inside(value) if depth < MOST_DEPTH]


def _inside(value: object) -> list[object]:
    return [part for part in vars(value).values() if is_plain_object(part)]
