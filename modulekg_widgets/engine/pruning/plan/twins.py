"""Corresponding dimensions in several modules of one class: of a tensor that they hold, or of an input."""

from __future__ import annotations

from modulekg_widgets.engine.axes.algebra import Term, flat
from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.expression import parts_of

Place = tuple[str | int, int, int]  # the tensor's name or its number among the inputs, the dimension, the part of that


def place_of(axes: Axes, term: Term, path: str) -> Place | None:
    """A tensor that a module holds or an input, a dimension of it, and which part of that the term is."""
    prefix = f"{path}." if path else ""
    below = ((name[len(prefix) :], node) for name, node in axes.graph.state.items() if name.startswith(prefix))
    for name, node in (*below, *enumerate(axes.graph.modules[path].inputs)):
        for at, whole in enumerate(axes.inference.dims(node)):
            for number, part in enumerate(parts_of(whole)):
                if _key(part) == _key(term):
                    return name, at, number
    return None


def term_at(axes: Axes, path: str, place: Place) -> Term | None:
    """The term at the same place of another module."""
    name, dim, number = place
    if isinstance(name, int):
        inputs = axes.graph.modules[path].inputs
        node = inputs[name] if name < len(inputs) else None
    else:
        node = axes.graph.state.get(f"{path}.{name}" if path else name)
    if node is None or dim >= node.dim():
        return None
    parts = parts_of(axes.inference.dims(node)[dim])
    return parts[number] if number < len(parts) else None


def _key(term: Term) -> tuple[int, ...]:
    """What identifies a term: runs of factors are made anew each time."""
    return tuple(id(part) for part in flat(term))
