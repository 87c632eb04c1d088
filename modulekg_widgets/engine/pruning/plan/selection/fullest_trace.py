"""Choice of the trace (train or eval) that reads the most parameters, so that auxiliary heads are pruned too."""

from __future__ import annotations

import logging
from typing import NamedTuple

from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.errors import ModuleKGError
from modulekg_widgets.engine.residuals.module_removal import NOTHING_REMOVED
from modulekg_widgets.engine.residuals.removal_trial import retrace
from modulekg_widgets.engine.torch_runtime.rng import is_random
from modulekg_widgets.engine.tracing.dataflow import OutputSelection, output_names
from modulekg_widgets.engine.tracing.trace import REAL

MAX_SEEDS = 8  # a model that leaves layers out at random shows all of them sooner or later
log = logging.getLogger("modulekg_widgets")


def fullest_trace(graph: DataflowGraph) -> DataflowGraph:
    """The graph, or a trace of the same call in train mode if that reads more parameters.

    A pass that goes a random way is traced once more from a seed, so that a dry run can go the same way.
    """
    fewest = _count_unread(graph)
    unseeded = graph.traced_on == REAL and graph.seed is None and _draws_random_numbers(graph)
    if not unseeded and (fewest == NOTHING_UNREAD or graph.training):
        return graph
    training = graph.training if fewest == NOTHING_UNREAD else True
    fewest = fewest._replace(parameters=fewest.parameters + unseeded)  # one that leaves out as many will do
    found = graph
    for seed in range(MAX_SEEDS):
        try:
            wider = retrace(graph, graph.removal or NOTHING_REMOVED, training, seed)
        except ModuleKGError as error:
            # a detector wants targets, batch normalisation more than one value: then the traced pass is all there is
            log.debug("no pass from seed %d: %s", seed, error)
            return graph
        wider.wanted, wider.notes = _counted_outputs(wider, graph), graph.notes
        left_out = _count_unread(wider)
        if left_out < fewest:
            found, fewest = wider, left_out
        if not left_out.parameters or not _draws_random_numbers(wider):
            break
    return found


def _counted_outputs(wider: DataflowGraph, graph: DataflowGraph) -> OutputSelection | None:
    """The outputs that count in another mode."""
    if not graph.wanted:
        return graph.wanted  # the usual ones, or none
    return [name for name in output_names(wider.result) if name not in graph.cuttable_outputs]


def _draws_random_numbers(graph: DataflowGraph) -> bool:
    """True if forward draws random numbers, and so may skip layers."""
    return any(is_random(operator.overload) for operator in graph.operators)


class _UnreadCounts(NamedTuple):
    """The number of parameters and of floating-point buffers that a trace does not read."""

    parameters: int
    buffers: int


NOTHING_UNREAD = _UnreadCounts(0, 0)


def _count_unread(graph: DataflowGraph) -> _UnreadCounts:
    buffers = (node for node in graph.unread if node.is_buffer and node.dtype.is_floating_point)
    return _UnreadCounts(
        sum(node.is_parameter for node in graph.unread), sum(max(node.shape, default=1) > 1 for node in buffers)
    )
