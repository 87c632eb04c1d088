"""What code leaves of a dimension of which it takes as much as an input is long, as of a table of positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from modulekg_widgets.engine.axes.algebra import SUM, Term, atoms, find
from modulekg_widgets.engine.tracing.dataflow import INPUT

if TYPE_CHECKING:
    from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode

UNREAD_REST = "a longer input reads it: of this dimension the code takes as much as an input is long"
Dims = Callable[["DataNode"], list[Term]]


def unread_rests(graph: Dataflow, dims: Dims) -> Iterator[Term]:
    """The atoms beside those of inputs in a dimension of a parameter or table, where nothing reads them alone."""
    given = {atom for node in graph.values if node.kind == INPUT for term in dims(node) for atom in atoms(term)}
    held = [term for node in dict.fromkeys(graph.state.values()) for term in dims(node)]
    tables = (set(atoms(term)) for term in held if find(term).kind == SUM)
    rests = {atom for found in tables if not given.isdisjoint(found) for atom in found} - given
    if rests:
        results = [term for operator in graph.operators for node in operator.outputs for term in dims(node)]
        every = (set(atoms(term)) for term in (*held, *results))
        yield from rests.difference(*(found for found in every if given.isdisjoint(found)))
