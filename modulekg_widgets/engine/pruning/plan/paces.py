"""How fast each axis gives what a target takes where the scope is "local": slower where many weights run along it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.pruning.importance.votes import weights_along
from modulekg_widgets.engine.pruning.plan.attribute_sizes import attributes_of
from modulekg_widgets.engine.pruning.plan.counts import Floats
from modulekg_widgets.engine.tracing.dataflow import split_name

PACE = 0.5


def local_paces(axes: Axes, chosen: Sequence[Axis]) -> Floats:
    """Per axis the power to which it keeps what the common ratio leaves: the root of 2 over its weights, 1 at most.

    One weight makes and one reads an axis inside of a block: it keeps what the ratio leaves. One that many weights run
    along keeps more, as the docstring of `mk.plan` says; of powers of 2 over the weights the root serves best. Axes
    whose size is one number of a module keep one share.
    """
    weights = weights_along(axes)
    paces = np.array([min(1.0, 2 / max(weights[axis.term], 1)) ** PACE for axis in chosen])
    for group in of_one_number(chosen):
        paces[group] = paces[group].mean()
    return paces


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
