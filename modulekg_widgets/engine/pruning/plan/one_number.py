"""Axes whose sizes are likely one number of a module, before a dry run has shown it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from modulekg_widgets.engine.axes.axis import Axis
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
    found: dict[tuple[str, int], dict[int, None]] = {}
    modules = {}
    for at, axis in enumerate(chosen):
        for node, dim in axis.places:
            if node.is_parameter and dim == 0:
                path, _ = split_name(node.graph, node.label)
                modules[path] = node.graph.modules[path].module
                found.setdefault((path, axis.size), {})[at] = None
    for (path, size), group in found.items():
        numbers = sum(each.size == size for each in attributes_of(path, modules[path])) if len(group) > 1 else 0
        if 0 < numbers < len(group):
            yield list(group)
