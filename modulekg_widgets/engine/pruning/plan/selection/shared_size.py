"""Axes that probably share one size attribute of a module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from modulekg_widgets.engine.axes.axis import Axis
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.pruning.plan.selection.selection import Proportion, Proportions
from modulekg_widgets.engine.pruning.plan.selection.size_attributes import attributes_of
from modulekg_widgets.engine.tracing.dataflow import split_name


def with_shared_sizes(proportions: Proportions, chosen: Sequence[Axis]) -> Proportions:
    """The proportions, with axes that share a size attribute tied as well."""
    groups = [tuple(chosen[at].term for at in group) for group in shared_size_groups(chosen)]
    more = [Proportion(terms) for terms in groups if not any(term in proportions.by_term for term in terms)]
    return Proportions((*proportions.groups, *more)) if more else proportions


def shared_size_groups(chosen: Sequence[Axis]) -> Iterator[list[int]]:
    """Groups of axes that one module produces with fewer attributes of their size.

    So do the states of a recurrent layer of several layers or directions, which has one `hidden_size` for all.
    """
    return (group for _, _, group in _shared_sizes(chosen))


def shared_size_names(chosen: Sequence[Axis]) -> dict[Term, tuple[str, tuple[Term, ...]]]:
    """For each such axis the attribute's name, as `hidden_size of rnn`, and its axes."""
    found: dict[Term, tuple[str, tuple[Term, ...]]] = {}
    for path, names, group in _shared_sizes(chosen):
        terms = tuple(chosen[at].term for at in group)
        number = f"{' and '.join(map(printable, names))} of {printable(path) or 'the model'}"
        found.update((term, (number, terms)) for term in terms if term not in found)
    return found


def _shared_sizes(chosen: Sequence[Axis]) -> Iterator[tuple[str, list[str], list[int]]]:
    """The path, the attributes and the axes of each such module."""
    found: dict[tuple[str, int], dict[int, None]] = {}
    modules = {}
    for at, axis in enumerate(chosen):
        for node, dim in axis.tensor_dims:
            if node.is_parameter and dim == 0:
                path, _ = split_name(node.graph, node.label)
                modules[path] = node.graph.modules[path].module
                found.setdefault((path, axis.size), {})[at] = None
    for (path, size), group in found.items():
        own = attributes_of(path, modules[path]) if len(group) > 1 else ()
        names = [each.name for each in own if each.size == size]
        if 0 < len(names) < len(group):
            yield path, names, list(group)
