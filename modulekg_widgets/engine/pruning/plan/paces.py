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
    for group in _of_one_number(chosen):
        paces[group] = paces[group].mean()
    return paces


def _of_one_number(chosen: Sequence[Axis]) -> Iterator[list[int]]:
    """The places of axes that run along the parameters of one module and outnumber its attributes of their size.

    So do the states of a recurrent layer of several layers or directions, which has one `hidden_size` for all.
    """
    found: dict[tuple[str, int], list[int]] = {}
    modules = {}
    for at, axis in enumerate(chosen):
        for node, _ in axis.places:
            if node.is_parameter:
                path, _ = split_name(node.graph, node.label)
                modules[path] = node.graph.modules[path].module
                own = found.setdefault((path, axis.size), [])
                if at not in own:
                    own.append(at)
    for (path, size), group in found.items():
        if len(group) > 1 and len(group) > sum(each.size == size for each in attributes_of(path, modules[path])):
            yield group
