"""Locations of dimensions in modules of one class, by the name of a tensor or the number of an input."""

from __future__ import annotations

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.terms.algebra import Term, flattened_parts
from modulekg_widgets.engine.axes.terms.term_positions import subterms

DimLocation = tuple[
    str | int, int, int
]  # the tensor's name or its number among the inputs, the dimension, the part of that


def locate_dim(axes: Axes, term: Term, path: str) -> DimLocation | None:
    """The location of a term in a module: tensor or input, dimension, and part of it."""
    prefix = f"{path}." if path else ""
    below = ((name[len(prefix) :], node) for name, node in axes.graph.state.items() if name.startswith(prefix))
    for name, node in (*below, *enumerate(axes.graph.modules[path].inputs)):
        for at, whole in enumerate(axes.inference.dims(node)):
            for number, part in enumerate(subterms(whole)):
                if _term_key(part) == _term_key(term):
                    return name, at, number
    return None


def dim_at(axes: Axes, path: str, location: DimLocation) -> Term | None:
    """The term at a location of another module."""
    name, dim, number = location
    if isinstance(name, int):
        inputs = axes.graph.modules[path].inputs
        node = inputs[name] if name < len(inputs) else None
    else:
        node = axes.graph.state.get(f"{path}.{name}" if path else name)
    if node is None or dim >= node.dim():
        return None
    parts = subterms(axes.inference.dims(node)[dim])
    return parts[number] if number < len(parts) else None


def _term_key(term: Term) -> tuple[int, ...]:
    """The identity of a term, whose runs of factors are made anew each time."""
    return tuple(id(part) for part in flattened_parts(term))
