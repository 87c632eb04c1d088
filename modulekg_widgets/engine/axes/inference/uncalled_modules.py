"""Axes of modules that this pass did not call, as experts without tokens: taken from a called sibling."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from modulekg_widgets.engine.axes.terms.algebra import (
    ATOM,
    PRODUCT,
    Reason,
    Term,
    atoms,
    find,
    flattened_parts,
    product,
    sum_of_terms,
)

if TYPE_CHECKING:
    from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode

NOT_CALLED = Reason("not read by this forward pass, whose branches depend on the data")
Dims = Callable[["DataNode"], list[Term]]


def uncalled_parameters(graph: Dataflow, dims: Dims) -> Iterator[tuple[DataNode, list[Term]]]:
    """The parameters of modules that were not called, with terms like those of a sibling of one class that was.

    Only where data decide the way of forward. An axis that leaves the sibling is the same one; its own ones are frozen,
    for nothing was seen of them.
    """
    if not graph.data_dependent:
        return
    for path, node in graph.modules.items():
        own = _tensors(graph, path)
        if node.calls or not own or any(each.consumers for each in own.values()):
            continue
        sibling = next(
            filter(None, (_matching_tensors(graph, path, other, own) for other in _siblings(graph, path))), None
        )
        if sibling is not None:
            inside = _exclusive_atoms(graph, sibling, dims)
            new: dict[Term, Term] = {}
            yield from ((each, [_copied(term, inside, new) for term in dims(sibling[name])])
                        for name, each in own.items())  # fmt: skip


def disabled_observer_ranges(
    graph: Dataflow, dims: Dims, zero_points: Iterable[DataNode]
) -> Iterator[tuple[DataNode, list[Term]]]:
    """The ranges of observers that are switched off, with the terms of the zero points that were computed from them.

    They lie in the module that has the zero points, or below it, one for each.
    """
    for node in zero_points:
        for name, other in _tensors(graph, node.label.rpartition(".")[0]).items():
            unread = other.is_buffer_like and other.dtype.is_floating_point and not other.consumers
            if unread and other.shape == node.shape and name.count(".") <= 1:
                yield other, dims(node)


def _tensors(graph: Dataflow, path: str) -> dict[str, DataNode]:
    prefix = f"{path}."
    return {name[len(prefix) :]: node for name, node in graph.state.items() if path and name.startswith(prefix)}


def _siblings(graph: Dataflow, path: str) -> list[str]:
    parent = path.rpartition(".")[0]
    kind = type(graph.modules[path].module)
    children = graph.modules[parent].sub_modules.values()
    return [each.path for each in children if each.path != path and type(each.module) is kind]


def _matching_tensors(graph: Dataflow, path: str, other: str, own: dict[str, DataNode]) -> dict[str, DataNode] | None:
    """Returns a called sibling's tensors if names and shapes agree and none is shared; else None."""
    theirs = _tensors(graph, other)
    alike = theirs.keys() == own.keys() and all(theirs[name].shape == node.shape for name, node in own.items())
    apart = not {*theirs.values()} & {*own.values()}
    return theirs if alike and apart and all(node.consumers for node in theirs.values()) else None


def _exclusive_atoms(graph: Dataflow, tensors: dict[str, DataNode], dims: Dims) -> set[Term]:
    """The atoms that occur in these tensors only."""

    def of(nodes: Iterator[DataNode]) -> set[Term]:
        return {atom for node in nodes for term in dims(node) for atom in atoms(term)}

    within = set(tensors.values())
    return of(iter(within)) - of(node for node in graph.state.values() if node not in within and node.consumers)


def _copied(term: Term, inside: set[Term], new: dict[Term, Term]) -> Term:
    term = find(term)
    if term.kind == ATOM:
        return new.setdefault(term, Term(term.size, NOT_CALLED)) if term in inside and term.size > 1 else term
    parts = [_copied(part, inside, new) for part in flattened_parts(term)]
    return product(parts) if term.kind == PRODUCT else sum_of_terms(parts)
