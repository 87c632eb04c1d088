"""Axes whose sizes are likely one number of a module, before a dry run has shown it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from modulekg_widgets.engine.axes.algebra import Term
from modulekg_widgets.engine.axes.axis import Axis
from modulekg_widgets.engine.errors import shown
from modulekg_widgets.engine.pruning.plan.attribute_sizes import attributes_of
from modulekg_widgets.engine.pruning.plan.proportions import Proportion, Proportions
from modulekg_widgets.engine.tracing.dataflow import split_name


def with_one_number(proportions: Proportions, chosen: Sequence[Axis]) -> Proportions:
    """The same, and of the axes that are in none of them those that seem to have one size."""
    groups = [tuple(chosen[at].term for at in group) for group in of_one_number(chosen)]
    more = [Proportion(terms) for terms in groups if not any(term in proportions.by_term for term in terms)]
    return Proportions((*proportions.groups, *more)) if more else proportions


def of_one_number(chosen: Sequence[Axis]) -> Iterator[list[int]]:
    """The places of axes that the parameters of one module put out, where it has fewer attributes of their size.

    So do the states of a recurrent layer of several layers or directions, which has one `hidden_size` for all.
    """
    return (group for _, _, group in _shared_numbers(chosen))


def one_number_names(chosen: Sequence[Axis]) -> dict[Term, tuple[str, tuple[Term, ...]]]:
    """For each of such axes the number by name, as `hidden_size of rnn`, and all axes that it is for."""
    found: dict[Term, tuple[str, tuple[Term, ...]]] = {}
    for path, names, group in _shared_numbers(chosen):
        terms = tuple(chosen[at].term for at in group)
        number = f"{' and '.join(map(shown, names))} of {shown(path) or 'the model'}"
        found.update((term, (number, terms)) for term in terms if term not in found)
    return found


def _shared_numbers(chosen: Sequence[Axis]) -> Iterator[tuple[str, list[str], list[int]]]:
    """The path of each such module, its attributes of the size, and the places of the axes."""
    found: dict[tuple[str, int], dict[int, None]] = {}
    modules = {}
    for at, axis in enumerate(chosen):
        for node, dim in axis.places:
            if node.is_parameter and dim == 0:
                path, _ = split_name(node.graph, node.label)
                modules[path] = node.graph.modules[path].module
                found.setdefault((path, axis.size), {})[at] = None
    for (path, size), group in found.items():
        own = attributes_of(path, modules[path]) if len(group) > 1 else ()
        names = [each.name for each in own if each.size == size]
        if 0 < len(names) < len(group):
            yield path, names, list(group)
